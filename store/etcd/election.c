/*
 * Who leads. The key PREFIX/leader is created with a lease by whoever finds it missing; the others
 * watch it until it is gone. Its create revision is the fence of all transactions.
 *
 * Time. The lease begins in etcd after we have asked for it, so it lasts at least until its length
 * after the moment of asking, on any clock. We stop a tenth of it before, since two clocks do not run
 * quite alike, and since what was checked just before the end is still on its way out. A process that
 * was stopped (SIGSTOP, a suspended machine) finds its time over when it wakes.
 */
#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "base/os/thread.h"
#include "store/etcd/etcd_private.h"

#define TROUBLE_PAUSE_NS (500 * TUTTI_NS_PER_MS)
#define LOOK_AGAIN_NS (3 * TUTTI_NS_PER_S) /* at the key, though no event has come */
#define ASK_NS (4 * TUTTI_NS_PER_S)

uint64_t
tutti_etcd_leads_until(tutti_etcd *etcd)
{
    return atomic_load(&etcd->leads_until_ns);
}

void
tutti_etcd_on_lost(tutti_etcd *etcd, void (*on_lost)(void *arg, const tutti_error *why), void *arg)
{
    etcd->on_lost = on_lost;
    etcd->on_lost_arg = arg;
}

/* ------------------------------------------------------------------ keeping it */

static void
set_until(tutti_etcd *etcd, uint64_t asked_ns, uint64_t ttl_ns)
{
    atomic_store(&etcd->leads_until_ns, tutti_clock_add(asked_ns, ttl_ns - ttl_ns / 10));
}

/* Nobody may write meanwhile but us, so what we have written has to be there. */
static bool
went_back(tutti_etcd *etcd, uint64_t until_ns, tutti_error *err)
{
    const uint64_t written = atomic_load(&etcd->written);
    etcd_version found;

    if (etcd_version_read(etcd, until_ns, &found, NULL, NULL) != TUTTI_OK ||
        found.version >= written) {
        return false;
    }
    (void)etcd_version_fail(&found, written, err);
    return true;
}

/* False: there is no such lease any more, its time may be over, or etcd has gone back. */
static bool
keep_on(tutti_etcd *etcd, tutti_error *err)
{
    const uint64_t asked_ns = tutti_clock_ns();
    const uint64_t until_ns = tutti_etcd_leads_until(etcd);
    uint64_t attempt_ns = tutti_clock_add(asked_ns, etcd->lease_ns / 5);
    uint64_t ttl_ns = 0;
    tutti_code code;

    if (asked_ns >= until_ns) {
        (void)TUTTI_FAIL_FOR(
            err, TUTTI_UNAVAILABLE, "ETCD_LOST",
            "the lease in etcd could not be kept: no answer in time, or this process "
            "did not run");
        return false;
    }
    attempt_ns = attempt_ns < until_ns ? attempt_ns : until_ns;
    code = etcd_lease_keep(etcd, etcd->lease, attempt_ns, &ttl_ns, err);
    if (code == TUTTI_OK && went_back(etcd, attempt_ns, err)) {
        return false;
    }
    if (code == TUTTI_OK && ttl_ns == 0) {
        (void)TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_LEADER",
                             "the lease in etcd is over");
        return false;
    }
    if (code == TUTTI_OK) {
        set_until(etcd, asked_ns, ttl_ns);
    }
    return true;
}

static void *
run_keeper(void *arg)
{
    tutti_etcd *etcd = arg;
    tutti_error err = {0};
    uint64_t next_ns = tutti_clock_add(tutti_clock_ns(), etcd->lease_ns / 4);

    while (etcd_pause(etcd, next_ns)) {
        const uint64_t before_ns = tutti_etcd_leads_until(etcd);

        if (!keep_on(etcd, &err)) {
            if (etcd->on_lost != NULL) {
                etcd->on_lost(etcd->on_lost_arg, &err);
            }
            return NULL;
        }
        next_ns = tutti_clock_add(tutti_clock_ns(), before_ns == tutti_etcd_leads_until(etcd)
                                                        ? etcd->lease_ns / 20
                                                        : etcd->lease_ns / 4);
    }
    return NULL;
}

/* ------------------------------------------------------------------ getting it */

/* The leader's key as it was seen last. */
typedef struct seen {
    char address[TUTTI_ADDRESS_MAX];
    int64_t create_revision; /* 0 = nobody leads */
    int64_t revision;        /* of etcd, when it was looked at */
} seen;

static tutti_code
take_leader(void *arg, const etcd_row *row, tutti_error *err)
{
    seen *now = arg;

    (void)err;
    (void)snprintf(now->address, sizeof(now->address), "%.*s",
                   (int)(row->value.size > TUTTI_ADDRESS_MAX ? TUTTI_ADDRESS_MAX : row->value.size),
                   (const char *)row->value.data);
    now->create_revision = row->create_revision;
    return TUTTI_OK;
}

