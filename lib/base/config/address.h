/*
 * Address: where a server listens or a client connects: "host:port", "[v6]:port", "unix:/path".
 * Any thread; nothing is allocated.
 */
#ifndef TUTTI_BASE_CONFIG_ADDRESS_H
#define TUTTI_BASE_CONFIG_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/error.h"

#define TUTTI_ADDRESS_MAX 256 /* bytes of an address, the NUL included */
#define TUTTI_ADDRESSES_MAX 8 /* addresses one server listens on */

typedef struct tutti_address {
    char text[TUTTI_ADDRESS_MAX]; /* as gRPC takes it */
    char host[TUTTI_ADDRESS_MAX]; /* without brackets; "" for a Unix socket */
    char path[TUTTI_ADDRESS_MAX]; /* of a Unix socket; "" for TCP */
    uint16_t port;
} tutti_address;

/*
 * TUTTI_INVALID_ARGUMENT  not of one of the three forms; the text says which part is wrong
 */
tutti_code tutti_address_parse(const char *text, tutti_address *ret_address, tutti_error *err);

/* A comma-separated list of at most TUTTI_ADDRESSES_MAX. */
tutti_code tutti_address_parse_list(const char *text, tutti_address *ret_addresses,
                                    size_t *ret_count, tutti_error *err);

/* Can only this machine reach it? Unix sockets, 127.0.0.0/8, ::1 and "localhost". */
bool tutti_address_is_local(const tutti_address *address);

/* The same address with another port: what a server says after it bound port 0. */
void tutti_address_set_port(tutti_address *address, uint16_t port);

#endif
