#include "client/cli/store/hold.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#define NS_PER_MS 1000000
#define KEEPS 3 /* in the time of a lease: one may be late, or lost */

static sigset_t
ending_signals(void)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGTERM);
    return set;
}

void
store_hold_prepare(void)
{
    const sigset_t set = ending_signals();

    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
}

static int64_t
now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / NS_PER_MS;
}

/* False: a signal has come. */
static bool
rest(int64_t ms)
{
    const sigset_t set = ending_signals();
    const struct timespec time = {ms / 1000, ms % 1000 * NS_PER_MS};

    return sigtimedwait(&set, NULL, &time) < 0;
}

/* A coordinator that does not answer may be back before the lease ends. */
static bool
is_fatal(tutti_code code)
{
    return code != TUTTI_OK && code != TUTTI_UNAVAILABLE && code != TUTTI_DEADLINE_EXCEEDED;
}

tutti_code
store_hold(const cli *self, tutti_client *client, const tutti_kv_lease *lease, tutti_error *err)
{
    const int64_t until = self->timeout_ms == 0 ? INT64_MAX : now_ms() + self->timeout_ms;
    const int64_t pause = lease->ttl_ms / KEEPS + 1;

    for (;;) {
        const int64_t left = until - now_ms();
        tutti_code code;

        if (left <= 0 || !rest(left < pause ? left : pause)) {
            return tutti_kv_lease_revoke(client, lease->id, NULL, NULL, err);
        }
        code = tutti_kv_lease_keep(client, lease->id, NULL, err);
        if (is_fatal(code)) {
            return code;
        }
    }
}
