/*
 * A controller: one program that drives all agents by sessions, one after the other, on a group of its own. Each makes
 * registers on the workers, moves what is in them, reads a result and closes; or the controller is killed in between,
 * which must leave nothing. Values are those of the session's number, so what another session left would be seen.
 */
#include <stdio.h>
#include <string.h>

#include "sim/cluster/cluster_private.h"

#define SESSIONS 5
#define COUNT 40
#define CALL_MS 5000
#define PAUSE_NS (60 * TUTTI_NS_PER_MS)

typedef struct course {
    cluster_user *user;
    tutti_client *client;
    tutti_session *session;
    uint32_t number;
    uint32_t lead;
    int64_t got[COUNT];
    tutti_error err;
} course;

static bool
is_well(course *self, tutti_code code, const char *what)
{
    if (code == TUTTI_OK || self->user->killed) {
        return code == TUTTI_OK;
    }
    sim_note("controller: %s of session %u ends: %s: %s", what, self->number, self->err.reason,
             self->err.text);
    if (self->err.reason[0] == '\0' || cluster.plan.kind == PLAN_GENTLE) {
        sim_fail("controller: %s of session %u failed, reason \"%s\": %s", what, self->number,
                 self->err.reason, self->err.text);
    }
    cluster.counts.failed++;
    return false;
}

static bool
connect_lead(course *self)
{
    tutti_client_options options;
    char address[32];

    self->lead = (uint32_t)sim_draw(cluster.plan.size);
    (void)snprintf(address, sizeof(address), "127.0.0.1:%u", 7100 + self->lead);
    tutti_client_options_init(&options);
    options.agent = address;
    options.timeout_ms = CALL_MS;
    options.wait = true;
    return tutti_connect_with(&options, &self->client, &self->err) == TUTTI_OK;
}

static bool
open_session(course *self)
{
    tutti_session_options options;

    tutti_session_options_init(&options);
    options.group = "stage";
    return is_well(self,
                   tutti_group_create(self->client, "stage", cluster.plan.groups[0].ranks,
                                      cluster.plan.size, NULL, &self->err),
                   "the group") &&
           is_well(self, tutti_session_open(self->client, &options, &self->session, &self->err),
                   "the opening");
}

/* Worker 0's tensor to all, and the sum of all: each element times the number of workers. */
static bool
run_commands(course *self)
{
    const tutti_spec spec = {.dtype = TUTTI_DTYPE_INT64, .dim_count = 1, .dims = {COUNT}};
    tutti_session_move move;
    int64_t given[COUNT];
    uint32_t i;

    for (i = 0; i < COUNT; i++) {
        given[i] = 1000 * self->number + i;
    }
    if (!is_well(self, tutti_session_put(self->session, 0, 1, &spec, given, NULL, &self->err),
                 "an upload")) {
        return false;
    }
    tutti_session_move_init(&move);
    move.src = move.into = 1;
    if (!is_well(self, tutti_session_broadcast_from_worker0(self->session, &move, NULL, &self->err),
                 "a broadcast")) {
        return false;
    }
    move.into = 2;
    return is_well(
               self,
               tutti_session_all_reduce(self->session, &move, TUTTI_REDUCE_SUM, NULL, &self->err),
               "a sum") &&
           is_well(self, tutti_session_sync(self->session, NULL, &self->err), "a sync") &&
           is_well(self,
                   tutti_session_read(self->session, (uint32_t)sim_draw(cluster.plan.size), 2,
                                      self->got, sizeof(self->got), NULL, &self->err),
                   "a download");
}

static void
judge_sum(const course *self)
{
    uint32_t i;

    for (i = 0; i < COUNT && !self->user->killed; i++) {
        if (self->got[i] != (1000 * (int64_t)self->number + i) * cluster.plan.size) {
            sim_fail("controller: element %u of session %u is %lld", i, self->number,
                     (long long)self->got[i]);
        }
    }
}

static void
run_course(course *self)
{
    if (connect_lead(self)) {
        cluster.counts.calls++;
        if (open_session(self) && run_commands(self)) {
            sim_note("controller: session %u is well", self->number);
            judge_sum(self);
        }
        if (self->session != NULL) {
            (void)tutti_session_close(self->session, NULL);
        }
        tutti_close(self->client);
    }
}

void *
cluster_run_controller(void *arg)
{
    cluster_user *self = arg;

    while (self->next < SESSIONS && !self->killed) {
        course one = {.user = self, .number = 1 + self->next++};

        sim_sleep(sim_draw(PAUSE_NS));
        run_course(&one);
    }
    self->through = true;
    return NULL;
}
