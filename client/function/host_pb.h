/* Private to client: a host of functions, and the calls that run in it. */
#ifndef TUTTI_CLIENT_FUNCTION_HOST_PB_H
#define TUTTI_CLIENT_FUNCTION_HOST_PB_H

#include <pthread.h>

#include "base/data/list.h"
#include "client/conn/conn_pool.h"
#include "share/share.h"
#include "tensor/tensor.h"
#include "tutti/function.h"
#include "tutti/plugin.h"
#include "tutti/v1/functions_service.pb-c.h"

#define HOST_LABEL_MAX 127

typedef struct host_function {
    char name[TUTTI_NAME_MAX + 1];
    char signature[256];
    tutti_host_function function;
    void *context;
} host_function;

/* A tensor of a call: mapped here until the call ends. */
typedef struct host_tensor {
    tutti_list_node link; /* in the call's tensors */
    DLTensor dl;
    int64_t shape[TUTTI_DIMS_MAX];
    char handle[TUTTI_HANDLE_MAX + 1];
    tutti_share_view view; /* zero: it has no bytes */
} host_tensor;

/*
 * A call: in `queued` of its host until a thread takes it, then in `running`. It belongs to that
 * thread, but for what is marked: that is behind the host's lock.
 */
typedef struct host_call {
    tutti_list_node link; /* lock */
    tutti_host *host;
    tutti_rpc_message *message; /* [owned] what texts and bytes of the arguments point to */
    const Tutti__V1__HostCall *said;
    const host_function *function;
    tutti_env env;
    volatile int cancelled; /* written behind the lock */
    tutti_any args[TUTTI_ARGUMENTS_MAX];
    tutti_span spans[TUTTI_ARGUMENTS_MAX];
    tutti_dims dims[TUTTI_ARGUMENTS_MAX];
    tutti_list_node tensors;
    tutti_error failure;     /* why it fails; code OK = nobody has said so */
    uint64_t request;        /* the last that was asked; lock */
    tutti_rpc_message *done; /* [owned] the answer to it; lock */
} host_call;

struct tutti_host {
    tutti_client *client;
    char name[HOST_LABEL_MAX + 1];
    uint32_t calls_max;
    host_function *functions; /* [owned] never changes once it is started */
    size_t function_count;
    client_conn *conn;
    tutti_rpc_stream *stream;
    pthread_t reader;
    pthread_t *workers; /* [owned] */
    size_t worker_count;
    pthread_mutex_t writing; /* held for one message on the stream */

    pthread_mutex_t lock; /* guards all below, and what of calls is marked */
    pthread_cond_t changed;
    tutti_list_node queued;
    tutti_list_node running;
    bool started;
    bool stopping;
    bool over;  /* no call begins any more */
    bool ended; /* the stream has */
    tutti_error why;
};

/* ------------------------------------------------------------------ host_pb.c */

/* Open the stream, offer the functions, and wait for the agent's word. */
tutti_code host_open_stream(tutti_host *host, tutti_error *err);

/* [in, moved] message. TUTTI_DATA_LOSS: it is nothing that an agent says */
tutti_code host_take_message(tutti_host *host, tutti_rpc_message *message, tutti_error *err);

/* The stream has ended: how. The stream is freed. */
tutti_code host_end_stream(tutti_host *host, tutti_error *err);

/* How a call ended; its tensors are unmapped. [in] status  what its function has returned */
void host_answer_call(host_call *call, int status, const tutti_any *ret);

/* ------------------------------------------------------------------ host_value_pb.c */

/* What the function is called with. TUTTI_INVALID_ARGUMENT BAD_VALUE, and what mapping says */
tutti_code host_open_args(host_call *call, tutti_error *err);

/* A tensor of the call is mapped. */
tutti_code host_open_tensor(host_call *call, const Tutti__V1__TensorMemory *memory,
                            host_tensor **ret_tensor, tutti_error *err);

void host_close_tensors(host_call *call);

/* Which of the call's tensors it is; NULL = none. */
const host_tensor *host_find_tensor(const host_call *call, const DLTensor *dl);

/* What a function has returned. It borrows from it, and from `ret_shape`. TUTTI_INVALID_ARGUMENT BAD_VALUE */
tutti_code host_write_value(const host_call *call, const tutti_any *any, Tutti__V1__Value *ret,
                            Tutti__V1__Shape *ret_shape, char ret_device[TUTTI_DEVICE_MAX + 1],
                            tutti_error *err);

/* ------------------------------------------------------------------ host_env_pb.c */

/* What the function sees of its call. */
void host_fill_env(host_call *call);

/* ------------------------------------------------------------------ host.c */

/* A call has come. [in, moved] call */
void host_queue_call(tutti_host *host, host_call *call);

/* Nobody waits for a call any more. */
void host_cancel_call(tutti_host *host, uint64_t number);

/* An answer to what a call has asked; that of a call which is over is dropped. [in, moved] message */
void host_take_done(tutti_host *host, uint64_t number, uint64_t request,
                    tutti_rpc_message *message);

/* Wait for the answer to the call's last request. NULL: it was cancelled */
tutti_rpc_message *host_wait_done(host_call *call);

void host_call_free(host_call *call); /* NULL is fine */

/* [in, moved] packed. That it cannot leave shows where the stream is read. */
void host_send(tutti_host *host, const ProtobufCMessage *message);

#endif
