/* tutti doctor: is the job well, and what is to be done. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/connect/fan_out.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/diagnose/doctor.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/result.h"
#include "client/cli/util/values.h"

#define SHOWN_MAX 64  /* findings; --json has all */
#define QUIET_MS 1000 /* younger differences are those of ranks that move */

/* ------------------------------------------------------------------------------ asking */

typedef struct visit {
    doctor *all;
    const uint32_t *ranks; /* that are alive */
    size_t rank_count;
    uint32_t wait_ms;
} visit;

/*
 * Runs on several threads at once, each for its own rank. `client` is NULL when the agent could
 * not be reached.
 */
static void
on_rank(void *arg, uint32_t rank, tutti_client *client, const tutti_error *err)
{
    const visit *round = arg;
    doctor_patient *patient = &round->all->patients[rank];

    if (client == NULL) {
        patient->err = *err;
        return;
    }
    patient->answered = tutti_clock_compare(client, &patient->offset_ns, &patient->error_ns,
                                            &patient->err) == TUTTI_OK &&
                        tutti_agent_examine(client, round->ranks, round->rank_count, round->wait_ms,
                                            &patient->self_check, &patient->reaches,
                                            &patient->reach_count, &patient->err) == TUTTI_OK;
}

/*
 * Each agent is told which ranks are alive, and tries to reach all of them. So all pairs are
 * tried, also those between hosts that this command cannot see.
 */
static void
ask_all_doctor(const cli *self, doctor *all, uint32_t wait_ms)
{
    const cli_fan_out *fan_out = all->fan_out;
    uint32_t *ranks = calloc(fan_out->count + 1, sizeof(*ranks));
    visit round = {.all = all, .ranks = ranks, .wait_ms = wait_ms};
    uint32_t rank;

    if (ranks == NULL) {
        abort();
    }
    for (rank = 0; rank < fan_out->count; rank++) {
        if (fan_out->infos[rank].state == TUTTI_RANK_ALIVE) {
            ranks[round.rank_count++] = rank;
        }
    }
    cli_fan_out_call(self, fan_out, on_rank, &round);
    free(ranks);
}

/* Without an answer nothing is found: that the coordinator is away has been told by then. */
static void
ask_counts(cli *self, doctor *all)
{
    tutti_client *client = NULL;
    tutti_stall_options options;

    tutti_stall_options_init(&options);
    options.older_than_ms = QUIET_MS;
    if (cli_connect_coordinator(self, &client, NULL) == TUTTI_OK) {
        (void)tutti_stalls_find(client, &options, &all->stalls, NULL);
        tutti_close(client);
    }
}

/* ------------------------------------------------------------------------------ telling */

/* -1 = no limit. */
static json_int_t
json_limit(uint64_t limit)
{
    return limit == TUTTI_NO_LIMIT ? -1 : (json_int_t)limit;
}

static json_t *
json_texts(const char *first, size_t step, size_t count)
{
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_array_append_new(list, json_string(first + i * step));
    }
    return list;
}

static json_t *
json_reaches(const doctor_patient *patient)
{
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < patient->reach_count; i++) {
        const tutti_reach *reach = &patient->reaches[i];
        json_t *one = json_pack("{s:I, s:b}", "rank", (json_int_t)reach->rank, "reached",
                                (int)reach->reached);

        if (reach->reached) {
            (void)json_object_set_new(one, "trip_us", json_integer((json_int_t)reach->trip_us));
        } else {
            (void)json_object_set_new(one, "why", json_string(reach->why));
        }
        (void)json_array_append_new(list, one);
    }
    return list;
}

static json_t *
json_patient(const tutti_rank_info *info, const doctor_patient *patient)
{
    const tutti_self_check *self_check = &patient->self_check;

    if (!patient->answered) {
        return json_pack("{s:I, s:s, s:s, s:b}", "rank", (json_int_t)info->rank, "host", info->host,
                         "address", info->address, "answered", 0);
    }
    return json_pack(
        "{s:I, s:s, s:s, s:b, s:I, s:s, s:s, s:s, s:o, s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:f, "
        "s:f, s:o}",
        "rank", (json_int_t)info->rank, "host", info->host, "address", info->address, "answered", 1,
        "pid", (json_int_t)self_check->pid, "version", self_check->version, "kernel",
        self_check->kernel, "device", self_check->device, "addresses",
        json_texts(self_check->addresses[0], sizeof(self_check->addresses[0]),
                   self_check->address_count),
        "transports", self_check->transports, "net_devices", self_check->net_devices,
        "rdma_devices",
        json_texts(self_check->rdma_devices[0], sizeof(self_check->rdma_devices[0]),
                   self_check->rdma_device_count),
        "gpus", json_texts(self_check->gpus[0], sizeof(self_check->gpus[0]), self_check->gpu_count),
        "memlock_bytes", json_limit(self_check->memlock_bytes), "files",
        json_limit(self_check->files), "files_open", (json_int_t)self_check->files_open,
        "clock_offset_us", (double)patient->offset_ns / 1000.0, "clock_error_us",
        (double)patient->error_ns / 1000.0, "reaches", json_reaches(patient));
}

