/* Private to client: a session, and the commands in it. */
#ifndef TUTTI_CLIENT_SESSION_SESSION_H
#define TUTTI_CLIENT_SESSION_SESSION_H

#include "base/data/list.h"
#include "base/data/map.h"
#include "client/conn/conn_pool.h"
#include "rpc/channel.h"
#include "tutti/session.h"

/* A command that was given, until its result is taken, or with nobody to take it is known. */
typedef struct session_command {
    tutti_map_node by_id;
    unsigned char key[8];
    tutti_list_node done; /* in the session's, once it is answered */
    uint64_t id;
    size_t bytes; /* of its message */
    bool quiet;   /* without a ticket: its error is the session's */
    bool answered;
    tutti_session_result result;
} session_command;

/* Numbers of registers: which are taken, and in which order the free ones are given. */
typedef struct session_registers {
    uint64_t *taken; /* a bit for each number below word_count * 64 */
    size_t word_count;
    uint32_t *dropped; /* the last one is given first */
    size_t dropped_count;
    size_t dropped_capacity;
    uint32_t next; /* all from here on were never given */
    uint32_t most;
} session_registers;

struct tutti_session {
    tutti_client *client; /* of the leader */
    client_conn *conn;
    tutti_rpc_stream *stream; /* NULL once it has ended: `ended` says how */
    struct client_lane *lane; /* [owned] by which its messages go; NULL = by gRPC */
    tutti_error ended;
    tutti_rpc_packed *held; /* packed, and to be written with the next one or when we wait */
    tutti_map by_id;        /* commands that are unanswered, or whose results were not taken */
    tutti_list_node done;   /* answered, with a ticket, in the order of the answers */
    uint64_t last_id;
    size_t unanswered;
    size_t bytes;      /* of the unanswered */
    size_t tickets;    /* whose results were not taken */
    uint64_t blamed;   /* the quiet command that `blame` is of; 0 = none has failed */
    tutti_error blame; /* told by the next sync */
    uint32_t in_flight_max;

    tutti_session_info info;
    tutti_worker_info *workers; /* [owned] */
    char *texts;                /* [owned] of the workers */
    tutti_client **clients;     /* [owned] of each worker, once it was asked for */
    session_registers registers;
};

/* ------------------------------------------------------------------ session.c */

/* Finish the stream, which is there, and let its lane go. Returns how it ended. */
tutti_code session_finish(tutti_session *session, tutti_error *err);

/* The stream has ended: remember how. Returns that. */
tutti_code session_end(tutti_session *session, tutti_error *err);

/* There is room for one more command of so many bytes; answers are read until there is. */
tutti_code session_make_room(tutti_session *session, size_t bytes, tutti_error *err);

/* Write what is packed behind what is held; [in, moved] packed, NULL = nothing more comes now. */
tutti_code session_write(tutti_session *session, tutti_rpc_packed *packed, tutti_error *err);

/* NULL = none. */
session_command *session_find(const tutti_session *session, uint64_t id);

/* A command is on its way; [in, moved] command. */
void session_given(tutti_session *session, session_command *command);

/* Its answer has come. A quiet command is freed. */
void session_answered(tutti_session *session, session_command *command);

/* ------------------------------------------------------------------ answer_pb.c */

/* Which command is answered, and how. [in, moved] message. TUTTI_DATA_LOSS: it is none of ours. */
tutti_code session_read_answer(tutti_session *session, tutti_rpc_message *message,
                               tutti_error *err);

/* ------------------------------------------------------------------ open_pb.c */

/* What is opened, or resumed. */
typedef struct session_opening {
    const char *group;
    uint32_t num_groups;
    bool linger;
    uint32_t linger_ms; /* 0 = as the agents have it */
    const char *resume; /* NULL = a new one */
    const void *secret; /* of what is resumed */
} session_opening;

/* Open the stream, say what is to be opened, and read what it is. */
tutti_code session_open_stream(tutti_session *session, const session_opening *opening,
                               tutti_error *err);

/* ------------------------------------------------------------------ drive_pb.c */

/* Commands that are answered behind all before them; [out] ret_id  to be waited for */
tutti_code session_give_sync(tutti_session *session, const tutti_workers *on, uint64_t *ret_id,
                             tutti_error *err);
tutti_code session_give_flush(tutti_session *session, const tutti_workers *on, uint64_t *ret_id,
                              tutti_error *err);

/* ------------------------------------------------------------------ registers.c */

void session_registers_init(session_registers *self, uint32_t most);
void session_registers_fini(session_registers *self);

/* TUTTI_RESOURCE_EXHAUSTED  REGISTER_LIMIT, or no memory */
tutti_code session_registers_take(session_registers *self, uint32_t *ret_register,
                                  tutti_error *err);

/* A number that the program has chosen, or that a resumed session holds. No memory: it may be given
 * again. */
void session_registers_mark(session_registers *self, uint32_t reg);
void session_registers_drop(session_registers *self, uint32_t reg);

/* Numbers below the greatest marked one that are not taken are given first, the lowest before. */
void session_registers_sort(session_registers *self);

#endif
