/* What the certificate of a server says, for people to read. */
#ifndef TUTTI_RPC_MESSAGE_PEEK_H
#define TUTTI_RPC_MESSAGE_PEEK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/config/address.h"

/*
 * peek.c: the hosts that a server's certificate is for, "localhost, 10.0.0.1". Nothing is
 * verified: this is for people to read. False: it was not seen, or names no host.
 */
bool rpc_peek_names(const tutti_address *address, uint64_t deadline_ns, char *ret_names,
                    size_t size);

#endif
