/*
 * A struct and its payload as one gRPC byte buffer. The struct is packed into a slice of its own,
 * behind which the head of field 100 and the payload follow, so a tensor's bytes are referenced
 * and not copied. Any thread.
 *
 * A payload with on_release is moved: on_release has run, or will, whatever this returns. Without
 * memory the call fails; gRPC's own allocator would abort the process, therefore larger slices
 * come from malloc.
 */
#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <limits.h>
#include <protobuf-c/protobuf-c.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "rpc/message.h"
#include "rpc/message/encode.h"
#include "rpc/message/message.h"
#include "rpc/util/process.h"

#define MESSAGE_BYTES_MAX ((size_t)INT_MAX)
#define PAYLOAD_HEAD_MAX 7           /* a tag of two bytes, a length of five */
#define ENCODE_BYTES_MAX 1024        /* on the stack; larger messages are packed by protobuf-c */
#define SLICE_BYTES_SMALL (4u << 10) /* below, gRPC's own allocation will do */

static void
release_packed(const tutti_rpc_blob *payload)
{
    if (payload != NULL && payload->on_release != NULL) {
        payload->on_release(payload->arg);
    }
}

/* A slice of `size` bytes to be written; large ones can fail instead of aborting the process. */
static bool
make_slice(size_t size, grpc_slice *ret_slice)
{
    void *data;

    if (size <= SLICE_BYTES_SMALL) {
        *ret_slice = grpc_slice_malloc(size);
        return true;
    }
    data = malloc(size);
    if (data != NULL) {
        *ret_slice = grpc_slice_new(data, size, free);
    }
    return data != NULL;
}

static size_t
put_varint(unsigned char *at, size_t number)
{
    size_t used = 0;

    for (; number >= 0x80; number >>= 7) {
        at[used++] = (unsigned char)(number | 0x80);
    }
    at[used++] = (unsigned char)number;
    return used;
}

static size_t
put_payload_head(unsigned char *at, size_t payload_bytes)
{
    const size_t used =
        put_varint(at, TUTTI_RPC_PAYLOAD_FIELD << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);

    return used + put_varint(at + used, payload_bytes);
}

/*
 * The struct, and the head of a payload when there is one.
 *
 * [in] encoded  `size` bytes of the struct; NULL = protobuf-c packs it
 */
static bool
pack_head(const ProtobufCMessage *message, const unsigned char *encoded, size_t size,
          size_t payload_bytes, grpc_slice *ret_slice)
{
    unsigned char head[PAYLOAD_HEAD_MAX];
    const size_t head_bytes = payload_bytes == 0 ? 0 : put_payload_head(head, payload_bytes);

    if (!make_slice(size + head_bytes, ret_slice)) {
        return false;
    }
    if (encoded == NULL) {
        (void)protobuf_c_message_pack(message, GRPC_SLICE_START_PTR(*ret_slice));
    } else if (size > 0) {
        memcpy(GRPC_SLICE_START_PTR(*ret_slice), encoded, size);
    }
    if (head_bytes > 0) {
        memcpy(GRPC_SLICE_START_PTR(*ret_slice) + size, head, head_bytes);
    }
    return true;
}

/* Reference the bytes when they say when they are free again, else copy them. */
static bool
wrap_payload(const tutti_rpc_blob *payload, grpc_slice *ret_slice)
{
    if (payload->on_release != NULL) {
        /* For the thread sanitizer: on_release runs on a thread of gRPC's. */
        rpc_tag_release(payload->arg);
        *ret_slice = grpc_slice_new_with_user_data((void *)(uintptr_t)payload->data, payload->size,
                                                   payload->on_release, payload->arg);
        return true;
    }
    if (!make_slice(payload->size, ret_slice)) {
        return false;
    }
    memcpy(GRPC_SLICE_START_PTR(*ret_slice), payload->data, payload->size);
    return true;
}

