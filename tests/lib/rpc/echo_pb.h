/* The messages of rpctest.v1 for tests, which hold no generated names. */
#ifndef TUTTI_TESTS_RPC_ECHO_PB_H
#define TUTTI_TESTS_RPC_ECHO_PB_H

#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "rpc/channel.h"

/* What a request says, or a response. */
typedef struct echo_fields {
    const char *text; /* NULL = "" */
    uint64_t number;
    uint64_t count;
    uint64_t sum;
    int32_t fail;
    int colour;   /* of a request */
    size_t depth; /* of messages inside it */
} echo_fields;

/* Memory for one message, on the stack. */
typedef struct echo_storage {
    max_align_t bytes[64];
} echo_storage;

/* Good as long as the storage and the text. */
const struct ProtobufCMessage *echo_request(echo_storage *storage, const echo_fields *fields);
const struct ProtobufCMessage *echo_response(echo_storage *storage, const echo_fields *fields);

/* Borrowed from the message. */
echo_fields echo_request_fields(const void *message);
echo_fields echo_response_fields(const void *message);

const struct ProtobufCServiceDescriptor *echo_service(void);
const struct ProtobufCMessageDescriptor *echo_request_type(void);
const struct ProtobufCMessageDescriptor *echo_response_type(void);
const struct ProtobufCMessageDescriptor *echo_kinds_type(void); /* with each kind of field */

extern const tutti_rpc_stub echo_unary;
extern const tutti_rpc_stub echo_park;
extern const tutti_rpc_stub echo_missing;
extern const tutti_rpc_stub echo_upload;
extern const tutti_rpc_stub echo_download;
extern const tutti_rpc_stub echo_chat;

/* Another service, which the server does not know. */
extern const tutti_rpc_stub echo_stranger;

tutti_bytes echo_descriptor_set(void);

/*
 * Unpack a request as protobuf-c would without us, for comparison: 0 = it does not, else 1 and the
 * payload and what protobuf-c makes of the rest when packed again. Free both.
 */
int echo_unpack_plainly(tutti_bytes wire, unsigned char **ret_payload, size_t *ret_payload_bytes,
                        unsigned char **ret_packed, size_t *ret_packed_bytes);

/* Pack a request struct again. Free it. */
void echo_pack_again(const void *message, unsigned char **ret_packed, size_t *ret_bytes);

#endif
