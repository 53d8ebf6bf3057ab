/*
 * Meeting: the called process says a number that it has just drawn; the process that connects says
 * hello, with a ring made for the purpose, the memory and its doorbell; the called one answers with
 * its doorbell.
 *
 * caller                         called
 * connect                    ->  accept, same user?          source
 *                            <-  challenge (random number)
 * hello + fds (+ proof)      ->  secret, proof, member?
 * same host                  <-  answer + fds
 * remote                     <-  answer without magic, or the end
 *
 * Both check that the other is of the same user, and the called one that the caller knows the
 * secret and is a member: its hello holds a proof (transport.h) over the number, so no hello is
 * good twice.
 *
 * Engine's thread; each step is an event of a socket that does not block, so a peer that stops in
 * the middle holds up nobody. Sends wait in link->queue until the link is same host or remote. One
 * kind of hello waits here: one of an epoch that we are about to hear of (TUTTI_TRANSPORT_AHEAD);
 * transport_shm_rekey judges it again.
 *
 * Each pair of agents meets twice, once for each direction.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/data/id.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/shm/shm_private.h"

#define HELLO 0x69686d7369747475ULL
#define ANSWER 0x79616b6f69747475ULL
#define CHALLENGE 0x6f687769747475ULL
#define KNOCK_AGAIN_NS TUTTI_NS_PER_S

typedef struct challenge {
    uint64_t magic;
    uint64_t nonce[2];
} challenge;

/* What the proof is about: all of the hello before the proof, so nothing of it can be changed by
 * somebody in between, and the number, so it cannot be said again. The label keeps it apart from
 * other things that are signed with the key. */
typedef struct vow {
    char label[16];
    uint64_t nonce[2];
    unsigned char hello[offsetof(shm_hello, proof)];
} vow;

typedef struct answer {
    uint64_t magic;
    shm_page *page;
} answer;

enum {
    FD_DOORBELL,
    FD_PAGE,
    FD_SEGMENT,
    FD_MEMORY
};

/* In one process (tests) both ends share one mapping, and the last one unmaps it; else each has its
 * own. */
void
tutti_shm_segment_close(const transport_shm *self, shm_segment *segment)
{
    if (segment != NULL && (!self->options.inside || atomic_fetch_sub(&segment->refs, 1) == 1)) {
        (void)munmap(segment, sizeof(*segment));
    }
}

void
tutti_shm_doorbell_close(const transport_shm *self, shm_doorbell *doorbell)
{
    if (doorbell->page != NULL && !self->options.inside) {
        (void)munmap(doorbell->page, sizeof(*doorbell->page));
    }
    if (doorbell->fd >= 0) {
        (void)close(doorbell->fd);
    }
    *doorbell = (shm_doorbell){.fd = -1};
}

/* Takes the two descriptors, also when it fails. */
static bool
open_doorbell(const transport_shm *self, shm_doorbell *doorbell, int doorbell_fd, int page_fd,
              shm_page *inside)
{
    doorbell->fd = doorbell_fd;
    doorbell->page =
        self->options.inside ? inside : tutti_local_map(page_fd, sizeof(*doorbell->page));
    (void)close(page_fd);
    return doorbell->page != NULL;
}

static vow
make_vow(const shm_hello *it, const uint64_t nonce[2])
{
    vow words = {.label = "tutti hello 1", .nonce = {nonce[0], nonce[1]}};

    memcpy(words.hello, it, sizeof(words.hello));
    return words;
}

/* -------------------------------------------------------------------- the process that connects */

/* Nobody gets an error for this, and ops are slower by it, so it is said once at INFO. */
static void
log_remote(transport_shm *self, const char *why)
{
    TUTTI_LOG("coll/shm", DEBUG, "no shared memory with a peer of this host: %s", why);
    if (!self->said_why) {
        self->said_why = true;
        TUTTI_LOG("coll/shm", INFO,
                  "no shared memory with a peer that has our host id (%s): its data goes by the "
                  "network instead",
                  why);
    }
}

/* Nothing is sent there after the answer: whatever happens, it is over. */
static void
on_link_event(shm_watch *watch)
{
    tutti_shm_hang_up(tutti_container_of(watch, tutti_transport_conn, watch));
}

/* The caller becomes same host only now: before the answer it does not know whether the other reads
 * the ring, and how to wake it. */
static void
on_answer(shm_watch *watch)
{
    tutti_transport_conn *link = tutti_container_of(watch, tutti_transport_conn, watch);
    int fds[TUTTI_LOCAL_FDS_MAX];
    answer said = {0};
    size_t count = 0;
    const long size = tutti_local_receive(watch->fd, &said, sizeof(said), fds, &count);

    if (size < 0) {
        return;
    }
    if (size == sizeof(said) && said.magic == ANSWER && count == 2 &&
        open_doorbell(link->transport, &link->doorbell, fds[FD_DOORBELL], fds[FD_PAGE],
                      said.page)) {
        watch->on_event = on_link_event;
        tutti_shm_set_same_host(link);
        return;
    }
    if (link->doorbell.fd < 0) {
        tutti_local_close_all(fds, count);
    }
    if (size == sizeof(said)) {
        log_remote(link->transport, "it refused the connection");
    } else {
        TUTTI_LOG("coll/shm", DEBUG, "a peer ended while we met it");
    }
    tutti_shm_set_remote(link);
}

