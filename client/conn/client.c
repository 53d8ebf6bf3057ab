/* What all rooms of the client need: who it is, its job, checks, pauses. */
#include "client/conn/client.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "tutti/version.h"

const char *
tutti_version(void)
{
    return TUTTI_VERSION;
}

void
tutti_set_interrupt(tutti_interrupt_fn hook)
{
    tutti_rpc_set_interrupt(hook);
}

void
client_pause_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / TUTTI_NS_PER_S),
                            .tv_nsec = (long)(ns % TUTTI_NS_PER_S)};

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {
    }
}

const tutti_agent_info *
tutti_whoami(const tutti_client *client)
{
    return client->settings.agent[0] == '\0' ? NULL : &client->info;
}

const char *
client_job(const tutti_client *client)
{
    return client->settings.agent[0] == '\0' ? client->settings.job : client->agent.job;
}

tutti_code
client_check_member(const tutti_client *client, tutti_error *err)
{
    if (client->settings.agent[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_AGENT",
                              "this client was connected without an agent, so it is no rank of the "
                              "job: connect to an agent");
    }
    return TUTTI_OK;
}

void
tutti_free(void *memory)
{
    free(memory);
}

tutti_code
client_check_handle(const char *handle, tutti_error *err)
{
    const size_t size = handle == NULL ? 0 : strlen(handle);

    if (size == 0 || size > TUTTI_NAME_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "handle or name of %zu bytes, need 1 to %d", size, TUTTI_NAME_MAX);
    }
    return TUTTI_OK;
}
