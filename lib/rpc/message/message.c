/*
 * A received message: gRPC's slices in, a struct and a payload out.
 *
 * rpc_scan_message finds the payload without copying it; what is left is checked and unpacked into an arena inside
 * the message (decode.c; what is unusual, by check.c and protobuf-c). The slices are kept only while payload bytes are in
 * them. Any thread, one at a time per message.
 *
 * Everything here may come from a stranger: the arena bounds what unpacking may take (a message
 * of two bytes per field grows a hundredfold in protobuf-c), and each step has a limit of its
 * own.
 */
#include "rpc/message/message.h"

#include <assert.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <protobuf-c/protobuf-c.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "rpc/message.h"
#include "rpc/message/check.h"
#include "rpc/message/decode.h"
#include "rpc/message/scan.h"

#define RUNS_INLINE 4
#define FIRST_BYTES 768 /* of the arena, inside the message: most need no other */

struct tutti_rpc_message {
    const void *body;         /* in the arena */
    grpc_byte_buffer *buffer; /* NULL when nothing of it is needed any more */
    rpc_cursor payload;
    tutti_bytes *runs; /* of the buffer; `few` or on the heap */
    size_t run_count;
    tutti_bytes few[RUNS_INLINE];
    rpc_arena arena;
    max_align_t first[FIRST_BYTES / sizeof(max_align_t)];
};

static void *
arena_alloc(void *arena, size_t size)
{
    return rpc_arena_take(arena, size);
}

static void
arena_free(void *arena, void *memory)
{
    (void)arena; /* it goes as a whole */
    (void)memory;
}

static tutti_code
no_memory(tutti_error *err)
{
    return TUTTI_FAIL_MEMORY(err, "no memory to receive a message");
}

/* With protobuf-c, which has words for what is wrong: as rpc_decode is for what is usual. */
static tutti_code
unpack_unusual(tutti_rpc_message *self, const ProtobufCMessageDescriptor *type, tutti_bytes rest,
               bool strict, tutti_error *err)
{
    ProtobufCAllocator allocator = {arena_alloc, arena_free, &self->arena};

    TUTTI_TRY(rpc_check(type, rest, strict, err));
    self->body = protobuf_c_message_unpack(type, &allocator, rest.size, rest.data);
    if (self->body != NULL) {
        return TUTTI_OK;
    }
    /* protobuf-c returns NULL for both: the arena knows which it was. */
    if (self->arena.refused) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "MESSAGE_LIMIT",
                              "%s of %zu bytes takes too much memory unpacked", type->name,
                              rest.size);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MALFORMED_MESSAGE", "malformed %s",
                          type->name);
}

/* Make the struct from the bytes that are not payload. */
static tutti_code
unpack_body(tutti_rpc_message *self, const ProtobufCMessageDescriptor *type, tutti_bytes rest,
            bool strict, tutti_error *err)
{
    rpc_arena_init(&self->arena, rest.size, self->first, sizeof(self->first));
    self->body = rpc_decode(type, rest, strict, &self->arena);
    if (self->body != NULL) {
        return TUTTI_OK;
    }
    rpc_arena_fini(&self->arena);
    rpc_arena_init(&self->arena, rest.size, self->first, sizeof(self->first));
    return unpack_unusual(self, type, rest, strict, err);
}

static tutti_code
collect_runs(tutti_rpc_message *self, tutti_error *err)
{
    const size_t count = self->buffer->data.raw.slice_buffer.count;
    grpc_byte_buffer_reader reader;
    grpc_slice *slice;

    self->runs = count <= RUNS_INLINE ? self->few : calloc(count, sizeof(*self->runs));
    if (self->runs == NULL || !grpc_byte_buffer_reader_init(&reader, self->buffer)) {
        return no_memory(err);
    }
    while (self->run_count < count && grpc_byte_buffer_reader_peek(&reader, &slice)) {
        self->runs[self->run_count++] =
            (tutti_bytes){GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
    }
    grpc_byte_buffer_reader_destroy(&reader);
    return TUTTI_OK;
}

/* Free gRPC's slices: protobuf-c has copied what is in the struct. */
static void
drop_buffer(tutti_rpc_message *self)
{
    if (self->runs != self->few) {
        free(self->runs);
    }
    self->runs = NULL;
    if (self->buffer != NULL) {
        grpc_byte_buffer_destroy(self->buffer);
        self->buffer = NULL;
    }
}

/*
 * The payload's number if the type has one: bytes, not repeated. 0: all of the message is
 * unpacked.
 */
static uint32_t
payload_field(const ProtobufCMessageDescriptor *type)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field(type, TUTTI_RPC_PAYLOAD_FIELD);

    return field != NULL && field->type == PROTOBUF_C_TYPE_BYTES &&
                   field->label != PROTOBUF_C_LABEL_REPEATED
               ? TUTTI_RPC_PAYLOAD_FIELD
               : 0;
}

static tutti_code
unpack_runs(tutti_rpc_message *self, const ProtobufCMessageDescriptor *type, bool strict,
            tutti_error *err)
{
    tutti_buf gather;
    rpc_scan scan;
    tutti_code code;

    tutti_buf_init(&gather, TUTTI_RPC_CONTROL_MAX);
    code = rpc_scan_message(self->runs, self->run_count, payload_field(type), &gather, &scan, err);
    if (code == TUTTI_OK) {
        code = unpack_body(self, type, scan.rest, strict, err);
    }
    tutti_buf_fini(&gather);
    if (code == TUTTI_OK) {
        self->payload = scan.payload;
    }
    return code;
}