/* True also if the inner transport asks for no proof. */
static bool
sign_hello(tutti_transport_conn *link, const uint64_t nonce[2], shm_hello *it)
{
    tutti_transport *inner = link->transport->inner;
    const vow words = make_vow(it, nonce);

    return inner->ops->sign_packet == NULL ||
           inner->ops->sign_packet(inner, (tutti_bytes){link->inner_address, link->inner_size},
                                   (tutti_bytes){&words, sizeof(words)}, &it->proof);
}

/* The segment's descriptor is closed after it was sent: the mappings keep it. refs is 2 before the
 * hello leaves, since in one process the other side may already drop its own. */
static bool
say_hello(tutti_transport_conn *link, const uint64_t nonce[2])
{
    transport_shm *self = link->transport;
    const bool has_memory = self->options.memory >= 0;
    int fds[TUTTI_LOCAL_FDS_MAX] = {self->doorbell, self->page_fd, -1, self->options.memory};
    shm_hello it = {.magic = HELLO,
                    .secret = {link->secret[0], link->secret[1]},
                    .memory_size = has_memory ? self->options.size : 0};
    bool sent;

    link->segment = tutti_local_create("tutti-ring", sizeof(*link->segment), &fds[FD_SEGMENT]);
    if (link->segment == NULL) {
        return false;
    }
    it.segment = link->segment;
    it.page = self->page;
    atomic_store(&link->segment->refs, 2);
    sent = tutti_local_is_same_user(link->watch.fd) && sign_hello(link, nonce, &it) &&
           tutti_local_send(link->watch.fd, &it, sizeof(it), fds, has_memory ? 4 : 3);
    (void)close(fds[FD_SEGMENT]);
    if (!sent) {
        atomic_store(&link->segment->refs, 1);
        tutti_shm_segment_close(self, link->segment);
        link->segment = NULL;
    }
    return sent;
}

static void
on_challenge(shm_watch *watch)
{
    tutti_transport_conn *link = tutti_container_of(watch, tutti_transport_conn, watch);
    int fds[TUTTI_LOCAL_FDS_MAX];
    challenge said = {0};
    size_t count = 0;
    const long size = tutti_local_receive(watch->fd, &said, sizeof(said), fds, &count);

    if (size < 0) {
        return;
    }
    tutti_local_close_all(fds, count);
    if (size != sizeof(said) || said.magic != CHALLENGE) {
        log_remote(link->transport, size == 0 ? "it ended" : "it refused the connection");
    } else if (!say_hello(link, said.nonce)) {
        log_remote(
            link->transport,
            "it belongs to another user, or this process has too few descriptors (ulimit -n)");
    } else {
        link->out = (shm_end){.ring = &link->segment->out};
        link->back = (shm_end){.ring = &link->segment->back};
        watch->on_event = on_answer;
        return;
    }
    tutti_shm_set_remote(link);
}

bool
tutti_shm_meet(tutti_transport_conn *link, const shm_address *address)
{
    link->watch =
        (shm_watch){.on_event = on_challenge,
                    .fd = tutti_local_connect((tutti_bytes){address->name, SHM_NAME_BYTES})};
    memcpy(link->secret, address->secret, sizeof(link->secret));
    if (link->watch.fd < 0) {
        log_remote(link->transport, strerror(errno));
        return false;
    }
    if (!tutti_shm_watch(link->transport, &link->watch)) {
        log_remote(link->transport, "this process has too few descriptors (ulimit -n)");
        (void)close(link->watch.fd);
        link->watch.fd = -1;
        return false;
    }
    return true;
}

/* ------------------------------------------------------------------------------ who is called on
 */

/* Notes of regions, once it has met us, or the end. */
static void
on_source_event(shm_watch *watch)
{
    shm_source *source = tutti_container_of(watch, shm_source, watch);

    if (!source->met || !tutti_shm_hear_notes(source)) {
        tutti_shm_source_gone(source);
    }
}

/*
 * The descriptors are taken or closed, whatever happens: a caller must not be able to use them up.
 */
static bool
take_hello(shm_source *source)
{
    const transport_shm *self = source->transport;
    const shm_hello *it = &source->hello;
    const size_t count = source->fd_count;
    int *fds = source->fds;

    source->fd_count = 0;
    if (!open_doorbell(self, &source->doorbell, fds[FD_DOORBELL], fds[FD_PAGE], it->page)) {
        tutti_local_close_all(fds + FD_SEGMENT, count - FD_SEGMENT);
        return false;
    }
    source->segment =
        self->options.inside ? it->segment : tutti_local_map(fds[FD_SEGMENT], sizeof(shm_segment));
    if (count > FD_MEMORY && it->memory_size > 0) {
        source->memory = tutti_local_map(fds[FD_MEMORY], it->memory_size);
        source->memory_size = it->memory_size;
    }
    tutti_local_close_all(fds + FD_SEGMENT, count - FD_SEGMENT);
    return source->segment != NULL && (source->memory != NULL || count <= FD_MEMORY);
}

