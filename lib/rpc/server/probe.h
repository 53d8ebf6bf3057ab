/*
 * Probe: does the server still accept connections? It connects to the server's own addresses, one
 * after the other, says nothing, ends its side, and waits until anything can be read: HTTP/2
 * settings, a TLS alert, the end of the connection. gRPC 1.51 stops accepting for good when
 * accept() fails once, and nothing but such a look finds that out. All on the loop's thread;
 * nothing blocks.
 */
#ifndef TUTTI_RPC_SERVER_PROBE_H
#define TUTTI_RPC_SERVER_PROBE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/config/address.h"
#include "base/os/timers.h"
#include "rpc/loop.h"

#define TUTTI_RPC_PROBE_PATIENCE_NS 5000000000ULL /* until silence counts */
#define TUTTI_RPC_PROBE_SILENCES 3                /* in a row, until a listener counts as deaf */

typedef struct rpc_probe_target {
    char text[TUTTI_ADDRESS_MAX];
    struct sockaddr_storage address;
    socklen_t address_size;
    unsigned silences;
} rpc_probe_target;

typedef struct rpc_probe {
    tutti_rpc_loop *loop;
    tutti_timer timer;
    uint64_t every_ns;
    uint64_t patience_ns;
    void (*on_deaf)(void *arg); /* NULL = end the process */
    void *arg;
    rpc_probe_target targets[TUTTI_ADDRESSES_MAX];
    size_t count;
    size_t current; /* the target that is being asked */
    int descriptor; /* -1 = none is */
    uint64_t give_up_ns;
} rpc_probe;

/*
 * Where to knock: addresses with their real ports; names are looked up here, so this may block.
 * Before rpc_probe_start.
 */
void rpc_probe_init(rpc_probe *probe, tutti_rpc_loop *loop, const tutti_address *addresses,
                    size_t count);

/* Every so often from now on; 0 = never. The loop's thread. */
void rpc_probe_start(rpc_probe *probe, uint64_t every_ns);

/* The loop's thread. Not started is fine. */
void rpc_probe_stop(rpc_probe *probe);

#endif
