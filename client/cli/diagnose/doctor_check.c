/*
 * What is wrong, and what to do about it. Each check looks at one thing and adds a finding with a
 * remedy. `bad` means that ops fail or hang by it, or will; the others may become bad.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/connect/fan_out.h"
#include "client/cli/diagnose/doctor.h"

#define CLOCK_NS 50000000ULL    /* clocks may differ by that: logs are read beside each other */
#define FILES_MIN 1024U         /* and some for each rank: */
#define FILES_OF_RANK 4U        /* two connections, with what they need */
#define MEMLOCK_MIN (64U << 20) /* for RDMA: buffers are pinned */
#define FINDINGS_MAX 4096

/* A bad one takes the place of the last that is not, if there is no other. NULL = there is none. */
static doctor_finding *
make_room(doctor *self, bool bad)
{
    size_t i = self->finding_count;
    doctor_finding *more;

    if (self->finding_count == FINDINGS_MAX) {
        while (bad && i > 0 && self->findings[i - 1].bad) {
            i--;
        }
        return bad && i > 0 ? &self->findings[i - 1] : NULL;
    }
    more = reallocarray(self->findings, self->finding_count + 1, sizeof(*more));
    if (more == NULL) {
        abort();
    }
    self->findings = more;
    return &more[self->finding_count++];
}

/* Bad findings are counted also when there is no room for them. */
doctor_finding *
doctor_add(doctor *self, bool bad, int64_t rank, const char *remedy)
{
    doctor_finding *more = make_room(self, bad);

    self->bad_count += bad ? 1 : 0;
    if (more == NULL) {
        return NULL;
    }
    *more = (doctor_finding){.bad = bad, .rank = rank};
    (void)snprintf(more->remedy, sizeof(more->remedy), "%s", remedy);
    return more;
}

void
doctor_say(doctor_finding *finding, const char *format, ...)
{
    va_list args;

    if (finding == NULL) {
        return;
    }
    va_start(args, format);
    (void)vsnprintf(finding->what, sizeof(finding->what), format, args);
    va_end(args);
}

/* ------------------------------------------------------------------------------ one rank */

/* Its process has ended. */
static doctor_finding *
add_ended(doctor *self, uint32_t rank)
{
    char remedy[160] = "start its agent again: a fresh process takes the seat";

    if (self->cluster != NULL) {
        (void)snprintf(remedy, sizeof(remedy),
                       "tutti cluster restart %" PRIu32
                       " --name %.64s: a fresh process takes the seat",
                       rank, self->cluster);
    }
    return doctor_add(self, true, rank, remedy);
}

/* What the coordinator knows. An agent that is alive is looked at by the other checks. */
static void
check_agent_seat(doctor *self, const tutti_rank_info *info)
{
    if (info->state == TUTTI_RANK_LOST) {
        doctor_say(add_ended(self, info->rank), "rank %" PRIu32 " on host %s is lost: %s",
                   info->rank, info->host, info->reason);
    } else if (info->state != TUTTI_RANK_ALIVE) {
        doctor_say(doctor_add(self, true, info->rank,
                              "start its agent, with this job's name and world size"),
                   "rank %" PRIu32 " has not joined", info->rank);
    }
}

/*
 * What stands between us and an agent that others can reach. The remedy follows from the words of
 * the error, as only they tell these cases apart.
 */
static doctor_finding *
add_unreached(doctor *self, uint32_t rank, const char *why)
{
    if (strstr(why, "its certificate is for") != NULL) {
        return doctor_add(self, true, rank,
                          "let it advertise a name of its certificate (--advertise), or give the "
                          "name to expect (--tls-name)");
    }
    if (strstr(why, "its certificate is not signed") != NULL) {
        return doctor_add(self, true, rank,
                          "give the authority that signed its certificate (--tls-ca)");
    }
    if (strstr(why, "wants TLS") != NULL || strstr(why, "wants a client certificate") != NULL) {
        return doctor_add(self, true, rank,
                          "give the authority that signed its certificate (--tls-ca), and a "
                          "client certificate if it wants one (--tls-cert, --tls-key)");
    }
    if (strstr(why, "nothing listens there") != NULL || strstr(why, "no such socket") != NULL) {
        return add_ended(self, rank);
    }
    return doctor_add(
        self, true, rank,
        "let it listen where clients reach it (--listen), tell them that address "
        "(--advertise), and look at firewalls; tutti stall tells a stopped process apart");
}