/* All of it is payload. */
static void
keep_bytes(tutti_rpc_message *self)
{
    const tutti_bytes none = {NULL, 0};

    rpc_arena_init(&self->arena, 0, self->first, sizeof(self->first));
    rpc_cursor_init(&self->payload, self->run_count == 0 ? &none : self->runs,
                    grpc_byte_buffer_length(self->buffer));
}

tutti_code
rpc_unpack(const ProtobufCMessageDescriptor *type, grpc_byte_buffer *buffer, bool strict,
           tutti_rpc_message **ret_message, tutti_error *err)
{
    tutti_rpc_message *self = malloc(sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        grpc_byte_buffer_destroy(buffer);
        return no_memory(err);
    }
    /* Without `first`: 768 bytes that the arena hands out before they are read. */
    memset(self, 0, offsetof(tutti_rpc_message, first));
    self->buffer = buffer;
    code = collect_runs(self, err);
    if (code == TUTTI_OK && type == NULL) {
        keep_bytes(self);
    } else if (code == TUTTI_OK) {
        code = unpack_runs(self, type, strict, err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_message_free(self);
        return code;
    }
    if (self->payload.left == 0) {
        drop_buffer(self);
    }
    *ret_message = self;
    return TUTTI_OK;
}

tutti_code
tutti_rpc_packed_read(const ProtobufCMessageDescriptor *type, tutti_rpc_packed *packed,
                      tutti_rpc_message **ret_message, tutti_error *err)
{
    return rpc_unpack(type, rpc_packed_buffer(packed), false, ret_message, err);
}

tutti_code
rpc_unpack_bytes(const ProtobufCMessageDescriptor *type, tutti_bytes wire,
                 tutti_rpc_message **ret_message, tutti_error *err)
{
    tutti_rpc_message *self = malloc(sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return no_memory(err);
    }
    memset(self, 0, offsetof(tutti_rpc_message, first));
    code = unpack_body(self, type, wire, false, err);
    if (code != TUTTI_OK) {
        tutti_rpc_message_free(self);
        return code;
    }
    *ret_message = self;
    return TUTTI_OK;
}

const void *
tutti_rpc_message_get(const tutti_rpc_message *message)
{
    return message->body;
}

void
tutti_rpc_message_narrow(tutti_rpc_message *message, const ProtobufCMessage *part)
{
    message->body = part;
}

size_t
tutti_rpc_message_payload_bytes(const tutti_rpc_message *message)
{
    return message->payload.left;
}

tutti_bytes
tutti_rpc_message_peek(tutti_rpc_message *message, size_t most)
{
    return rpc_cursor_take(&message->payload, most);
}

void
tutti_rpc_message_read(tutti_rpc_message *message, void *dest, size_t size)
{
    unsigned char *at = dest;

    assert(size <= message->payload.left);
    while (size > 0) {
        const tutti_bytes run = rpc_cursor_take(&message->payload, size);

        memcpy(at, run.data, run.size);
        at += run.size;
        size -= run.size;
    }
}

void
tutti_rpc_message_free(tutti_rpc_message *message)
{
    if (message != NULL) {
        drop_buffer(message);
        rpc_arena_fini(&message->arena);
        free(message);
    }
}

/* ------------------------------------------------------------------------------ arena */

#define ALIGNMENT (alignof(max_align_t))
#define BLOCK_BYTES_FIRST 4096
#define BLOCK_BYTES_MAX (256u << 10)

struct rpc_arena_block {
    rpc_arena_block *next;
    max_align_t bytes[];
};

void
rpc_arena_init(rpc_arena *arena, size_t wire_bytes, void *first, size_t first_bytes)
{
    /*
     * The limit is in proportion to the bytes that came, so a sender pays for the memory that it
     * takes.
     */
    size_t limit = TUTTI_RPC_ARENA_MAX;

    if (wire_bytes < (TUTTI_RPC_ARENA_MAX - TUTTI_RPC_ARENA_BASE) / TUTTI_RPC_ARENA_FACTOR) {
        limit = TUTTI_RPC_ARENA_BASE + TUTTI_RPC_ARENA_FACTOR * wire_bytes;
    }
    *arena = (rpc_arena){
        .at = first, .room = first_bytes, .left = limit, .next_bytes = BLOCK_BYTES_FIRST};
}

void
rpc_arena_fini(rpc_arena *arena)
{
    while (arena->blocks != NULL) {
        rpc_arena_block *block = arena->blocks;

        arena->blocks = block->next;
        free(block);
    }
}

/*
 * Make a new block the current one. A piece of more than half a block gets a block of its own,
 * and the current one stays in use.
 */
static void *
take_block(rpc_arena *arena, size_t size)
{
    const bool alone = size > arena->next_bytes / 2;
    const size_t bytes = alone ? size : arena->next_bytes;
    rpc_arena_block *block = malloc(sizeof(*block) + bytes);

    if (block == NULL) {
        return NULL;
    }
    block->next = arena->blocks;
    arena->blocks = block;
    if (!alone) {
        arena->at = (unsigned char *)block->bytes + size;
        arena->room = bytes - size;
        arena->next_bytes = bytes < BLOCK_BYTES_MAX ? bytes * 2 : bytes;
    }
    return block->bytes;
}

void *
rpc_arena_take(rpc_arena *arena, size_t size)
{
    const size_t bytes = (size + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    void *taken;

    /* Both: `bytes` is rounded up and wraps to 0 for a size near SIZE_MAX. */
    if (size > arena->left || bytes > arena->left) {
        arena->refused = true;
        return NULL;
    }
    if (bytes <= arena->room) {
        taken = arena->at;
        arena->at += bytes;
        arena->room -= bytes;
    } else {
        taken = take_block(arena, bytes);
        arena->refused = arena->refused || taken == NULL;
    }
    if (taken != NULL) {
        arena->left -= bytes;
    }
    return taken;
}
