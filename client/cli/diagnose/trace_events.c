/*
 * Events as Chrome and Perfetto read them. A rank is a process there, a group of it a thread; ops
 * that run at once get threads beside each other, since what overlaps in one would be drawn as if
 * one were inside the other.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/diagnose/trace.h"
#include "client/cli/util/values.h"

#define LANES_MAX 256 /* of a rank; more ops at once share the last one */

typedef struct lane {
    char group[TUTTI_NAME_MAX + 1];
    unsigned number;   /* among those of its group */
    uint64_t until_ns; /* its last op ends then */
} lane;

typedef struct drawing {
    const trace *whole;
    json_t *events;
    uint32_t rank;
    size_t lane_count;
    lane lanes[LANES_MAX];
} drawing;

/*
 * Times are from the begin of what is shown: whole nanoseconds since 1970 do not fit into a
 * double. Those before it are negative.
 */
static double
us_of(const drawing *self, uint64_t at_ns)
{
    return (double)(int64_t)(at_ns - self->whole->begin_ns) / 1000.0;
}

/* "M" is metadata: the name of a process or of a thread. */
static void
add_name(drawing *self, const char *kind, size_t lane_index, const char *name)
{
    (void)json_array_append_new(self->events,
                                json_pack("{s:s, s:s, s:I, s:I, s:{s:s}}", "ph", "M", "name", kind,
                                          "pid", (json_int_t)self->rank, "tid",
                                          (json_int_t)lane_index, "args", "name", name));
}

/* The first lane of the group that is free by then; a new one when none is. */
static size_t
lane_for(drawing *self, const char *group, uint64_t from_ns, uint64_t until_ns)
{
    char name[TUTTI_NAME_MAX + 32];
    unsigned number = 1;
    size_t i;

    for (i = 0; i < self->lane_count; i++) {
        if (strcmp(self->lanes[i].group, group) == 0) {
            if (self->lanes[i].until_ns <= from_ns) {
                break;
            }
            number++;
        }
    }
    if (i == LANES_MAX) {
        i--;
    } else if (i == self->lane_count) {
        (void)snprintf(self->lanes[i].group, sizeof(self->lanes[i].group), "%s", group);
        (void)snprintf(name, sizeof(name), number == 1 ? "%s" : "%s (%u)", group, number);
        self->lane_count++;
        add_name(self, "thread_name", i, name);
    }
    self->lanes[i].until_ns = until_ns;
    return i;
}

/* [in, moved] args */
static void
add_span(drawing *self, size_t lane_index, const char *name, uint64_t from_ns, uint64_t until_ns,
         json_t *args)
{
    (void)json_array_append_new(
        self->events, json_pack("{s:s, s:s, s:s, s:I, s:I, s:f, s:f, s:o}", "ph", "X", "cat",
                                "tutti", "name", name, "pid", (json_int_t)self->rank, "tid",
                                (json_int_t)lane_index, "ts", us_of(self, from_ns), "dur",
                                (double)(until_ns - from_ns) / 1000.0, "args", args));
}

static void
set_spec(json_t *args, const char *key, const tutti_spec *spec, uint32_t count)
{
    char shape[CLI_WORD_SIZE];

    if (count > 0) {
        (void)json_object_set_new(args, key,
                                  json_sprintf("%s%s%s", tutti_dtype_name(spec->dtype),
                                               cli_format_shape(spec, shape),
                                               count > 1 ? " and more" : ""));
    }
}

