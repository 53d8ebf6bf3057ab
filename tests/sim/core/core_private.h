/* The inside of core.h: what its four files share. */
#ifndef TUTTI_TESTS_SIM_CORE_PRIVATE_H
#define TUTTI_TESTS_SIM_CORE_PRIVATE_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include "base/data/list.h"
#include "sim/core/core.h"
#include "sim/kernel.h"

/* gRPC's header declares them without a prototype. */
grpc_channel_credentials *grpc_insecure_credentials_create(void);
grpc_server_credentials *grpc_insecure_server_credentials_create(void);

#define CORE_PROCESSES SIM_PROCESSES_MAX

/* ------------------------------------------------------------------------------ queues */

/* One more event is to come; and here it is. */
void core_queue_expect(grpc_completion_queue *queue);
void core_queue_put(grpc_completion_queue *queue, void *tag, bool ok);

/* Some operations with one event. */
typedef struct core_batch {
    grpc_completion_queue *queue;
    void *tag;
    unsigned left;
    bool ok;
} core_batch;

core_batch *core_batch_new(grpc_completion_queue *queue, void *tag, unsigned parts);
void core_batch_drop(core_batch *self, bool ok);

/* ------------------------------------------------------------------------------ connections */

typedef enum core_side {
    CORE_CLIENT,
    CORE_SERVER
} core_side;

typedef enum core_frame_kind {
    CORE_HEADERS, /* begins a call */
    CORE_INITIAL, /* what a server says first */
    CORE_MESSAGE,
    CORE_HALF_CLOSE,
    CORE_TRAILERS,
    CORE_RESET,
    CORE_GOAWAY,
    CORE_FIN,
} core_frame_kind;

typedef struct core_conn core_conn;

typedef struct core_frame {
    tutti_list_node link;
    core_frame_kind kind;
    core_conn *conn;
    core_side to;
    grpc_call *from; /* NULL for GOAWAY and FIN */
    grpc_byte_buffer *message;
    size_t bytes;
    grpc_metadata_array metadata;
    grpc_status_code status;
    grpc_slice text;
    uint64_t number;
} core_frame;

struct core_conn {
    tutti_list_node link;
    grpc_channel *channel; /* NULL: it is another one's by now, or gone */
    grpc_server *server;
    int process[2];
    bool over[2];        /* that side knows that the connection is no more */
    bool goaway;         /* the server takes no new calls on it; as its client knows */
    uint64_t last_ns[2]; /* when the last frame to a side arrives */
    uint64_t keepalive_ns[2];
    uint64_t patience_ns[2];
    unsigned calls; /* as its client counts */
    unsigned number;
    tutti_list_node all[2]; /* calls of each side */
};

core_frame *core_frame_new(core_frame_kind kind);
void core_frame_free(core_frame *frame);
/* [in, moved] frame */
void core_send(core_conn *conn, core_side to, core_frame *frame);
/* A side learns, or decides, that it is over. */
void core_conn_end(core_conn *conn, core_side side, const char *why);
core_conn *core_conn_new(grpc_channel *channel, int client, grpc_server *server);
bool core_conns_left(const grpc_server *server);
void core_conns_each(const grpc_server *server, void (*visit)(core_conn *conn));
bool core_is_closed(int process); /* it died aloud: its kernel refuses connections */
/* Can what one process sends reach the other, and does it answer? */
bool core_hears(int from, int to);

/* ------------------------------------------------------------------------------ calls */

struct grpc_call {
    tutti_list_node link; /* in the connection's list, or its channel's while it waits for one */
    tutti_list_node every;
    tutti_list_node asking; /* a server's, while no request was posted for it */
    core_side side;
    int process;
    bool unrefd;
    grpc_channel *channel; /* of a client's; borrowed: a channel outlives its calls */
    core_conn *conn;       /* NULL: none yet */
    grpc_call *peer;       /* NULL: not yet */
    grpc_completion_queue *queue;
    char *method;
    uint64_t deadline_ns;
    bool waits_for_ready;
    bool begun;  /* counted by its connection */
    bool headed; /* a server's: has been given to a request */
    uint64_t number;
    size_t unread; /* bytes that the peer has not taken yet */

    tutti_list_node out; /* core_item: what is to be sent */
    tutti_list_node in;  /* frames of messages */
    bool has_initial;
    bool half_closed; /* by the peer */
    bool has_status;  /* a client's: it has come, or was made here */
    bool ended;       /* nothing more comes and goes */
    bool cut;         /* ... and not because both said so */
    bool sent_status;
    grpc_status_code status;
    grpc_slice text;
    grpc_metadata_array trailing;
    grpc_metadata_array initial;

    core_batch *want_initial;
    grpc_metadata_array *initial_to;
    core_batch *want_message;
    grpc_byte_buffer **message_to;
    core_batch *want_status;
    grpc_op status_to;
    core_batch *want_close;
    int *close_to;
};

grpc_call *core_call_new(core_side side, int process, grpc_completion_queue *queue,
                         const char *method, size_t method_size, uint64_t deadline_ns);
/* A client's call has a connection now. */
void core_call_connect(grpc_call *call, core_conn *conn);
/* It ends here, with that status, whatever is under way. */
void core_call_end(grpc_call *call, grpc_status_code status, const char *text);
void core_call_arrive(grpc_call *call, core_frame *frame);
grpc_byte_buffer *core_call_take(grpc_call *call); /* its next message; NULL = none */
void core_calls_close(void);
void core_calls_open(void);
void core_copy_metadata(grpc_metadata_array *to, const grpc_metadata *from, size_t count);
void core_free_metadata(grpc_metadata_array *array);

/* ------------------------------------------------------------------------------ channels */

void core_channels_open(void);
void core_channels_close(void);
void core_channel_keepalive(const grpc_channel *channel, uint64_t *ret_time_ns,
                            uint64_t *ret_patience_ns);
void core_channel_start(grpc_call *call); /* find a connection */
void core_channel_conn_over(core_conn *conn);
void core_channel_call_over(core_conn *conn); /* one call fewer on it */

/* ------------------------------------------------------------------------------ servers */

void core_servers_open(void);
void core_servers_close(void);
grpc_server *core_server_find(const char *address);
int core_server_process(const grpc_server *server);
bool core_server_listens(const grpc_server *server);
unsigned core_server_streams_max(const grpc_server *server);
void core_server_keepalive(const grpc_server *server, uint64_t *ret_time_ns,
                           uint64_t *ret_patience_ns);
void core_server_take(core_conn *conn, core_frame *headers);
void core_server_conn_over(core_conn *conn);
/* A call that waits for its first message, or for a request, may be given out now. */
void core_server_offer(grpc_call *call);

uint64_t core_latency(void);
int core_arg(const grpc_channel_args *args, const char *key, int otherwise);

#endif
