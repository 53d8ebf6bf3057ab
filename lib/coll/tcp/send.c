/*
 * What goes out on a connection: packets as they come, data of tensors with them as long as the
 * peer's credit lasts, otherwise when it is asked for, a chunk of each in turn. Engine's thread.
 *
 * small (up to TUTTI_TRANSPORT_EAGER_MAX)   PACKET: header and data; done when the kernel has it
 * up to TCP_PUSH_MAX, credit is left        PUSH: header and data; done when the kernel has it
 * larger, or no credit                      OFFER; the peer answers FETCH or DROP; DATA in chunks
 *
 * A tcp_send is in packets, offered or pulled, or is link->now, whose frame is half written:
 * nothing may come between. Its ticket comes back once; until then header and data are the caller's
 * memory, which the kernel reads in place.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "coll/tcp/tcp_private.h"

#define FRAMES_MAX 8 /* in a turn: other connections have their turns too */

/* ------------------------------------------------------------------------------ frames */

static void
add_part(tcp_send *send, unsigned *count, const void *data, size_t size)
{
    send->parts[(*count)++] = (struct iovec){.iov_base = (void *)(uintptr_t)data, .iov_len = size};
}

/* Of the data of one that was asked for: what goes in its next frame. */
static uint64_t
chunk_of(const tcp_send *send)
{
    const uint64_t left = send->size - send->sent;

    return left < TCP_CHUNK_BYTES ? left : TCP_CHUNK_BYTES;
}

/* What has to be written next of it. */
static void
begin_frame(tcp_send *send)
{
    tcp_head head = {
        .kind = send->kind, .header_size = send->header_size, .id = send->id, .size = send->size};
    unsigned count = 0;

    if (send->kind == TCP_DATA) {
        head.header_size = 0;
        head.size = chunk_of(send);
    }
    tutti_tcp_head_write(&head, send->head);
    add_part(send, &count, send->head, sizeof(send->head));
    add_part(send, &count, send->header, head.header_size);
    add_part(send, &count, (const char *)send->data + send->sent,
             head.kind == TCP_OFFER ? 0 : (size_t)head.size);
    send->part = 0;
}

/* `size` bytes of it are with the kernel. True: all of it. */
static bool
advance_packet(tcp_send *send, size_t size)
{
    while (send->part < 3) {
        struct iovec *part = &send->parts[send->part];
        const size_t some = size < part->iov_len ? size : part->iov_len;

        part->iov_base = (char *)part->iov_base + some;
        part->iov_len -= some;
        size -= some;
        if (part->iov_len > 0) {
            return false;
        }
        send->part++;
    }
    return true;
}

/* True: all of its frame is with the kernel. False: the socket is full (EPOLLOUT tells when to go
 * on), or the link is broken. MSG_NOSIGNAL: a peer's death is an error here, not a signal. */
static bool
write_frame(tutti_transport_conn *link, tcp_send *send)
{
    ssize_t wrote;

    do {
        const struct msghdr message = {.msg_iov = send->parts + send->part,
                                       .msg_iovlen = 3 - send->part};

        wrote = sendmsg(link->watch.fd, &message, MSG_NOSIGNAL);
    } while ((wrote < 0 && errno == EINTR) || (wrote > 0 && !advance_packet(send, (size_t)wrote)));
    if (wrote < 0 && errno != EAGAIN) {
        tutti_tcp_link_break(link, strerror(errno));
    }
    return wrote > 0;
}

/* ------------------------------------------------------------------------------ one after another
 */

static void
end_send(tcp_send *send, bool ok)
{
    tutti_transport_ticket *ticket = send->ticket;

    tutti_list_remove(&send->link);
    free(send);
    ticket->on_done(ticket, ok);
}

/* The frame of `now` is written. Of several tensors that were asked for, each has a chunk in turn:
 * it goes to the end of `pulled`. An offer waits for its answer. */
static void
finish_frame(tutti_transport_conn *link)
{
    tcp_send *send = link->now;

    link->now = NULL;
    if (send->kind == TCP_DATA) {
        send->sent += chunk_of(send);
        if (send->sent < send->size) {
            tutti_list_add(&link->pulled, &send->link);
            return;
        }
    } else if (send->kind == TCP_OFFER) {
        tutti_list_add(&link->offered, &send->link);
        return;
    }
    end_send(send, true);
}

/* Packets before data: a signature waits for one chunk at most. */
static bool
next_frame(tutti_transport_conn *link)
{
    tutti_list_node *first;

    if (link->now != NULL) {
        return true;
    }
    first = tutti_list_pop(&link->packets);
    if (first == NULL) {
        first = tutti_list_pop(&link->pulled);
    }
    if (first != NULL) {
        link->now = tutti_container_of(first, tcp_send, link);
        begin_frame(link->now);
    }
    return first != NULL;
}

static bool
is_idle(const tutti_transport_conn *link)
{
    return link->state == TCP_OPEN && link->now == NULL && tutti_list_empty(&link->packets) &&
           tutti_list_empty(&link->pulled);
}

/* Hear of room in the socket as long as something is to be written. */
static void
await_room(tutti_transport_conn *link)
{
    if (link->state == TCP_OPEN && !tutti_tcp_watch(link->transport, &link->watch,
                                                    is_idle(link) ? EPOLLIN : EPOLLIN | EPOLLOUT)) {
        tutti_tcp_link_break(link, strerror(errno));
    }
}

/* A bounded number of frames: a fast peer must not keep the others from their turns. EPOLLOUT stays
 * set as long as something is left, so the next turn goes on. */
