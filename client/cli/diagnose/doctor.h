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
    doctor_finding *findings;
    size_t finding_count;
    size_t bad_count;
} doctor;

/* doctor_check.c: fills the findings, the worst first. */
void doctor_check(doctor *self);

#endif
