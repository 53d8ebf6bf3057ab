/*
 * A fleet: agents of one job, as the coordinator sees them: a connection, Join, a session with
 * heartbeats. They have no tensors and talk to nobody else. One thread: fleet_run does all.
 */
#ifndef TUTTI_BENCH_SCALE_FLEET_H
#define TUTTI_BENCH_SCALE_FLEET_H

#include "h2.h"

typedef enum agent_state {
    AGENT_CONNECTING,
    AGENT_JOINING,
    AGENT_OPENING, /* its session */
    AGENT_ALIVE,
    AGENT_DEAD,
} agent_state;

typedef struct fleet fleet;

/* A connection, of one agent or of some. */
typedef struct wire {
    fleet *owner;
    h2_conn *conn; /* NULL = it has none */
    bool open;
    uint32_t first; /* number of its first agent */
} wire;

typedef struct agent {
    fleet *owner;
    wire *wire;
    agent_state state;
    uint32_t number;
    uint32_t rank;
    uint64_t incarnation;
    uint32_t join;    /* streams */
    uint32_t session; /* likewise */
    uint32_t call;    /* likewise: CreateGroup */
    uint64_t beat_ns; /* when it beats next */
    uint64_t beats;
    uint32_t losses; /* changes since fleet_forget_told */
    uint32_t returns;
} agent;

struct fleet {
    h2_net net;
    agent *agents;
    wire *wires;
    uint32_t count;
    uint32_t share; /* agents of a connection */
    bool *killed;   /* by rank: on purpose */
    uint64_t interval_ns;
    uint64_t sweep_ns; /* the last look at heartbeats */
    /* What has happened. */
    uint32_t joined;
    uint32_t alive;
    uint32_t groups;       /* answers to CreateGroup */
    uint32_t false_losses; /* ranks that were told lost, or were cut off, and were not killed */
    uint32_t retries;      /* of connections that broke before their agent had joined */
    uint64_t beats;
    uint64_t messages; /* with changes */
    uint64_t changes;
    uint64_t joined_ns;     /* when the last of them joined */
    uint64_t first_told_ns; /* of a change, since fleet_forget_told */
    uint64_t last_told_ns;
    uint32_t told; /* agents that were told `expected` changes */
    uint32_t expected;
    uint64_t late_ns;   /* the longest time in which no heartbeat could be sent */
    uint64_t latest_ns; /* likewise, since the beginning */
    char trouble[256];
};

#define FLEET_SHARE_MAX 2 /* H2_STREAMS_MAX has room for so many */

/* [in] share  agents of a connection: 1, as real ones, or more where files are limited */
void fleet_init(fleet *self, const char *address, uint32_t count, uint32_t share);

/* Begin to connect and to join: all at once. */
void fleet_start(fleet *self);

/* A process is killed: its connection is gone; where it shares one, its calls are cancelled. */
void fleet_kill(fleet *self, uint32_t number);

/* Another process takes its place. */
void fleet_revive(fleet *self, uint32_t number);

/* Count anew whom has been told `expected` losses and returns. */
void fleet_forget_told(fleet *self, uint32_t expected);

/* The agent asks for a group of all ranks. */
void fleet_group(fleet *self, uint32_t number, const char *name);

/* Until `done` or the time is up: false. [in] done  NULL = the time alone */
bool fleet_run(fleet *self, uint64_t until_ns, bool (*done)(const fleet *self));

#endif
