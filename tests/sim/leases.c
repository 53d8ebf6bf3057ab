#include "leases.h"

#include <stdio.h>

static const char *const names[] = {"granted", "kept",  "revoked", "begun anew by a restart",
                                    "gone",    "missed"};

static bool
fail_with(const leases_event *gone, const leases_event *other, const char *what, char *ret_words,
          size_t size)
{
    (void)snprintf(ret_words, size, "a lease is gone at %.3f ms%s it was %s at %.3f to %.3f ms",
                   (double)gone->end_ns / 1e6, what, names[other->kind],
                   (double)other->begin_ns / 1e6, (double)other->end_ns / 1e6);
    return false;
}

static bool
begins_time(const leases_event *event)
{
    return event->kind == LEASES_GRANT || event->kind == LEASES_KEEP ||
           event->kind == LEASES_RESTART;
}

/* The time that it has at `number`: of the last grant that was answered before, or the shortest that may count. */
static uint64_t
ttl_at(const leases_event *events, size_t count, uint64_t begin_ns, uint64_t end_ns, bool longest)
{
    uint64_t ttl_ns = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        const leases_event *one = &events[i];

        if (one->kind != LEASES_GRANT || one->begin_ns > end_ns) {
            continue;
        }
        if (one->answered && one->end_ns <= begin_ns) {
            ttl_ns = one->ttl_ns; /* the ones before count no more */
        } else if (ttl_ns == 0 || (longest ? one->ttl_ns > ttl_ns : one->ttl_ns < ttl_ns)) {
            ttl_ns = one->ttl_ns;
        }
    }
    return ttl_ns;
}

static bool
was_revoked(const leases_event *events, size_t count, const leases_event *since,
            const leases_event *gone)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (events[i].kind == LEASES_REVOKE && events[i].begin_ns <= gone->end_ns &&
            events[i].end_ns >= since->begin_ns) {
            return true;
        }
    }
    return false;
}

/* Was it granted again, so that it may have begun anew? */
static bool
granted_between(const leases_event *events, size_t count, const leases_event *gone,
                const leases_event *kept)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (events[i].kind == LEASES_GRANT && events[i].end_ns >= gone->begin_ns &&
            events[i].begin_ns <= kept->end_ns) {
            return true;
        }
    }
    return false;
}

/* Not early: whatever has certainly begun its time before gives it the whole of it. */
static bool
judge_gone(const leases_event *events, size_t count, const leases_event *gone, char *ret_words,
           size_t size)
{
    size_t i;

    for (i = 0; i < count; i++) {
        const leases_event *one = &events[i];

        if (begins_time(one) && one->answered && one->end_ns <= gone->begin_ns &&
            gone->end_ns <
                one->begin_ns + ttl_at(events, count, one->begin_ns, gone->end_ns, false) &&
            !was_revoked(events, count, one, gone)) {
            return fail_with(gone, one, ", early:", ret_words, size);
        }
        if (one->kind == LEASES_KEEP && one->answered && one->begin_ns > gone->end_ns &&
            !granted_between(events, count, gone, one)) {
            return fail_with(gone, one, ", and behind that", ret_words, size);
        }
    }
    return true;
}

static bool
fail_late(uint64_t latest_ns, uint64_t seen_ns, char *ret_words, size_t size)
{
    (void)snprintf(ret_words, size, "a lease should have ended by %.3f ms, and is there at %.3f ms",
                   (double)latest_ns / 1e6, (double)seen_ns / 1e6);
    return false;
}

/* A store that starts again while a call is on its way gives the lease its whole time before it handles the call. */
static uint64_t
after_restarts(const leases_event *events, size_t count, size_t at, uint64_t latest_ns)
{
    size_t i;

    for (i = at + 1; i < count && events[i].begin_ns <= events[at].end_ns; i++) {
        const uint64_t until_ns =
            events[i].end_ns + ttl_at(events, count, events[i].begin_ns, events[i].end_ns, true);

        latest_ns = events[i].kind == LEASES_RESTART && until_ns > latest_ns ? until_ns : latest_ns;
    }
    return latest_ns;
}

/* Not late: nobody finds it behind the time that the last event has given it at most. */
static bool
judge_end(const leases_event *events, size_t count, uint64_t slack_ns, uint64_t end_ns,
          char *ret_words, size_t size)
{
    uint64_t latest_ns = UINT64_MAX - slack_ns;
    bool gone = false;
    size_t i;

    for (i = 0; i < count; i++) {
        const leases_event *one = &events[i];

        if ((one->kind == LEASES_GONE || (one->kind == LEASES_KEEP && one->answered)) &&
            one->begin_ns > after_restarts(events, count, i, latest_ns) + slack_ns) {
            return fail_late(latest_ns, one->begin_ns, ret_words, size);
        }
        if (begins_time(one)) {
            const uint64_t until_ns =
                one->end_ns + ttl_at(events, count, one->begin_ns, one->end_ns, true);

            latest_ns = i == 0 || until_ns > latest_ns ? until_ns : latest_ns;
            gone = gone && one->kind != LEASES_GRANT;
        } else if (one->kind == LEASES_REVOKE && one->answered) {
            latest_ns = one->end_ns;
        } else if (one->kind == LEASES_GONE || one->kind == LEASES_MISSED) {
            gone = true;
        }
    }
    return gone || end_ns <= latest_ns + slack_ns || fail_late(latest_ns, end_ns, ret_words, size);
}

bool
leases_check(const leases_event *events, size_t count, uint64_t slack_ns, uint64_t end_ns,
             char *ret_words, size_t size)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if ((events[i].kind == LEASES_GONE || events[i].kind == LEASES_MISSED) &&
            !judge_gone(events, count, &events[i], ret_words, size)) {
            return false;
        }
    }
    return judge_end(events, count, slack_ns, end_ns, ret_words, size);
}
