/*
 * Message: what travels in one gRPC message, and how it gets there without needless copies.
 *
 * A message is a protobuf-c struct; bulk bytes are its top-level field number 100 ("payload"). On
 * the way out they are referenced, not copied; on the way in they stay in the slices that gRPC
 * received and are walked once into their destination. The struct itself then has an empty
 * `payload` field.
 */
#ifndef TUTTI_RPC_MESSAGE_H
#define TUTTI_RPC_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "tutti/error.h"

struct ProtobufCMessage;
struct ProtobufCMessageDescriptor;
struct ProtobufCServiceDescriptor;

#define TUTTI_RPC_PAYLOAD_FIELD 100

/*
 * Bytes to send. With on_release they are referenced until it runs: once, on any thread, possibly
 * inside the call that sent them, also when that call failed; it takes no lock and only counts down
 * or posts. Without it they are copied at once.
 */
typedef struct tutti_rpc_blob {
    const void *data;
    size_t size;
    void (*on_release)(void *arg);
    void *arg;
} tutti_rpc_blob;

/* A received message. One thread at a time. */
typedef struct tutti_rpc_message tutti_rpc_message;

/* The struct, of the type the method declares; borrowed, good as long as the message. NULL of a stub without
 * a service: all is payload. */
const void *tutti_rpc_message_get(const tutti_rpc_message *message);

/*
 * From now on the message is one of its members: that is what get gives, the payload stays.
 * [in] part  inside the message
 */
void tutti_rpc_message_narrow(tutti_rpc_message *message, const struct ProtobufCMessage *part);

/* Payload bytes that have not been read yet. */
size_t tutti_rpc_message_payload_bytes(const tutti_rpc_message *message);

/*
 * Walk the payload: copy its next `size` bytes to `dest`. They must be there (assert).
 */
void tutti_rpc_message_read(tutti_rpc_message *message, void *dest, size_t size);

/*
 * Walk the payload without copying: the next run of it that lies together, at most `most` bytes.
 * Borrowed, good until the next call on the message; size 0 at the end.
 */
tutti_bytes tutti_rpc_message_peek(tutti_rpc_message *message, size_t most);

void tutti_rpc_message_free(tutti_rpc_message *message); /* NULL is fine */

/*
 * A peer's text, for people: one line of UTF-8. What is neither becomes "?" or a space, what does
 * not fit is cut at a character.
 */
void tutti_rpc_text_clean(char *ret_text, size_t size, const char *text);

/* A message on its way out, packed: what may wait until it can be written. */
typedef struct tutti_rpc_packed tutti_rpc_packed;

/*
 * [in]          message     packed before it returns
 * [in, moved]   payload     NULL = none; also on failure
 * [out, owned]  ret_packed  tutti_rpc_packed_free(), or given to tutti_rpc_call_write_packed
 *
 * TUTTI_RESOURCE_EXHAUSTED  larger than gRPC can frame (2 GiB - 1); no memory
 */
tutti_code tutti_rpc_pack(const struct ProtobufCMessage *message, const tutti_rpc_blob *payload,
                          tutti_rpc_packed **ret_packed, tutti_error *err);
void tutti_rpc_packed_free(tutti_rpc_packed *packed); /* NULL is fine */

/* The same of bytes that are a message already. They are copied. */
tutti_code tutti_rpc_pack_bytes(tutti_bytes wire, tutti_rpc_packed **ret_packed, tutti_error *err);

/* The same message once more, for another stream: both share the bytes. [out, owned] */
tutti_rpc_packed *tutti_rpc_packed_copy(tutti_rpc_packed *packed);

/* How many bytes it has. */
size_t tutti_rpc_packed_bytes(tutti_rpc_packed *packed);

/*
 * Read it in this process, as if it had travelled.
 *
 * [in]          type         of what was packed
 * [in, moved]   packed       also on failure
 * [out, owned]  ret_message  tutti_rpc_message_free()
 *
 * TUTTI_RESOURCE_EXHAUSTED, TUTTI_INVALID_ARGUMENT  as for what a peer sends
 */
tutti_code tutti_rpc_packed_read(const struct ProtobufCMessageDescriptor *type,
                                 tutti_rpc_packed *packed, tutti_rpc_message **ret_message,
                                 tutti_error *err);

#endif