static tutti_code
no_memory(size_t size, tutti_error *err)
{
    return TUTTI_FAIL_MEMORY(err, "no memory for a message of %zu bytes", size);
}

static tutti_code
check_size(size_t size, size_t payload_bytes, tutti_error *err)
{
    if (size > MESSAGE_BYTES_MAX - PAYLOAD_HEAD_MAX ||
        payload_bytes > MESSAGE_BYTES_MAX - PAYLOAD_HEAD_MAX - size) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "MESSAGE_LIMIT",
                              "message of %zu bytes and a payload of %zu, at most %zu together",
                              size, payload_bytes, MESSAGE_BYTES_MAX);
    }
    return TUTTI_OK;
}

tutti_code
rpc_pack(const ProtobufCMessage *message, const tutti_rpc_blob *payload,
         grpc_byte_buffer **ret_buffer, tutti_error *err)
{
    const size_t payload_bytes = payload == NULL ? 0 : payload->size;
    unsigned char room[ENCODE_BYTES_MAX];
    const unsigned char *encoded = rpc_encode(message, room, sizeof(room));
    const size_t size = encoded != NULL ? (size_t)(room + sizeof(room) - encoded)
                                        : protobuf_c_message_get_packed_size(message);
    grpc_slice slices[2];
    tutti_code code;

    assert(payload_bytes == 0 || protobuf_c_message_descriptor_get_field(
                                     message->descriptor, TUTTI_RPC_PAYLOAD_FIELD) != NULL);
    code = check_size(size, payload_bytes, err);
    if (code == TUTTI_OK && !pack_head(message, encoded, size, payload_bytes, &slices[0])) {
        code = no_memory(size, err);
    }
    /* An empty payload has no slice that could release it. */
    if (code != TUTTI_OK || payload_bytes == 0) {
        release_packed(payload);
    } else if (!wrap_payload(payload, &slices[1])) {
        grpc_slice_unref(slices[0]); /* nothing to release: only copies can fail */
        code = no_memory(payload_bytes, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    *ret_buffer = grpc_raw_byte_buffer_create(slices, payload_bytes == 0 ? 1 : 2);
    grpc_slice_unref(slices[0]);
    if (payload_bytes > 0) {
        grpc_slice_unref(slices[1]);
    }
    return TUTTI_OK;
}

tutti_code
tutti_rpc_pack(const ProtobufCMessage *message, const tutti_rpc_blob *payload,
               tutti_rpc_packed **ret_packed, tutti_error *err)
{
    grpc_byte_buffer *buffer = NULL;

    TUTTI_TRY(rpc_pack(message, payload, &buffer, err));

    *ret_packed = rpc_packed_from(buffer);
    return TUTTI_OK;
}

tutti_code
tutti_rpc_pack_bytes(tutti_bytes wire, tutti_rpc_packed **ret_packed, tutti_error *err)
{
    grpc_slice slice;
    tutti_code code = check_size(wire.size, 0, err);

    if (code == TUTTI_OK && !make_slice(wire.size, &slice)) {
        code = no_memory(wire.size, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (wire.size > 0) {
        memcpy(GRPC_SLICE_START_PTR(slice), wire.data, wire.size);
    }
    *ret_packed = rpc_packed_from(grpc_raw_byte_buffer_create(&slice, 1));
    grpc_slice_unref(slice);
    return TUTTI_OK;
}

void
tutti_rpc_packed_free(tutti_rpc_packed *packed)
{
    if (packed != NULL) {
        grpc_byte_buffer_destroy(rpc_packed_buffer(packed));
    }
}

tutti_rpc_packed *
tutti_rpc_packed_copy(tutti_rpc_packed *packed)
{
    return rpc_packed_from(grpc_byte_buffer_copy(rpc_packed_buffer(packed)));
}

size_t
tutti_rpc_packed_bytes(tutti_rpc_packed *packed)
{
    return grpc_byte_buffer_length(rpc_packed_buffer(packed));
}
