/* Private to client/kv: calls of the store by streams that stay open (decision 0041). */
#ifndef TUTTI_CLIENT_KV_STORE_STREAM_H
#define TUTTI_CLIENT_KV_STORE_STREAM_H

#include "client/conn/call.h"

/*
 * A call of the coordinator's store, within the client's time, that is answered at once: a stream may
 * carry it. One that waits is made by client_ask_coordinator: it would keep others off the stream.
 */
client_call client_ask_store(const tutti_client *client, const tutti_rpc_stub *stub);

/* Do streams carry such calls? False once the coordinator has refused one. */
bool client_store_has_streams(const tutti_client *client);

#endif
