/*
 * What the coordinator shows on /metrics. On the core's thread; jobs are walked by name,
 * JOBS_SHOWN of them, so a page stays bounded.
 */
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/members.h"

#define JOBS_SHOWN                                                                                 \
    1000 /* the numbers of further ones are left out; tutti_coordinator_jobs counts all */

static void
write_gauge(tutti_page *page, const char *name, const char *type, const char *help, uint64_t value)
{
    tutti_page_family(page, name, type, help);
    tutti_page_number(page, name, "", value);
}

/* A number of each job. */
typedef struct job_number {
    const char *name;
    const char *help;
    uint64_t (*of)(const tutti_coordinator_job *job);
} job_number;

static uint64_t
world_of(const tutti_coordinator_job *job)
{
    return job->world_size;
}

static uint64_t
epoch_of(const tutti_coordinator_job *job)
{
    return job->epoch;
}

static uint64_t
alive_of(const tutti_coordinator_job *job)
{
    return job->alive_count;
}

static uint64_t
lost_of(const tutti_coordinator_job *job)
{
    return job->lost_count;
}

static uint64_t
groups_of(const tutti_coordinator_job *job)
{
    return job->group_count;
}

static const job_number job_numbers[] = {
    {"tutti_coordinator_job_world_size", "Ranks of the job.", world_of},
    {"tutti_coordinator_job_epoch", "Epoch of the job; 0 = not formed yet.", epoch_of},
    {"tutti_coordinator_job_ranks_alive", "Ranks of the job that are there.", alive_of},
    {"tutti_coordinator_job_ranks_lost", "Ranks of the job that were lost and are not back.",
     lost_of},
    {"tutti_coordinator_job_groups", "Groups of the job.", groups_of},
};

static void
expose_job_number(tutti_coordinator *self, const job_number *number, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    tutti_coordinator_job job = {.name = ""};
    size_t shown = 0;

    tutti_page_family(page, number->name, "gauge", number->help);
    while (shown++ < JOBS_SHOWN && tutti_coordinator_job_next(self, job.name, &job)) {
        tutti_page_labels(labels, (const char *const[]){"job", job.name, NULL});
        tutti_page_number(page, number->name, labels, number->of(&job));
    }
}

static void
expose_store(tutti_coordinator *self, tutti_page *page)
{
    tutti_store_stats stats = {0};

    tutti_store_stat(self->store, &stats);
    write_gauge(page, "tutti_coordinator_store_keys", "gauge", "Keys in the store.",
                stats.key_count);
    write_gauge(page, "tutti_coordinator_store_keys_limit", "gauge", "Keys it may hold.",
                self->options.store_keys_limit);
    write_gauge(page, "tutti_coordinator_store_used_bytes", "gauge", "Keys and values.",
                stats.used_bytes);
    write_gauge(page, "tutti_coordinator_store_limit_bytes", "gauge", "Bytes it may hold.",
                self->options.store_bytes_limit);
}

void
tutti_coordinator_expose(tutti_coordinator *self, tutti_page *page)
{
    size_t i;

    write_gauge(page, "tutti_coordinator_jobs", "gauge", "Jobs.", self->jobs.count);
    write_gauge(page, "tutti_coordinator_seats", "gauge", "World sizes of all jobs together.",
                self->seat_count);
    write_gauge(page, "tutti_coordinator_ranks_lost_total", "counter", "Ranks that were lost.",
                self->lost_total);
    write_gauge(page, "tutti_coordinator_parked", "gauge",
                "Calls, sessions and watches that are open.", self->parked);
    write_gauge(page, "tutti_coordinator_waiters", "gauge", "Calls that wait.", self->waiter_count);
    write_gauge(page, "tutti_coordinator_waiters_limit", "gauge",
                "Calls that may wait (--waiter-limit).", self->options.waiter_limit);
    write_gauge(page, "tutti_coordinator_watchers", "gauge", "Watches of keys.",
                self->watcher_count);
    write_gauge(page, "tutti_coordinator_watch_queued_bytes", "gauge",
                "Changes of keys that watchers have not read yet.", self->watch_bytes);
    write_gauge(page, "tutti_coordinator_leases", "gauge", "Leases of keys.", self->leases.count);
    write_gauge(page, "tutti_coordinator_leases_limit", "gauge",
                "Leases there may be (--lease-limit).", self->options.lease_limit);
    write_gauge(page, "tutti_coordinator_leased_keys", "gauge", "Keys that go with a lease.",
                self->leased.count);
    write_gauge(page, "tutti_coordinator_metadata_bytes", "gauge", "Values of meetings.",
                self->metadata_bytes);
    expose_store(self, page);
    for (i = 0; i < sizeof(job_numbers) / sizeof(job_numbers[0]); i++) {
        expose_job_number(self, &job_numbers[i], page);
    }
}