/* What is shown when somebody selects the op. */
static json_t *
args_of(const tutti_flight_entry *entry, const trace_meet *meet)
{
    json_t *args = json_pack("{s:s, s:I, s:s, s:I}", "group", entry->group, "sequence",
                             (json_int_t)entry->sequence, "state", entry->state, "record_id",
                             (json_int_t)entry->record_id);

    set_spec(args, "input", &entry->input, entry->input_count);
    set_spec(args, "output", &entry->output, entry->output_count);
    if (entry->error_text[0] != '\0') {
        (void)json_object_set_new(args, "error", json_string(entry->error_text));
    }
    if (meet != NULL && meet->rank_count > 1) {
        (void)json_object_update_new(
            args,
            json_pack("{s:f, s:I, s:f, s:I}", "late_us",
                      (double)(entry->started_ns - meet->first_ns) / 1000.0, "last_rank",
                      (json_int_t)meet->last_rank, "last_rank_late_us",
                      (double)trace_late_ns(meet) / 1000.0, "ranks", (json_int_t)meet->rank_count));
    }
    return args;
}

/* The op, and in it how long it stood in line and waited for the last rank. */
static void
add_op(drawing *self, const tutti_flight_entry *entry, const trace_meet *meet)
{
    const bool running = entry->completed_ns == 0;
    const uint64_t until_ns = running ? self->whole->end_ns : entry->completed_ns;
    const size_t at = lane_for(self, entry->group, entry->created_ns, until_ns);
    char name[160];

    (void)snprintf(name, sizeof(name), "%s%s", entry->name,
                   running                               ? " (running)"
                   : strcmp(entry->state, "failed") == 0 ? " (failed)"
                                                         : "");
    add_span(self, at, name, entry->created_ns, until_ns, args_of(entry, meet));
    if (entry->started_ns > entry->created_ns) {
        add_span(self, at, "in line", entry->created_ns, entry->started_ns, json_object());
    }
    if (meet != NULL && meet->last_rank != self->rank && meet->last_ns > entry->started_ns) {
        (void)snprintf(name, sizeof(name), "waits for rank %" PRIu32, meet->last_rank);
        add_span(self, at, name, entry->started_ns,
                 meet->last_ns < until_ns ? meet->last_ns : until_ns, json_object());
    }
}

/* Only what overlaps the chosen time is drawn. */
static void
add_event_rank(drawing *self, uint32_t rank)
{
    const trace *whole = self->whole;
    const trace_flown *flown = &whole->flown[rank];
    char name[256];
    size_t i;

    self->rank = rank;
    self->lane_count = 0;
    (void)snprintf(name, sizeof(name), "rank %" PRIu32 " (%s)%s", rank,
                   whole->fan_out->infos[rank].host, flown->answered ? "" : ": no answer");
    add_name(self, "process_name", 0, name);
    (void)json_array_append_new(self->events,
                                json_pack("{s:s, s:s, s:I, s:I, s:{s:I}}", "ph", "M", "name",
                                          "process_sort_index", "pid", (json_int_t)rank, "tid",
                                          (json_int_t)0, "args", "sort_index", (json_int_t)rank));
    for (i = 0; i < flown->count; i++) {
        const tutti_flight_entry *entry = &flown->entries[i];
        const uint64_t until_ns = entry->completed_ns == 0 ? whole->end_ns : entry->completed_ns;

        if (until_ns >= whole->begin_ns && entry->created_ns <= whole->end_ns &&
            until_ns >= entry->created_ns) {
            add_op(self, entry,
                   flown->meets[i] == TRACE_ALONE ? NULL : &whole->meets[flown->meets[i]]);
        }
    }
}

/* The drawing is too large for the stack. */
json_t *
trace_events(const trace *self)
{
    drawing *all = calloc(1, sizeof(*all));
    json_t *events = json_array();
    uint32_t rank;

    if (all == NULL || events == NULL) {
        abort();
    }
    all->whole = self;
    all->events = events;
    for (rank = 0; rank < self->fan_out->count; rank++) {
        if (self->fan_out->infos[rank].state == TUTTI_RANK_ALIVE) {
            add_event_rank(all, rank);
        }
    }
    free(all);
    return json_pack("{s:s, s:{s:s, s:I}, s:o}", "displayTimeUnit", "ms", "otherData", "job",
                     self->fan_out->job.name, "begin_ns", (json_int_t)self->begin_ns, "traceEvents",
                     events);
}
