/* What the files of the seat share. Private to this folder. Control loop. */
#ifndef TUTTI_SERVER_AGENT_MEMBER_MEMBER_PRIVATE_H
#define TUTTI_SERVER_AGENT_MEMBER_MEMBER_PRIVATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/agent/agent.h"

/*
 * IDLE -> JOIN -> SESSION -> IDLE (it broke; a retry timer runs) -> JOIN or SESSION. Any -> LEFT,
 * for good. flow is NULL in IDLE.
 *
 */
enum member_state {
    MEMBER_IDLE,
    MEMBER_JOIN,    /* the Join stream is open */
    MEMBER_SESSION, /* the Session stream is open */
    MEMBER_LEFT,
};

struct agent_member {
    tutti_agent *agent;
    enum member_state state;
    tutti_rpc_flow *flow;
    tutti_timer retry;
    tutti_timer beat;
    uint64_t heartbeat_ns;
    uint64_t beats;
    uint64_t wanted;       /* the newest question about progress; 0 = none is open */
    uint64_t wait_ns;      /* before the next attempt */
    uint64_t said_ns;      /* when we last said that we wait */
    uint32_t said_count;   /* how often, of this wait */
    uint64_t began_ns;     /* joining */
    tutti_timer limit;     /* --join-timeout */
    char waits[480];       /* what we wait for */
    tutti_timer partition; /* partition.c */
    uint64_t partition_timeout_ns;
    uint64_t partition_ns; /* of the coordinator, so far; while this process ran */
    atomic_uint_fast64_t ticked_ns;
    /* Any thread, as ticked_ns: a process that did not run for so long may have been given up, 0 = nobody
     * minds; how long it was the last time, and when that ended. */
    atomic_uint_fast64_t patience_ns;
    atomic_uint_fast64_t still_ns;
    atomic_uint_fast64_t woke_ns;
    bool away;           /* nobody is where the coordinator was: it is started again, we go on */
    bool isolated;       /* ops are refused for the silence */
    uint64_t session_ns; /* when the session was begun, or asked for */
    bool moving;   /* the session was cancelled for its silence: another coordinator is tried */
    bool accepted; /* the session stands */
    bool broke;    /* one stood before */
    void (*on_left)(tutti_agent *agent);
};

/*
 * partition.c. Of two sides of a network that is cut, the one with the coordinator keeps the
 * job, and gives up the ranks of the other one after the heartbeat timeout. So a rank that has
 * heard nothing for as long lets no op begin or go on, until it hears something, or that nobody is
 * where the coordinator was: it is being started again.
 */
void agent_partition_watch(struct agent_member *self, uint64_t timeout_ns);    /* 0 = never mind */
void agent_partition_end(struct agent_member *self);                           /* it spoke */
void agent_partition_check(struct agent_member *self, const tutti_error *err); /* a session ended */

#endif