void
tutti_tcp_flush(tutti_transport_conn *link)
{
    unsigned frames = 0;

    while (link->state == TCP_OPEN && frames < FRAMES_MAX && next_frame(link) &&
           write_frame(link, link->now)) {
        finish_frame(link);
        frames++;
    }
    await_room(link);
}

/* Into the socket if it can go there at once, otherwise into the queue. Only when nothing is
 * queued: frames leave in order. */
static tutti_transport_result
post_packet(tutti_transport_conn *link, const tcp_send *template)
{
    tcp_send now = *template;
    bool begun = false, whole = false;
    tcp_send *send;

    if (is_idle(link)) {
        begin_frame(&now);
        begun = true;
        whole = write_frame(link, &now);
    }
    if (link->state == TCP_BROKEN) {
        return TUTTI_TRANSPORT_FAILED;
    }
    if (whole && now.kind != TCP_OFFER) {
        return TUTTI_TRANSPORT_DONE;
    }
    send = malloc(sizeof(*send));
    if (send == NULL) { /* half a frame is with the peer */
        tutti_tcp_link_break(link, "no memory for a message");
        return TUTTI_TRANSPORT_FAILED;
    }
    *send = now;
    tutti_list_init(&send->link);
    if (whole) {
        tutti_list_add(&link->offered, &send->link);
    } else if (begun) {
        /* parts[0] pointed into the head of `now`, on the stack. */
        send->parts[0].iov_base = send->head + (sizeof(send->head) - send->parts[0].iov_len);
        link->now = send;
        await_room(link);
    } else {
        tutti_list_add(&link->packets, &send->link);
    }
    return TUTTI_TRANSPORT_LATER;
}

tutti_transport_result
tutti_tcp_send(tutti_transport_conn *link, const void *header, size_t header_size, const void *data,
               size_t size, tutti_transport_ticket *ticket)
{
    tcp_send send = {.kind = TCP_PACKET,
                     .ticket = ticket,
                     .header = header_size > 0 ? header : "", /* which can be added to */
                     .header_size = (uint16_t)header_size,
                     .data = size > 0 ? data : "",
                     .size = size};

    assert(header_size <= TUTTI_TRANSPORT_HEADER_MAX);
    if (link->state == TCP_BROKEN) {
        return TUTTI_TRANSPORT_FAILED;
    }
    tutti_list_init(&ticket->link);
    if (size > TUTTI_TRANSPORT_EAGER_MAX && size <= TCP_PUSH_MAX && size <= link->credit) {
        send.kind = TCP_PUSH;
        link->credit -= size;
    } else if (size > TUTTI_TRANSPORT_EAGER_MAX) {
        send.kind = TCP_OFFER;
        send.id = ++link->last_id;
    }
    return post_packet(link, &send);
}

/* ------------------------------------------------------------------------------ what the peer says
 */

static tcp_send *
find_offer(tutti_transport_conn *link, uint64_t id)
{
    tutti_list_node *at, *spare;

    tutti_list_each(at, spare, &link->offered)
    {
        tcp_send *send = tutti_container_of(at, tcp_send, link);

        if (send->id == id) {
            return send;
        }
    }
    return NULL;
}

/* What an offer is about, and whether it is wanted. To the sender a dropped message has left: its
 * ticket comes back as done. */
static bool
take_answer(tutti_transport_conn *link, const tcp_head *head)
{
    tcp_send *send = find_offer(link, head->id);

    if (send == NULL) {
        return false;
    }
    if (head->kind == TCP_DROP) {
        end_send(send, true);
        return true;
    }
    send->kind = TCP_DATA;
    tutti_list_remove(&send->link);
    tutti_list_add(&link->pulled, &send->link);
    return true;
}

/* False: it makes no sense. A peer that gave more credit than can be would have us send without
 * bound. */
static bool
take_word(tutti_transport_conn *link, const unsigned char *bytes)
{
    tcp_head head;

    if (!tutti_tcp_head_read(bytes, &head)) {
        return false;
    }
    if (head.kind == TCP_CREDIT) {
        link->credit += head.size;
        return link->credit <= TCP_CREDIT_MAX;
    }
    return (head.kind == TCP_FETCH || head.kind == TCP_DROP) && take_answer(link, &head);
}

static void
take_words(tutti_transport_conn *link)
{
    size_t at = 0;

    while (link->state == TCP_OPEN && link->heard_size - at >= TCP_HEAD_BYTES) {
        if (!take_word(link, link->heard + at)) {
            tutti_tcp_link_break(link, "it answered a request that this rank did not make");
        }
        at += TCP_HEAD_BYTES;
    }
    link->heard_size -= at;
    memmove(link->heard, link->heard + at, link->heard_size);
}

void
tutti_tcp_heard(tutti_transport_conn *link)
{
    const ssize_t got = recv(link->watch.fd, link->heard + link->heard_size,
                             sizeof(link->heard) - link->heard_size, 0);

    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (got <= 0) {
        tutti_tcp_link_break(link, got < 0 ? strerror(errno) : "it closed the connection");
        return;
    }
    link->heard_size += (size_t)got;
    take_words(link);
    tutti_tcp_flush(link);
}

static void
fail_all(tutti_list_node *sends)
{
    tutti_list_node *first;

    while ((first = tutti_list_pop(sends)) != NULL) {
        end_send(tutti_container_of(first, tcp_send, link), false);
    }
}

/* Each callback may post: on this link that fails, as it is BROKEN. */
void
tutti_tcp_fail_sends(tutti_transport_conn *link)
{
    tcp_send *now = link->now;

    link->now = NULL;
    if (now != NULL) {
        end_send(now, false);
    }
    fail_all(&link->packets);
    fail_all(&link->pulled);
    fail_all(&link->offered);
}