static void
check_answer(doctor *self, const tutti_rank_info *info, const doctor_patient *patient)
{
    doctor_say(add_unreached(self, info->rank, patient->err.text),
               "rank %" PRIu32 " on host %s advertises %s and does not answer there: %.400s",
               info->rank, info->host, info->address[0] != '\0' ? info->address : "no address",
               patient->err.text);
}

/* Only its own machine comes to such an address. */
static bool
is_same_host(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strncmp(address, "localhost", 9) == 0 ||
           strncmp(address, "[::1]", 5) == 0 || strncmp(address, "unix:", 5) == 0;
}

static bool
hosts_differ(const cli_fan_out *fan_out)
{
    uint32_t i;

    for (i = 1; i < fan_out->count; i++) {
        if (strcmp(fan_out->infos[i].host, fan_out->infos[0].host) != 0) {
            return true;
        }
    }
    return false;
}

/* Only a warning: such an agent works as long as nobody on another host wants it. */
static void
check_addresses(doctor *self, const tutti_self_check *self_check)
{
    bool far = false;
    size_t i;

    for (i = 0; i < self_check->address_count; i++) {
        far = far || !is_same_host(self_check->addresses[i]);
    }
    if (!far && hosts_differ(self->fan_out)) {
        doctor_say(doctor_add(self, false, self_check->rank,
                              "give its agent --listen 0.0.0.0:PORT, or --advertise HOST:PORT"),
                   "rank %" PRIu32 " advertises only %s, and other ranks are on other hosts",
                   self_check->rank,
                   self_check->address_count > 0 ? self_check->addresses[0] : "nothing");
    }
}

/* Too few files are bad only when they are nearly used up. */
static void
check_agent_limits(doctor *self, const tutti_self_check *self_check)
{
    const uint64_t files = FILES_MIN + (uint64_t)FILES_OF_RANK * self->fan_out->job.world_size;

    if (self_check->files < files) {
        doctor_say(
            doctor_add(self, self_check->files < self_check->files_open + 64, self_check->rank,
                       "raise it: ulimit -Hn, LimitNOFILE= of systemd, --ulimit nofile of docker"),
            "rank %" PRIu32 " may open %" PRIu64 " files (%" PRIu64
            " are open), a world of %" PRIu32 " wants %" PRIu64,
            self_check->rank, self_check->files, self_check->files_open,
            self->fan_out->job.world_size, files);
    }
    if (self_check->rdma_device_count > 0 && self_check->memlock_bytes < MEMLOCK_MIN) {
        doctor_say(
            doctor_add(self, false, self_check->rank,
                       "raise it: ulimit -l unlimited, LimitMEMLOCK=infinity, --ulimit memlock=-1"),
            "rank %" PRIu32 " may lock %" PRIu64 " KiB of memory and has the RDMA device %s, "
            "which wants at least %u MiB",
            self_check->rank, self_check->memlock_bytes / 1024, self_check->rdma_devices[0],
            MEMLOCK_MIN >> 20);
    }
}

/* The offset counts only beyond what the measurement itself may be wrong by. */
static void
check_clock(doctor *self, const doctor_patient *patient)
{
    const int64_t offset_ns = patient->offset_ns;
    const uint64_t size_ns = (uint64_t)(offset_ns < 0 ? -offset_ns : offset_ns);

    if (size_ns > CLOCK_NS + patient->error_ns) {
        doctor_say(
            doctor_add(
                self, false, patient->self_check.rank,
                "run chrony or another NTP client there; tutti trace corrects it, logs do not"),
            "the clock of rank %" PRIu32 " on host %s is %.3f s %s ours (give or take %.3f ms)",
            patient->self_check.rank, patient->self_check.host, (double)size_ns / 1e9,
            offset_ns > 0 ? "ahead of" : "behind", (double)patient->error_ns / 1e6);
    }
}

/* Each direction is a finding of its own, as a firewall may stop only one. */
static void
check_reaches(doctor *self, uint32_t rank, const doctor_patient *patient)
{
    size_t i;

    for (i = 0; i < patient->reach_count; i++) {
        const tutti_reach *reach = &patient->reaches[i];
        const bool known = reach->rank < self->fan_out->count;

        if (known && !self->patients[reach->rank].answered) {
            continue; /* it answers nobody, which is said once */
        }
        if (!reach->reached) {
            doctor_say(
                doctor_add(
                    self, true, rank,
                    "compare --transports and --net-devices of the two, and let their hosts reach "
                    "each other on all TCP ports"),
                "rank %" PRIu32 " does not reach rank %" PRIu32 " on the data plane: %s", rank,
                reach->rank, reach->why);
        }
    }
}

