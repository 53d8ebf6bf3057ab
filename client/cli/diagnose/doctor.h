/*
 * Doctor: what was found about a job and its ranks, and what is to be done about it.
 *
 *   patient ── one rank: what its agent says, how late its clock is, whom it reaches
 *   finding ── a sentence about what is wrong, and one about what to do
 */
#ifndef TUTTI_CLIENT_CLI_DIAGNOSE_DOCTOR_H
#define TUTTI_CLIENT_CLI_DIAGNOSE_DOCTOR_H

#include "client/cli/connect/fan_out.h"
#include "tutti/diagnose.h"

/* One rank. */
typedef struct doctor_patient {
    bool answered;
    tutti_error err; /* when it did not */
    tutti_self_check self_check;
    tutti_reach *reaches;
    size_t reach_count;
    int64_t offset_ns; /* of its clock, against ours */
    uint64_t error_ns;
} doctor_patient;

#define DOCTOR_COORDINATORS_MAX 16

/* One of several coordinators. */
typedef struct doctor_coordinator {
    char address[256];
    bool answered;
    tutti_error err; /* when it did not */
    tutti_leader_info info;
} doctor_coordinator;

typedef struct doctor_finding {
    bool bad;     /* else it may become bad */
    int64_t rank; /* -1 = of no single one */
    char what[640];
    char remedy[320];
} doctor_finding;

typedef struct doctor {
    const cli_fan_out *fan_out;
    const char *cluster;      /* its name, when it is a local one; else NULL */
    doctor_patient *patients; /* by rank */
    doctor_coordinator coordinators[DOCTOR_COORDINATORS_MAX];
    size_t coordinator_count; /* 0 = there are not several */
    tutti_stalls stalls;      /* groups whose ranks stand at different ops */
    doctor_finding *findings;
    size_t finding_count;
    size_t bad_count;
} doctor;

/* doctor_check.c: fills the findings, the worst first. Without patients: of the coordinators alone. */
void doctor_check(doctor *self);

/* A finding, of no rank = -1; its sentence is to be put in. "" = nothing can be done but to look. NULL:
 * there are too many. */
doctor_finding *doctor_add(doctor *self, bool bad, int64_t rank, const char *remedy);
void doctor_say(doctor_finding *finding, const char *format, ...)
    __attribute__((format(printf, 2, 3))); /* NULL is fine */

/* doctor_leaders.c: ask each of several coordinators who leads, what follows from it, and a row of
 * each. */
void doctor_ask_leaders(const cli *self, doctor *all, uint32_t wait_ms);
void doctor_check_leaders(doctor *self);
json_t *doctor_json_leaders(const doctor *self);
void doctor_print_leaders(const cli *self, const json_t *rows);

#endif
