/*
 * The thread behind the socket: processes come in, show a token, and stay until they hang up. A
 * guest's connection is its lease: the kernel closes it when the process dies, however it dies.
 *
 * Guests are this thread's alone. An offer that a guest has leased is the guest's: only the end of
 * the guest takes it off the list. What strangers can do is bounded: their number, their time
 * (STRANGER_NS), and a message of one size.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/os/local.h"
#include "share/share_private.h"

#define STRANGER_NS (5 * TUTTI_NS_PER_S)
#define LOOK_MS 500 /* between looks at what is due, while something may be */

/* ------------------------------------------------------------------------------ the end of a guest
 */

/*
 * Behind the lock nobody finds the socket any more: tutti_share_revoke finds a guest by its offer, under the lock. It
 * is closed outside of it: what is in it unread goes with it, and may be a descriptor whose close waits for its
 * sender (tutti_local_refuse_descriptors). That holds up this thread, and nobody who wants the lock. on_over runs after it.
 */
void
tutti_share_end_guest(tutti_share *self, share_guest *guest)
{
    share_offer *offer = guest->offer;

    tutti_share_lock(self);
    tutti_list_remove(&guest->link);
    if (offer != NULL) {
        tutti_list_remove(&offer->link);
        self->offer_count--;
    } else {
        self->stranger_count--;
    }
    tutti_share_unlock(self);
    /* A forked child may hold the socket, too: closing ours alone would leave it in the poller. */
    (void)epoll_ctl(self->poller, EPOLL_CTL_DEL, guest->socket, NULL);
    (void)close(guest->socket); /* nobody sends to it any more */
    if (offer != NULL) {
        tutti_share_end_offer(self, offer);
    }
    free(guest);
}

/* After its messages were read: a socket that is closed before loses what was sent to it. */
static void
say_refusal(int socket, enum share_refusal why)
{
    share_answer answer = {.refusal = why};

    memcpy(answer.magic, SHARE_ANSWER, SHARE_MAGIC_BYTES);
    (void)tutti_local_send(socket, &answer, sizeof(answer), NULL, 0);
}

/* ------------------------------------------------------------------------------ a guest's token */

/* How long it takes says nothing about where they differ. */
static bool
is_same(const unsigned char *left, const unsigned char *right)
{
    unsigned char differs = 0;
    size_t i;

    for (i = 0; i < TUTTI_SHARE_TOKEN_BYTES; i++) {
        differs |= (unsigned char)(left[i] ^ right[i]);
    }
    return differs == 0;
}

/*
 * Under the lock. All offers are compared, each in a time that does not depend on where it differs,
 * so the time tells nothing of a token. NULL: none is like it, or another guest has it.
 */
static share_offer *
find_offer(tutti_share *self, const unsigned char *token)
{
    share_offer *found = NULL;
    tutti_list_node *at;
    tutti_list_node *spare;

    tutti_list_each(at, spare, &self->offers)
    {
        share_offer *offer = tutti_container_of(at, share_offer, link);

        if (offer->state == SHARE_OFFERED && is_same(offer->token, token)) {
            found = offer;
        }
    }
    return found;
}

/* Under the lock. Our descriptors are closed once they are sent: the tensor's owner keeps its own. */
static bool
lease_offer(tutti_share *self, share_guest *guest, share_offer *offer)
{
    share_answer answer = {.bytes = offer->bytes, .writable = offer->writable ? 1 : 0};
    const int fds[] = {offer->fd, offer->second, offer->third};
    const size_t count = offer->second < 0 ? 1 : offer->third < 0 ? 2 : 3;
    bool sent;

    offer->state = SHARE_LEASED;
    offer->guest = guest;
    guest->offer = offer;
    self->stranger_count--;
    memcpy(answer.magic, SHARE_ANSWER, SHARE_MAGIC_BYTES);
    sent = tutti_local_send(guest->socket, &answer, sizeof(answer), fds, count);
    share_close_offered(offer);
    return sent;
}

/*
 * The first guest that shows the token has the offer. One lock for the look, the lease and the
 * answer: two guests cannot both get it, it cannot run out of time in between, and the notice of
 * tutti_share_revoke cannot come before the answer. The socket does not block.
 */
static void
take_token(tutti_share *self, share_guest *guest, const unsigned char *token)
{
    share_offer *offer;
    bool sent;

    tutti_share_lock(self);
    offer = find_offer(self, token);
    sent = offer != NULL && lease_offer(self, guest, offer);
    tutti_share_unlock(self);
    if (offer == NULL) {
        say_refusal(guest->socket, SHARE_BAD_TOKEN);
    }
    if (!sent) {
        tutti_share_end_guest(self, guest);
    }
}

static void
hear_guest(tutti_share *self, share_guest *guest)
{
    int fds[TUTTI_LOCAL_FDS_MAX];
    share_hello hello = {0};
    size_t count = 0;
    const long size = tutti_local_receive(guest->socket, &hello, sizeof(hello), fds, &count);

    tutti_local_close_all(fds, count);
    if (size < 0) {
        return;
    }
    if (guest->offer != NULL || size != sizeof(hello) ||
        memcmp(hello.magic, SHARE_HELLO, SHARE_MAGIC_BYTES) != 0) {
        tutti_share_end_guest(self, guest); /* it hung up, or says what makes no sense */
    } else {
        take_token(self, guest, hello.token);
    }
}

