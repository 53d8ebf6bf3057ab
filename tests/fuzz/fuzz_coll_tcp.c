/*
 * Goal: whatever comes over a connection, or stands in an address, is refused or understood: no
 * byte is written where it does not belong, each ticket comes back once, and no credit is lost.
 * Method: the input as head, as address, as a stranger's words, and as steps of a member and of who
 * is called: well-made frames of any sizes, bytes, and what our side does meanwhile. Connections
 * are pairs of sockets.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "coll/tcp/tcp_private.h"

#define KEPT_MAX 16
#define MAIL_MAX 64
#define TURNS_MAX 1000
#define STEPS_MAX 40
#define SIZE_MAX_FETCHED (1U << 17)
#define PAYLOAD_MAX (1U << 17) /* of a run */
#define CREDIT_ALL (64ULL << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check(int holds)
{
    if (!holds) {
        abort();
    }
}

/* ------------------------------------------------------------------------------ the input */

typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

static uint64_t
take(input *in, unsigned bytes)
{
    uint64_t number = 0;

    while (bytes-- > 0 && in->left > 0) {
        number = number << 8 | *in->at++;
        in->left--;
    }
    return number;
}

/* ------------------------------------------------------------------------------ our side */

typedef struct mail {
    tutti_transport_ticket ticket;
    unsigned char *room; /* of a fetch */
    unsigned came;
} mail;

static struct {
    tutti_transport *transport;
    tutti_transport_conn *link;
    int fd;    /* of who speaks to us */
    bool over; /* we hung up on it */
    input *in;
    tutti_transport_rndv *kept[KEPT_MAX];
    size_t kept_sizes[KEPT_MAX];
    size_t kept_count;
    mail mails[MAIL_MAX];
    size_t mail_count;
    size_t payload;
    bool hang_up; /* in the next ticket */
} our;

static unsigned char filler[65536];

static void
hang_up(void)
{
    tutti_transport_conn *link = our.link;

    our.link = NULL;
    if (link != NULL) {
        our.transport->ops->disconnect(link);
    }
}

static void
on_done(tutti_transport_ticket *ticket, bool ok)
{
    mail *self = tutti_container_of(ticket, mail, ticket);

    check(ok || self->came == 0);
    self->came++;
    if (our.hang_up) {
        our.hang_up = false;
        hang_up();
    }
}

static mail *
new_mail(void)
{
    mail *self = our.mail_count < MAIL_MAX ? &our.mails[our.mail_count++] : NULL;

    if (self != NULL) {
        *self = (mail){.ticket.on_done = on_done};
    }
    return self;
}

static void
note(mail *self, tutti_transport_result result)
{
    self->came += result != TUTTI_TRANSPORT_LATER;
}

/* Fetch it if `how` and its size allow, else drop it. */
static void
deal_with(tutti_transport_rndv *rndv, size_t size, unsigned how)
{
    mail *it = how % 4 != 0 && size <= SIZE_MAX_FETCHED ? new_mail() : NULL;

    if (it == NULL) {
        our.transport->ops->drop(our.transport, rndv);
        return;
    }
    it->room = malloc(size);
    check(it->room != NULL);
    note(it, our.transport->ops->fetch(our.transport, rndv, it->room, size - (how % 16 == 15),
                                       &it->ticket));
}

static void
on_packet(void *arg, const void *header, size_t header_size, const void *data, size_t size,
          tutti_transport_rndv *rndv)
{
    const unsigned how = (unsigned)take(our.in, 1);
    unsigned sum = 0;
    size_t i;

    (void)arg;
    for (i = 0; i < header_size; i++) {
        sum += ((const unsigned char *)header)[i];
    }
    for (i = 0; rndv == NULL && i < size; i++) {
        sum += ((const unsigned char *)data)[i];
    }
    our.hang_up = our.hang_up && sum != UINT32_MAX; /* so that it is read */
    if (rndv != NULL && (how < 64 || our.kept_count == KEPT_MAX)) {
        deal_with(rndv, size, how);
    } else if (rndv != NULL) {
        our.kept_sizes[our.kept_count] = size;
        our.kept[our.kept_count++] = rndv;
    }
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    (void)arg;
    check(owner == &our && why[0] != '\0');
    hang_up();
}

static const tutti_transport_events events = {on_packet, on_broken};

static transport_tcp *
transport(void)
{
    static const tutti_transport_tcp_options options = {.devices = "lo"};

    if (our.transport == NULL) {
        tutti_error err;

        check(tutti_transport_tcp_open(&options, &our.transport, &err) == TUTTI_OK);
        our.transport->ops->listen(our.transport, &events, NULL);
        memset(filler, 0x5a, sizeof(filler));
    }
    return tutti_tcp_from(our.transport);
}

static void
turn(void)
{
    (void)our.transport->ops->progress(our.transport);
}

