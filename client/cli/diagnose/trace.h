/*
 * Trace: flight records of many ranks, laid side by side. Times are nanoseconds on our own clock.
 *
 *   flown ── what one rank did, with how far its clock is off
 *   meet  ── one collective of a group, as all its ranks recorded it: who came last
 */
#ifndef TUTTI_CLIENT_CLI_DIAGNOSE_TRACE_H
#define TUTTI_CLIENT_CLI_DIAGNOSE_TRACE_H

#include "client/cli/connect/fan_out.h"
#include "tutti/diagnose.h"

/* What one rank did. */
typedef struct trace_flown {
    bool answered;
    tutti_error err; /* when it did not */
    tutti_flight_entry *entries;
    size_t count;
    int64_t offset_ns; /* has been subtracted from all times */
    uint64_t error_ns;
    size_t *meets; /* of each entry; TRACE_ALONE = a send, a receive, or never begun */
} trace_flown;

#define TRACE_ALONE SIZE_MAX

/* A collective, as its ranks recorded it. */
typedef struct trace_meet {
    const tutti_flight_entry *one; /* of whoever was found first */
    uint64_t first_ns;             /* the first rank began it */
    uint64_t last_ns;              /* the last one did */
    uint64_t end_ns;               /* the last one left it; 0 = nobody has */
    uint32_t last_rank;
    uint32_t rank_count; /* that have begun it */
    bool open;           /* somebody has not left it */
} trace_meet;

typedef struct trace {
    const cli_fan_out *fan_out;
    trace_flown *flown; /* by rank */
    trace_meet *meets;
    size_t meet_count;
    uint64_t begin_ns; /* what is told lies between these */
    uint64_t end_ns;
} trace;

/* trace_match.c: finds what belongs together. After that, all of the flight records is told. */
void trace_match(trace *self);

/* Only what lies around an op. False: no rank has recorded it. */
bool trace_around(trace *self, const char *group, uint64_t sequence, uint64_t window_ns);

/* How late the last rank came. */
uint64_t trace_late_ns(const trace_meet *meet);

/*
 * trace_files.c: what agents have left in a folder; of one job, NULL = the only one. Clocks are as
 * they were. [in] self  has room for CLI_FAN_OUT_MAX ranks in `flown`
 *
 * TUTTI_NOT_FOUND         nothing is there
 * TUTTI_INVALID_ARGUMENT  a file is none of these, or of another job
 */
tutti_code trace_read_folder(const char *folder, const char *job, trace *self, cli_fan_out *fan_out,
                             tutti_error *err);

/* trace_events.c: as Chrome and Perfetto read it. */
json_t *trace_events(const trace *self);

#endif
