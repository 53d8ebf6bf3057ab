/*
 * Private to server/agent: a session of a controller, as the agent that leads it has it.
 *
 * The agents of the group are its workers; the leader is one of them, and reaches itself as it does
 * the others. To each worker go a lease, which keeps the tensors that the session makes, and a
 * stream of commands. One command of the controller becomes a part for each worker that it
 * concerns: one call, or a wait for the parts before it.
 *
 * Names. Register 12 of session 7f3a is the name "reg:7f3a/12" on every worker. Its ops run on
 * groups of its own, so what others do on the same ranks cannot come between them in another order on
 * each rank. They are of a mesh with the dimensions g (groups), w (workers of one) and f (1):
 * "mesh:session/ID/g+w" is all workers, ".../w" the group of a worker, ".../g+w+f" all of them once
 * more, for what functions do by themselves. A session that is resumed gets a new mesh.
 *
 * Who resumes a session needs nothing of its former leader: the leases of the workers are found by
 * the secret, and register 0 says of which group the workers are, and how many groups they make. So
 * any agent of the group can lead it.
 *
 * Control loop. Queues are bounded: a session has at most --commands-max commands, whose memory is
 * there from the beginning, and is not read from while the calls that wait for their streams have
 * many bytes.
 */
#ifndef TUTTI_SERVER_AGENT_SESSION_SESSION_H
#define TUTTI_SERVER_AGENT_SESSION_SESSION_H

#include "base/data/id.h"
#include "base/data/map.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "server/agent/agent.h"

#define AGENT_SESSION_WORKERS_MAX 1024 /* of one session */
#define AGENT_SESSION_SECRET_SIZE 16
#define AGENT_SESSION_NAME_SIZE 64 /* of a register or group */
#define AGENT_SESSION_ABOUT_SIZE (TUTTI_NAME_MAX + 16)

typedef struct agent_session agent_session;
typedef struct agent_worker agent_worker;
typedef struct agent_drive agent_drive;
typedef struct agent_failure agent_failure;
typedef struct agent_local agent_local; /* local.h */

/* What a worker does for one command. Its link is in the worker's parts, in the order of the
 * session, until it has ended. */
typedef struct agent_part {
    tutti_list_node link;
    agent_worker *worker;
    agent_drive *command;
    bool called; /* the worker will answer; else it ends when all parts before it have ended */
} agent_part;

/* How a command ended on a worker, if it did not end well. */
struct agent_failure {
    agent_failure *next;
    uint32_t worker;
    tutti_error err;
};

struct agent_drive {
    tutti_list_node link; /* in the session's free, running or answered */
    tutti_map_node by_id;
    unsigned char key[8];
    agent_session *session;
    uint32_t slot;           /* its number among the session's commands */
    uint64_t id;             /* the controller's */
    uint32_t method;         /* which command of the oneof */
    uint32_t left;           /* parts that have not ended, and 1 while it is being sent */
    tutti_error *refused;    /* [owned] the leader's own error; NULL = none */
    agent_failure *failures; /* [owned] in the order of the workers */
    tutti_rpc_message *
        *kept; /* [owned] answers by worker, of a command that tells values; else NULL */
    tutti_rpc_packed *answer; /* [owned] */
};

struct agent_worker {
    agent_session *session;
    uint32_t number;
    uint32_t rank;
    char address[TUTTI_ADDRESS_MAX];                        /* that the leader takes */
    char addresses[TUTTI_ADDRESSES_MAX][TUTTI_ADDRESS_MAX]; /* for the controller */
    uint32_t address_count;
    char host[128];
    char device[128];
    tutti_rpc_channel *channel;
    tutti_rpc_flow *lease_flow; /* NULL = not begun, or over */
    tutti_rpc_flow *first_flow; /* of a resume: the lease has moved from this one to lease_flow */
    bool unlingering;           /* ... it has not confirmed that the session does not linger */
    tutti_rpc_flow *run_flow;
    agent_local *local; /* [owned] of the leader's own worker, instead of run_flow */
    bool ready;         /* its stream of commands has answered */
    bool lost;          /* `gone` says why; it gets nothing any more */
    tutti_error gone;
    tutti_rpc_packed **queue; /* [owned] a ring: calls that wait for the stream */
    uint32_t queue_first;
    uint32_t queue_count;
    tutti_list_node parts; /* in the order of the session */
    agent_part *by_slot;   /* [owned] one for each command */
};

