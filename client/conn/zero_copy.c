/*
 * Sending without a copy: gRPC looks at the caller's memory until it has left, or until the
 * connection is gone.
 */
#include "client/conn/zero_copy.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#include "client/conn/client.h"
#include "client/conn/conn_pool.h"

#define PATIENCE_S 1 /* for a connection that is alive to let go of what it still holds */

void
client_zero_copy_init(client_zero_copy_ref *ref)
{
    const int failed = sem_init(&ref->back, 0, 0);

    assert(failed == 0);
    (void)failed;
    ref->out = 0;
}

static void
on_release(void *arg)
{
    client_zero_copy_ref *ref = arg;

    (void)sem_post(&ref->back);
}

tutti_rpc_blob
client_zero_copy_blob(client_zero_copy_ref *ref, const void *data, size_t size)
{
    if (size <= CLIENT_COPY_BYTES_MAX) {
        return (tutti_rpc_blob){.data = data, .size = size};
    }
    ref->out++;
    return (tutti_rpc_blob){.data = data, .size = size, .on_release = on_release, .arg = ref};
}

void
client_zero_copy_collect(client_zero_copy_ref *ref)
{
    while (ref->out > 0 && sem_trywait(&ref->back) == 0) {
        ref->out--;
    }
}

/* False: the time was up before all had come back. `until` NULL = never. */
static bool
wait_for_all(client_zero_copy_ref *ref, const struct timespec *until)
{
    while (ref->out > 0) {
        const int failed = until == NULL ? sem_wait(&ref->back)
                                         : sem_clockwait(&ref->back, CLOCK_MONOTONIC, until);

        if (failed == 0) {
            ref->out--;
        } else if (errno == ETIMEDOUT) {
            return false;
        }
    }
    return true;
}

void
client_zero_copy_end(client_zero_copy_ref *ref, tutti_client *client, client_conn *conn)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_S;
    if (!wait_for_all(ref, &until)) {
        client_conn_break(client, conn);
    }
    client_conn_give(client, conn);
    (void)wait_for_all(ref, NULL);
    (void)sem_destroy(&ref->back);
}
