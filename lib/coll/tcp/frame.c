#include "coll/tcp/frame.h"

#include "coll/packet/packet.h"
#include "coll/transport.h"

/* kind, nothing, size of the header (2), nothing (4), id (8), size (8) */
void
tutti_tcp_head_write(const tcp_head *head, unsigned char ret_bytes[TCP_HEAD_BYTES])
{
    tutti_packet_put_u32(ret_bytes, (uint32_t)head->kind | (uint32_t)head->header_size << 16);
    tutti_packet_put_u32(ret_bytes + 4, 0);
    tutti_packet_put_u64(ret_bytes + 8, head->id);
    tutti_packet_put_u64(ret_bytes + 16, head->size);
}

/* What a frame of this kind can have. Each size is bounded here, before memory or a read depends on
 * it: the bytes may come from a stranger. */
static bool
is_sound(const tcp_head *head)
{
    switch (head->kind) {
    case TCP_HELLO:
        return head->header_size == 0 && head->size == TCP_TOKEN_BYTES;
    case TCP_PACKET:
        return head->header_size <= TUTTI_TRANSPORT_HEADER_MAX &&
               head->size <= TUTTI_TRANSPORT_EAGER_MAX && head->id == 0;
    case TCP_OFFER:
        return head->header_size <= TUTTI_TRANSPORT_HEADER_MAX && head->size > 0;
    case TCP_DATA:
        return head->header_size == 0 && head->size > 0 && head->size <= TCP_CHUNK_BYTES;
    case TCP_PUSH:
        return head->header_size <= TUTTI_TRANSPORT_HEADER_MAX && head->size > 0 &&
               head->size <= TCP_PUSH_MAX;
    case TCP_WELCOME:
    case TCP_CREDIT:
        return head->header_size == 0 && head->size <= TCP_CREDIT_MAX;
    case TCP_FETCH:
    case TCP_DROP:
        return head->header_size == 0 && head->size == 0;
    }
    return false;
}

bool
tutti_tcp_head_read(const unsigned char bytes[TCP_HEAD_BYTES], tcp_head *ret_head)
{
    ret_head->kind = bytes[0];
    ret_head->header_size = (uint16_t)(tutti_packet_get_u32(bytes) >> 16);
    ret_head->id = tutti_packet_get_u64(bytes + 8);
    ret_head->size = tutti_packet_get_u64(bytes + 16);
    return bytes[1] == 0 && tutti_packet_get_u32(bytes + 4) == 0 && is_sound(ret_head);
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
