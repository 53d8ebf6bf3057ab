/*
 * Offers and their end, from any thread; opening and closing. door.c has the thread behind the
 * socket.
 *
 * One mutex guards offers, counts and `stopping`; guests are the thread's. An offer is in
 * share->offers from tutti_share_offer until it is over, and its on_over runs once, on the thread
 * that took it off the list: that is what makes "once" true. on_over runs outside of the lock, as
 * it lets a tensor go, which may call back.
 *
 * An offer ends by its time, by a revoke before it is taken, by the end of its guest's connection,
 * or by the close.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/local.h"
#include "base/os/thread.h"
#include "share/share_private.h"

#define PATIENCE_NS (30 * TUTTI_NS_PER_S)

void
tutti_share_lock(tutti_share *self)
{
    const int failed = pthread_mutex_lock(&self->lock);

    assert(failed == 0);
}

void
tutti_share_unlock(tutti_share *self)
{
    const int failed = pthread_mutex_unlock(&self->lock);

    assert(failed == 0);
}

const char *
tutti_share_socket(const tutti_share *share)
{
    return share->name;
}

uint64_t
tutti_share_count(tutti_share *share)
{
    uint64_t count;

    tutti_share_lock(share);
    count = share->offer_count;
    tutti_share_unlock(share);
    return count;
}

/* ------------------------------------------------------------------------------ offers */

/* The same file, opened again: a descriptor for reading cannot be mapped for writing, ever. */
static int
descriptor_of(const tutti_share_item *item)
{
    char path[32];

    if (item->writable) {
        return fcntl(item->fd, F_DUPFD_CLOEXEC, 0);
    }
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", item->fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

void
share_close_offered(share_offer *offer)
{
    if (offer->fd >= 0) {
        (void)close(offer->fd);
    }
    if (offer->second >= 0) {
        (void)close(offer->second);
    }
    if (offer->third >= 0) {
        (void)close(offer->third);
    }
    offer->fd = -1;
    offer->second = -1;
    offer->third = -1;
}

/* A further descriptor of an item; 0 = there is none. */
static int
copy_further(int fd)
{
    return fd > 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
}

static tutti_code
new_offer(const tutti_share *self, const tutti_share_item *item, share_offer **ret_offer,
          tutti_error *err)
{
    const uint64_t patience_ns =
        self->options.patience_ns == 0 ? PATIENCE_NS : self->options.patience_ns;
    share_offer *offer = calloc(1, sizeof(*offer));

    if (offer == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a share");
    }
    *offer = (share_offer){.fd = descriptor_of(item),
                           .second = copy_further(item->second),
                           .third = copy_further(item->third),
                           .bytes = item->bytes,
                           .writable = item->writable,
                           .owner = item->owner,
                           .due_ns = tutti_clock_add(tutti_clock_ns(), patience_ns)};
    tutti_list_init(&offer->link);
    if (offer->fd < 0 || (item->second > 0 && offer->second < 0) ||
        (item->third > 0 && offer->third < 0)) {
        const int number = errno;

        share_close_offered(offer);
        free(offer);
        return TUTTI_FAIL_ERRNO(err, number, "could not make a descriptor to share");
    }
    if (getrandom(offer->token, sizeof(offer->token), 0) != (ssize_t)sizeof(offer->token)) {
        share_close_offered(offer);
        free(offer);
        return TUTTI_FAIL_MEMORY(err, "no random bytes for a token");
    }
    *ret_offer = offer;
    return TUTTI_OK;
}

/* The caller has taken it off the list under the lock, so nobody else finds it. */
void
tutti_share_end_offer(tutti_share *self, share_offer *offer)
{
    share_close_offered(offer);
    self->options.on_over(offer->owner);
    free(offer);
}

/* The descriptor is made before the lock is taken. The bell: the thread may sleep without a time
 * limit, and must look when this offer is due. */
tutti_code
tutti_share_offer(tutti_share *share, const tutti_share_item *item,
                  unsigned char ret_token[TUTTI_SHARE_TOKEN_BYTES], tutti_error *err)
{
    share_offer *offer = NULL;
    tutti_code code = new_offer(share, item, &offer, err);
    bool full;

    assert(item->bytes > 0 && item->owner != NULL);
    if (code != TUTTI_OK) {
        return code;
    }
    tutti_share_lock(share);
    full = share->offer_count >= share->options.shares_max;
    if (!full) {
        memcpy(ret_token, offer->token, sizeof(offer->token));
        tutti_list_add(&share->offers, &offer->link);
        share->offer_count++;
    }
    tutti_share_unlock(share);
    if (full) {
        share_close_offered(offer);
        free(offer);
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SHARE_LIMIT",
                              "%u tensors are shared, the limit: unmap some, or raise --shares-max",
                              share->options.shares_max);
    }
    tutti_local_ring(share->bell); /* its time runs */
    return TUTTI_OK;
}