/* ------------------------------------------------------------------------------ callers */

static bool
is_welcome(const tutti_share *self, int socket)
{
    uid_t user = 0;

    return tutti_local_peer(socket, &user) &&
           (self->options.any_user || user == 0 || user == geteuid());
}

/* A user who may not come in never counts, so he cannot fill the places of strangers. What it has
 * sent is read first: a socket that is closed with unread data loses our answer. */
static void
send_away(int socket)
{
    int fds[TUTTI_LOCAL_FDS_MAX];
    share_hello hello;
    size_t count;
    long size;

    (void)shutdown(socket, SHUT_RD); /* what it has said is read, more it cannot say */
    do {
        size = tutti_local_receive(socket, &hello, sizeof(hello), fds, &count);
        tutti_local_close_all(fds, count);
    } while (size > 0);
    say_refusal(socket, SHARE_OTHER_USER);
    (void)close(socket);
}

/* The one that has been silent for longest makes room: a newcomer may have a token. */
static void
end_oldest_stranger(tutti_share *self)
{
    tutti_list_node *at;
    tutti_list_node *spare;

    tutti_list_each(at, spare, &self->guests)
    {
        share_guest *guest = tutti_container_of(at, share_guest, link);

        if (guest->offer == NULL) {
            tutti_share_end_guest(self, guest);
            return;
        }
    }
}

static void
add_guest(tutti_share *self, int socket)
{
    share_guest *guest = calloc(1, sizeof(*guest));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = guest};

    if (guest == NULL) {
        (void)close(socket);
        return;
    }
    guest->socket = socket;
    guest->due_ns = tutti_clock_add(tutti_clock_ns(), STRANGER_NS);
    tutti_list_init(&guest->link);
    tutti_share_lock(self);
    tutti_list_add(&self->guests, &guest->link);
    self->stranger_count++;
    tutti_share_unlock(self);
    if (epoll_ctl(self->poller, EPOLL_CTL_ADD, socket, &event) != 0) {
        tutti_share_end_guest(self, guest);
    }
}

/* Without descriptors the listener stays ready: a pause keeps this thread from spinning. Guests
 * wait those 10 ms. */
static void
answer_door(tutti_share *self)
{
    const struct timespec pause = {.tv_nsec = 10 * TUTTI_NS_PER_MS};
    const int socket = accept4(self->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (socket < 0) {
        (void)nanosleep(&pause, NULL); /* no descriptors: the caller waits, we do not spin */
    } else if (!is_welcome(self, socket)) {
        send_away(socket);
    } else {
        if (self->stranger_count >= SHARE_STRANGERS_MAX) {
            end_oldest_stranger(self);
        }
        add_guest(self, socket);
    }
}

/* ------------------------------------------------------------------------------ what is due */

/* Under the lock. A leased offer has no time. False: nothing will be due, and the thread may sleep
 * until the bell. */
static bool
gather_due(tutti_share *self, uint64_t now_ns, tutti_list_node *dead)
{
    bool more = self->stranger_count > 0;
    tutti_list_node *at;
    tutti_list_node *spare;

    tutti_list_each(at, spare, &self->offers)
    {
        share_offer *offer = tutti_container_of(at, share_offer, link);

        if (offer->state == SHARE_LEASED) {
            continue;
        }
        more = true;
        if (offer->due_ns <= now_ns) {
            self->offer_count--;
            tutti_list_remove(at);
            tutti_list_add(dead, at);
        }
    }
    return more;
}

/* Returns how long to wait for events. */
static int
end_due(tutti_share *self)
{
    const uint64_t now_ns = tutti_clock_ns();
    tutti_list_node dead;
    tutti_list_node *at;
    tutti_list_node *spare;
    bool more;

    tutti_list_init(&dead);
    tutti_share_lock(self);
    more = gather_due(self, now_ns, &dead);
    tutti_share_unlock(self);
    while ((at = tutti_list_pop(&dead)) != NULL) {
        tutti_share_end_offer(self, tutti_container_of(at, share_offer, link));
    }
    tutti_list_each(at, spare, &self->guests)
    {
        share_guest *guest = tutti_container_of(at, share_guest, link);

        if (guest->offer == NULL && guest->due_ns <= now_ns) {
            tutti_share_end_guest(self, guest);
        }
    }
    return more ? LOOK_MS : -1;
}

/* ------------------------------------------------------------------------------ the loop */

static bool
is_stopping(tutti_share *self)
{
    bool stopping;

    tutti_share_lock(self);
    stopping = self->stopping;
    tutti_share_unlock(self);
    return stopping;
}

static void
hear_bell(const tutti_share *self)
{
    uint64_t count;
    const ssize_t got = read(self->bell, &count, sizeof(count));

    (void)got;
}

/* A guest may end while it is heard, so one event is fetched at a time. */
void *
tutti_share_run(void *share)
{
    tutti_share *self = share;
    struct epoll_event event;

    (void)pthread_setname_np(pthread_self(), "tutti-share");
    while (!is_stopping(self)) {
        if (epoll_wait(self->poller, &event, 1, end_due(self)) != 1) {
            continue;
        }
        if (event.data.ptr == NULL) {
            hear_bell(self);
        } else if (event.data.ptr == self) {
            answer_door(self);
        } else {
            hear_guest(self, event.data.ptr);
        }
    }
    return NULL;
}
