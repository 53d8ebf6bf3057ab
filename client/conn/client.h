/* Private to client: what a client is made of, and which file does what. */
#ifndef TUTTI_CLIENT_CONN_CLIENT_H
#define TUTTI_CLIENT_CONN_CLIENT_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/data/list.h"
#include "client/conn/conn_pool.h"
#include "client/conn/options.h"
#include "client/conn/stall_timer.h"
#include "rpc/channel.h"
#include "tutti/client.h"

#define CLIENT_TIMEOUT_MS 30000
#define CLIENT_OP_GRACE_MS 2000       /* the server's own deadline, with its words, comes first */
#define CLIENT_COPY_BYTES_MAX 65536   /* smaller payloads are copied, larger ones lent to gRPC */
#define CLIENT_CHUNK_BYTES (2u << 20) /* of a transfer, when nothing is said */
#define CLIENT_CHUNK_BYTES_MIN 4096u  /* what the agent takes */

/* ------------------------------------------------------------------ client.c */

void client_pause_ns(uint64_t ns);

/* ------------------------------------------------------------------ the client */

/* What DescribeAgent says, in memory of its own. */
typedef struct client_description {
    char job[TUTTI_NAME_MAX + 1];
    char coordinator[256];
    char host[256];
    char device[64];
    char version[64];
    bool joined;
    bool elastic; /* "world" has the ranks that are there, not all of the job */
    bool several; /* coordinators, of which one leads, are behind `coordinator` */
    uint32_t rank;
    uint32_t world_size;
    uint64_t incarnation;
    uint64_t epoch;
    uint32_t pid;
    uint32_t commands_max;         /* of one stream; 0 = it does not say */
    uint32_t queue_commands_max;   /* of a completion queue's stream; 0 = it knows of none */
    uint32_t transfer_streams_max; /* for one tensor; 0 = it does not say */
    char picked[256]; /* of its addresses the one to take from here; "" = it says none */
} client_description;

/* What the client has of a room above this one, which embeds it: how it ends. */
typedef struct client_ending {
    void (*close)(tutti_client *client, struct client_ending *self);
    void (*forget)(struct client_ending *self); /* in a child of fork: nobody is asked */
} client_ending;

/* Whose streams carry calls: command_stream.h. */
typedef enum client_stream_kind {
    CLIENT_STREAMS_COMMANDS, /* the agent's */
    CLIENT_STREAMS_STORE,    /* the coordinator's */
    CLIENT_STREAM_KINDS,
} client_stream_kind;

/* The command streams to one server; command_stream.c. */
typedef struct client_streams {
    tutti_list_node idle;               /* behind the client's lock, as is ... */
    unsigned count;                     /* ... how many there are, idle and in use */
    atomic_uint calls;                  /* that a stream could have carried, up to CALLS_BEFORE */
    atomic_uint_fast64_t lane_again_ns; /* until then streams go by gRPC: the server made no lane */
    atomic_bool goes_by_itself;         /* the server refused a stream: all calls are unary */
} client_streams;

/*
 * Any thread. After tutti_connect has returned nothing of it changes but: `conns`, `streams` and
 * their counts (behind `lock`; atomics), `watch` (its own lock), and `device` (tutti_set_device; not
 * beside other calls), and `lease` (an atomic).
 */
struct tutti_client {
    client_settings settings;
    pid_t owner; /* the process that opened it */
    client_description agent;
    tutti_agent_info info; /* points into `agent` and `settings` */
    pthread_mutex_t lock;  /* guards `conns`, their counts, and what says so */
    client_conn *conns[CLIENT_CONN_KINDS];
    client_streams streams[CLIENT_STREAM_KINDS];
    client_stall_timer watch;
    char device[32];            /* of tensors that are made; "" = the agent's choice */
    atomic_uint_fast64_t lease; /* under which calls make tensors; 0 = none */
    /* [owned] NULL = not used yet; set once, behind the lock. tutti_close ends it. */
    _Atomic(client_ending *) arena;
    atomic_uint_fast64_t copied_bytes; /* of the caller's arrays; tutti_arena_stat */
};

/* The job that coordinator calls are about. */
const char *client_job(const tutti_client *client);

/*
 * Who this client is to the coordinator.
 * TUTTI_FAILED_PRECONDITION  NO_AGENT: it speaks for nobody
 */
tutti_code client_check_member(const tutti_client *client, tutti_error *err);

/* TUTTI_INVALID_ARGUMENT  NULL or "", where a handle is needed */
tutti_code client_check_handle(const char *handle, tutti_error *err);

#endif
