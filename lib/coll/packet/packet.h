/*
 * Packet: the header that every message between engines begins with. Little-endian on the
 * transport.
 */
#ifndef TUTTI_COLL_PACKET_PACKET_H
#define TUTTI_COLL_PACKET_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "tensor/spec.h"
#include "tutti/error.h"

#define TUTTI_PACKET_VERSION 1
#define TUTTI_PACKET_BYTES 72

typedef enum tutti_packet_kind {
    TUTTI_PACKET_AGREE = 1,   /* data: signatures (agree.h); `extra` = the yes-word, `tag` = how
                                 many ms ago the caller came, and one; 0 = not known */
    TUTTI_PACKET_DATA = 2,    /* data: a part of a tensor */
    TUTTI_PACKET_ABORT = 3,   /* data: an error; op `sequence` is over for everybody */
    TUTTI_PACKET_QUERY = 4,   /* what do you know of op `sequence`? */
    TUTTI_PACKET_REPORT = 5,  /* the answer: `tag` = a standing (engine/inquiry.c), data: words */
    TUTTI_PACKET_SEND = 6,    /* data: a tensor for a Recv; `extra` = the send's id, `tag`,
                                 `step` = bytes that follow in a META */
    TUTTI_PACKET_TAKEN = 7,   /* the tensor of send `extra` was taken */
    TUTTI_PACKET_REFUSED = 8, /* the tensor of send `extra` was refused; data: an error */
    TUTTI_PACKET_RETRACT = 9, /* send `extra` is over: data: an error */
    TUTTI_PACKET_META = 10,   /* data: bytes that go with the tensor of send `extra` */
    TUTTI_PACKET_LEAVE = 11,  /* the sender begins no op behind `sequence`; data: an error */
    TUTTI_PACKET_RESET = 12,  /* our connection was torn down `extra` times: do so, too */
    TUTTI_PACKET_UNSENT = 13, /* in place of a SEND that was refused; data: an error */
    TUTTI_PACKET_OVER = 14,   /* the sender's caller of ops up to `sequence` has gone */
    TUTTI_PACKET_SILENT = 15, /* nobody sends or receives at the sender any more; data: an error;
                                 none = somebody does again */
} tutti_packet_kind;

typedef struct tutti_packet {
    tutti_packet_kind kind;
    uint32_t from; /* rank of the job */
    uint32_t step; /* of the op: rounds of the agreement, then of the data */
    uint32_t tag;
    uint64_t job_id;
    uint64_t incarnation; /* of the sender */
    uint64_t group;
    uint64_t epoch; /* of the group */
    uint64_t sequence;
    uint64_t extra;
    /* Of an ABORT, an OVER, a SILENT or a parked AGREE, on tutti_clock_ns(): not on the wire. */
    uint64_t came_ns;
} tutti_packet;

void tutti_packet_write(const tutti_packet *packet, unsigned char ret_bytes[TUTTI_PACKET_BYTES]);

/* False: too short, another version, or an unknown kind. What stands behind it is the caller's. */
bool tutti_packet_read(const void *bytes, size_t size, tutti_packet *ret_packet);

/* Specs and errors inside packets. The writers return the bytes used; the buffers are large enough.
 */
#define TUTTI_PACKET_SPEC_BYTES (4 + 8 * TUTTI_DIMS_MAX)
#define TUTTI_PACKET_ERROR_BYTES (16 + TUTTI_ERROR_REASON_MAX + TUTTI_ERROR_TEXT_MAX)

size_t tutti_packet_write_spec(const tutti_spec *spec, unsigned char *ret_bytes);
/* Returns the bytes used; 0 when it is malformed or no spec that can exist. */
size_t tutti_packet_read_spec(const void *bytes, size_t size, tutti_spec *ret_spec);

size_t tutti_packet_write_error(const tutti_error *err, unsigned char *ret_bytes);
/* What cannot be read becomes an INTERNAL error that says so. */
void tutti_packet_read_error(const void *bytes, size_t size, tutti_error *ret_err);

/* Numbers as they travel: the lowest byte first. */
void tutti_packet_put_u32(unsigned char *at, uint32_t number);
uint32_t tutti_packet_get_u32(const unsigned char *at);
void tutti_packet_put_u64(unsigned char *at, uint64_t number);
uint64_t tutti_packet_get_u64(const unsigned char *at);

#endif
