/*
 * Completions that are ready, and who waits for them.
 *
 * Leader and followers: the thread that needs a completion polls the source itself, if nobody else
 * does (`polling`); the others wait for `changed`. So one thread that submits and takes changes no
 * thread on the way. A leader that comes back wakes one follower, which takes its place or what is
 * there.
 *
 * The descriptor is an eventfd whose count is 1 exactly while a take would not wait; it changes
 * under the lock together with the list.
 */
#include "client/queue/ready.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/local.h"
#include "base/os/thread.h"

void
queue_ready_init(queue_ready *self, const queue_source *source)
{
    *self = (queue_ready){.source = source, .fd = -1};
    tutti_list_init(&self->done);
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
}

void
queue_ready_fini(queue_ready *self)
{
    if (self->fd >= 0) {
        (void)close(self->fd);
    }
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
}

/* With the lock. */
static bool
is_ready(const queue_ready *self)
{
    return self->over || !tutti_list_empty(&self->done);
}

/* With the lock: the descriptor as it should be. [in] before  as it was */
static void
show_ready(const queue_ready *self, bool before)
{
    tutti_local_show(self->fd, before, is_ready(self));
}

/* With the lock: is another thread in the source, which does not know of what this one does? */
static bool
is_polled_elsewhere(const queue_ready *self)
{
    return self->polling && !pthread_equal(self->poller, pthread_self());
}

void
queue_ready_put(queue_ready *self, tutti_list_node *link)
{
    bool before;
    bool wake;

    (void)pthread_mutex_lock(&self->lock);
    before = is_ready(self);
    tutti_list_add(&self->done, link);
    show_ready(self, before);
    wake = is_polled_elsewhere(self);
    (void)pthread_cond_broadcast(&self->changed);
    if (wake) { /* with the lock: the source is there as long as somebody polls it */
        self->source->wake(self);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

/* With the lock, which is let go of meanwhile. */
static void
lead_poll(queue_ready *self, uint64_t deadline_ns)
{
    self->polling = true;
    self->poller = pthread_self();
    (void)pthread_mutex_unlock(&self->lock);
    self->source->poll(self, deadline_ns);
    (void)pthread_mutex_lock(&self->lock);
    self->polling = false;
    (void)pthread_cond_broadcast(&self->changed);
}

static bool
may_lead(const queue_ready *self)
{
    return !self->polling && !self->served && !self->dry;
}

/* With the lock: poll, or wait for who polls. False: the time is over. */
static bool
wait_once(queue_ready *self, uint64_t deadline_ns)
{
    if (!may_lead(self)) {
        return tutti_cond_wait_until(&self->changed, &self->lock, deadline_ns);
    }
    lead_poll(self, deadline_ns);
    return deadline_ns == QUEUE_NEVER || tutti_clock_ns() < deadline_ns;
}

tutti_list_node *
queue_ready_take(queue_ready *self, uint64_t deadline_ns)
{
    tutti_list_node *link;
    bool in_time = true;
    bool before;

    (void)pthread_mutex_lock(&self->lock);
    while (!is_ready(self) && in_time) {
        in_time = wait_once(self, deadline_ns);
    }
    before = is_ready(self);
    link = tutti_list_pop(&self->done);
    show_ready(self, before);
    if (is_ready(self) || may_lead(self)) { /* for the next one who waits */
        (void)pthread_cond_broadcast(&self->changed);
    }
    (void)pthread_mutex_unlock(&self->lock);
    return link;
}

bool
queue_ready_glance(queue_ready *self)
{
    bool leads;

    (void)pthread_mutex_lock(&self->lock);
    leads = may_lead(self);
    if (leads) {
        lead_poll(self, tutti_clock_ns());
    }
    (void)pthread_mutex_unlock(&self->lock);
    return leads;
}

void
queue_ready_serve(queue_ready *self, void (*between)(queue_ready *ready))
{
    (void)pthread_mutex_lock(&self->lock);
    self->served = true;
    if (self->polling) {
        self->source->wake(self);
    }
    while (!self->over || (between != NULL && !tutti_list_empty(&self->done))) {
        if (between != NULL && !tutti_list_empty(&self->done)) {
            (void)pthread_mutex_unlock(&self->lock);
            between(self);
            (void)pthread_mutex_lock(&self->lock);
        } else if (self->polling || self->dry) {
            (void)tutti_cond_wait_until(&self->changed, &self->lock, QUEUE_NEVER);
        } else {
            lead_poll(self, QUEUE_NEVER);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
}

void
queue_ready_dry(queue_ready *self)
{
    (void)pthread_mutex_lock(&self->lock);
    self->dry = true;
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

void
queue_ready_end(queue_ready *self)
{
    bool before;

    (void)pthread_mutex_lock(&self->lock);
    before = is_ready(self);
    self->over = true;
    show_ready(self, before);
    if (is_polled_elsewhere(self)) {
        self->source->wake(self);
    }
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

void
queue_ready_wait_over(queue_ready *self, uint64_t deadline_ns)
{
    bool in_time = true;

    (void)pthread_mutex_lock(&self->lock);
    while (!self->over && in_time) {
        in_time = wait_once(self, deadline_ns);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

tutti_code
queue_ready_fd(queue_ready *self, int *ret_fd, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    (void)pthread_mutex_lock(&self->lock);
    if (self->fd < 0) {
        self->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (self->fd < 0) {
            (void)TUTTI_FAIL_ERRNO(err, errno, "could not make an eventfd for a queue");
            code = TUTTI_RESOURCE_EXHAUSTED;
        } else {
            show_ready(self, false);
        }
    }
    *ret_fd = self->fd;
    (void)pthread_mutex_unlock(&self->lock);
    if (code != TUTTI_OK && err != NULL) {
        err->code = code;
    }
    return code;
}
