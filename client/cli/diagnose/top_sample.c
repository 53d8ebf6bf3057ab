/*
 * Asking: the coordinator alone knows all of it, from joins and heartbeats, so no agent is asked but for
 * stalls, which the coordinator does. Members are followed by a watch.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/diagnose/top.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"

#define STALL_MS 3000     /* an op that waits for longer is a stall, as on the status page */
#define STALL_WAIT_MS 200 /* that agents may take to tell */

/* ------------------------------------------------------------------ events */

static bool
on_event(void *arg, const tutti_member_event *event)
{
    top *self = arg;
    char *line;

    if (event->kind == TUTTI_MEMBERS_NOW) {
        return true;
    }
    (void)pthread_mutex_lock(&self->lock);
    line = self->events[self->event_count++ % TOP_EVENTS];
    if (event->error != NULL) {
        (void)snprintf(line, TOP_EVENT_MAX, "%s: %.250s", tutti_member_change_name(event->kind),
                       event->error->text);
    } else {
        (void)snprintf(line, TOP_EVENT_MAX, "epoch %" PRIu64 ": rank %" PRIu32 " %s%s%.250s",
                       event->epoch, event->rank, tutti_member_change_name(event->kind),
                       event->reason[0] != '\0' ? ": " : "", event->reason);
    }
    (void)pthread_mutex_unlock(&self->lock);
    return true;
}

tutti_code
top_open(top *self, tutti_client *client, tutti_error *err)
{
    tutti_member_watch_options options;

    tutti_member_watch_options_init(&options);
    options.after_epoch = 0;
    self->client = client;
    (void)pthread_mutex_init(&self->lock, NULL);
    return tutti_member_watch_start(client, &options, on_event, self, &self->watch, err);
}

static void
free_groups(top *self)
{
    size_t i;

    for (i = 0; i < self->group_count; i++) {
        tutti_group_info_free(&self->groups[i]);
    }
    tutti_free(self->groups);
    self->groups = NULL;
    self->group_count = 0;
}

void
top_close(top *self)
{
    if (self->client == NULL) {
        return;
    }
    tutti_member_watch_stop(self->watch);
    free_groups(self);
    tutti_stalls_free(&self->stalls);
    free(self->rates);
    tutti_close(self->client);
    (void)pthread_mutex_destroy(&self->lock);
}

/* ------------------------------------------------------------------ rates */

/* The age of a heartbeat is rounded, and the way of the answer takes a while. */
#define SAME_HEARTBEAT_MS 20

void
top_turn_rate(top_rank *rate, const tutti_rank_info *info, uint64_t now_ms)
{
    const uint64_t told_ms = info->counted_ms == 0 ? 0 : now_ms - info->counted_ms;
    const double passed_s = (double)(told_ms - rate->told_ms) / 1000;

    if (rate->incarnation != info->incarnation || rate->told_ms == 0 || told_ms == 0 ||
        info->op_count < rate->ops || info->op_bytes < rate->bytes) {
        *rate = (top_rank){.incarnation = info->incarnation, .ops_per_s = -1, .bytes_per_s = -1};
    } else if (told_ms <= rate->told_ms + SAME_HEARTBEAT_MS) {
        return;
    } else {
        rate->ops_per_s = (double)(info->op_count - rate->ops) / passed_s;
        rate->bytes_per_s = (double)(info->op_bytes - rate->bytes) / passed_s;
    }
    rate->told_ms = told_ms;
    rate->ops = info->op_count;
    rate->bytes = info->op_bytes;
}

/* A world of another size is another job. */
static void
turn_rates(top *self)
{
    uint32_t i;

    if (self->rates_count != self->job.world_size) {
        free(self->rates);
        self->rates = calloc(self->job.world_size + 1, sizeof(*self->rates));
        self->rates_count = self->job.world_size;
        if (self->rates == NULL) {
            abort();
        }
    }
    for (i = 0; i < self->rank_count; i++) {
        top_turn_rate(&self->rates[self->ranks[i].rank], &self->ranks[i], self->now_ms);
    }
}

