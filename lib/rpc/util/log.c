/*
 * gRPC's log comes out as ours, and strangers cannot fill the disk with it: a token bucket lets
 * LINES_AT_ONCE lines of WARN pass at once and one more each LINES_EVERY_NS; the lines that were
 * dropped are counted and the count is written later. on_log runs on any thread, also gRPC's own,
 * and calls nothing of gRPC.
 */
#include "rpc/util/log.h"

#include <grpc/support/log.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include "base/os/clock.h"
#include "base/os/log.h"

#ifdef TUTTI_GPR_LOG

#define LINES_AT_ONCE 20 /* of WARN; then ... */
#define LINES_EVERY_NS (1 * TUTTI_NS_PER_S)

/*
 * State of the process, as the pid in process.c. `full_ns` is the bucket: the time at which all
 * of its tokens would be back.
 */
static struct {
    pthread_mutex_t lock;
    uint64_t full_ns; /* when the bucket is full again */
    uint64_t dropped;
} bucket = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local bool quiet;

/* One line may go out; *ret_dropped lines before it could not. */
static bool
may_write(uint64_t now_ns, uint64_t *ret_dropped)
{
    bool may;

    (void)pthread_mutex_lock(&bucket.lock);
    /* A bucket that is full does not fill further. */
    if (bucket.full_ns < now_ns) {
        bucket.full_ns = now_ns;
    }
    may = bucket.full_ns - now_ns <= (LINES_AT_ONCE - 1) * LINES_EVERY_NS;
    if (may) {
        bucket.full_ns += LINES_EVERY_NS;
        *ret_dropped = bucket.dropped;
        bucket.dropped = 0;
    } else {
        bucket.dropped++;
    }
    (void)pthread_mutex_unlock(&bucket.lock);
    return may;
}

/* What gRPC calls an error is mostly a peer that misbehaves: nobody has to act, so it is WARN. */
static void
on_log(gpr_log_func_args *args)
{
    const char *slash = strrchr(args->file, '/');
    const char *file = slash == NULL ? args->file : slash + 1;
    uint64_t dropped = 0;

    if (args->severity == GPR_LOG_SEVERITY_DEBUG) {
        TUTTI_LOG("rpc/grpc", TRACE, "%s:%d: %s", file, args->line, args->message);
    } else if (args->severity == GPR_LOG_SEVERITY_INFO || quiet) {
        TUTTI_LOG("rpc/grpc", DEBUG, "%s:%d: %s", file, args->line, args->message);
    } else if (tutti_log_shows("rpc/grpc", TUTTI_LOG_WARN) &&
               may_write(tutti_clock_ns(), &dropped)) {
        if (dropped > 0) {
            TUTTI_LOG("rpc/grpc", WARN, "%" PRIu64 " more lines were not written", dropped);
        }
        TUTTI_LOG("rpc/grpc", WARN, "%s:%d: %s", file, args->line, args->message);
    }
}

void
rpc_log_init(void)
{
    gpr_set_log_function(on_log);
}

void
rpc_log_quiet(bool hushed)
{
    quiet = hushed;
}

#else

/* Since 1.66 gRPC logs through Abseil, which takes other sinks from C++ alone: its lines go to
 * standard error as they are, and GRPC_VERBOSITY says how many. */
void
rpc_log_init(void)
{
}

void
rpc_log_quiet(bool hushed)
{
    (void)hushed;
}

#endif
