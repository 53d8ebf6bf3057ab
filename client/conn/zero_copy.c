/*
 * Sending without a copy: gRPC looks at the caller's memory until it has left, or until the
 * connection is gone.
 */
#include "client/conn/zero_copy.h"

#include <assert.h>
#include <errno.h>
#include <time.h>

#include "client/conn/channel_pool.h"
#include "client/conn/client.h"

#define PATIENCE_S 1 /* for a connection that is alive to let go of what it still holds */

void
client_loan_init(client_loan *loan)
{
    const int failed = sem_init(&loan->back, 0, 0);

    assert(failed == 0);
    (void)failed;
    loan->out = 0;
}

static void
on_release(void *arg)
{
    client_loan *loan = arg;

    (void)sem_post(&loan->back);
}

tutti_rpc_blob
client_loan_blob(client_loan *loan, const void *data, size_t size)
{
    if (size <= CLIENT_COPY_BYTES_MAX) {
        return (tutti_rpc_blob){.data = data, .size = size};
    }
    loan->out++;
    return (tutti_rpc_blob){.data = data, .size = size, .on_release = on_release, .arg = loan};
}

void
client_loan_collect(client_loan *loan)
{
    while (loan->out > 0 && sem_trywait(&loan->back) == 0) {
        loan->out--;
    }
}

/* False: the time was up before all had come back. `until` NULL = never. */
static bool
wait_for_all(client_loan *loan, const struct timespec *until)
{
    while (loan->out > 0) {
        const int failed = until == NULL ? sem_wait(&loan->back)
                                         : sem_clockwait(&loan->back, CLOCK_MONOTONIC, until);

        if (failed == 0) {
            loan->out--;
        } else if (errno == ETIMEDOUT) {
            return false;
        }
    }
    return true;
}

void
client_loan_settle(client_loan *loan, tutti_client *client, client_line *line)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_S;
    if (!wait_for_all(loan, &until)) {
        client_line_break(client, line);
    }
    client_line_give(client, line);
    (void)wait_for_all(loan, NULL);
    (void)sem_destroy(&loan->back);
}
