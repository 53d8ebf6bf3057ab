/*
 * What all waiting calls have in common: the list by which a drain finds them, the deadline, the
 * limit. A pending call is embedded in the call of its room; `owner` is not NULL exactly while it
 * is parked, so a withdrawal that comes behind the answer finds that out. on_end is how a
 * deadline (NULL) and a drain (an error) end it; the room then takes the call out of its own
 * lists, calls coord_wait_stop and answers.
 */
#include <assert.h>
#include <stdarg.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/core/core.h"

tutti_code
coord_fail_draining(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "DRAINING",
                          "the coordinator is shutting down: connect again");
}

tutti_code
coord_wait_check(const tutti_coordinator *self, tutti_error *err)
{
    if (self->draining) {
        return coord_fail_draining(err);
    }
    if (self->waiter_count >= self->options.waiter_limit) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "WAITER_LIMIT",
                              "%zu calls wait already, the limit (--waiter-limit)",
                              self->waiter_count);
    }
    return TUTTI_OK;
}

tutti_code
coord_watch_check(const tutti_coordinator *self, tutti_error *err)
{
    if (self->draining) {
        return coord_fail_draining(err);
    }
    if (self->watcher_count >= self->options.watcher_limit) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "WAITER_LIMIT",
                              "there are %zu watches, the limit (--watcher-limit)",
                              self->watcher_count);
    }
    return TUTTI_OK;
}

static void
on_expiry(tutti_timer *timer)
{
    tutti_coordinator_pending_call *wait =
        tutti_container_of(timer, tutti_coordinator_pending_call, timer);

    wait->on_end(wait, NULL);
}

void
coord_wait_start(tutti_coordinator *self, tutti_coordinator_pending_call *wait, bool counted,
                 uint64_t deadline_ns)
{
    assert(wait->owner == NULL && wait->on_end != NULL);
    wait->owner = self;
    wait->counted = counted;
    wait->timer = (tutti_timer){.on_expiry = on_expiry};
    tutti_list_add(&self->waits, &wait->link);
    tutti_timers_start(&self->timers, &wait->timer, deadline_ns);
    self->parked++;
    self->waiter_count += counted ? 1 : 0;
}

void
coord_wait_stop(tutti_coordinator_pending_call *wait)
{
    tutti_coordinator *self = wait->owner;

    assert(self != NULL && self->parked > 0);
    tutti_timers_stop(&self->timers, &wait->timer);
    tutti_list_remove(&wait->link);
    wait->owner = NULL;
    self->parked--;
    self->waiter_count -= wait->counted ? 1 : 0;
}

void
coord_note(tutti_coordinator *self, const char *format, ...)
{
    coord_kept_note *note = &self->notes[self->note_count++ % COORD_NOTES];
    tutti_text text = tutti_text_in(note->text, sizeof(note->text));
    va_list args;

    note->wall_ns = self->wall_ns;
    va_start(args, format);
    tutti_text_add_args(&text, format, args);
    va_end(args);
    if (self->on_note != NULL) {
        self->on_note(self->note_arg, note->text);
    }
}

tutti_code
coord_check_job(const char *job, const char **ret_name, tutti_error *err)
{
    *ret_name = job == NULL || job[0] == '\0' ? "default" : job;
    return tutti_check_name(*ret_name, "job", err);
}

tutti_code
coord_fail_memory(tutti_error *err, const char *what)
{
    return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for %s", what);
}

/*
 * Keys are any bytes and go into error texts and logs: what is not printable, and the quoting
 * itself, is escaped.
 */
void
coord_quote(tutti_bytes bytes, size_t most, char *ret_text, size_t size)
{
    const unsigned char *data = bytes.data;
    const size_t shown = bytes.size < most ? bytes.size : most;
    tutti_text text = tutti_text_in(ret_text, size);
    size_t i;

    for (i = 0; i < shown; i++) {
        if (data[i] >= 0x20 && data[i] < 0x7f && data[i] != '\\' && data[i] != '"') {
            tutti_text_add(&text, "%c", data[i]);
        } else {
            tutti_text_add(&text, "\\x%02x", data[i]);
        }
    }
    if (shown < bytes.size) {
        tutti_text_add(&text, "...");
    }
}
