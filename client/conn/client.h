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

#include "base/list.h"
#include "rpc/channel.h"
#include "tutti/client.h"

#define CLIENT_TIMEOUT_MS 30000
#define CLIENT_OP_GRACE_MS 2000        /* the server's own deadline, with its words, comes first */
#define CLIENT_COPY_BYTES_MAX 65536    /* smaller payloads are copied, larger ones lent to gRPC */
#define CLIENT_CHUNK_BYTES (2u << 20)  /* of a transfer, when nothing is said */
#define CLIENT_CHUNK_BYTES_LEAST 4096u /* what the agent takes */

/* ------------------------------------------------------------------ options.c */

/* Options with their defaults filled in from the environment. Strings are owned, "" = none. */
typedef struct client_settings {
    char *agent;
    char *coordinator;
    char *job;
    char *tls_ca;
    char *tls_cert;
    char *tls_key;
    char *tls_name;
    char *token_file;
    char *trace;
    uint32_t timeout_ms;
    bool wait;
} client_settings;

/*
 * [in] options  NULL = defaults
 *
 * TUTTI_INVALID_ARGUMENT    options that were not initialised, or of a newer library
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code client_settings_read(const tutti_client_options *options, client_settings *ret_settings,
                                tutti_error *err);
void client_settings_fini(client_settings *settings);

/*
 * Take a struct the caller filled, which may be of an older or newer library: what it does not
 * have keeps `own`'s value.
 *
 * TUTTI_INVALID_ARGUMENT  its size was not set by init, or it says things we do not know
 */
tutti_code client_take_struct(void *own, size_t own_size, const void *given, size_t given_size,
                              const char *what, tutti_error *err);

/* ------------------------------------------------------------------ channel_pool.c */

/* Which connection a call takes: tensors in bulk do not get in the way of all else. */
typedef enum client_way {
    CLIENT_CONTROL,
    CLIENT_BULK,
    CLIENT_COORDINATOR,
    CLIENT_MORE, /* connections of a transfer's streams but the first, one each: from here on */
} client_way;

#define CLIENT_WAYS (CLIENT_MORE + TUTTI_STREAMS_MAX - 1)

/* A channel and who uses it. The client's lock guards the count. */
typedef struct client_line {
    tutti_rpc_channel *channel;
    size_t users;         /* calls, and the client itself */
    atomic_bool answered; /* somebody was there once */
} client_line;

/*
 * Start gRPC with the first client of the process, end it with the last.
 * TUTTI_FAILED_PRECONDITION  FORKED: that was another process
 */
tutti_code client_library_enter(tutti_error *err);
void client_library_leave(void);

/* TUTTI_FAILED_PRECONDITION  FORKED: another process opened the client */
tutti_code client_check_process(const tutti_client *client, tutti_error *err);

/*
 * The line of a way, opened when it is needed for the first time. Give it back when the call is
 * over.
 *
 * TUTTI_FAILED_PRECONDITION  NO_AGENT, NO_COORDINATOR: this client has none; a forked process
 * and what opening a channel says
 */
tutti_code client_line_take(tutti_client *client, client_way way, client_line **ret_line,
                            tutti_error *err);
void client_line_give(tutti_client *client, client_line *line);

/* The next call gets a fresh connection; this one goes when its last call is over. */
void client_line_break(tutti_client *client, client_line *line);

/* ------------------------------------------------------------------ zero_copy.c */

/* The caller's memory while gRPC looks at it. Any thread gives back; one thread lends. */
typedef struct client_loan {
    sem_t back;
    size_t out;
} client_loan;

void client_loan_init(client_loan *loan);

/* A blob of `size` bytes at `data`; small ones are copied and no loan. */
tutti_rpc_blob client_loan_blob(client_loan *loan, const void *data, size_t size);

/* Count what has come back, without waiting. */
void client_loan_collect(client_loan *loan);

