/*
 * Private to coll/tcp: frames, as they stand in a connection. Little-endian.
 *
 * From the process that connected: HELLO and its token once, then PACKET, OFFER, PUSH and DATA.
 * From the one that was called: WELCOME once, then FETCH, DROP and CREDIT. Anything else ends the
 * connection.
 */
#ifndef TUTTI_COLL_TCP_FRAME_H
#define TUTTI_COLL_TCP_FRAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TCP_HEAD_BYTES 24
#define TCP_TOKEN_BYTES 16
#define TCP_CHUNK_BYTES (1ULL << 20) /* other packets may pass behind so much of a tensor */
#define TCP_PUSH_MAX (1ULL << 20)    /* what is larger is always asked for */
#define TCP_CREDIT_MAX (2ULL << 20)  /* of one connection */
#define TCP_VERSION 1

typedef enum tcp_kind {
    TCP_HELLO = 1,   /* id: TCP_VERSION; the token follows */
    TCP_WELCOME = 2, /* id: TCP_VERSION; size: credit */
    TCP_PACKET = 3,  /* header and data follow */
    TCP_OFFER = 4,   /* the header follows; `size` bytes of data wait under `id` */
    TCP_FETCH = 5,   /* send what waits under `id` */
    TCP_DROP = 6,    /* nobody wants it */
    TCP_DATA = 7,    /* the next `size` bytes of it follow */
    TCP_PUSH = 8,    /* header and data follow, more than a packet's, but not than the credit */
    TCP_CREDIT = 9,  /* so many bytes more may come unasked */
} tcp_kind;

typedef struct tcp_head {
    tcp_kind kind;
    uint16_t header_size;
    uint64_t id;
    uint64_t size;
} tcp_head;

void tutti_tcp_head_write(const tcp_head *head, unsigned char ret_bytes[TCP_HEAD_BYTES]);

/* False: no such kind, or sizes that it cannot have. */
bool tutti_tcp_head_read(const unsigned char bytes[TCP_HEAD_BYTES], tcp_head *ret_head);

/* Bytes behind the head that belong to the frame; of DATA none: it is read where it belongs. */
size_t tutti_tcp_head_follows(const tcp_head *head);

#define TCP_FRAME_MAX (TCP_HEAD_BYTES + TUTTI_TRANSPORT_HEADER_MAX + TUTTI_TRANSPORT_EAGER_MAX)

#endif