/* A pair of sockets; one end is returned, the other one speaks to it. */
static int
begin(input *in)
{
    int fds[2];

    (void)transport();
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    our.in = in;
    our.fd = fds[1];
    our.kept_count = our.mail_count = our.payload = 0;
    our.hang_up = our.over = false;
    return fds[0];
}

/* It hangs up; all that was ever out has to come back, and nothing stays. */
static void
end(void)
{
    transport_tcp *self = transport();
    unsigned turns = 0;
    size_t i;

    (void)close(our.fd);
    our.hang_up = false;
    do {
        turn();
    } while (turns++ < TURNS_MAX &&
             (!tutti_list_empty(&self->sources) || !tutti_list_empty(&self->strangers)));
    hang_up();
    turn();
    for (i = 0; i < our.kept_count; i++) {
        deal_with(our.kept[i], our.kept_sizes[i], (unsigned)i);
    }
    turn();
    for (i = 0; i < our.mail_count; i++) {
        check(our.mails[i].came == 1);
        free(our.mails[i].room);
    }
    check(turns < TURNS_MAX && self->credit == CREDIT_ALL && self->stranger_count == 0);
    check(tutti_list_empty(&self->orphans) && tutti_list_empty(&self->gone_sources) &&
          tutti_list_empty(&self->gone_links) && tutti_list_empty(&self->links));
}

/* ------------------------------------------------------------------------------ who speaks */

static void
read_away(void)
{
    static unsigned char away[65536];

    while (recv(our.fd, away, sizeof(away), MSG_DONTWAIT) > 0) {
    }
}

static void
say(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    unsigned turns = 0;

    while (size > 0 && !our.over && turns++ < TURNS_MAX) {
        const ssize_t some = send(our.fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);

        our.over = some < 0 && errno != EAGAIN;
        at += some > 0 ? some : 0;
        size -= some > 0 ? (size_t)some : 0;
        if (size > 0) {
            read_away();
            turn();
        }
    }
}

static void
say_head(tcp_kind kind, uint64_t header_size, uint64_t id, uint64_t size)
{
    const tcp_head head = {kind, (uint16_t)header_size, id, size};
    unsigned char bytes[TCP_HEAD_BYTES];

    tutti_tcp_head_write(&head, bytes);
    say(bytes, sizeof(bytes));
}

static void
say_filler(uint64_t size)
{
    size = size < PAYLOAD_MAX - our.payload ? size : PAYLOAD_MAX - our.payload;
    our.payload += size;
    while (size > 0) {
        const size_t some = size < sizeof(filler) ? (size_t)size : sizeof(filler);

        say(filler, some);
        size -= some;
    }
}

static void
say_bytes(input *in, size_t most)
{
    const size_t size = in->left < most ? in->left : most;
    const uint8_t *at = in->at;

    in->at += size;
    in->left -= size;
    say(at, size);
}

/* One of those that wait, if there is one. */
static void
settle(input *in)
{
    const unsigned how = (unsigned)take(in, 1);

    if (our.kept_count > 0) {
        const size_t which = how % our.kept_count;
        tutti_transport_rndv *rndv = our.kept[which];
        const size_t size = our.kept_sizes[which];

        our.kept_count--;
        our.kept[which] = our.kept[our.kept_count];
        our.kept_sizes[which] = our.kept_sizes[our.kept_count];
        deal_with(rndv, size, how >> 4);
    }
}

static void
say_frame(input *in, unsigned kind)
{
    static const tcp_kind kinds[] = {TCP_PACKET, TCP_OFFER, TCP_PUSH, TCP_DATA};
    const uint64_t header_size = kind == 3 ? 0 : take(in, 1);
    const uint64_t id = kind == 1 || kind == 3 ? take(in, 1) % 8 : 0;
    const unsigned shift = (unsigned)take(in, 1) % 8 * 2; /* most are small: a run is short */
    const uint64_t size = (take(in, 2) << shift >> 8) % (TCP_PUSH_MAX + 2);
    const bool half = (size & 15) == 15; /* of what follows */

    say_head(kinds[kind], header_size, id, size);
    if (!half) {
        say_filler(header_size + (kind == 1 ? 0 : size));
    } else {
        say_filler((header_size + size) / 2);
    }
}

static void
step_of_member(input *in)
{
    const unsigned what = (unsigned)take(in, 1) % 8;

    switch (what) {
    case 4:
        say_bytes(in, (size_t)take(in, 1));
        break;
    case 5:
        settle(in);
        break;
    case 6:
        turn();
        break;
    case 7:
        read_away();
        break;
    default:
        say_frame(in, what);
    }
}

static void
send_one(input *in)
{
    static const size_t sizes[] = {0, 100, 8192, 8193, 30000, 70000, 500000, 1100000};
    mail *it = our.link != NULL ? new_mail() : NULL;
    static unsigned char data[1100000];
    const unsigned how = (unsigned)take(in, 1);

    if (it != NULL) {
        note(it,
             our.transport->ops->send(our.link, filler, how % 288, sizes[how % 8] > 0 ? data : NULL,
                                      sizes[how % 8], &it->ticket));
    }
}

