#include <inttypes.h>

#include "base/error/fail.h"
#include "server/coordinator/coordinator.h"

#define AT(member) offsetof(tutti_coordinator_options, member)
#define MS ((uint64_t)1000000)
#define HOUR (3600ULL * 1000 * MS)

static const tutti_option table[] = {
    {"heartbeat-interval", TUTTI_OPTION_NS, AT(heartbeat_interval_ns), "2s", 10 * MS, HOUR, NULL,
     "how often an agent sends a heartbeat; agents of large jobs do it less often"},
    {"heartbeat-timeout", TUTTI_OPTION_NS, AT(heartbeat_timeout_ns), "10s", 20 * MS, HOUR, NULL,
     "a rank is lost when no heartbeat has come for this time; at least two intervals"},
    {"lost-grace", TUTTI_OPTION_NS, AT(lost_grace_ns), "500ms", 0, HOUR, NULL,
     "how long a rank whose connection broke may take to connect again before it is lost"},
    {"wait-timeout", TUTTI_OPTION_NS, AT(wait_timeout_ns), "5m", MS, 24 * HOUR, NULL,
     "how long a call without a deadline waits"},
    {"elastic-wait", TUTTI_OPTION_NS, AT(elastic_wait_ns), "2s", 0, HOUR, NULL,
     "a job with --min-world begins without the missing ranks when none has joined for this time"},
    {"job-linger", TUTTI_OPTION_NS, AT(job_linger_ns), "60s", 0, 24 * HOUR, NULL,
     "how long a job without ranks, and its keys, are kept"},
    {"retry-window", TUTTI_OPTION_NS, AT(retry_window_ns), "30s", 0, HOUR, NULL,
     "how long the answer of a store call is kept for a repeated call with the same token"},
    {"retry-bytes-limit", TUTTI_OPTION_BYTES, AT(retry_bytes_limit), "16MiB", 4096, 0, NULL,
     "memory for answers of store calls with a token"},
    {"job-limit", TUTTI_OPTION_UINT, AT(job_limit), "1024", 1, 1 << 20, NULL, "jobs at a time"},
    {"seat-limit", TUTTI_OPTION_UINT, AT(seat_limit), "131072", 1, 1 << 28, NULL,
     "ranks of all jobs together, by their world sizes"},
    {"group-limit", TUTTI_OPTION_UINT, AT(group_limit), "4096", 1, 1 << 20, NULL,
     "groups of a job"},
    {"group-members-limit", TUTTI_OPTION_UINT, AT(member_limit), "1048576", 1, 1 << 28, NULL,
     "ranks of all groups of a job together"},
    {"waiter-limit", TUTTI_OPTION_UINT, AT(waiter_limit), "131072", 1, 1 << 28, NULL,
     "calls that wait at a time"},
    {"wait-bytes-limit", TUTTI_OPTION_BYTES, AT(wait_bytes_limit), "64MiB", 4096, 0, NULL,
     "memory for keys that are waited for"},
    {"watcher-limit", TUTTI_OPTION_UINT, AT(watcher_limit), "16384", 1, 1 << 28, NULL,
     "watches at a time"},
    {"watch-changes-limit", TUTTI_OPTION_UINT, AT(watch_changes_limit), "1024", 1, 1 << 20, NULL,
     "changes kept for a watcher that reads slowly"},
    {"watch-backlog-limit", TUTTI_OPTION_BYTES, AT(watch_backlog_limit), "4MiB", 4096, 0, NULL,
     "bytes kept for a watcher that reads slowly"},
    {"watch-bytes-limit", TUTTI_OPTION_BYTES, AT(watch_bytes_limit), "256MiB", 4096, 0, NULL,
     "bytes kept for all watchers together"},
    {"meeting-limit", TUTTI_OPTION_UINT, AT(exchange_round_limit), "256", 1, 1 << 20, NULL,
     "how many metadata calls a rank may be ahead of another"},
    {"metadata-bytes-limit", TUTTI_OPTION_BYTES, AT(metadata_bytes_limit), "256MiB", 4096, 0, NULL,
     "memory for values of metadata calls"},
    {"store-bytes-limit", TUTTI_OPTION_BYTES, AT(store_bytes_limit), "256MiB", 1, 0, NULL,
     "bytes of keys and values in the store"},
    {"store-keys-limit", TUTTI_OPTION_UINT, AT(store_keys_limit), "1000000", 1, 0, NULL,
     "keys in the store"},
    {"lease-limit", TUTTI_OPTION_UINT, AT(lease_limit), "65536", 1, 1 << 28, NULL,
     "leases of store keys at a time"},
    {"lease-min", TUTTI_OPTION_NS, AT(lease_min_ns), "1s", 10 * MS, HOUR, NULL,
     "the shortest lease that a client may have"},
    {"lease-max", TUTTI_OPTION_NS, AT(lease_max_ns), "24h", MS, 24 * 49 * HOUR, NULL,
     "the longest lease that a client may have"},
    {"host-id", TUTTI_OPTION_NAME, AT(host_id), "", 0, 0, NULL,
     "id of this host, equal for clients that share memory with the coordinator; empty = boot id "
     "and "
     "IPC namespace"},
    {"no-lane", TUTTI_OPTION_BOOL, AT(no_lane), "false", 0, 0, NULL,
     "clients of this host send all their calls by gRPC, none through shared memory"},
    {"lanes-max", TUTTI_OPTION_UINT, AT(lanes_max), "1024", 1, 100000, NULL,
     "how many lanes clients may have at a time: shared memory of 132 KiB through which a stream "
     "of store calls goes; further ones go by gRPC"},
    {"share-any-user", TUTTI_OPTION_BOOL, AT(share_any_user), "false", 0, 0, NULL,
     "clients of other users than the coordinator's and root may have lanes, too"},
    {"busy-poll", TUTTI_OPTION_NS, AT(busy_poll_ns), "0", 0, 10 * MS, NULL,
     "how long the thread of the lanes looks for the next call before it sleeps; for machines with "
     "a core to spare"},
};

tutti_option_set
tutti_coordinator_option_set(tutti_coordinator_options *target)
{
    return (tutti_option_set){"coordinator", table, sizeof(table) / sizeof(table[0]), target};
}

tutti_code
tutti_coordinator_options_check(const tutti_coordinator_options *options, tutti_error *err)
{
    if (options->heartbeat_timeout_ns / 2 < options->heartbeat_interval_ns) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
            "--heartbeat-timeout is %" PRIu64 " ms, need at least two intervals of "
            "%" PRIu64 " ms (--heartbeat-interval)",
            options->heartbeat_timeout_ns / MS, options->heartbeat_interval_ns / MS);
    }
    if (options->lease_max_ns < options->lease_min_ns) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "--lease-max is %" PRIu64 " ms, need at least --lease-min, %" PRIu64
                              " ms",
                              options->lease_max_ns / MS, options->lease_min_ns / MS);
    }
    return TUTTI_OK;
}