/*
 * The call is over: wait until nobody looks at the memory any more, and give the line back. When a
 * dead peer keeps gRPC from letting go, the connection is broken.
 */
void client_loan_settle(client_loan *loan, tutti_client *client, client_line *line);

/* ------------------------------------------------------------------ stall_timer.c */

/* Gives up streams that do not move. One thread per client, started with the first transfer. */
typedef struct client_watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    tutti_link watched;
    pthread_t thread;
    bool started;
    bool stopping;
} client_watch;

/* A stream that is watched. `moved_ns` belongs to the transfer, all else to the watch's lock. */
typedef struct client_watched {
    tutti_link link;
    tutti_rpc_stream *stream;
    uint64_t patience_ns;
    atomic_uint_fast64_t moved_ns;
    bool stalled;
} client_watched;

void client_watch_init(client_watch *watch);
void client_watch_fini(client_watch *watch); /* ends the thread */

/* TUTTI_RESOURCE_EXHAUSTED  no thread could be started */
tutti_code client_watch_add(client_watch *watch, client_watched *watched, tutti_rpc_stream *stream,
                            uint64_t patience_ns, tutti_error *err);
void client_watch_moved(client_watched *watched);

/* Was it given up? Before the stream is finished. */
bool client_watch_remove(client_watch *watch, client_watched *watched);

/* ------------------------------------------------------------------ call.c */

/* Takes requests of ops on their way, to make something else of them. [in] payload  borrowed */
typedef struct client_divert client_divert;
struct client_divert {
    tutti_code (*take)(client_divert *self, const struct ProtobufCMessage *request,
                       const void *payload, size_t payload_bytes, tutti_error *err);
};

/* One unary call. */
typedef struct client_call {
    const tutti_rpc_stub *stub;
    client_way way;
    uint64_t deadline_ns; /* 0 = none */
    const void *payload;  /* NULL = none; not looked at after the call */
    size_t payload_bytes;
    client_divert *divert; /* where the request goes instead of on its way; NULL = nowhere */
} client_call;

/* [out, owned] ret_response  NULL = not wanted; untouched when it was diverted */
tutti_code client_invoke(tutti_client *client, const client_call *call,
                         const struct ProtobufCMessage *request, tutti_rpc_message **ret_response,
                         tutti_error *err);

/* The same for a request that may be made twice: it has a token, or it changes nothing. When the
 * connection breaks in the middle, or the server shuts down, again until the call's deadline. */
tutti_code client_invoke_again(tutti_client *client, const client_call *call,
                               const struct ProtobufCMessage *request,
                               tutti_rpc_message **ret_response, tutti_error *err);

/* From now; 0 = the client's. */
uint64_t client_deadline(const tutti_client *client, uint32_t timeout_ms);

/* Of a call whose server has a deadline of its own, and whose words we want: 0 = never. */
uint64_t client_op_deadline(uint32_t timeout_ms);

/* ------------------------------------------------------------------ init.c */

/*
 * Where the settings name an init address instead of an agent: wait for its file and for its rank,
 * and put the agent's address, and the coordinator's, in its place. Else nothing.
 *
 * [out] ret_world_size  what the address says; 0 = it is none
 *
 * TUTTI_INVALID_ARGUMENT   BAD_URL
 * TUTTI_DEADLINE_EXCEEDED  NOT_JOINED: the file or the rank did not come in time, and why
 */
tutti_code client_init_find(tutti_client *client, uint32_t *ret_world_size, tutti_error *err);

/* TUTTI_INVALID_ARGUMENT  WORLD_SIZE: the job has another */
tutti_code client_init_check(const tutti_client *client, uint32_t world_size, tutti_error *err);

/* ------------------------------------------------------------------ address_pick.c */

bool client_is_unix(const char *address);

/*
 * Of an agent's addresses the one to take from here: its Unix socket where host ids are alike and
 * the socket is there, else the first that is none. Borrows from them; "" = there are none.
 */
