/*
 * Init addresses (file://, tutti://, env://): from the address by which a job meets to the agent
 * of one of its ranks. The file may not be written yet, the coordinator not be up, the rank not
 * have joined: all of that is waited for within timeout_ms; a rank that the job can never have is
 * refused at once.
 */
#include "client/conn/init.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/init_url.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "tutti/init.h"
#include "tutti/job.h"

#define ASK_AGAIN_MS_MIN 10
#define ASK_AGAIN_MS_MAX 500

tutti_code
tutti_init_parse(const char *url, tutti_init_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(ret_info, err);
    TUTTI_NEED(url, err);

    tutti_init_url parsed;
    tutti_init_info info = {0};
    tutti_code code;

    TUTTI_TRY(tutti_init_url_parse(url, getenv, &parsed, err));
    (void)snprintf(info.scheme, sizeof(info.scheme), "%s", tutti_init_kind_name(parsed.kind));
    (void)snprintf(info.path, sizeof(info.path), "%s", parsed.path);
    info.rank = parsed.rank;
    info.world_size = parsed.world_size;
    code = tutti_init_url_resolve(&parsed, info.coordinator, err);
    if (code != TUTTI_OK && code != TUTTI_NOT_FOUND) {
        return code;
    }
    *ret_info = info;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ finding */

/* What is still to be found. */
typedef struct search {
    tutti_client *client;
    tutti_init_url url;
    char address[TUTTI_ADDRESS_MAX]; /* of the agent; "" = not found yet */
} search;

static tutti_code
replace_text(char **text, const char *with, tutti_error *err)
{
    char *copy = strdup(with);

    if (copy == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for an address");
    }
    free(*text);
    *text = copy;
    return TUTTI_OK;
}

static tutti_code
find_coordinator(search *self, tutti_error *err)
{
    char address[TUTTI_ADDRESS_MAX] = "";

    if (self->client->settings.coordinator[0] != '\0') {
        return TUTTI_OK; /* found before, or the caller knows better */
    }
    TUTTI_TRY(tutti_init_url_resolve(&self->url, address, err));
    return replace_text(&self->client->settings.coordinator, address, err);
}

static tutti_code
find_rank(search *self, tutti_error *err)
{
    tutti_rank_info info;
    tutti_code code = find_coordinator(self, err);

    if (code == TUTTI_OK) {
        code = tutti_ranks_get(self->client, &self->url.rank, 1, &info, err);
    }
    if (code == TUTTI_OK && info.state == TUTTI_RANK_ALIVE && info.address[0] != '\0') {
        (void)snprintf(self->address, sizeof(self->address), "%s", info.address);
    } else if (code == TUTTI_OK) {
        code = TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NOT_JOINED",
                              "rank %" PRIu32 " has not joined, or is lost", self->url.rank);
    }
    return code;
}

/* Not there yet is what one waits for. A rank that is no number of the job is wrong for good. */
static bool
may_come(tutti_code code, const tutti_error *err)
{
    return (code == TUTTI_NOT_FOUND && strcmp(err->reason, "RANK_RANGE") != 0) ||
           code == TUTTI_UNAVAILABLE || code == TUTTI_FAILED_PRECONDITION;
}

static tutti_code
find_in_time(search *self, tutti_error *err)
{
    const uint64_t deadline_ns = client_deadline(self->client, 0);
    uint64_t again_ns = ASK_AGAIN_MS_MIN * TUTTI_NS_PER_MS;
    tutti_error inner;

    for (;;) {
        const tutti_code code = find_rank(self, &inner);

        if (code == TUTTI_OK) {
            return TUTTI_OK;
        }
        if (!may_come(code, &inner)) {
            return tutti_error_pass(err, &inner);
        }
        if (tutti_clock_add(tutti_clock_ns(), again_ns) >= deadline_ns) {
            return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "NOT_JOINED",
                                  "rank %" PRIu32 " of job %s did not come in %" PRIu32 " ms: %s",
                                  self->url.rank, client_job(self->client),
                                  self->client->settings.timeout_ms, inner.text);
        }
        client_pause_ns(again_ns);
        again_ns = again_ns * 2 > ASK_AGAIN_MS_MAX * TUTTI_NS_PER_MS
                       ? ASK_AGAIN_MS_MAX * TUTTI_NS_PER_MS
                       : again_ns * 2;
    }
}

tutti_code
client_init_find(tutti_client *client, uint32_t *ret_world_size, tutti_error *err)
{
    search self = {.client = client};
    tutti_code code;

    *ret_world_size = 0;
    if (!tutti_init_url_is(client->settings.agent)) {
        return TUTTI_OK;
    }
    code = tutti_init_url_parse(client->settings.agent, getenv, &self.url, err);
    if (code == TUTTI_OK) {
        code = replace_text(&client->settings.agent, "", err); /* nobody's agent, for now */
    }
    if (code == TUTTI_OK) {
        code = find_in_time(&self, err);
    }
    if (code == TUTTI_OK) {
        code = replace_text(&client->settings.agent, self.address, err);
    }
    if (code == TUTTI_OK) {
        *ret_world_size = self.url.world_size;
    }
    return code;
}

tutti_code
client_init_check(const tutti_client *client, uint32_t world_size, tutti_error *err)
{
    if (client->agent.world_size != world_size) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "WORLD_SIZE",
                              "the init address says %" PRIu32 " ranks, but job %s has %" PRIu32,
                              world_size, client->agent.job, client->agent.world_size);
    }
    return TUTTI_OK;
}
