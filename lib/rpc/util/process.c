/*
 * What belongs to the process and not to a loop: gRPC's beginning and end, its clock, marks for
 * the thread sanitizer. `owner` is written by tutti_rpc_init and tutti_rpc_fini, before the first
 * and after the last other thread of gRPC, and only read in between.
 */
#include "rpc/util/process.h"

#include <assert.h>
#include <grpc/grpc.h>
#include <grpc/status.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "rpc/loop.h"
#include "rpc/util/log.h"

#if defined(__SANITIZE_THREAD__)
#define TUTTI_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TUTTI_TSAN 1
#endif
#endif
#ifdef TUTTI_TSAN
#include <sanitizer/tsan_interface.h>
#endif

static_assert((int)TUTTI_UNAVAILABLE == (int)GRPC_STATUS_UNAVAILABLE &&
                  (int)TUTTI_UNAUTHENTICATED == (int)GRPC_STATUS_UNAUTHENTICATED,
              "codes carry gRPC's numbers");

/* The process that called tutti_rpc_init. */
static pid_t owner;

void
rpc_tag_release(void *tag)
{
#ifdef TUTTI_TSAN
    __tsan_release(tag);
#endif
    (void)tag;
}

void
rpc_tag_acquire(void *tag)
{
#ifdef TUTTI_TSAN
    __tsan_acquire(tag);
#endif
    (void)tag;
}

void
tutti_rpc_init(void)
{
    sigset_t all;
    sigset_t before;

    assert(owner == 0);
    owner = getpid();
    rpc_log_init();
    /* gRPC's threads inherit the mask: a signal then always reaches a thread of ours. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    grpc_init();
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void
tutti_rpc_fini(void)
{
    /*
     * In a forked child gRPC's threads do not exist: grpc_shutdown would wait for them for ever.
     */
    if (owner == getpid()) {
        grpc_shutdown();
    }
    owner = 0;
}

tutti_code
rpc_check_process(tutti_error *err)
{
    if (owner != getpid()) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "FORKED",
                              "process %ld uses gRPC that process %ld started: it does not survive "
                              "fork(), start a program instead",
                              (long)getpid(), (long)owner);
    }
    return TUTTI_OK;
}

gpr_timespec
rpc_time_to(uint64_t at_ns)
{
    gpr_timespec at = {.tv_sec = (int64_t)(at_ns / TUTTI_NS_PER_S),
                       .tv_nsec = (int32_t)(at_ns % TUTTI_NS_PER_S),
                       .clock_type = GPR_CLOCK_MONOTONIC};

    return at_ns == TUTTI_TIMERS_NEVER ? gpr_inf_future(GPR_CLOCK_MONOTONIC) : at;
}

uint64_t
rpc_time_from(gpr_timespec at)
{
    const gpr_timespec here = gpr_convert_clock_type(at, GPR_CLOCK_MONOTONIC);

    if (gpr_time_cmp(here, gpr_inf_future(GPR_CLOCK_MONOTONIC)) == 0) {
        return TUTTI_TIMERS_NEVER;
    }
    if (here.tv_sec < 0) { /* before this machine was started */
        return 0;
    }
    return (uint64_t)here.tv_sec * (uint64_t)TUTTI_NS_PER_S + (uint64_t)here.tv_nsec;
}
