/*
 * A transport without a network: engines of one process, each on its own thread, exchange packets
 * through queues. It keeps the promises of coll/transport.h (large data waits at its sender) and
 * can break: a transport that is killed looks to the others like a dead process, one that is frozen
 * like a stopped one.
 */
#ifndef TUTTI_TESTS_TRANSPORT_FAKE_H
#define TUTTI_TESTS_TRANSPORT_FAKE_H

#include "coll/transport.h"

typedef struct fake_network fake_network;

fake_network *fake_network_new(void);
void fake_network_free(fake_network *network); /* after its transports are closed */

tutti_transport *fake_transport_new(fake_network *network);

/* Wires that are made from now on say that so many of them, one after the other, share a host. */
void fake_network_hosts(fake_network *network, unsigned per_host);

/* Any thread. */
void fake_transport_kill(tutti_transport *transport);
void fake_transport_freeze(tutti_transport *transport, bool frozen);

/* Let about one in `one_in` packets wait behind later ones; 0 = none. Seeded: the same order again.
 */
void fake_network_shuffle(fake_network *network, unsigned one_in, unsigned seed);

/*
 * Somebody on the way: `change` sees each packet that is sent from now on, one at a time, and may write over its
 * data. NULL = nobody.
 */
typedef void (*fake_change_fn)(void *arg, const void *header, unsigned char *data, size_t size);
void fake_network_change(fake_network *network, fake_change_fn change, void *arg);

#endif
