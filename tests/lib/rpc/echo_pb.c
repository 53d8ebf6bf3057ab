#include "echo_pb.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "grpc/reflection/v1/reflection.pb-c.h"
#include "rpctest/v1/echo_service.pb-c.h"
#include "rpctest/v1/kinds.pb-c.h"
#include "rpctest_descriptor_set.h"

#define DEPTH_MAX 8

typedef struct request_storage {
    Rpctest__V1__EchoRequest message;
    Rpctest__V1__Inner inners[DEPTH_MAX];
} request_storage;

const tutti_rpc_stub echo_unary = {&rpctest__v1__echo_service__descriptor, "Unary"};
const tutti_rpc_stub echo_park = {&rpctest__v1__echo_service__descriptor, "Park"};
const tutti_rpc_stub echo_missing = {&rpctest__v1__echo_service__descriptor, "Missing"};
const tutti_rpc_stub echo_upload = {&rpctest__v1__echo_service__descriptor, "Upload"};
const tutti_rpc_stub echo_download = {&rpctest__v1__echo_service__descriptor, "Download"};
const tutti_rpc_stub echo_chat = {&rpctest__v1__echo_service__descriptor, "Chat"};
const tutti_rpc_stub echo_stranger = {&grpc__reflection__v1__server_reflection__descriptor,
                                      "ServerReflectionInfo"};

const struct ProtobufCServiceDescriptor *
echo_service(void)
{
    return &rpctest__v1__echo_service__descriptor;
}

const struct ProtobufCMessageDescriptor *
echo_request_type(void)
{
    return &rpctest__v1__echo_request__descriptor;
}

const struct ProtobufCMessageDescriptor *
echo_response_type(void)
{
    return &rpctest__v1__echo_response__descriptor;
}

const ProtobufCMessageDescriptor *
echo_kinds_type(void)
{
    return &rpctest__v1__kinds__descriptor;
}

tutti_bytes
echo_descriptor_set(void)
{
    return (tutti_bytes){rpctest_descriptor_set, rpctest_descriptor_set_size};
}

const struct ProtobufCMessage *
echo_request(echo_storage *storage, const echo_fields *fields)
{
    request_storage *all = (request_storage *)(void *)storage;
    size_t i;

    static_assert(sizeof(*all) <= sizeof(*storage), "the storage is large enough");
    assert(fields->depth <= DEPTH_MAX);
    rpctest__v1__echo_request__init(&all->message);
    all->message.text = (char *)(uintptr_t)(fields->text == NULL ? "" : fields->text);
    all->message.number = fields->number;
    all->message.count = fields->count;
    all->message.fail = fields->fail;
    all->message.colour = (Rpctest__V1__Colour)fields->colour;
    for (i = 0; i < fields->depth; i++) {
        rpctest__v1__inner__init(&all->inners[i]);
        if (i > 0) {
            all->inners[i - 1].inner = &all->inners[i];
        }
        all->message.inner = &all->inners[0];
    }
    return &all->message.base;
}

const struct ProtobufCMessage *
echo_response(echo_storage *storage, const echo_fields *fields)
{
    Rpctest__V1__EchoResponse *message = (Rpctest__V1__EchoResponse *)(void *)storage;

    static_assert(sizeof(*message) <= sizeof(*storage), "the storage is large enough");
    rpctest__v1__echo_response__init(message);
    message->text = (char *)(uintptr_t)(fields->text == NULL ? "" : fields->text);
    message->number = fields->number;
    message->count = fields->count;
    message->sum = fields->sum;
    return &message->base;
}

echo_fields
echo_request_fields(const void *message)
{
    const Rpctest__V1__EchoRequest *from = message;

    return (echo_fields){.text = from->text,
                         .number = from->number,
                         .count = from->count,
                         .fail = from->fail,
                         .colour = (int)from->colour};
}

echo_fields
echo_response_fields(const void *message)
{
    const Rpctest__V1__EchoResponse *from = message;

    return (echo_fields){
        .text = from->text, .number = from->number, .count = from->count, .sum = from->sum};
}

int
echo_unpack_plainly(tutti_bytes wire, unsigned char **ret_payload, size_t *ret_payload_bytes,
                    unsigned char **ret_packed, size_t *ret_packed_bytes)
{
    Rpctest__V1__EchoRequest *message =
        rpctest__v1__echo_request__unpack(NULL, wire.size, wire.data);

    if (message == NULL) {
        return 0;
    }
    *ret_payload = message->payload.data;
    *ret_payload_bytes = message->payload.len;
    message->payload = (ProtobufCBinaryData){0, NULL};
    echo_pack_again(message, ret_packed, ret_packed_bytes);
    rpctest__v1__echo_request__free_unpacked(message, NULL);
    return 1;
}

void
echo_pack_again(const void *message, unsigned char **ret_packed, size_t *ret_bytes)
{
    const Rpctest__V1__EchoRequest *from = message;

    *ret_bytes = rpctest__v1__echo_request__get_packed_size(from);
    *ret_packed = malloc(*ret_bytes + 1);
    assert(*ret_packed != NULL);
    (void)rpctest__v1__echo_request__pack(from, *ret_packed);
}
