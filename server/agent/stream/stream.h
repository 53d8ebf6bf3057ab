/*
 * Private to server/agent: a stream of commands, each of which is a nested call (rpc/nested.h).
 *
 * Threads. The stream is served on the control loop. Commands begin on the loops of their services,
 * one after the other: what begins them moves from loop to loop with them. Answers come from any
 * thread and leave on the stream's loop, together with others that have come meanwhile; one that is
 * alone leaves at once. The lock guards what these share.
 */
#ifndef TUTTI_SERVER_AGENT_STREAM_STREAM_H
#define TUTTI_SERVER_AGENT_STREAM_STREAM_H

#include <pthread.h>

#include "rpc/nested.h"
#include "server/agent/agent.h"

typedef struct agent_stream agent_stream;

/*
 * A call that came as a message. In one list of its stream, or its `writing`; by_id.key.size is 0
 * when its id is free.
 */
typedef struct agent_command {
    tutti_list_node link; /* in the stream's waiting, running or answered */
    tutti_map_node by_id;
    unsigned char key[8];
    agent_stream *stream;
    uint64_t id;
    uint32_t number; /* which call of the oneof */
    bool stop_on_error;
    bool alone;     /* when it began, the stream had no other one */
    bool cancelled; /* by its caller; behind the stream's lock */
    bool begun;     /* behind the stream's lock */
    bool told;      /* its call has heard that it is to end; behind the stream's lock */
    size_t payload_bytes;
    tutti_rpc_call *call;     /* NULL: it will be answered with `err` */
    tutti_error err;          /* code OK: none */
    tutti_rpc_packed *answer; /* [owned] */
} agent_command;

struct agent_stream {
    tutti_agent *agent;
    struct agent_client *client; /* whose */
    tutti_rpc_call *call;
    tutti_rpc_task launch; /* on the loop of the next command */
    tutti_rpc_task write;  /* on the stream's loop */

    /* The control loop's. */
    bool began; /* its first message has come */
    bool stop_on_error;
    uint32_t count_max;

    pthread_mutex_t lock;    /* guards all below; nothing of rpc but posts is called with it held */
    tutti_map by_id;         /* commands whose answers are not leaving yet */
    tutti_list_node waiting; /* in the order they came */
    tutti_list_node running;
    tutti_list_node answered; /* their answers wait to be written */
    agent_command *writing;
    agent_command *awaited; /* it has stop_on_error and runs: nothing begins behind it */
    uint32_t count;         /* of all commands */
    size_t payload_bytes;   /* of all commands */
    uint32_t busy;          /* threads between enter and leave */
    bool writing_later;     /* the task is posted */
    bool launching;         /* one of them begins commands, or the task is posted */
    bool reading;
    bool closed; /* no more will come */
    bool told;   /* what runs was told to end */
    bool dead;   /* nobody hears answers any more */
    bool finished;
    tutti_error refuse; /* code not OK: what waits is answered with it */
    tutti_error last;   /* what the stream ends with */
};

/* ------------------------------------------------------------------ the stream */

/* NULL: no memory. agent_stream_free is for the end of its call, when no command is left. */
agent_stream *agent_stream_new(tutti_agent *agent, tutti_rpc_call *call);
void agent_stream_free(agent_stream *stream);

/* Whatever happens to a stream happens between these two. Enter takes the lock; leave does what can
 * be done now (write, begin, read, end) and lets go of it: the stream may be gone then. */
void agent_stream_enter(agent_stream *stream);
void agent_stream_leave(agent_stream *stream);

/* A command has come, in the order of the stream. With the lock.
 *
 * TUTTI_INVALID_ARGUMENT  DUPLICATE_ID: it is still the caller's
 */
tutti_code agent_stream_add(agent_stream *stream, agent_command *command, tutti_error *err);

/*
 * The caller has cancelled one command. With the lock. Its call hears of it when it has begun, so
 * that an op takes its turn in its group. Unknown ids, and those that are answered, are fine.
 */
void agent_stream_cancel_one(agent_stream *stream, uint64_t id);

/* No more commands will come. With the lock. */
void agent_stream_close(agent_stream *stream, const tutti_error *err); /* NULL = OK */

/* The answer that was leaving has left. */
void agent_stream_written(agent_stream *stream);

/*
 * Nobody listens any more (`gone`), or the agent stops. Any thread, without the lock; again is
 * fine.
 */
void agent_stream_cancel(agent_stream *stream, bool gone);

/* ------------------------------------------------------------------ its commands */

/* The call of a command has its answer: a tutti_rpc_nested_fn for an agent_command. */
void agent_command_on_answer(void *arg, const struct ProtobufCMessage *response,
                             const tutti_rpc_blob *payload, const tutti_error *err);

/* It is in no list and not counted any more; its id is free. With the lock. */
void agent_command_forget(agent_stream *stream, agent_command *command);
void agent_command_free_id(agent_stream *stream, agent_command *command);

/* It is forgotten, or was never added; was its answer `delivered`? Without the lock. */
void agent_command_free(agent_command *command, bool delivered);

/*
 * Begin commands that wait, until there is nothing to begin on this thread. Called by the thread
 * that has set `launching`, without the lock.
 */
void agent_stream_launch(agent_stream *stream);
void agent_stream_on_launch(tutti_rpc_task *task); /* the same, as a task */

/* ------------------------------------------------------------------ commands as protobuf */

/*
 * The response to a command, packed; NULL: no memory.
 *
 * [in] response  of the call, or NULL: `err`
 */
tutti_rpc_packed *agent_command_pack(const agent_command *command,
                                     const struct ProtobufCMessage *response,
                                     const tutti_rpc_blob *payload, const tutti_error *err);

#endif