/*
 * If the sample has all ranks, the job's figures are the sums of the ranks' figures, so that both agree. The
 * coordinator's own counts begin anew with its process.
 */
static void
sum_ranks(top *self)
{
    uint32_t i;

    if (self->rank_count < self->job.world_size) {
        return;
    }
    self->job.op_count = self->job.op_bytes = 0;
    self->ops_per_s = self->bytes_per_s = 0;
    for (i = 0; i < self->rank_count; i++) {
        const top_rank *rate = &self->rates[self->ranks[i].rank];

        self->job.op_count += self->ranks[i].op_count;
        self->job.op_bytes += self->ranks[i].op_bytes;
        if (self->ranks[i].state == TUTTI_RANK_ALIVE && self->ops_per_s >= 0) {
            self->ops_per_s = rate->ops_per_s < 0 ? -1 : self->ops_per_s + rate->ops_per_s;
            self->bytes_per_s = rate->ops_per_s < 0 ? -1 : self->bytes_per_s + rate->bytes_per_s;
        }
    }
}

/* Over several samples, since heartbeats of many agents come at any time between them. */
static void
turn_totals(top *self)
{
    const top_total now = {self->now_ms, self->job.op_count, self->job.op_bytes};
    const top_total *then = &self->totals[self->total_count < TOP_TOTALS ? 0 : 1];
    const double passed_s = (double)(now.at_ms - then->at_ms) / 1000;

    if (self->total_count > 0 && (now.ops < then->ops || now.bytes < then->bytes)) {
        self->total_count = 0; /* another coordinator counts now */
    }
    self->ops_per_s = -1;
    self->bytes_per_s = -1;
    if (self->total_count > 0 && passed_s > 0) {
        self->ops_per_s = (double)(now.ops - then->ops) / passed_s;
        self->bytes_per_s = (double)(now.bytes - then->bytes) / passed_s;
    }
    if (self->total_count == TOP_TOTALS) {
        memmove(self->totals, self->totals + 1, sizeof(self->totals) - sizeof(self->totals[0]));
        self->total_count--;
    }
    self->totals[self->total_count++] = now;
}

/* ------------------------------------------------------------------ asking */

static tutti_code
ask_ranks_from(top *self, uint32_t first, tutti_error *err)
{
    uint32_t numbers[TOP_RANKS_MAX];
    const uint32_t size = self->job.world_size;
    uint32_t count = 0;

    self->first = first < size ? first : 0;
    while (count < TOP_RANKS_MAX && self->first + count < size) {
        numbers[count] = self->first + count;
        count++;
    }
    self->rank_count = 0;
    if (count > 0) {
        const tutti_code code = tutti_ranks_get(self->client, numbers, count, self->ranks, err);

        self->rank_count = code == TUTTI_OK ? count : 0;
        return code;
    }
    return TUTTI_OK;
}

static tutti_code
ask_groups(top *self, tutti_error *err)
{
    tutti_group_info *groups = NULL;
    size_t count = 0;
    const tutti_code code = tutti_group_list(self->client, &groups, &count, err);

    if (code == TUTTI_OK) {
        free_groups(self);
        self->groups = groups;
        self->group_count = count;
    }
    return code;
}

static tutti_code
ask_stalls(top *self, tutti_error *err)
{
    tutti_stall_options options;
    tutti_stalls stalls = {0};
    tutti_code code;

    tutti_stall_options_init(&options);
    options.older_than_ms = STALL_MS;
    options.wait_ms = STALL_WAIT_MS;
    code = tutti_stalls_find(self->client, &options, &stalls, err);
    if (code == TUTTI_OK) {
        tutti_stalls_free(&self->stalls);
        self->stalls = stalls;
    }
    return code;
}

static tutti_code
ask_all_of_it(top *self, uint32_t first, tutti_error *err)
{
    tutti_code code = tutti_job_get(self->client, &self->job, err);

    self->now_ms = cli_now_ms();
    if (code == TUTTI_OK) {
        turn_totals(self);
        code = ask_ranks_from(self, first, err);
    }
    if (code == TUTTI_OK) {
        turn_rates(self);
        sum_ranks(self);
        code = ask_groups(self, err);
    }
    return code == TUTTI_OK ? ask_stalls(self, err) : code;
}