/*
 * A leased one is only told: its memory stays mapped at the guest until that hangs up, and on_over
 * comes then. The notice is sent under the lock, so the guest's socket cannot be closed, and its
 * number used again, meanwhile. The socket does not block; a guest that reads nothing learns of it
 * by the end of the connection.
 */
void
tutti_share_revoke(tutti_share *share, const void *owner)
{
    share_notice notice;
    tutti_list_node dead;
    tutti_list_node *at;
    tutti_list_node *spare;

    memcpy(notice.magic, SHARE_REVOKED, SHARE_MAGIC_BYTES);
    tutti_list_init(&dead);
    tutti_share_lock(share);
    tutti_list_each(at, spare, &share->offers)
    {
        share_offer *offer = tutti_container_of(at, share_offer, link);

        if (offer->owner == owner && offer->state == SHARE_LEASED) {
            (void)tutti_local_send(offer->guest->socket, &notice, sizeof(notice), NULL, 0);
        } else if (offer->owner == owner) {
            share->offer_count--;
            tutti_list_remove(at);
            tutti_list_add(&dead, at);
        }
    }
    tutti_share_unlock(share);
    while ((at = tutti_list_pop(&dead)) != NULL) {
        tutti_share_end_offer(share, tutti_container_of(at, share_offer, link));
    }
}

/* ------------------------------------------------------------------------------ lifetime */

static bool
watch_share(const tutti_share *self, int fd, void *what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = what};

    return epoll_ctl(self->poller, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* The listener's events carry the share, the bell's nothing. */
static tutti_code
open_descriptors(tutti_share *self, tutti_error *err)
{
    char id[TUTTI_ID_TEXT_SIZE];

    tutti_id_format(tutti_id_draw(), id);
    (void)snprintf(self->name, sizeof(self->name), "tutti-lease-%s", id);
    self->poller = epoll_create1(EPOLL_CLOEXEC);
    self->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->listener = tutti_local_listen(tutti_bytes_of(self->name));
    if (self->poller < 0 || self->bell < 0 || self->listener < 0 ||
        !watch_share(self, self->bell, NULL) || !watch_share(self, self->listener, self)) {
        const int number = errno;

        return TUTTI_FAIL_ERRNO(err, number, "could not open a socket to share memory by");
    }
    tutti_local_refuse_descriptors(self->listener);
    return TUTTI_OK;
}

static tutti_code
start_share(tutti_share *self, tutti_error *err)
{
    const int failed = tutti_thread_start(&self->thread, tutti_share_run, self);

    self->started = failed == 0;
    return failed == 0 ? TUTTI_OK
                       : TUTTI_FAIL_ERRNO(err, failed, "could not start a thread to share memory");
}

tutti_code
tutti_share_open(const tutti_share_options *options, tutti_share **ret_share, tutti_error *err)
{
    tutti_share *self = calloc(1, sizeof(*self));
    tutti_code code;

    assert(options->on_over != NULL);
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to share memory");
    }
    self->options = *options;
    self->poller = -1;
    self->bell = -1;
    self->listener = -1;
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_list_init(&self->offers);
    tutti_list_init(&self->guests);
    code = open_descriptors(self, err);
    if (code == TUTTI_OK) {
        code = start_share(self, err);
    }
    if (code != TUTTI_OK) {
        tutti_share_close(self);
        return code;
    }
    *ret_share = self;
    return TUTTI_OK;
}

static void
stop_share(tutti_share *self)
{
    tutti_share_lock(self);
    self->stopping = true;
    tutti_share_unlock(self);
    tutti_local_ring(self->bell);
    (void)pthread_join(self->thread, NULL);
}

/* Also of one that is half open. After the join no other thread of ours is left, so guests and
 * offers are ended here; leases end by the closing of their sockets, which the guests see. */
void
tutti_share_close(tutti_share *share)
{
    const int fds[] = {share == NULL ? -1 : share->poller, share == NULL ? -1 : share->bell,
                       share == NULL ? -1 : share->listener};
    tutti_list_node *at;
    size_t i;

    if (share == NULL) {
        return;
    }
    if (share->started) {
        stop_share(share);
    }
    while (!tutti_list_empty(&share->guests)) {
        tutti_share_end_guest(share, tutti_container_of(share->guests.next, share_guest, link));
    }
    while ((at = tutti_list_pop(&share->offers)) != NULL) {
        tutti_share_end_offer(share, tutti_container_of(at, share_offer, link));
    }
    for (i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    (void)pthread_mutex_destroy(&share->lock);
    free(share);
}
