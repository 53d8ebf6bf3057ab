/*
 * Several coordinators, of which one leads. Each is asked by itself, since a client of all of them follows
 * the one that leads and sees nothing of the others.
 */
#include <inttypes.h>
#include <string.h>

#include "client/cli/connect/connect.h"
#include "client/cli/diagnose/doctor.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"

#define WAIT_MIN_MS 500 /* to connect, with TLS */

/* ------------------------------------------------------------------ asking */

static void
ask_coordinator(const cli *self, doctor_coordinator *one, uint32_t wait_ms)
{
    tutti_client_options options;

    tutti_client_options_init(&options);
    options.agent = one->address;
    options.job = cli_value(self, "job");
    options.timeout_ms = wait_ms < WAIT_MIN_MS ? WAIT_MIN_MS : wait_ms;
    cli_options_secure(self, &options);
    one->answered = tutti_leader_check(&options, &one->info, &one->err) == TUTTI_OK;
}

void
doctor_ask_leaders(const cli *self, doctor *all, uint32_t wait_ms)
{
    const char *at = self->coordinator;

    if (strchr(at, ',') == NULL) {
        return;
    }
    while (*at != '\0' && all->coordinator_count < DOCTOR_COORDINATORS_MAX) {
        doctor_coordinator *one = &all->coordinators[all->coordinator_count];
        const size_t size = strcspn(at, ",");

        (void)snprintf(one->address, sizeof(one->address), "%.*s", (int)size, at);
        if (size > 0) {
            ask_coordinator(self, one, wait_ms);
            all->coordinator_count++;
        }
        at += size + (at[size] == ',' ? 1 : 0);
    }
}

/* ------------------------------------------------------------------ judging */

static const doctor_coordinator *
find_leader(const doctor *self, size_t *ret_count)
{
    const doctor_coordinator *found = NULL;
    size_t i;

    *ret_count = 0;
    for (i = 0; i < self->coordinator_count; i++) {
        if (self->coordinators[i].answered && self->coordinators[i].info.leads) {
            found = &self->coordinators[i];
            ++*ret_count;
        }
    }
    return found;
}

/* One that is away is missed only when nobody leads, or when the leader dies. */
static void
check_silent(doctor *self, const doctor_coordinator *one, size_t leaders)
{
    doctor_say(
        doctor_add(self, leaders == 0, -1,
                   "start it again; if it runs, look at its log, its --listen and firewalls"),
        "coordinator %s does not answer: %.400s", one->address, one->err.text);
}

static void
check_standby(doctor *self, const doctor_coordinator *one, const doctor_coordinator *leader)
{
    const char *told = one->info.leader;

    if (leader == NULL) {
        return;
    }
    if (told[0] == '\0') {
        doctor_say(
            doctor_add(self, false, -1,
                       "ask again in some seconds; if it stays so, compare the members and the "
                       "prefix of etcd in --store of both"),
            "coordinator %s says that nobody leads, and %s leads", one->address, leader->address);
    } else if (strcmp(told, leader->address) != 0) {
        doctor_say(doctor_add(self, false, -1,
                              "if both are one process, name the coordinators as they advertise "
                              "themselves; else compare --store of both, and ask again in some "
                              "seconds"),
                   "coordinator %s says that %s leads, and %s leads", one->address, told,
                   leader->address);
    }
}

static void
check_nobody(doctor *self)
{
    doctor_say(
        doctor_add(self, true, -1,
                   "does etcd answer (etcdctl endpoint health)? It needs most of its members; "
                   "else wait for --leader-lease, and look at the logs of the coordinators"),
        "none of the %zu coordinators says that it leads", self->coordinator_count);
}

static void
check_several(doctor *self, size_t leaders)
{
    doctor_say(doctor_add(self, true, -1,
                          "give all of them the same --store: the members of one etcd, and one "
                          "prefix; a coordinator without etcd must not be in the list"),
               "%zu of the %zu coordinators say that they lead", leaders, self->coordinator_count);
}

void
doctor_check_leaders(doctor *self)
{
    size_t leaders = 0;
    const doctor_coordinator *leader = find_leader(self, &leaders);
    size_t i;

    if (self->coordinator_count == 0) {
        return;
    }
    if (leaders == 0) {
        check_nobody(self);
    } else if (leaders > 1) {
        check_several(self, leaders);
    }
    for (i = 0; i < self->coordinator_count; i++) {
        const doctor_coordinator *one = &self->coordinators[i];

        if (!one->answered) {
            check_silent(self, one, leaders);
        } else if (!one->info.leads && leaders == 1) {
            check_standby(self, one, leader);
        }
    }
}

/* ------------------------------------------------------------------ telling */

json_t *
doctor_json_leaders(const doctor *self)
{
    json_t *rows = json_array();
    size_t i;

    for (i = 0; i < self->coordinator_count; i++) {
        const doctor_coordinator *one = &self->coordinators[i];
        const char *state = !one->answered ? "silent" : one->info.leads ? "leads" : "stands by";
        json_t *row = json_pack("{s:s, s:s}", "address", one->address, "state", state);

        if (one->answered && !one->info.leads) {
            (void)json_object_set_new(row, "leader", json_string(one->info.leader));
        } else if (!one->answered) {
            (void)json_object_set_new(row, "error", cli_json_error(&one->err));
        }
        (void)json_array_append_new(rows, row);
    }
    return rows;
}

static cli_style
write_leading(FILE *out, const json_t *row, const char *key)
{
    const char *state = json_string_value(json_object_get(row, key));

    (void)fputs(state, out);
    return strcmp(state, "silent") == 0  ? CLI_RED
           : strcmp(state, "leads") == 0 ? CLI_GREEN
                                         : CLI_PLAIN;
}

static const cli_column columns[] = {
    {"COORDINATOR", "address", NULL},
    {"STATE", "state", write_leading},
    {"SAYS THAT ... LEADS", "leader", NULL},
    {0},
};

void
doctor_print_leaders(const cli *self, const json_t *rows)
{
    if (json_array_size(rows) > 0) {
        cli_print_rows(self, rows, columns);
    }
}
