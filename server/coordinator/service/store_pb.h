/* Keys and entries, from the wire and to it. For the *_pb.c files of this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_SERVICE_STORE_PB_H
#define TUTTI_SERVER_COORDINATOR_SERVICE_STORE_PB_H

#include "rpc/server.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/service/member_pb.h"
#include "tutti/v1/store_service.pb-c.h"

extern const tutti_rpc_stream_ops coord_watch_stream; /* store_watch_pb.c */
extern const tutti_rpc_stream_ops coord_store_stream; /* store_stream_pb.c */

/* One answer for a call that does not wait, or no longer. `err` when the code is not OK. */
void coord_store_answer(tutti_rpc_call *call, tutti_code code, const ProtobufCMessage *response,
                        const tutti_error *err);

void coord_on_open_lane(tutti_rpc_call *call, void *arg);

/* store_multi_pb.c */
void coord_on_multi_get(tutti_rpc_call *call, void *arg);
void coord_on_multi_set(tutti_rpc_call *call, void *arg);
void coord_on_check(tutti_rpc_call *call, void *arg);
void coord_on_append(tutti_rpc_call *call, void *arg);

/* store_queue_pb.c */
void coord_on_take(tutti_rpc_call *call, void *arg);
void coord_on_queue_push(tutti_rpc_call *call, void *arg);
void coord_on_queue_pop(tutti_rpc_call *call, void *arg);
void coord_on_queue_len(tutti_rpc_call *call, void *arg);

/* store_lease_pb.c */
void coord_on_grant(tutti_rpc_call *call, void *arg);
void coord_on_keep_alive(tutti_rpc_call *call, void *arg);
void coord_on_revoke(tutti_rpc_call *call, void *arg);
void coord_on_leases(tutti_rpc_call *call, void *arg);

/*
 * Keys of a message, as the core takes them: what they point to lives as long as the message. Those
 * that are too many are left out, and the core refuses the count.
 */
static inline void
keys_from_wire(const ProtobufCBinaryData *wire, size_t count,
               tutti_bytes ret_keys[TUTTI_COORDINATOR_WAIT_KEYS_MAX])
{
    size_t i;

    for (i = 0; i < count && i < TUTTI_COORDINATOR_WAIT_KEYS_MAX; i++) {
        ret_keys[i] = bytes_from_wire(wire[i]);
    }
}

/* Borrows from the message. */
static inline tutti_coordinator_key
key_from_wire(const char *job, ProtobufCBinaryData key)
{
    return (tutti_coordinator_key){.job = job, .key = bytes_from_wire(key)};
}

/* Borrows from the entry. */
static inline void
entry_to_wire(const tutti_store_entry *entry, Tutti__V1__Entry *ret_wire)
{
    tutti__v1__entry__init(ret_wire);
    ret_wire->key = bytes_to_wire(entry->key);
    ret_wire->value = bytes_to_wire(entry->value);
    ret_wire->version = entry->version;
}

#endif
