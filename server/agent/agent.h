/*
 * Agent: runs beside the memory of one rank. It owns tensors, runs the ops that clients ask for,
 * and keeps its seat at the coordinator.
 *
 * Threads. The control loop owns all state here: groups, ops before and after the engine, works,
 * the session with the coordinator. The bulk loop moves tensor bytes of uploads and downloads. The
 * engine (lib/coll) runs collectives and answers their calls from the thread that runs it. What
 * several threads use has a lock of its own (see README.md); everything else is posted.
 */
#ifndef TUTTI_SERVER_AGENT_AGENT_H
#define TUTTI_SERVER_AGENT_AGENT_H

#include <stdatomic.h>

#include "base/config/config.h"
#include "base/data/map.h"
#include "base/error/text.h"
#include "base/os/meter.h"
#include "coll/coll.h"
#include "rpc/channel.h"
#include "rpc/loop.h"
#include "rpc/server.h"
#include "tensor/tensor.h"

/* Filled by tutti_config_load from tutti_agent_options. */
typedef struct tutti_agent_options {
    const char *coordinator;
    const char *job;
    const char *device;
    const char *advertise;    /* addresses for clients; "" = where it listens */
    const char *host;         /* "" = the machine's name */
    const char *host_id;      /* "" = boot id and IPC namespace */
    const char *rank;         /* "" = assigned */
    const char *transports;   /* "" = as data_plane.h says */
    const char *net_devices;  /* "" = as --listen */
    const char *congestion;   /* of coll/tcp; "" = as coll/tcp/tcp.h says */
    const char *tune_table;   /* file of rules; "" = the shipped ones */
    const char *algorithm;    /* "all_reduce=ring,..."; "" = by the rules */
    const char *plugin;       /* files with functions, by commas */
    const char *module_path;  /* folder of those that clients may load; "" = none */
    const char *functions;    /* prefixes of functions that hosts may offer, by commas */
    const char *python;       /* modules whose functions a host of the agent's own offers */
    const char *python_token; /* file with the token that this host shows; "" = the server's */
    const char *flight_dir;   /* where records go when an op fails; "" = nowhere */
    const char *tls_ca;       /* for the way to the coordinator */
    const char *tls_name;
    const char *tls_cert; /* "" = the server's own */
    const char *tls_key;
    const char *token_file;
    uint64_t world_size;
    uint64_t max_world; /* 0 = world_size */
    uint64_t min_world; /* 0 = all of them */
    uint64_t local_rank;
    uint64_t memory_limit;        /* 0 = half of the memory this process may use */
    uint64_t memory_keep_ns;      /* free memory is kept ready for that long; 0 = for ever */
    uint64_t device_memory_limit; /* of each GPU; 0 = three quarters of what is free at the start */
    uint64_t data_port;           /* of coll/tcp; 0 = any */
    uint64_t handles_max;
    uint64_t retry_window_ns;   /* of answers of ops with tokens, ... */
    uint64_t retry_bytes_limit; /* ... and their bytes */
    uint64_t leases_max;        /* clients whose tensors end with them */
    uint64_t session_linger_ns; /* the longest that those tensors stay behind their client */
    uint64_t ops_max;           /* in flight */
    uint64_t client_ops_max;    /* of one client */
    uint64_t works_max;         /* finished ones that are remembered */
    uint64_t commands_max;      /* of one stream, not answered yet */
    uint64_t calls_max;         /* of functions, that run or wait */
    uint64_t function_threads;  /* that run them */
    uint64_t hosts_max;         /* processes that offer functions */
    uint64_t sessions_max;      /* of controllers, which it leads */
    uint64_t registers_max;     /* the greatest number of a register */
    uint64_t tracers_max;
    uint64_t tape_max; /* ops and attached tensors of all tracers */
    uint64_t op_timeout_ns;
    uint64_t join_timeout_ns;      /* 0 = wait for ever */
    uint64_t partition_timeout_ns; /* of the coordinator; 0 = its heartbeat timeout */
    uint64_t leave_timeout_ns;     /* for ops under way; 0 = they fail */
    bool no_shm;                   /* all data goes by the network */
    uint64_t shares_max;           /* tensors that clients have mapped */
    bool no_share;                 /* ... never */
    bool share_any_user;           /* ... of other users, too */
    bool no_lane;                  /* clients' calls go by gRPC alone */
    uint64_t lanes_max;            /* of all clients */
    uint64_t busy_poll_ns;         /* of the lanes' thread */
    bool allow_shared_gpu;         /* other agents of the job may have the same */
} tutti_agent_options;

tutti_option_set tutti_agent_option_set(tutti_agent_options *target);

typedef struct tutti_agent tutti_agent;

/*
 * Open memory, engine and services on a server that is not started yet.
 *
 * [in] options, server_options  borrowed for the agent's life
 * [in] control, bulk            loops, borrowed likewise; not started or running
 */
tutti_code tutti_agent_new(const tutti_agent_options *options,
                           const tutti_rpc_server_options *server_options, tutti_rpc_loop *control,
                           tutti_rpc_loop *bulk, tutti_agent **ret_agent, tutti_error *err);

/* Its server, not started yet: the program puts a guard in front of it. Borrowed. */
tutti_rpc_server *tutti_agent_server(tutti_agent *agent);

/* Called with the rank when the job is joined, on the control loop's thread. Before start. */
void tutti_agent_on_joined(tutti_agent *agent, void (*on_joined)(void *arg, uint32_t rank),
                           void *arg);

/* Bind and serve, then join the job in the background: health is SERVING once that is done. */
tutti_code tutti_agent_start(tutti_agent *agent, tutti_error *err);

/*
 * When the agent cannot go on (its seat was taken, the job refused it), or has stopped. Control
 * loop's thread, once. NULL = stopped as asked. To be said before tutti_agent_start: an agent may
 * end as soon as its loops run.
 */
void tutti_agent_on_end(tutti_agent *agent, void (*on_end)(void *arg, const tutti_error *err),
                        void *arg);

/* The page of /metrics, and whether the agent is ready, for tutti_metrics_source. Control loop. */
void tutti_agent_expose(tutti_agent *agent, tutti_page *page);
bool tutti_agent_ready(tutti_agent *agent, tutti_text *why);

#define TUTTI_AGENT_LEAVE_MAX 128

/*
 * Leave the job, drain, then on_end. Any thread. The others are told first, no op begins any more,
 * and those under way have leave_timeout to end; told a second time they fail at once.
 *
 * [in] why  what the others read: "rank 2 is leaving: stopped"; of the first call, copied
 */
void tutti_agent_stop(tutti_agent *agent, const char *why);

/* After on_end, when both loops are stopped. NULL is fine. */
void tutti_agent_free(tutti_agent *agent);

#endif