/*
 *   OPENING  the group is asked for, the workers are connected
 *   OPEN     commands go to the workers
 *   CLOSING  streams end; what comes back is forgotten
 */
typedef enum agent_session_state {
    AGENT_SESSION_OPENING,
    AGENT_SESSION_OPEN,
    AGENT_SESSION_CLOSING,
} agent_session_state;

struct agent_session {
    tutti_list_node link; /* in agent->sessions */
    tutti_agent *agent;
    tutti_rpc_call *call; /* Drive; NULL = over */
    agent_session_state state;
    char id[TUTTI_ID_TEXT_SIZE];
    char all[AGENT_SESSION_NAME_SIZE];    /* the groups */
    char each[AGENT_SESSION_NAME_SIZE];   /* of the workers of one group */
    char own[AGENT_SESSION_NAME_SIZE];    /* of functions */
    char mesh[AGENT_SESSION_NAME_SIZE];   /* they are of */
    char about[AGENT_SESSION_ABOUT_SIZE]; /* what register 0 holds: "2 world" */
    uint32_t linger_ms;                   /* how long; 0 = --session-linger */
    bool linger;                          /* leases stay behind the stream; `secret` finds them */
    bool resumes;                         /* they are those of a former stream */
    unsigned char secret[AGENT_SESSION_SECRET_SIZE];
    unsigned char *found; /* [owned] of a resume: a bit for each register that holds
                                           something on a worker */
    char *token;          /* [owned] the caller's; NULL = none */
    bool meshed;          /* the mesh is there */
    uint32_t group_count;
    uint32_t group_size;
    uint32_t worker_count;
    agent_worker *workers; /* [owned] */
    unsigned char *chosen; /* [owned] by worker: does the command at hand concern it? */
    uint32_t leader;
    uint32_t opening;     /* things that must happen before it is open */
    bool unlingered;      /* of a resume: workers are told that it does not linger any more */
    tutti_timer limit;    /* for the opening */
    tutti_list_node asks; /* questions to the coordinator that are under way */
    tutti_error failed;   /* what the stream ends with; code OK = well */

    agent_drive *open;     /* the command that opened it; answered when that is done */
    agent_drive *commands; /* [owned] */
    tutti_list_node free;
    tutti_list_node running;
    tutti_list_node answered; /* their answers wait to be written */
    agent_drive *writing;
    tutti_map by_id;
    uint64_t queued_bytes; /* of all workers' queues */
    bool reading;
    bool began;  /* its first message has come */
    bool closed; /* no more commands come */
    bool finished;
    uint32_t registers_max;
    tutti_rpc_task end;
    bool ending;
};

/* ------------------------------------------------------------------ session.c */

/* NULL: no memory. */
agent_session *agent_session_new(tutti_agent *agent, tutti_rpc_call *call);

/* What is asked for when it opens. Borrowed. */
typedef struct agent_session_request {
    const char *group;
    uint32_t group_count; /* 0 = 1 */
    bool linger;
    uint32_t linger_ms; /* 0 = --session-linger */
    const char *resume; /* "" = a new one */
    tutti_bytes secret;
} agent_session_request;

/*
 * Begin to open it.
 *
 * TUTTI_INVALID_ARGUMENT    BAD_SECRET, BAD_NAME: of one to resume; LINGER_LIMIT
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code agent_session_start(agent_session *session, const agent_session_request *request,
                               tutti_error *err);

/* TUTTI_NOT_FOUND NO_SESSION: there is nothing that this secret resumes. */
tutti_code agent_session_fail_unknown(const agent_session *session, tutti_error *err);

/* Of a resume: a worker has a tensor or value of that name. */
void agent_session_find(agent_session *session, const char *name);

/* Make room for its workers. TUTTI_RESOURCE_EXHAUSTED */
tutti_code agent_session_hire(agent_session *session, const uint32_t *ranks, uint32_t count,
                              tutti_error *err);

/* One of the things that it waits for has happened, while it opens. */
void agent_session_step(agent_session *session);