tutti_code
top_sample(top *self, uint32_t first, tutti_error *err)
{
    tutti_error why = {0};
    const tutti_code code = ask_all_of_it(self, first, &why);

    self->err = code == TUTTI_OK ? (tutti_error){0} : why;
    if (code != TUTTI_OK && err != NULL) {
        *err = why;
    }
    return code;
}

/* ------------------------------------------------------------------ as a document */

static void
set_rate(json_t *row, const char *key, double per_s)
{
    (void)json_object_set_new(row, key, per_s < 0 ? json_null() : json_real(per_s));
}

static const char *
name_state(const tutti_rank_info *info)
{
    static const char *const names[] = {"free", "free", "waiting", "alive", "lost"};

    return info->state > TUTTI_RANK_LOST                                ? "unknown"
           : info->state == TUTTI_RANK_ALIVE && info->reason[0] != '\0' ? "leaving"
                                                                        : names[info->state];
}

static json_t *
json_top_rank(const top *self, const tutti_rank_info *info)
{
    const top_rank *rate = &self->rates[info->rank];
    json_t *row = json_pack(
        "{s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:s}", "rank", (json_int_t)info->rank, "state",
        name_state(info), "host", info->host, "device", info->device, "epoch",
        (json_int_t)info->joined_epoch, "since_ms", (json_int_t)info->since_ms, "ops",
        (json_int_t)info->op_count, "bytes", (json_int_t)info->op_bytes, "reason", info->reason);

    set_rate(row, "ops_per_s", info->state == TUTTI_RANK_ALIVE ? rate->ops_per_s : -1);
    set_rate(row, "bytes_per_s", info->state == TUTTI_RANK_ALIVE ? rate->bytes_per_s : -1);
    return row;
}

static json_t *
json_top_groups(const top *self)
{
    json_t *rows = json_array();
    size_t i;

    for (i = 0; i < self->group_count; i++) {
        (void)json_array_append_new(rows, json_pack("{s:s, s:I, s:I}", "name", self->groups[i].name,
                                                    "size", (json_int_t)self->groups[i].rank_count,
                                                    "epoch", (json_int_t)self->groups[i].epoch));
    }
    return rows;
}

/* The oldest first. */
static json_t *
json_top_events(top *self)
{
    json_t *rows = json_array();
    size_t i;

    (void)pthread_mutex_lock(&self->lock);
    for (i = self->event_count < TOP_EVENTS ? 0 : self->event_count - TOP_EVENTS;
         i < self->event_count; i++) {
        (void)json_array_append_new(rows, json_string(self->events[i % TOP_EVENTS]));
    }
    (void)pthread_mutex_unlock(&self->lock);
    return rows;
}

json_t *
top_json(top *self)
{
    json_t *ranks = json_array();
    json_t *stalls = json_array();
    json_t *document;
    size_t i;

    for (i = 0; i < self->rank_count; i++) {
        (void)json_array_append_new(ranks, json_top_rank(self, &self->ranks[i]));
    }
    for (i = 0; i < self->stalls.count; i++) {
        (void)json_array_append_new(stalls, json_string(self->stalls.stalls[i].text));
    }
    document = json_pack(
        "{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "job", self->job.name,
        "coordinator", self->coordinator, "epoch", (json_int_t)self->job.epoch, "world_size",
        (json_int_t)self->job.world_size, "alive", (json_int_t)self->job.alive_count, "lost",
        (json_int_t)self->job.lost_count, "since_ms", (json_int_t)self->job.since_ms, "ops",
        (json_int_t)self->job.op_count, "bytes", (json_int_t)self->job.op_bytes, "ranks",
        self->order == TOP_BY_RANK ? ranks : top_sort(ranks, self->order), "groups",
        json_top_groups(self), "stalls", stalls, "events", json_top_events(self));
    set_rate(document, "ops_per_s", self->ops_per_s);
    set_rate(document, "bytes_per_s", self->bytes_per_s);
    return document;
}