static void
step_of_called(input *in)
{
    const unsigned what = (unsigned)take(in, 1);

    switch (what % 8) {
    case 0:
        say_head(TCP_WELCOME, 0, TCP_VERSION, take(in, 3) % (TCP_CREDIT_MAX + 2));
        break;
    case 1:
        say_head(what % 16 == 1 ? TCP_FETCH : TCP_DROP, 0, take(in, 1) % 16, 0);
        break;
    case 2:
        say_head(TCP_CREDIT, 0, 0, take(in, 3));
        break;
    case 3:
        say_bytes(in, (size_t)take(in, 1));
        break;
    case 4:
        our.hang_up = what > 128;
        break;
    case 5:
        read_away();
        break;
    case 6:
        turn();
        break;
    default:
        send_one(in);
    }
}

/* ------------------------------------------------------------------------------ modes */

static void
check_head(input *in)
{
    unsigned char bytes[TCP_HEAD_BYTES];
    tcp_head head;

    while (in->left >= TCP_HEAD_BYTES) {
        memcpy(bytes, in->at, sizeof(bytes));
        if (tutti_tcp_head_read(in->at, &head)) {
            check(TCP_HEAD_BYTES + tutti_tcp_head_follows(&head) <= TCP_FRAME_MAX);
            tutti_tcp_head_write(&head, bytes);
            check(memcmp(bytes, in->at, sizeof(bytes)) == 0);
        }
        in->at += TCP_HEAD_BYTES;
        in->left -= TCP_HEAD_BYTES;
    }
}

static void
check_address(const input *in)
{
    unsigned char bytes[TCP_ADDRESS_MAX];
    tcp_address address, again;
    char text[80];
    size_t i;

    if (!tutti_tcp_address_read((tutti_bytes){in->at, in->left}, &address)) {
        return;
    }
    check(tutti_tcp_address_write(&address, bytes) == in->left);
    check(memcmp(bytes, in->at, in->left) == 0);
    again = address;
    tutti_tcp_address_sort(&again, &address);
    tutti_tcp_address_sort(&again, &transport()->own);
    check(again.count == address.count);
    for (i = 0; i < again.count; i++) {
        check(i == 0 || again.targets[i - 1].rank < again.targets[i].rank);
        tutti_tcp_address_text(&again.targets[i].address, text, sizeof(text));
        check(strchr(text, '?') == NULL);
    }
}

static void
hear_stranger(input *in)
{
    const int fd = begin(in);
    unsigned steps = 0;

    tutti_tcp_source_new(transport(), fd, 0);
    while (in->left > 0 && !our.over && steps++ < STEPS_MAX) {
        say_bytes(in, 1 + (size_t)take(in, 1));
        turn();
    }
    end();
}

static void
hear_member(input *in)
{
    const int fd = begin(in);
    unsigned steps = 0;

    tutti_tcp_source_new(transport(), fd, 0);
    say_head(TCP_HELLO, 0, TCP_VERSION, TCP_TOKEN_BYTES);
    say(transport()->own.token, TCP_TOKEN_BYTES);
    while (in->left > 0 && !our.over && steps++ < STEPS_MAX) {
        step_of_member(in);
        turn();
    }
    end();
}

/* A way that said hello, to our end of the pair. */
static void
greet(int fd)
{
    tcp_address to = {.count = 1};
    unsigned char bytes[TCP_ADDRESS_MAX];
    struct sockaddr_in *at = (struct sockaddr_in *)&to.targets[0].address;
    tutti_error err;

    at->sin_family = AF_INET;
    at->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at->sin_port = htons(1); /* nobody; it is not waited for */
    check(tutti_tcp_connect(our.transport,
                            (tutti_bytes){bytes, tutti_tcp_address_write(&to, bytes)}, &our,
                            &our.link, &err) == TUTTI_OK);
    tutti_list_remove(&our.link->broken);
    tutti_tcp_unwatch(transport(), &our.link->watch);
    our.link->watch.fd = fd;
    our.link->state = TCP_GREETING;
    check(tutti_tcp_watch(transport(), &our.link->watch, EPOLLIN));
}

static void
hear_called(input *in)
{
    unsigned steps = 0;

    greet(begin(in));
    while (in->left > 0 && !our.over && steps++ < STEPS_MAX) {
        step_of_called(in);
        turn();
    }
    end();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    input in = {data + 1, size - 1};

    if (size == 0) {
        return 0;
    }
    switch (data[0] % 5) { /* one each, so that a corpus grows for one */
    case 0:
        check_head(&in);
        break;
    case 1:
        check_address(&in);
        break;
    case 2:
        hear_stranger(&in);
        break;
    case 3:
        hear_member(&in);
        break;
    default:
        hear_called(&in);
    }
    return 0;
}
