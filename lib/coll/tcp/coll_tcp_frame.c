#include "coll/tcp/coll_tcp_frame.h"

#include <string.h>

#include "coll/wire.h"

static void
put(unsigned char *at, uint64_t number, unsigned bytes)
{
    unsigned i;

    for (i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(number >> (8 * i));
    }
}

static uint64_t
get(const unsigned char *at, unsigned bytes)
{
    uint64_t number = 0;
    unsigned i;

    for (i = 0; i < bytes; i++) {
        number |= (uint64_t)at[i] << (8 * i);
    }
    return number;
}

/* kind, nothing, size of the header (2), nothing (4), id (8), size (8) */
void
tutti_tcp_head_write(const tcp_head *head, unsigned char ret_bytes[TCP_HEAD_BYTES])
{
    memset(ret_bytes, 0, 8);
    ret_bytes[0] = (unsigned char)head->kind;
    put(ret_bytes + 2, head->header_size, 2);
    put(ret_bytes + 8, head->id, 8);
    put(ret_bytes + 16, head->size, 8);
}

static bool
is_sound(const tcp_head *head)
{
    switch (head->kind) {
    case TCP_HELLO:
        return head->header_size == 0 && head->size == TCP_TOKEN_BYTES;
    case TCP_PACKET:
        return head->header_size <= TUTTI_WIRE_HEADER_MAX && head->size <= TUTTI_WIRE_EAGER_MAX &&
               head->id == 0;
    case TCP_OFFER:
        return head->header_size <= TUTTI_WIRE_HEADER_MAX && head->size > 0;
    case TCP_DATA:
        return head->header_size == 0 && head->size > 0 && head->size <= TCP_CHUNK_BYTES;
    case TCP_PUSH:
        return head->header_size <= TUTTI_WIRE_HEADER_MAX && head->size > 0 &&
               head->size <= TCP_PUSH_MAX;
    case TCP_WELCOME:
    case TCP_CREDIT:
        return head->header_size == 0 && head->size <= TCP_CREDIT_MAX;
    case TCP_PULL:
    case TCP_DROP:
        return head->header_size == 0 && head->size == 0;
    }
    return false;
}

bool
tutti_tcp_head_read(const unsigned char bytes[TCP_HEAD_BYTES], tcp_head *ret_head)
{
    ret_head->kind = bytes[0];
    ret_head->header_size = (uint16_t)get(bytes + 2, 2);
    ret_head->id = get(bytes + 8, 8);
    ret_head->size = get(bytes + 16, 8);
    return bytes[1] == 0 && get(bytes + 4, 4) == 0 && is_sound(ret_head);
}

size_t
tutti_tcp_head_follows(const tcp_head *head)
{
    switch (head->kind) {
    case TCP_HELLO:
        return TCP_TOKEN_BYTES;
    case TCP_PACKET:
        return head->header_size + (size_t)head->size;
    case TCP_OFFER:
    case TCP_PUSH:
        return head->header_size;
    default:
        return 0;
    }
}
