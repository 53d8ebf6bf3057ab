/* Calls of etcd that are repeated at its other members. For the *_pb.c files of this folder. */
#ifndef TUTTI_STORE_ETCD_CALL_PB_H
#define TUTTI_STORE_ETCD_CALL_PB_H

#include "etcd/rpc.pb-c.h"
#include "store/etcd/etcd_private.h"

/*
 * One unary call, repeated until `until_ns` while nobody can be reached, or until
 * tutti_etcd_stop.
 *
 * [out, owned] ret_response  tutti_rpc_message_free()
 *
 * As etcd_explain.
 */
tutti_code etcd_invoke(tutti_etcd *etcd, const tutti_rpc_stub *stub,
                       const struct ProtobufCMessage *request, uint64_t until_ns,
                       tutti_rpc_message **ret_response, tutti_error *err);

/* Let a call show the user's token, which has to stay in `token`. Asks for one when there is none
 * yet. */
tutti_code etcd_show_user(tutti_etcd *etcd, tutti_rpc_channel *member, char token[ETCD_TOKEN_MAX],
                          tutti_rpc_call_options *options, tutti_error *err);

static inline ProtobufCBinaryData
etcd_binary(tutti_bytes bytes)
{
    return (ProtobufCBinaryData){.data = (uint8_t *)(uintptr_t)bytes.data, .len = bytes.size};
}

static inline tutti_bytes
etcd_bytes(ProtobufCBinaryData binary)
{
    return (tutti_bytes){binary.data, binary.len};
}

#endif
