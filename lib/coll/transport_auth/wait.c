/*
 * Packets of an epoch that others know already: they wait for its key. Engine's thread.
 *
 * Bounded in number, bytes and time, since a process that once was told our address (the pass)
 * could make us keep any number. The list is in the order of arrival, so the oldest is the first.
 * Large data stays with its sender.
 */
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "coll/transport_auth/transport_auth_private.h"

typedef struct waiting {
    tutti_list_node link;
    uint64_t since_ns;
    tutti_transport_rndv *rndv;
    size_t header_size;
    size_t size;
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    unsigned char data[]; /* when there is no rndv */
} waiting;

static size_t
get_waiting_bytes(const waiting *it)
{
    return sizeof(*it) + (it->rndv == NULL ? it->size : 0);
}

static waiting *
take_first(auth *self)
{
    tutti_list_node *link = tutti_list_pop(&self->waiting);
    waiting *it = link == NULL ? NULL : tutti_container_of(link, waiting, link);

    if (it != NULL) {
        self->waiting_bytes -= get_waiting_bytes(it);
        self->stats.waiting--;
    }
    return it;
}

static void
put_waiting(auth *self, waiting *it)
{
    tutti_list_init(&it->link);
    tutti_list_add(&self->waiting, &it->link);
    self->waiting_bytes += get_waiting_bytes(it);
    self->stats.waiting++;
}

static bool
is_old(const waiting *it, uint64_t now_ns)
{
    return now_ns > tutti_clock_add(it->since_ns, AUTH_NEW_JOB_NS);
}

static void
drop_old(auth *self, uint64_t now_ns)
{
    while (!tutti_list_empty(&self->waiting) &&
           is_old(tutti_container_of(self->waiting.next, waiting, link), now_ns)) {
        waiting *it = take_first(self);

        auth_drop(self, it->rndv);
        free(it);
    }
}

bool
auth_wait(auth *self, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    const size_t copied = rndv == NULL ? size : 0;
    const uint64_t now_ns = tutti_clock_ns();
    waiting *it;

    drop_old(self, now_ns);
    if (self->stats.waiting == AUTH_WAITING_MAX || header_size > TUTTI_TRANSPORT_HEADER_MAX ||
        self->waiting_bytes + sizeof(*it) + copied > AUTH_WAITING_BYTES_MAX) {
        return false;
    }
    it = malloc(sizeof(*it) + copied);
    if (it == NULL) {
        return false;
    }
    it->since_ns = now_ns;
    it->rndv = rndv;
    it->header_size = header_size;
    it->size = size;
    memcpy(it->header, header, header_size);
    if (copied > 0) {
        memcpy(it->data, data, copied);
    }
    put_waiting(self, it);
    return true;
}

/* As it came: the tag is checked now, with the key. One that still waits goes to the end and keeps
 * its time. */
static void
look_again(auth *self, waiting *it, uint64_t now_ns)
{
    const void *data = it->rndv == NULL ? it->data : NULL;
    auth_seal seal;
    const tutti_transport_verdict verdict =
        auth_accept(self, it->header, it->header_size, data, it->size, &seal);

    if (verdict == TUTTI_TRANSPORT_AHEAD && !is_old(it, now_ns)) {
        put_waiting(self, it);
        return;
    }
    if (verdict == TUTTI_TRANSPORT_MEMBER) {
        auth_hear(self, it->header, it->header_size, data, it->size, it->rndv, &seal);
    } else {
        auth_drop(self, it->rndv);
    }
    free(it);
}

/* As many as there are now: those that wait on are put back at the end. */
void
auth_wait_over(auth *self)
{
    const uint64_t now_ns = tutti_clock_ns();
    uint64_t left = self->stats.waiting;

    while (left-- > 0) {
        look_again(self, take_first(self), now_ns);
    }
}

void
auth_wait_fini(auth *self)
{
    waiting *it;

    while ((it = take_first(self)) != NULL) {
        auth_drop(self, it->rndv);
        free(it);
    }
}