static tutti_code
look(tutti_etcd *etcd, tutti_bytes key, seen *ret_seen, tutti_error *err)
{
    const etcd_range range = {.from = key};

    *ret_seen = (seen){0};
    return etcd_range_run(etcd, &range, tutti_clock_add(tutti_clock_ns(), ASK_NS), take_leader,
                          ret_seen, NULL, &ret_seen->revision, err);
}

/*
 * Nobody leads: ask for a lease, and create the key with it. An attempt whose answer was lost may have
 * created it: then the comparison fails, and the key has our lease's create revision. That is not
 * looked at; the lease is given back, so the key goes, and the election begins again.
 */
static tutti_code
try_to_lead(tutti_etcd *etcd, tutti_bytes key, const char *address, bool *ret_leads,
            tutti_error *err)
{
    const uint64_t asked_ns = tutti_clock_ns();
    const uint64_t until_ns = tutti_clock_add(asked_ns, ASK_NS);
    etcd_op put = {.kind = ETCD_PUT, .key = key, .value = tutti_bytes_of(address)};
    etcd_txn txn = {.compares = {{.key = key}}, .compare_count = 1, .ops = &put, .op_count = 1};
    uint64_t ttl_ns = 0;
    int64_t revision = 0;
    tutti_code code;

    TUTTI_TRY(etcd_lease_grant(etcd, until_ns, &put.lease, &ttl_ns, err));
    code = etcd_txn_run(etcd, &txn, until_ns, ret_leads, &revision, err);
    if (code != TUTTI_OK || !*ret_leads) {
        etcd_lease_revoke(etcd, put.lease);
        return code;
    }
    etcd->lease = put.lease;
    atomic_store(&etcd->fence, revision); /* the key was created by this transaction */
    set_until(etcd, asked_ns, ttl_ns);
    return TUTTI_OK;
}

/*
 * Who waits remembers what the leader has written, as far as the last look: a leader whose lease ran
 * out while etcd was away ends, and tells nobody what was there.
 */
static void
note_version(tutti_etcd *etcd)
{
    etcd_version found;

    if (etcd_version_read(etcd, tutti_clock_add(tutti_clock_ns(), ASK_NS), &found, NULL, NULL) ==
            TUTTI_OK &&
        found.version > atomic_load(&etcd->written)) {
        atomic_store(&etcd->written, found.version);
    }
}

static void
tell_gone_back(tutti_etcd *etcd, const tutti_etcd_events *events)
{
    tutti_error err;

    if (events->on_gone_back != NULL &&
        went_back(etcd, tutti_clock_add(tutti_clock_ns(), ASK_NS), &err)) {
        events->on_gone_back(events->arg, &err);
    }
}

/* One look at the key, and what follows from it. */
static tutti_code
take_part(tutti_etcd *etcd, const char *address, const tutti_etcd_events *events, int64_t *followed,
          bool *ret_leads, tutti_error *err)
{
    unsigned char bytes[ETCD_KEY_MAX];
    const tutti_bytes key = etcd_key(etcd, "leader", (tutti_bytes){0}, bytes);
    seen now;

    TUTTI_TRY(look(etcd, key, &now, err));
    if (now.create_revision == 0) {
        return try_to_lead(etcd, key, address, ret_leads, err);
    }
    if (now.create_revision != *followed && events->on_follow != NULL) {
        events->on_follow(events->arg, now.address);
    }
    *followed = now.create_revision;
    note_version(etcd);
    etcd_watch_deleted(etcd, key, now.revision + 1,
                       tutti_clock_add(tutti_clock_ns(), LOOK_AGAIN_NS));
    return TUTTI_OK;
}

static tutti_code
start_keeper(tutti_etcd *etcd, tutti_error *err)
{
    const int failed = tutti_thread_start(&etcd->keeper, run_keeper, etcd);

    if (failed != 0) {
        return TUTTI_FAIL_ERRNO(err, failed, "could not start the thread that keeps the lease");
    }
    etcd->keeper_starts = true;
    return TUTTI_OK;
}

tutti_code
tutti_etcd_lead(tutti_etcd *etcd, const char *address, const tutti_etcd_events *events,
                tutti_error *err)
{
    tutti_error why = {0};
    int64_t followed = 0;
    bool leads = false;
    bool in_trouble = false;

    while (!leads && !atomic_load(&etcd->stopping)) {
        const tutti_code code = take_part(etcd, address, events, &followed, &leads, &why);

        if (code == TUTTI_PERMISSION_DENIED || code == TUTTI_INVALID_ARGUMENT) {
            return tutti_error_pass(err, &why);
        }
        if (code != TUTTI_OK && !in_trouble && events->on_trouble != NULL) {
            events->on_trouble(events->arg, &why);
        }
        in_trouble = code != TUTTI_OK;
        if (in_trouble) {
            (void)etcd_pause(etcd, tutti_clock_add(tutti_clock_ns(), TROUBLE_PAUSE_NS));
        }
    }
    if (!leads) {
        return TUTTI_FAIL_FOR(err, TUTTI_CANCELLED, "GIVEN_UP", "the election was given up");
    }
    tell_gone_back(etcd, events);
    atomic_store(&etcd->written, 0); /* until the store is loaded: what is there counts from here */
    return start_keeper(etcd, err);
}