const char *client_pick_address(char *const *addresses, size_t count, const char *host_id);

/* Just connected: go on by the Unix socket, when that is the one to take and the same agent. */
void client_go_near(tutti_client *client);

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
    uint32_t rank;
    uint32_t world_size;
    uint64_t incarnation;
    uint64_t epoch;
    uint32_t pid;
    uint32_t commands_max;         /* of one stream; 0 = it does not say */
    uint32_t transfer_streams_max; /* for one tensor; 0 = it does not say */
    char picked[256]; /* of its addresses the one to take from here; "" = it says none */
} client_description;

/* Any thread. All but the lines, the shuttles and the watch never changes once tutti_connect has
 * returned. */
struct tutti_client {
    client_settings settings;
    pid_t owner; /* the process that opened it */
    client_description agent;
    tutti_agent_info info; /* points into `agent` and `settings` */
    pthread_mutex_t lock;  /* guards `lines` and what they count; taken alone */
    client_line *lines[CLIENT_WAYS];
    tutti_link shuttles;        /* the idle ones; the lock's, as what follows */
    unsigned shuttle_count;     /* of all */
    atomic_uint calls;          /* that a shuttle could have carried, up to the first that may */
    atomic_bool goes_by_itself; /* this agent serves no streams of commands */
    client_watch watch;
    char device[32]; /* of tensors that are made; "" = the agent's choice */
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

/* ------------------------------------------------------------------ diagnostics_pb.c */

tutti_code client_wire_describe(tutti_client *client, uint64_t deadline_ns,
                                client_description *ret_description, tutti_error *err);
tutti_code client_wire_health(tutti_client *client, const char *service, uint64_t deadline_ns,
                              bool *ret_serving, tutti_error *err);

/* ------------------------------------------------------------------ coordinator_pb.c */

/* A call of the coordinator, within the client's time. */
client_call client_ask_coordinator(const tutti_client *client, const tutti_rpc_stub *stub);

/* On how many hosts the ranks of a job are, of up to 1024; a rank that is away counts as one. */
tutti_code client_wire_host_count(tutti_client *client, uint32_t world_size, uint64_t deadline_ns,
                                  uint32_t *ret_count, tutti_error *err);

/* How the first 1024 ranks of a job stand. [out] ret_states  1024 of them */
tutti_code client_wire_rank_states(tutti_client *client, uint64_t deadline_ns,
                                   tutti_rank_state *ret_states, size_t *ret_count,
                                   tutti_error *err);

/* ------------------------------------------------------------------ groups_pb.c */

/* `options` is taken and complete; the ranks are in order. */
tutti_code client_wire_group_create(tutti_client *client, const tutti_group_options *options,
                                    const uint32_t *ranks, size_t count, tutti_group_info *ret_info,
                                    tutti_error *err);
/* [in] id  0 = whichever has the name */
tutti_code client_wire_group_delete(tutti_client *client, const char *name, uint64_t id,
                                    bool missing_is_fine, tutti_error *err);

/* ------------------------------------------------------------------ groups_split_pb.c */

/* `options` and `split` are taken and complete. */
tutti_code client_wire_group_split(tutti_client *client, const tutti_group_options *options,
                                   const tutti_split *split, tutti_group_info *ret_info,
                                   tutti_rank_lists *ret_lists, tutti_error *err);

/* ------------------------------------------------------------------ tensors_pb.c */

/* Where bytes go: a new tensor, named or not, or an existing one. */
typedef struct client_put {
    const tutti_spec *spec;
    const void *data;
    uint64_t bytes;
    const char *name; /* NULL = none */
    const char *into; /* NULL = a new one */
} client_put;

tutti_code client_wire_put(tutti_client *client, const client_put *put, uint64_t deadline_ns,
                           tutti_handle *ret_handle, tutti_error *err);

/* Exactly `bytes` of them. */
tutti_code client_wire_get(tutti_client *client, const char *handle, void *data, uint64_t bytes,
                           uint64_t deadline_ns, tutti_error *err);

/* `deadline_ns` 0 = the client's timeout. */
tutti_code client_wire_delete(tutti_client *client, const char *const *handles, size_t count,
                              tutti_error *err);

/* ------------------------------------------------------------------ tensor.c */

/* The same as tutti_tensor_put and tutti_tensor_read, on a transfer that was taken. */
tutti_code client_put_any(tutti_client *client, const client_put *put,
                          const tutti_transfer *transfer, tutti_handle *ret_handle,
                          tutti_error *err);

/* ------------------------------------------------------------------ collectives_pb.c;
 * parts_pb.c */

/* Memory of the caller's instead of handles. */
typedef struct client_inline {
    const tutti_spec *spec; /* of what is given */
    bool gives;             /* this rank's input is `data` */
    bool takes;             /* the result goes to `result` */
    const void *data;
    uint64_t bytes;
    void *result;
    uint64_t result_bytes;
    client_divert *divert; /* the request goes there and is not answered; NULL = nowhere */
} client_inline;

typedef tutti_code (*client_op_fn)(tutti_client *client, const tutti_op *op,
                                   const client_inline *memory, tutti_op_result *ret_result,
                                   tutti_error *err);

/* `op` is taken and complete; `memory` NULL = handles. */
tutti_code client_wire_all_reduce(tutti_client *client, const tutti_op *op,
                                  const client_inline *memory, tutti_op_result *ret_result,
                                  tutti_error *err);
tutti_code client_wire_broadcast(tutti_client *client, const tutti_op *op,
                                 const client_inline *memory, tutti_op_result *ret_result,
                                 tutti_error *err);
tutti_code client_wire_all_gather(tutti_client *client, const tutti_op *op,
                                  const client_inline *memory, tutti_op_result *ret_result,
                                  tutti_error *err);
tutti_code client_wire_reduce(tutti_client *client, const tutti_op *op, const client_inline *memory,
                              tutti_op_result *ret_result, tutti_error *err);
tutti_code client_wire_reduce_scatter(tutti_client *client, const tutti_op *op,
                                      const client_inline *memory, tutti_op_result *ret_result,
                                      tutti_error *err);
tutti_code client_wire_gather(tutti_client *client, const tutti_op *op, const client_inline *memory,
                              tutti_op_result *ret_result, tutti_error *err);
tutti_code client_wire_scatter(tutti_client *client, const tutti_op *op,
                               const client_inline *memory, tutti_op_result *ret_result,
                               tutti_error *err);
tutti_code client_wire_all_to_all(tutti_client *client, const tutti_op *op,
                                  const client_inline *memory, tutti_op_result *ret_result,
                                  tutti_error *err);
tutti_code client_wire_permute(tutti_client *client, const tutti_op *op,
                               const client_inline *memory, tutti_op_result *ret_result,
                               tutti_error *err);
tutti_code client_wire_barrier(tutti_client *client, const tutti_op *op,
                               const client_inline *memory, tutti_op_result *ret_result,
                               tutti_error *err);
tutti_code client_wire_send(tutti_client *client, const tutti_op *op, const client_inline *memory,
                            tutti_op_result *ret_result, tutti_error *err);
tutti_code client_wire_recv(tutti_client *client, const tutti_op *op, const client_inline *memory,
                            tutti_op_result *ret_result, tutti_error *err);

/* ------------------------------------------------------------------ op.c */

/* The function of a kind; NULL = there is no such kind. */
client_op_fn client_op_of(tutti_op_kind kind);

/* The caller's op with what it does not say. TUTTI_INVALID_ARGUMENT as client_take_struct */
tutti_code client_take_op(const tutti_op *given, tutti_op *ret_op, tutti_error *err);

#endif