/* The secret is compared before the proof, which costs more. A caller with too few descriptors is
 * refused here, so take_hello may index them. */
static tutti_transport_verdict
check_hello(shm_source *source)
{
    const transport_shm *self = source->transport;
    const shm_hello *it = &source->hello;
    const vow words = make_vow(it, source->nonce);

    if (it->magic != HELLO || it->secret[0] != self->secret[0] ||
        it->secret[1] != self->secret[1] || source->fd_count < 3) {
        return TUTTI_TRANSPORT_REFUSED;
    }
    if (self->inner->ops->check == NULL) {
        return TUTTI_TRANSPORT_MEMBER;
    }
    return self->inner->ops->check(self->inner, (tutti_bytes){&words, sizeof(words)}, &it->proof,
                                   &source->incarnation);
}

static void
turn_away(int fd)
{
    const answer said = {0};

    TUTTI_LOG("coll/shm", DEBUG, "turned a caller away");
    (void)tutti_local_send(fd, &said, sizeof(said), NULL, 0);
}

/* The answer is sent before `met` is set, and the caller puts nothing before it has the answer. */
static void
accept_hello(shm_source *source)
{
    transport_shm *self = source->transport;
    const int mine[2] = {self->doorbell, self->page_fd};
    const answer said = {.magic = ANSWER, .page = self->page};

    if (!take_hello(source) || !tutti_local_send(source->watch.fd, &said, sizeof(said), mine, 2)) {
        turn_away(source->watch.fd);
        tutti_shm_source_gone(source);
        return;
    }
    source->in = (shm_end){.ring = &source->segment->out};
    source->back = (shm_end){.ring = &source->segment->back};
    source->met = true;
}

void
tutti_shm_judge_again(shm_source *source)
{
    const tutti_transport_verdict verdict = check_hello(source);

    if (verdict == TUTTI_TRANSPORT_MEMBER) {
        accept_hello(source);
    } else if (verdict != TUTTI_TRANSPORT_AHEAD) {
        turn_away(source->watch.fd);
        tutti_shm_source_gone(source);
    }
}

static void
on_hello(shm_watch *watch)
{
    shm_source *source = tutti_container_of(watch, shm_source, watch);
    const long size = tutti_local_receive(watch->fd, &source->hello, sizeof(source->hello),
                                          source->fds, &source->fd_count);

    if (size < 0) {
        return;
    }
    watch->on_event = on_source_event;
    if (size != sizeof(source->hello)) {
        tutti_shm_source_gone(source);
        return;
    }
    tutti_shm_judge_again(source);
}

static bool
say_challenge(shm_source *source)
{
    challenge said = {.magic = CHALLENGE, .nonce = {tutti_id_draw(), tutti_id_draw()}};

    memcpy(source->nonce, said.nonce, sizeof(source->nonce));
    return tutti_local_send(source->watch.fd, &said, sizeof(said), NULL, 0);
}

/* Bounded, and of our own user, before any memory is given to it. */
static void
take_caller(transport_shm *self, int fd)
{
    shm_source *source = NULL;

    if (self->source_count < SHM_SOURCES_MAX && tutti_local_is_same_user(fd)) {
        source = calloc(1, sizeof(*source));
    }
    if (source == NULL) {
        turn_away(fd);
        (void)close(fd);
        return;
    }
    source->transport = self;
    source->watch = (shm_watch){.on_event = on_hello, .fd = fd};
    source->doorbell.fd = -1;
    tutti_list_init(&source->link);
    tutti_list_init(&source->regions);
    tutti_list_add(&self->sources, &source->link);
    self->source_count++;
    if (!say_challenge(source) || !tutti_shm_watch(self, &source->watch)) {
        tutti_shm_source_gone(source);
    }
}

/* A caller who waits keeps the listener readable: left in the poller, it would keep the engine from
 * ever sleeping. */
static void
stop_knocks(transport_shm *self)
{
    TUTTI_LOG("coll/shm", WARN,
              "no descriptor is left for a rank of this host that calls: trying again each second; "
              "raise the limit (ulimit -n)");
    self->knock_again_ns = tutti_clock_ns() + KNOCK_AGAIN_NS;
    tutti_shm_pause(self, &self->listener);
}

void
tutti_shm_knock_again(transport_shm *self)
{
    if (self->knock_again_ns != 0 && tutti_clock_ns() >= self->knock_again_ns &&
        tutti_shm_watch(self, &self->listener)) {
        self->knock_again_ns = 0;
    }
}

void
tutti_shm_on_knock(shm_watch *listener)
{
    transport_shm *self = tutti_container_of(listener, transport_shm, listener);
    const int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        take_caller(self, fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
        stop_knocks(self);
    }
}
