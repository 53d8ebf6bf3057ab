/*
 * What comes in on a connection: whole frames from a buffer, data of tensors past it to where it
 * belongs. While data is expected, a read ends at the end of the next frame's head, so little is
 * copied twice. Engine's thread.
 *
 * Bytes come from a stranger until the token is said, and from a peer with faults after that: each
 * frame is checked by tutti_tcp_head_read before its sizes are used, and a frame that makes no
 * sense ends the source. on_packet runs inside and may end any source, this one too: the loops look
 * at watch.fd after each frame.
 */
#include <errno.h>
#include <string.h>

#include "coll/tcp/tcp_private.h"

#define TURNS_MAX 16 /* reads: other connections have their turns too */

/* ------------------------------------------------------------------------------ data */

/* `size` bytes of the chunk are where they belong. */
static void
count_body(tcp_source *source, size_t size)
{
    tutti_transport_rndv *rndv = source->body;

    source->body_left -= size;
    if (source->body_left == 0) {
        source->body = NULL;
    }
    tutti_tcp_rndv_count(rndv, size);
}

/* Of what was read with the head. Bytes used; 0 = no memory. */
static size_t
feed_body(tcp_source *source, const unsigned char *at, size_t left)
{
    const size_t some = left < source->body_left ? left : (size_t)source->body_left;
    unsigned char *place = tutti_tcp_rndv_place(source->body);

    if (place == NULL) {
        tutti_tcp_source_end(
            source, "no memory for data that the other rank sent without being asked for it");
        return 0;
    }
    memcpy(place, at, some);
    count_body(source, some);
    return some;
}

static void
begin_body(tcp_source *source, tutti_transport_rndv *rndv, uint64_t size)
{
    source->body = rndv;
    source->body_left = size;
}

/* False: nobody asked for it. The size is compared with what is missing, so a chunk cannot go past
 * the end of its destination. */
static bool
hear_data(tcp_source *source, const tcp_head *head)
{
    tutti_list_node *at, *spare;

    tutti_list_each(at, spare, &source->coming)
    {
        tutti_transport_rndv *rndv = tutti_container_of(at, tutti_transport_rndv, link);

        if (!rndv->pushed && rndv->id == head->id && head->size <= rndv->size - rndv->got) {
            begin_body(source, rndv, head->size);
            return true;
        }
    }
    return false;
}

/* ------------------------------------------------------------------------------ frames */

/* In constant time: a stranger must not learn how many bytes of its guess were right. */
static bool
is_token(const unsigned char *left, const unsigned char *right)
{
    unsigned char differ = 0;
    size_t i;

    for (i = 0; i < TCP_TOKEN_BYTES; i++) {
        differ |= left[i] ^ right[i];
    }
    return differ == 0;
}

static bool
hear_hello(tcp_source *source, const tcp_head *head, const unsigned char *token)
{
    if (source->known || head->id != TCP_VERSION ||
        !is_token(token, source->transport->own.token)) {
        return false;
    }
    return tutti_tcp_source_know(source);
}

static void
hear_packet(tcp_source *source, const tcp_head *head, const unsigned char *rest)
{
    transport_tcp *transport = source->transport;

    if (transport->events != NULL) {
        transport->events->on_packet(transport->arg, rest, head->header_size,
                                     rest + head->header_size, (size_t)head->size, NULL);
    }
}

/* False: no memory, or more than we gave credit for. The engine is told before the data is read: if
 * the receive is posted, on_packet pulls it, and the bytes go where they belong. */
static bool
hear_offer(tcp_source *source, const tcp_head *head, const unsigned char *rest)
{
    const bool pushed = head->kind == TCP_PUSH;
    transport_tcp *transport = source->transport;
    tutti_transport_rndv *rndv;

    if (pushed && head->size > source->credit - source->pushed) {
        return false;
    }
    rndv = tutti_tcp_rndv_new(source, head);
    if (rndv == NULL) {
        return false;
    }
    if (pushed) {
        begin_body(source, rndv, head->size);
    }
    if (transport->events == NULL) {
        tutti_tcp_drop(&transport->base, rndv);
    } else {
        transport->events->on_packet(transport->arg, rest, head->header_size, NULL,
                                     (size_t)head->size, rndv);
    }
    return true;
}

