/* Calls that take a value, or wait until there is one. */
#ifndef TUTTI_SERVER_COORDINATOR_KV_TAKE_H
#define TUTTI_SERVER_COORDINATOR_KV_TAKE_H

#include "server/coordinator/coordinator.h"

void coord_takes_init(tutti_coordinator *self);
void coord_takes_fini(tutti_coordinator *self);

/* There is something to take: of a key, or of a tagged one, a queue. */
void coord_takes_wake(tutti_coordinator *self, tutti_bytes key);

#endif
