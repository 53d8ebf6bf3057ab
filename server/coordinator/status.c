/*
 * The status page's JSON. All texts come from agents and clients, so they are escaped; the page
 * shows them as text. A page stays bounded: a letter for each rank, and lists that are cut.
 */
#include "server/coordinator/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/stall/progress.h"
#include "server/coordinator/stall/progress_private.h"
#include "tutti/version.h"

#define STALL_MS 3000 /* an op that waits for longer is a stall */
#define STALL_TEXT_MAX 2048
#define NUMBER_MAX 32

/* ------------------------------------------------------------------------------ JSON */

static void
put(tutti_page *page, const char *text, size_t size)
{
    if (tutti_buf_add(&page->buf, text, size, NULL) != TUTTI_OK) {
        page->failed = true;
    }
}

static void
put_word(tutti_page *page, const char *text)
{
    put(page, text, strlen(text));
}

/* Bytes above ASCII go as they are: texts are UTF-8, and who reads JSON mends what is not. */
static void
put_text(tutti_page *page, const char *text)
{
    char escaped[8];
    size_t i;

    put_word(page, "\"");
    for (i = 0; text[i] != '\0'; i++) {
        const unsigned char byte = (unsigned char)text[i];

        if (byte == '"' || byte == '\\' || byte < 0x20 || byte == 0x7f) {
            (void)snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
            put_word(page, escaped);
        } else {
            put(page, &text[i], 1);
        }
    }
    put_word(page, "\"");
}

/* [in] separator  what is before the key: "{" or "," */
static void
put_key(tutti_page *page, const char *separator, const char *key)
{
    put_word(page, separator);
    put_text(page, key);
    put_word(page, ":");
}

static void
put_integer(tutti_page *page, const char *separator, const char *key, uint64_t value)
{
    char text[NUMBER_MAX];

    put_key(page, separator, key);
    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    put_word(page, text);
}

static void
put_field(tutti_page *page, const char *separator, const char *key, const char *text)
{
    put_key(page, separator, key);
    put_text(page, text == NULL ? "" : text);
}

/* ------------------------------------------------------------------------------ the job */

static void
put_jobs(tutti_coordinator *self, tutti_page *page)
{
    tutti_coordinator_job job = {.name = ""};
    size_t shown = 0;

    put_key(page, ",", "jobs");
    put_word(page, "[");
    while (shown < TUTTI_COORDINATOR_STATUS_JOBS &&
           tutti_coordinator_job_next(self, job.name, &job)) {
        put_word(page, shown == 0 ? "" : ",");
        put_text(page, job.name);
        shown++;
    }
    put_word(page, "]");
    put_integer(page, ",", "job_count", self->jobs.count);
}

static char
state_letter(const coord_agent *agent)
{
    if (agent == NULL) {
        return 'f';
    }
    switch (agent->state) {
    case TUTTI_COORDINATOR_FREE:
        return 'f';
    case TUTTI_COORDINATOR_WAITING:
        return 'w';
    case TUTTI_COORDINATOR_ALIVE:
        return agent->reason[0] == '\0' ? 'a' : 'g';
    case TUTTI_COORDINATOR_LOST:
        break;
    }
    return 'l';
}

static void
put_states(const coord_job *job, tutti_page *page)
{
    uint32_t rank;

    put_key(page, ",", "states");
    put_word(page, "\"");
    for (rank = 0; rank < job->world_size; rank++) {
        const char letter = state_letter(job->seats[rank]);

        put(page, &letter, 1);
    }
    put_word(page, "\"");
}

static void
put_groups(tutti_coordinator *self, const coord_job *job, tutti_page *page)
{
    tutti_coordinator_group group = {.name = ""};
    bool found = true;
    size_t shown = 0;

    put_key(page, ",", "groups");
    put_word(page, "[");
    while (shown < TUTTI_COORDINATOR_STATUS_GROUPS &&
           tutti_coordinator_group_next(self, job->name, group.name, &group, &found, NULL) ==
               TUTTI_OK &&
           found) {
        put_field(page, shown == 0 ? "{" : ",{", "name", group.name);
        put_integer(page, ",", "size", group.count);
        put_integer(page, ",", "epoch", group.epoch);
        put_field(page, ",", "abort", group.abort == NULL ? "" : group.abort->text);
        put_word(page, "}");
        shown++;
    }
    put_word(page, "]");
    put_integer(page, ",", "group_count", job->groups.count);
}

static void
put_stalls(coord_job *job, tutti_page *page)
{
    const tutti_coordinator_stall_query query = {.older_than_ms = STALL_MS};
    tutti_coordinator_stalls stalls = {0};
    char words[STALL_TEXT_MAX];
    size_t i;

    put_key(page, ",", "stalls");
    put_word(page, "[");
    if (coord_stalls_find(job, &query, &stalls, NULL) == TUTTI_OK) {
        for (i = 0; i < stalls.count && i < TUTTI_COORDINATOR_STATUS_STALLS; i++) {
            tutti_text text = tutti_text_in(words, sizeof(words));

            tutti_coordinator_stall_describe(&stalls.stalls[i], &text);
            put_word(page, i == 0 ? "" : ",");
            put_text(page, words);
        }
        free(stalls.stalls);
    }
    put_word(page, "]");
    put_integer(page, ",", "stall_count", stalls.count);
}