/* One document. The table is made from its ranks, so the two cannot differ. */
static json_t *
json_doctor(const cli *self, const doctor *all)
{
    json_t *ranks = json_array();
    json_t *findings = json_array();
    json_t *document;
    size_t i;

    for (i = 0; i < all->fan_out->count; i++) {
        (void)json_array_append_new(ranks,
                                    json_patient(&all->fan_out->infos[i], &all->patients[i]));
    }
    for (i = 0; i < all->finding_count; i++) {
        const doctor_finding *one = &all->findings[i];
        json_t *finding = json_pack("{s:s, s:s, s:s}", "severity", one->bad ? "bad" : "warning",
                                    "what", one->what, "remedy", one->remedy);

        if (one->rank >= 0) {
            (void)json_object_set_new(finding, "rank", json_integer(one->rank));
        }
        (void)json_array_append_new(findings, finding);
    }
    document =
        json_pack("{s:s, s:s, s:I, s:b, s:o, s:o}", "job", all->fan_out->job.name, "coordinator",
                  self->coordinator, "world_size", (json_int_t)all->fan_out->job.world_size, "well",
                  (int)(all->bad_count == 0), "findings", findings, "ranks", ranks);
    if (all->coordinator_count > 0) {
        (void)json_object_set_new(document, "coordinators", doctor_json_leaders(all));
    }
    return document;
}

/* An empty text, and what a rank that does not answer cannot tell, are "-" (cli_cell_value). */

static cli_style
write_clock(FILE *out, const json_t *row, const char *key)
{
    const json_t *offset_us = json_object_get(row, key);

    if (offset_us == NULL) {
        return cli_cell_value(out, row, key);
    }
    (void)fprintf(out, "%+.3f ms", json_number_value(offset_us) / 1000.0);
    return CLI_PLAIN;
}

static cli_style
write_file_limit(FILE *out, const json_t *row, const char *key)
{
    if (cli_row_number(row, key) < 0) {
        (void)fputs("no limit", out);
        return CLI_PLAIN;
    }
    return cli_cell_value(out, row, key);
}

static cli_style
write_byte_limit(FILE *out, const json_t *row, const char *key)
{
    return cli_row_number(row, key) < 0 ? write_file_limit(out, row, key)
                                        : cli_cell_bytes(out, row, key);
}

static cli_style
write_reaches(FILE *out, const json_t *row, const char *key)
{
    const json_t *reaches = json_object_get(row, key);
    size_t count = 0;
    size_t i;

    if (reaches == NULL) {
        (void)fputs("no answer", out);
        return CLI_RED;
    }
    for (i = 0; i < json_array_size(reaches); i++) {
        count += json_is_true(json_object_get(json_array_get(reaches, i), "reached")) ? 1 : 0;
    }
    (void)fprintf(out, "%zu of %zu", count, json_array_size(reaches));
    return count == json_array_size(reaches) ? CLI_GREEN : CLI_RED;
}

static const cli_column doctor_columns[] = {
    {">RANK", "rank", NULL},
    {"HOST", "host", NULL},
    {"ADVERTISES", "address", NULL},
    {"DEVICE", "device", NULL},
    {"VERSION", "version", NULL},
    {">CLOCK", "clock_offset_us", write_clock},
    {">FILES", "files", write_file_limit},
    {">MEMLOCK", "memlock_bytes", write_byte_limit},
    {">REACHES", "reaches", write_reaches},
    {0},
};