/* A whole frame. False: it makes no sense here. */
static bool
hear_frame(tcp_source *source, const tcp_head *head, const unsigned char *rest)
{
    if (head->kind == TCP_HELLO) {
        return hear_hello(source, head, rest);
    }
    if (!source->known) {
        return false;
    }
    switch (head->kind) {
    case TCP_PACKET:
        hear_packet(source, head, rest);
        return true;
    case TCP_OFFER:
    case TCP_PUSH:
        return hear_offer(source, head, rest);
    case TCP_DATA:
        return hear_data(source, head);
    default:
        return false;
    }
}

/* Bytes that the first frame of these has; a head is as much as we know of it before. 0 = it makes
 * no sense. */
static size_t
frame_size(const unsigned char *at, size_t size, tcp_head *ret_head)
{
    if (size < TCP_HEAD_BYTES) {
        return TCP_HEAD_BYTES;
    }
    return tutti_tcp_head_read(at, ret_head) ? TCP_HEAD_BYTES + tutti_tcp_head_follows(ret_head)
                                             : 0;
}

/* The next piece of what was read. Bytes used; 0 = the rest of it has to come first. */
static size_t
hear_piece(tcp_source *source, const unsigned char *at, size_t left)
{
    tcp_head head;
    size_t size;

    if (source->body != NULL) {
        return feed_body(source, at, left);
    }
    size = frame_size(at, left, &head);
    if (left < TCP_HEAD_BYTES || (size != 0 && left < size)) {
        return 0;
    }
    if (size == 0 || !hear_frame(source, &head, at + TCP_HEAD_BYTES)) {
        tutti_tcp_source_end(
            source, "a packet on it was malformed, or came from a process outside of the job");
        return 0;
    }
    return size;
}

static void
hear_buffer(tcp_source *source)
{
    size_t at = 0, used = 1;

    while (used > 0 && at < source->fill && source->watch.fd >= 0) {
        used = hear_piece(source, source->buffer + at, source->fill - at);
        at += used;
    }
    source->fill -= at;
    memmove(source->buffer, source->buffer + at, source->fill);
}

/* ------------------------------------------------------------------------------ reading */

/*
 * How much of the buffer to fill. With data expected, only to the end of the next frame: the DATA
 * frame behind it is then read into its tensor. Otherwise all there is: fewer system calls for
 * small packets.
 */
static size_t
get_recv_capacity(const tcp_source *source)
{
    const size_t whole = sizeof(source->buffer) - source->fill;
    tcp_head head;

    if (source->body == NULL && tutti_list_empty(&source->coming)) {
        return whole;
    }
    return frame_size(source->buffer, source->fill, &head) - source->fill;
}

/* The rest of the body and, behind it, the buffer: one readv takes the end of a chunk and the next
 * head. */
static bool
set_recv_target(tcp_source *source, struct iovec parts[2])
{
    parts[0] = (struct iovec){NULL, 0};
    parts[1] = (struct iovec){source->buffer + source->fill, get_recv_capacity(source)};
    if (source->body == NULL) {
        return true;
    }
    parts[0].iov_base = tutti_tcp_rndv_place(source->body);
    parts[0].iov_len = (size_t)source->body_left;
    return parts[0].iov_base != NULL;
}

/* Bytes came to where we aimed. */
static void
take_received(tcp_source *source, size_t got, size_t wanted_body)
{
    const size_t body = got < wanted_body ? got : wanted_body;

    if (body > 0) {
        count_body(source, body);
    }
    source->fill += got - body;
    hear_buffer(source);
}

/*
 * False: the socket gave less than was asked for, so there is no more now; or the source has ended.
 */
static bool
hear_some(tcp_source *source)
{
    struct iovec parts[2];
    ssize_t got;

    if (!set_recv_target(source, parts)) {
        tutti_tcp_source_end(
            source, "no memory for data that the other rank sent without being asked for it");
        return false;
    }
    got = readv(source->watch.fd, parts, 2);
    if (got > 0) {
        take_received(source, (size_t)got, parts[0].iov_len);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        tutti_tcp_source_end(source, got < 0 ? strerror(errno) : NULL);
    }
    return (size_t)got == parts[0].iov_len + parts[1].iov_len && source->watch.fd >= 0;
}

void
tutti_tcp_source_hear(tcp_source *source)
{
    unsigned turn = 0;

    while (turn < TURNS_MAX && hear_some(source)) {
        turn++;
    }
}
