/*
 * Sending without a copy: gRPC reads the caller's memory until the bytes have left, or until the
 * connection is gone. So a call must not return before all that it has lent has come back, even
 * if its status is there: the caller would write to memory that is still being sent.
 *
 * If the peer is dead but its connection stands (a cut network), gRPC may hold the memory until
 * the keepalive notices. After PATIENCE_S the connection is given up (client_conn_break), which
 * makes gRPC drop it when its last call ends.
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
    /*
     * Before the last wait: with its last user the channel goes, and with it gRPC's hold on the
     * memory.
     */
    client_conn_give(client, conn);
    (void)wait_for_all(ref, NULL);
    (void)sem_destroy(&ref->back);
}