/* What is wrong, and below it what to do about it. */
static void
print_findings(const cli *self, const doctor *all)
{
    size_t i;

    for (i = 0; i < all->finding_count && i < SHOWN_MAX; i++) {
        const doctor_finding *one = &all->findings[i];

        (void)fprintf(self->out, "\n%s%s%s: %s\n    %s\n",
                      cli_style_begin(self, one->bad ? CLI_RED : CLI_YELLOW),
                      one->bad ? "bad" : "warning", cli_style_end(self), one->what, one->remedy);
    }
    if (all->finding_count > SHOWN_MAX) {
        (void)fprintf(self->out, "\n... and %zu more, which --json lists\n",
                      all->finding_count - SHOWN_MAX);
    }
}

static void
print_gpus(const cli *self, const doctor *all)
{
    uint32_t rank;
    size_t i;

    for (rank = 0; rank < all->fan_out->count; rank++) {
        const doctor_patient *patient = &all->patients[rank];

        for (i = 0; patient->answered && i < patient->self_check.gpu_count; i++) {
            (void)fprintf(self->out, "rank %" PRIu32 ": %s\n", patient->self_check.rank,
                          patient->self_check.gpus[i]);
        }
    }
}

static void
print_doctor(const cli *self, const doctor *all, const json_t *document)
{
    const tutti_job_info *job = &all->fan_out->job;

    (void)fprintf(self->out,
                  "job %s, epoch %" PRIu64 ": %" PRIu32 " of %" PRIu32
                  " ranks alive, coordinator %s\n",
                  job->name, job->epoch, job->alive_count, job->world_size, self->coordinator);
    doctor_print_leaders(self, json_object_get(document, "coordinators"));
    cli_print_rows(self, json_object_get(document, "ranks"), doctor_columns);
    print_gpus(self, all);
    print_findings(self, all);
    if (all->finding_count == 0) {
        (void)fprintf(self->out, "all is well\n");
    }
}

/*
 * The job cannot be asked for. If there are several coordinators, that one of them does not lead or
 * answer says why.
 */
static int
fail_without_job(const cli *self, doctor *all, uint32_t wait_ms, const tutti_error *err)
{
    json_t *rows;

    doctor_ask_leaders(self, all, wait_ms);
    if (all->coordinator_count == 0) {
        return cli_failed(self, NULL, err);
    }
    doctor_check(all);
    if (self->json) {
        json_t *document = json_doctor(self, all);

        (void)json_object_set_new(document, "error", cli_json_error(err));
        (void)cli_print_json(self, document);
    } else {
        rows = doctor_json_leaders(all);
        doctor_print_leaders(self, rows);
        print_findings(self, all);
        json_decref(rows);
    }
    (void)fprintf(self->err, "tutti: doctor: %s\n", err->text);
    free(all->findings);
    return CLI_FAILED;
}

/* The exit code says whether anything is bad; warnings alone are fine. */
int
cli_doctor(cli *self)
{
    const char *wait = cli_value(self, "wait");
    cli_fan_out fan_out = {.count = 0};
    doctor all = {.fan_out = &fan_out};
    uint32_t wait_ms = 2000;
    json_t *document;
    tutti_error err;
    uint32_t rank;

    if (wait != NULL && (!cli_parse_ms(wait, &wait_ms) || wait_ms > 10000)) {
        return cli_usage(self, "--wait \"%s\": need a time of at most 10s: 250ms, 5s", wait);
    }
    if (cli_fan_out_open(self, &fan_out, &err) != TUTTI_OK) {
        return fail_without_job(self, &all, wait_ms, &err);
    }
    if (self->local) {
        all.cluster = cli_value(self, "cluster") != NULL ? cli_value(self, "cluster") : "default";
    }
    all.patients = calloc(fan_out.count + 1, sizeof(*all.patients));
    if (all.patients == NULL) {
        abort();
    }
    ask_all_doctor(self, &all, wait_ms);
    doctor_ask_leaders(self, &all, wait_ms);
    ask_counts(self, &all);
    doctor_check(&all);
    document = json_doctor(self, &all);
    if (!self->json) {
        print_doctor(self, &all, document);
    }
    (void)cli_print_json(self, document);
    for (rank = 0; rank < fan_out.count; rank++) {
        tutti_free(all.patients[rank].reaches);
    }
    tutti_stalls_free(&all.stalls);
    free(all.patients);
    free(all.findings);
    cli_fan_out_close(&fan_out);
    return all.bad_count == 0 ? CLI_FINE : CLI_FAILED;
}