/* It ends, and its streams with it; the call is told `err` (NULL = OK). It frees itself when nothing
 * of it is under way any more. */
void agent_session_close(agent_session *session, const tutti_error *err);

/* Something of it is over: free it, if that was the last. */
void agent_session_look(agent_session *session);

/* Read on, if it may. */
void agent_session_read(agent_session *session);

/* Is at most one command running? Then who begins its parts may wait for them. */
bool agent_session_is_calm(const agent_session *session);

/* "reg:7f3a/12" */
void agent_session_register(const agent_session *session, uint32_t number,
                            char ret_name[AGENT_SESSION_NAME_SIZE]);

/* ------------------------------------------------------------------ open_pb.c */

/* The group by its name, and then the rest of what must be known of it. */
void agent_session_ask_group(agent_session *session, const char *group);
/* Cancel what is under way. */
void agent_session_stop_asking(agent_session *session);
/* The mesh is not wanted any more. */
void agent_session_forget_mesh(agent_session *session);

/* ------------------------------------------------------------------ worker.c */

/* Choose among its addresses. */
void agent_worker_pick(agent_worker *worker, bool same_host);

/* Connect to it. It is ready, or lost, later. */
void agent_worker_connect(agent_worker *worker);

/* It gets nothing any more, and its parts fail. */
void agent_worker_lose(agent_worker *worker, const tutti_error *err);

/* An answer has come. Returns whether it was kept. */
bool agent_worker_answered(agent_worker *worker, tutti_rpc_message *message);

/* Let its streams end. */
void agent_worker_cancel(agent_worker *worker);
bool agent_worker_is_idle(const agent_worker *worker);
void agent_worker_free(agent_worker *worker);

/* A call for it. [in, moved] packed */
void agent_worker_put(agent_worker *worker, tutti_rpc_packed *packed);
/* Write what waits, if that can be. */
void agent_worker_pump(agent_worker *worker);

/* Of a resume: let the lease end with the session. */
void agent_worker_unlinger(agent_worker *worker);

/* worker_pb.c: the streams. `first`: of a resume, a stream that leaves what it found if the session
 * cannot be opened. */
tutti_code agent_wire_lease(agent_worker *worker, bool first, tutti_error *err);
tutti_code agent_wire_run(agent_worker *worker, uint64_t lease, tutti_error *err);

/* ------------------------------------------------------------------ command.c */

/*
 * The next command. There is a free one.
 *
 * TUTTI_INVALID_ARGUMENT  DUPLICATE_ID: of one that is not answered yet
 */
tutti_code agent_drive_begin(agent_session *session, uint64_t id, uint32_t method,
                             agent_drive **ret_command, tutti_error *err);

/* Keep what the workers answer. TUTTI_RESOURCE_EXHAUSTED */
tutti_code agent_drive_keep(agent_drive *command, tutti_error *err);

/* Its part for a worker, at most one. The call has the command's slot as its id; [in, moved] packed,
 * NULL = a wait for the parts before it. */
void agent_drive_add(agent_drive *command, agent_worker *worker, tutti_rpc_packed *packed);

/* It is refused as a whole. */
void agent_drive_refuse(agent_drive *command, const tutti_error *err);

/* All of it is sent. It is answered when all parts have ended. */
void agent_drive_sent(agent_drive *command);

/* A worker has failed. */
void agent_drive_fail(agent_drive *command, const agent_worker *worker, const tutti_error *err);

/* A call was answered. */
void agent_part_end(agent_part *part);

/* The worker is lost: all its parts end, with `err`. */
void agent_parts_fail(agent_worker *worker, const tutti_error *err);

/* The answer that was leaving has left. */
void agent_session_written(agent_session *session);

/* No more commands come. What has come is answered, then the stream ends; err NULL = well. */
void agent_session_no_more(agent_session *session, const tutti_error *err);

/* All commands are forgotten. */
void agent_drives_drop(agent_session *session);

/* ------------------------------------------------------------------ plan_pb.c, answer_pb.c */

/* What a command of the controller comes to on the workers. [in] message  a DriveRequest */
void agent_session_plan(agent_session *session, agent_drive *command, const void *message);

/* The answer to a command; NULL: no memory. */
tutti_rpc_packed *agent_drive_pack(const agent_drive *command);

#endif
