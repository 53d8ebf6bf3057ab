/*
 * In the place of lib/rpc, for tests of the agent's rooms: a loop that runs when a test says so,
 * calls that a test makes and looks at, requests that a test answers, and a clock that a test
 * steps.
 *
 * The test's thread is the thread of all loops. Engines have their own threads, which answer calls
 * and post tasks.
 */
#ifndef TUTTI_TESTS_RPC_FAKE_H
#define TUTTI_TESTS_RPC_FAKE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/os/timers.h"
#include "rpc/channel.h"
#include "rpc/loop.h"
#include "rpc/message.h"
#include "rpc/server.h"

/* ------------------------------------------------------------------------------ the clock */

/*
 * Link with -Wl,--wrap=tutti_clock_ns. Each look at the clock adds a microsecond to it, so that who
 * looks around for a while before it sleeps comes to an end; besides, only steps move it.
 */
void fake_clock_step(uint64_t ns);

/* From now on it goes on by itself: engines that are stopped give each other some time. */
void fake_clock_release(void);
void fake_clock_hold(void); /* again as at the beginning */

/* ------------------------------------------------------------------------------ the loop */

struct tutti_rpc_loop {
    pthread_mutex_t mutex;
    pthread_cond_t posted;
    tutti_list_node tasks;
    tutti_timers timers;
};

void fake_loop_init(tutti_rpc_loop *loop);
void fake_loop_fini(tutti_rpc_loop *loop);

/* Run what is posted, and the timers that are due. Returns how many tasks. */
unsigned fake_loop_run(tutti_rpc_loop *loop);

/* Wait until a task is posted. Fails the test after 20 s: `what` hangs. */
void fake_loop_wait(tutti_rpc_loop *loop, const char *what);
/* The same, or some milliseconds: for who steps the clock meanwhile. */
void fake_loop_wait_briefly(tutti_rpc_loop *loop);

/* ------------------------------------------------------------------------------ messages */

struct tutti_rpc_message {
    const void *body;
    const unsigned char *payload;
    size_t size; /* that has not been read yet */
};

/* ------------------------------------------------------------------------------ calls */

/* Zero it, set the first part; fake_call_begin before it is handed to anybody. */
struct tutti_rpc_call {
    tutti_rpc_loop *loop;
    void *self; /* for its handlers */
    uint64_t deadline_ns;
    const char *identity;   /* NULL = "" */
    const char *user_agent; /* metadata; NULL = none */
    const char *lease;      /* likewise */
    const char *trace;      /* NULL = none */

    void *user;
    tutti_rpc_unary_fn on_cancel;
    tutti_rpc_unary_fn on_end;
    tutti_rpc_task end;
    atomic_uint refs;
    atomic_bool answered;
    atomic_bool cancelled;
    bool over;     /* on_end has run */
    unsigned turn; /* counts the ends of all calls: 1 for the first one */
    tutti_code code;
    tutti_error err;
};

void fake_call_begin(tutti_rpc_call *call);

/* It has its answer, which is not an error: for who writes answers. Any thread, once. */
void fake_call_answered(tutti_rpc_call *call);

/* The client goes away, or (`drains`) the server wants an end. */
void fake_call_cancel(tutti_rpc_call *call, bool drains);

/* ------------------------------------------------------------------------------ requests */

/* Under way to the coordinator: a test ends it with fake_request_end. */
struct tutti_rpc_request {
    tutti_list_node link; /* in the channel's requests */
    tutti_rpc_reply_fn on_reply;
    void *arg;
    uint64_t deadline_ns;
    bool cancelled;
    char name[128]; /* what is asked for: read from the message by the channel */
};

struct tutti_rpc_channel {
    tutti_list_node requests; /* the oldest first */
    unsigned count;           /* that were ever made */
    bool broken;              /* no request can be made: no memory */
    /* [out] ret_name  of 128 bytes */
    void (*read_name)(const struct ProtobufCMessage *message, char *ret_name);
};

void fake_channel_init(tutti_rpc_channel *channel);

/* One of them, or err. Frees the request. */
void fake_request_end(tutti_rpc_request *request, const void *response, const tutti_error *err);

#endif