static void
put_job(tutti_coordinator *self, coord_job *job, tutti_page *page)
{
    put_key(page, ",", "job");
    put_field(page, "{", "name", job->name);
    put_integer(page, ",", "world_size", job->world_size);
    put_integer(page, ",", "min_world", job->min_world);
    put_integer(page, ",", "epoch", job->epoch);
    put_integer(page, ",", "present", job->present);
    put_integer(page, ",", "alive", job->alive_count);
    put_integer(page, ",", "lost", job->lost_count);
    put_integer(page, ",", "since_ms", job->since_ms);
    put_integer(page, ",", "ops", job->ops_total);
    put_integer(page, ",", "bytes", job->bytes_total);
    put_word(page, "}");
    put_states(job, page);
    put_groups(self, job, page);
    put_stalls(job, page);
}

/* ------------------------------------------------------------------------------ notes */

/* The oldest first. */
static void
put_notes(const tutti_coordinator *self, tutti_page *page)
{
    const size_t kept = self->note_count < COORD_NOTES ? self->note_count : COORD_NOTES;
    size_t i;

    put_key(page, ",", "notes");
    put_word(page, "[");
    for (i = self->note_count - kept; i < self->note_count; i++) {
        const coord_kept_note *note = &self->notes[i % COORD_NOTES];

        put_integer(page, i == self->note_count - kept ? "{" : ",{", "number", i + 1);
        put_integer(page, ",", "at_ms", note->wall_ns / TUTTI_NS_PER_MS);
        put_field(page, ",", "text", note->text);
        put_word(page, "}");
    }
    put_word(page, "]");
}

static void
put_store(tutti_coordinator *self, tutti_page *page)
{
    tutti_store_stats stats = {0};

    tutti_store_stat(self->store, &stats);
    put_integer(page, ",", "store_keys", stats.key_count);
    put_integer(page, ",", "store_bytes", stats.used_bytes);
    put_integer(page, ",", "waiters", self->waiter_count);
    put_integer(page, ",", "leases", self->leases.count);
}

/* NULL = there is none. */
static coord_job *
find_shown(tutti_coordinator *self, const char *name)
{
    coord_job *job = NULL;

    if (name == NULL || name[0] == '\0') {
        return coord_job_from(tutti_map_first(&self->jobs));
    }
    return coord_job_find(self, name, &job, NULL) == TUTTI_OK ? job : NULL;
}

void
tutti_coordinator_show_state(tutti_coordinator *self, const char *name, tutti_page *page)
{
    coord_job *job = find_shown(self, name);

    put_field(page, "{", "version", TUTTI_VERSION);
    put_integer(page, ",", "now_ms", self->wall_ns / TUTTI_NS_PER_MS);
    put_jobs(self, page);
    if (job != NULL) {
        put_job(self, job, page);
    } else {
        put_word(page, ",\"job\":null");
    }
    put_notes(self, page);
    put_store(self, page);
    put_word(page, "}\n");
}

void
tutti_coordinator_show_standby(const char *leader, tutti_page *page)
{
    put_field(page, "{", "version", TUTTI_VERSION);
    put_field(page, ",", "standby", leader);
    put_word(page, ",\"jobs\":[],\"job\":null,\"ranks\":[],\"notes\":[]}\n");
}

/* ------------------------------------------------------------------------------ ranks */

static void
put_rank(const coord_job *job, uint32_t rank, tutti_page *page)
{
    const coord_agent *agent = job->seats[rank];
    const char letter[2] = {state_letter(agent), '\0'};

    put_integer(page, "{", "rank", rank);
    put_field(page, ",", "state", letter);
    if (agent != NULL) {
        put_field(page, ",", "host", agent->info.host);
        put_field(page, ",", "device", agent->info.device);
        put_field(page, ",", "version", agent->info.version);
        put_integer(page, ",", "pid", agent->info.pid);
        put_integer(page, ",", "epoch", agent->joined_epoch);
        put_integer(page, ",", "since_ms", agent->since_ms);
        put_integer(page, ",", "ops", agent->ops);
        put_integer(page, ",", "bytes", agent->bytes);
        put_field(page, ",", "reason", agent->reason);
    }
    put_word(page, "}");
}

void
tutti_coordinator_show_ranks(tutti_coordinator *self, const char *name, uint32_t first,
                             tutti_page *page)
{
    const coord_job *job = find_shown(self, name);
    uint32_t i;

    put_integer(page, "{", "first", first);
    put_key(page, ",", "ranks");
    put_word(page, "[");
    for (i = 0; job != NULL && i < TUTTI_COORDINATOR_STATUS_RANKS && first < job->world_size &&
                i < job->world_size - first;
         i++) {
        put_word(page, i == 0 ? "" : ",");
        put_rank(job, first + i, page);
    }
    put_word(page, "]}\n");
}
