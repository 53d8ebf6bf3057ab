/*
 * The inside of include/tutti-rpc: what its functions have in common. They translate, and have no state but
 * a server's; their contracts are in the public headers. libtutti and the servers do without this room.
 */
#ifndef TUTTI_RPC_DOOR_DOOR_H
#define TUTTI_RPC_DOOR_DOOR_H

#include <stdint.h>

#include "tutti-rpc/status.h"
#include "tutti/error.h"

/* Start gRPC, once per process; it stays. Any thread. */
void rpc_door_begin(void);

/* Write `ret_status` (NULL is fine) if `code` is not TUTTI_OK, and return the code. */
tuttirpc_code rpc_door_status(tutti_code code, const tutti_error *err, tuttirpc_status *ret_status);

/* Milliseconds as nanoseconds, at most UINT64_MAX. */
uint64_t rpc_door_ns(uint64_t ms);

#endif
