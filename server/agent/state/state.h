/* Private to server/agent: what an agent is made of. */
#ifndef TUTTI_SERVER_AGENT_STATE_STATE_H
#define TUTTI_SERVER_AGENT_STATE_STATE_H

#include "coll/select/select.h"
#include "server/agent/agent.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/counters.h"
#include "server/agent/state/device.h"
#include "server/agent/state/events.h"
#include "server/agent/state/types.h"
#include "server/agent/tensor/table_private.h"

/* JOINING <-> JOINED (member.c); either -> LEAVING, for good. Control loop. */
enum agent_state {
    AGENT_JOINING,
    AGENT_JOINED,
    AGENT_LEAVING,
};

/* answers.h: answers of ops with tokens */
typedef struct agent_answers {
    tutti_map by_key;
    tutti_list_node kept; /* that can be repeated, the oldest first */
    uint64_t bytes;
    tutti_timer expiry;
} agent_answers;

/*
 * Fields belong to the control loop, with these exceptions: options to host_id are fixed once the
 * services open (engine becomes NULL when it has stopped, on the control loop); numbers, calls,
 * early_bytes, stops and gone_posted are atomic; `table`, `flight`, `events` and the spaces have locks
 * of their own; `uploads` is the bulk loop's.
 *
 */
struct tutti_agent {
    const tutti_agent_options *options;
    const tutti_rpc_server_options *server_options;
    tutti_rpc_loop *control;
    tutti_rpc_loop *bulk;
    tutti_rpc_server *server;
    tutti_rpc_channel *coordinator;
    const struct agent_hooks *hooks;
    tutti_coll_engine *engine;
    tutti_space *space; /* host memory: there is some wherever tensors live */
    agent_devices devices;
    agent_events events;                    /* of these devices */
    tutti_selector *selector;               /* which algorithms are taken */
    const tutti_selection *first_selection; /* of the options */
    tutti_table *table;
    uint64_t incarnation;
    char host[128];
    char host_id[128];
    void (*on_joined)(void *arg, uint32_t rank); /* NULL = nobody asks */
    void *on_joined_arg;

    enum agent_state state;
    uint32_t rank;
    uint32_t world_size;
    bool elastic;        /* group world has the ranks that are there */
    bool broken;         /* some group is */
    uint64_t settled_ns; /* when the others know us: a fresh process's first ops wait for that */
    uint64_t epoch;
    uint64_t joined_epoch; /* that began when this agent came */
    uint64_t job_id;
    uint64_t store_version; /* what a coordinator has told last of its store, ... */
    uint64_t store_teller;  /* ... and which one; 0 = none has */

    tutti_map groups;         /* by name */
    uint64_t group_questions; /* asked of the coordinator so far: group_lookup_pb.c */
    agent_clients clients;
    agent_answers answers;
    uint64_t ops_live;
    uint64_t ops_last;      /* the number of the op that came last */
    tutti_list_node ops;    /* those that live, in the order they came */
    tutti_list_node syncs;  /* calls that wait for them */
    tutti_list_node leases; /* lease_pb.c; control loop */
    struct tutti_tapes *tapes;
    struct agent_functions *functions; /* function/functions.h */
    tutti_list_node backwards;         /* Backwards, as they came */
    tutti_list_node coordinator_requests;
    tutti_list_node sessions; /* of controllers, which this agent leads */
    uint32_t session_count;   /* of these, the ones that have not been closed */
    uint32_t sessions_ending; /* ... that have: their last commands have not ended */
    char advertised[TUTTI_ADDRESSES_MAX][TUTTI_ADDRESS_MAX];
    size_t advertised_count;
    struct agent_works *works;
    struct agent_member *member;
    uint64_t progress_wanted; /* the question that the next heartbeat answers; 0 = none */
    struct agent_flight *flight;
    struct agent_dump *dump;
    struct tutti_share *share;       /* NULL = off */
    struct tutti_lane_offers *lanes; /* lanes.c */
    tutti_rpc_task gone_task;        /* memory of a tensor of its own has gone */
    atomic_bool gone_posted;
    atomic_uint_fast64_t calls;       /* uploads, downloads and gets in flight */
    struct agent_uploads *uploads;    /* those in parts: upload_parts.c. Bulk loop */
    atomic_uint_fast64_t early_bytes; /* that uploads keep until it is their turn: upload.c */

    tutti_rpc_task start_task;
    tutti_rpc_task stop_task;
    tutti_rpc_task end_task;
    tutti_timer end_timer; /* until end_task looks again */
    tutti_rpc_task stop_now_task;
    atomic_uint stops;                        /* how often it was told to stop */
    char leave_reason[TUTTI_AGENT_LEAVE_MAX]; /* from the first stop on */
    bool draining;                            /* it leaves: no op begins any more */
    uint32_t announcements_pending; /* ... and that many ways of telling the others are under way */
    tutti_rpc_task announced_task;
    tutti_timer leave_timer;     /* until the second phase */
    tutti_timer functions_timer; /* of those that run when all else has ended */
    uint64_t functions_end_ns;
    bool functions_given_up;
    tutti_timer trim_timer; /* when free memory goes back: trim.c */
    bool failed;
    agent_numbers numbers;
    bool in_session; /* the coordinator hears us */
    tutti_error why; /* failed */
    void (*on_end)(void *arg, const tutti_error *err);
    void *on_end_arg;
};

const char *agent_job(const tutti_agent *agent);
/* The agent has joined, or is about to leave: health says so. */
void agent_say_serving(tutti_agent *agent);
/* May an op begin? FAILED_PRECONDITION NOT_JOINED, UNAVAILABLE STOPPING */
tutti_code agent_check_open(const tutti_agent *agent, tutti_error *err);

/* Where clients reach it, borrowed for the agent's life; how many. */
/* Of a stream that a completion queue has opened: receives wait in it, so more than others may. */
static inline uint32_t
agent_queue_commands_max(const tutti_agent *agent)
{
    return (uint32_t)agent->options->commands_max * 16;
}

size_t agent_addresses(tutti_agent *agent, char *ret_addresses[TUTTI_ADDRESSES_MAX]);

/* The number of the last op of the group that has ended here with all ops before it. */
uint64_t agent_group_left(const agent_group *group);

#endif