/* ------------------------------------------------------------------------------ all ranks */

/* The rank whose word the others are compared with; NULL = none answered. */
static const doctor_patient *
first_to_answer(const doctor *self)
{
    uint32_t rank = 0;

    while (rank < self->fan_out->count && !self->patients[rank].answered) {
        rank++;
    }
    return rank < self->fan_out->count ? &self->patients[rank] : NULL;
}

/* Different versions are a warning: they may work together. */
static void
check_versions(doctor *self)
{
    const doctor_patient *first = first_to_answer(self);
    uint32_t rank;

    for (rank = 0; rank < self->fan_out->count; rank++) {
        const doctor_patient *patient = &self->patients[rank];

        if (patient->answered &&
            strcmp(first->self_check.version, patient->self_check.version) != 0) {
            doctor_say(doctor_add(self, false, rank, "install the same version on all hosts"),
                       "rank %" PRIu32 " is of version %s, rank %" PRIu32 " of version %s",
                       first->self_check.rank, first->self_check.version, rank,
                       patient->self_check.version);
        }
    }
    if (first != NULL && strcmp(first->self_check.version, tutti_version()) != 0) {
        doctor_say(doctor_add(self, false, -1, "install the version of the agents here, too"),
                   "this command is of version %s, the agents are of version %s", tutti_version(),
                   first->self_check.version);
    }
}

/* Hosts that do not speak alike do not meet. */
static void
check_planes(doctor *self)
{
    const doctor_patient *first = first_to_answer(self);
    uint32_t rank;

    for (rank = 0; rank < self->fan_out->count; rank++) {
        const doctor_patient *patient = &self->patients[rank];

        if (patient->answered &&
            strcmp(first->self_check.transports, patient->self_check.transports) != 0) {
            doctor_say(doctor_add(self, true, rank, "start all agents with the same --transports"),
                       "data goes between hosts by %s on rank %" PRIu32 ", by %s on rank %" PRIu32,
                       first->self_check.transports, first->self_check.rank,
                       patient->self_check.transports, rank);
        }
    }
}

/*
 * Some program has called ops that others have not. New programs are not concerned
 * (docs/decisions/0049), but those that are there get the ends of these ops.
 */
static void
check_counts(doctor *self)
{
    size_t i;

    for (i = 0; i < self->stalls.uneven_count; i++) {
        const tutti_uneven_group *one = &self->stalls.uneven[i];
        const bool world = strcmp(one->group, "world") == 0;

        doctor_say(doctor_add(self, false,
                              one->behind_listed > 0 ? (int64_t)one->behind[0].rank : -1,
                              world ? "programs that start now go on behind these ops; for those "
                                      "that are connected: tutti barrier"
                                    : "programs that start now go on behind these ops; those that "
                                      "are connected get the error of each op once"),
                   "%.600s", one->text);
    }
}

/* The worst first, then by rank. */
static int
compare_findings(const void *left, const void *right)
{
    const doctor_finding *a = left;
    const doctor_finding *b = right;

    if (a->bad != b->bad) {
        return a->bad ? -1 : 1;
    }
    return a->rank == b->rank ? 0 : a->rank < b->rank ? -1 : 1;
}

void
doctor_check(doctor *self)
{
    const cli_fan_out *fan_out = self->fan_out;
    uint32_t rank;

    for (rank = 0; rank < fan_out->count; rank++) {
        const tutti_rank_info *info = &fan_out->infos[rank];
        const doctor_patient *patient = &self->patients[rank];

        check_agent_seat(self, info);
        if (info->state == TUTTI_RANK_ALIVE && !patient->answered) {
            check_answer(self, info, patient);
        } else if (patient->answered) {
            check_addresses(self, &patient->self_check);
            check_agent_limits(self, &patient->self_check);
            check_clock(self, patient);
            check_reaches(self, rank, patient);
        }
    }
    if (self->patients != NULL) {
        check_versions(self);
        check_planes(self);
        check_counts(self);
    }
    doctor_check_leaders(self);
    if (self->finding_count > 0) {
        qsort(self->findings, self->finding_count, sizeof(*self->findings), compare_findings);
    }
}
