/*
 * Goal: whatever bytes arrive, in whatever pieces, are unpacked as protobuf-c would unpack the
 * whole, or refused; nothing is read or written where it must not be.
 * Method: the first byte of the input says how the rest is cut into runs.
 */
#include <assert.h>
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "echo_pb.h"
#include "rpc/loop.h"
#include "rpc/message/message.h"

#define SLICES_MAX 512

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    tutti_rpc_init();
    return 0;
}

/* Pieces of 1 to 16 bytes, or of all that is left once there are many. */
static grpc_byte_buffer *
cut(const uint8_t *data, size_t size, unsigned seed)
{
    grpc_slice slices[SLICES_MAX];
    grpc_byte_buffer *buffer;
    size_t count = 0;

    while (size > 0) {
        size_t piece = count + 1 == SLICES_MAX || seed == 0 ? size : 1 + (seed >> 8) % 16;

        piece = piece < size ? piece : size;
        slices[count++] = grpc_slice_from_copied_buffer((const char *)data, piece);
        data += piece;
        size -= piece;
        seed = seed * 1103515245u + 12345u;
    }
    buffer = grpc_raw_byte_buffer_create(slices, count);
    while (count > 0) {
        grpc_slice_unref(slices[--count]);
    }
    return buffer;
}

/* What we unpacked is what protobuf-c makes of the whole. */
static void
compare(tutti_rpc_message *message, const uint8_t *data, size_t size)
{
    unsigned char *payload = NULL;
    unsigned char *packed = NULL;
    unsigned char *ours = NULL;
    unsigned char *walked;
    size_t payload_bytes = 0;
    size_t packed_bytes = 0;
    size_t our_bytes = 0;

    if (echo_unpack_plainly((tutti_bytes){data, size}, &payload, &payload_bytes, &packed,
                            &packed_bytes) == 0) {
        abort();
    }
    echo_pack_again(tutti_rpc_message_get(message), &ours, &our_bytes);
    if (our_bytes != packed_bytes || memcmp(ours, packed, packed_bytes) != 0 ||
        tutti_rpc_message_payload_bytes(message) != payload_bytes) {
        abort();
    }
    walked = malloc(payload_bytes + 1);
    assert(walked != NULL);
    tutti_rpc_message_read(message, walked, payload_bytes);
    if (payload_bytes > 0 && memcmp(walked, payload, payload_bytes) != 0) {
        abort();
    }
    free(walked);
    free(ours);
    free(packed);
    free(payload);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_rpc_message *pieces = NULL;
    tutti_rpc_message *whole = NULL;
    tutti_error err;
    tutti_code code;

    if (size == 0) {
        return 0;
    }
    code = rpc_unpack(echo_request_type(), cut(data + 1, size - 1, data[0] * 2654435761u), true,
                      &pieces, &err);
    if (rpc_unpack(echo_request_type(), cut(data + 1, size - 1, 0), true, &whole, &err) != code) {
        abort(); /* how it was cut must not matter */
    }
    if (code == TUTTI_OK) {
        compare(pieces, data + 1, size - 1);
        compare(whole, data + 1, size - 1);
    } else if (code != TUTTI_INVALID_ARGUMENT && code != TUTTI_RESOURCE_EXHAUSTED) {
        abort();
    }
    tutti_rpc_message_free(pieces);
    tutti_rpc_message_free(whole);
    return 0;
}
