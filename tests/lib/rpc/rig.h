/* Rig: an echo server, a channel to it, and the few words that tests of calls use. */
#ifndef TUTTI_TESTS_RPC_RIG_H
#define TUTTI_TESTS_RPC_RIG_H

#include "support/testing.h"

#include "base/os/clock.h"
#include "echo_pb.h"
#include "echo_server.h"
#include "rpc/channel.h"

typedef struct rig {
    echo_server server;
    tutti_rpc_channel *channel;
} rig;

/* Setup and teardown for a test: a server on any port, two loops, a plain channel. */
int rig_begin(void **state);
int rig_end(void **state);

/* Start the server of a rig that is initialised, and open its channel. */
void rig_start(rig *self, size_t loop_count, const tutti_rpc_channel_options *options);
void rig_stop(rig *self);

/* One unary call. On success *ret_response is the caller's. NULL = not wanted. */
tutti_code rig_call(tutti_rpc_channel *channel, const tutti_rpc_stub *stub,
                    const echo_fields *request, tutti_rpc_message **ret_response, tutti_error *err);

/* The same with a text alone; the response's text is copied to a buffer of 256 bytes. */
tutti_code rig_ask(tutti_rpc_channel *channel, const char *text, char *ret_text, tutti_error *err);

/* The same over a channel of its own. */
tutti_code rig_ask_with(const rig *self, const tutti_rpc_channel_options *options, const char *text,
                        char *ret_text, tutti_error *err);

/* How a call by the bare core ended: the response's text, or that of the status. */
typedef struct rig_bare {
    tutti_code status;
    char text[256];
} rig_bare;

/* A unary call that sends what our client would not. `wire` NULL = no message; `key` NULL = no
 * metadata. */
rig_bare rig_call_bare(tutti_rpc_channel *channel, const char *method, const void *wire,
                       size_t size, const char *key, const char *value);

/* Poll until a counter has a value; fails after 20 s. */
#define rig_await(counter, wanted)                                                                 \
    do {                                                                                           \
        const uint64_t end_ = tutti_clock_ns() + 20 * TUTTI_NS_PER_S;                              \
        while ((uint64_t)(counter) != (uint64_t)(wanted)) {                                        \
            if (tutti_clock_ns() > end_) {                                                         \
                fail_msg("%s is %llu, wanted %llu", #counter, (unsigned long long)(counter),       \
                         (unsigned long long)(wanted));                                            \
            }                                                                                      \
            rig_pause();                                                                           \
        }                                                                                          \
    } while (0)

/* A millisecond. */
void rig_pause(void);

/* Resident memory of this process, now and at most, in bytes; its threads; its descriptors. */
size_t rig_memory(void);
size_t rig_memory_peak(void);
void rig_memory_reset_peak(void);
size_t rig_threads(void);
size_t rig_descriptors(void);

/* A folder of its own for a test; removed with everything in it. */
const char *rig_folder_make(char path[64]);
void rig_folder_remove(const char *path);

/* Is this build slowed down by a sanitizer? Then memory is not what it would be. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define RIG_SANITIZED 1
#else
#define RIG_SANITIZED 0
#endif

#endif
