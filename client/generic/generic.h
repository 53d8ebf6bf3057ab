/* Private to client/generic: connections, and calls that were started on them. */
#ifndef TUTTI_CLIENT_GENERIC_GENERIC_H
#define TUTTI_CLIENT_GENERIC_GENERIC_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/data/list.h"
#include "rpc/channel.h"
#include "rpc/loop.h"
#include "tutti/generic.h"

#define GENERIC_METHODS_MAX 128                /* as a channel takes */
#define GENERIC_AHEAD 16                       /* messages of a call that nobody has taken ... */
#define GENERIC_AHEAD_BYTES ((size_t)4 << 20)  /* ... and their bytes */
#define GENERIC_UNSENT_BYTES ((size_t)2 << 20) /* of a call that may send more */

/* A method that was called. */
typedef struct generic_method {
    tutti_rpc_stub stub;
    char path[];
} generic_method;

/* A message that waits to be sent. */
typedef struct generic_part {
    tutti_list_node link;
    tutti_rpc_packed *packed;
    size_t bytes;
} generic_part;

struct tutti_generic {
    tutti_rpc_channel *channel;
    pid_t owner;
    pthread_mutex_t lock; /* guards all below, and the calls; a leaf but for the loop's mailbox */
    pthread_cond_t changed;
    tutti_rpc_loop *loop; /* NULL = no call was started yet */
    generic_method *methods[GENERIC_METHODS_MAX];
    size_t method_count;
    tutti_list_node live;  /* calls that have not ended */
    tutti_list_node ready; /* calls to be told by tutti_generic_ready */
    size_t call_count;     /* that are not freed */
    bool closed;
    int fd; /* readable while `ready` has something; -1 = not wanted yet */
};

struct tutti_generic_call {
    tutti_generic *generic;
    void *user;
    tutti_rpc_flow *flow; /* the loop's thread uses it, until on_end */
    tutti_buf details;    /* likewise; then behind the lock */
    tutti_rpc_task task;  /* posted while there is work for the loop's thread */
    /* Behind the lock. */
    tutti_list_node live;
    tutti_list_node ready;
    bool posted;
    tutti_list_node outbox;
    size_t unsent;
    size_t writing; /* bytes of the message that is under way */
    bool last;      /* no more will be sent */
    bool finished;  /* the loop's thread has said so */
    tutti_rpc_message *arrived[GENERIC_AHEAD];
    size_t arrived_at;
    size_t arrived_count;
    size_t arrived_bytes;
    bool held;
    bool cancelled;
    bool freed; /* by its owner: the loop's thread frees it */
    bool ended;
    tutti_error failure; /* of the end */
};

/* ------------------------------------------------------------------ generic.c */

/* What a call is given, checked. [out] ret_rpc  its texts are those of `given`. Codes as tutti_generic_unary. */
tutti_code generic_read_options(const char *method, const tutti_generic_call_options *given,
                                tutti_generic_call_options *ret_options,
                                tutti_rpc_call_options *ret_rpc, tutti_error *err);

/* [out, borrowed] ret_stub  the connection's */
tutti_code generic_find_stub(tutti_generic *generic, const char *path,
                             const tutti_rpc_stub **ret_stub, tutti_error *err);

/* [in] ret_details  NULL = not wanted */
void generic_give_details(const tutti_buf *details, tutti_generic_details *ret_details);

/* A call begins: the connection's thread runs, and the connection stays until generic_leave. */
tutti_code generic_enter(tutti_generic *generic, tutti_generic_call *call, tutti_error *err);

/* With the lock, which is let go of: the memory of a call has gone. */
void generic_leave(tutti_generic *generic);

/* With the lock: tell of the call, to who waits and to the event loop; or do not any more. */
void generic_tell(tutti_generic_call *call);
void generic_hush(tutti_generic_call *call);

/* ------------------------------------------------------------------ call.c */

/* With the lock: the connection's thread has work with it. */
void generic_post(tutti_generic_call *call);

#endif
