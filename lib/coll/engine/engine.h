/*
 * Private to lib/coll: the work of the engine, by its thread or by a poster; and where packets go.
 *
 * Everything here, but tutti_coll_progress_inline, is called by the holder of progress_lock.
 */
#ifndef TUTTI_COLL_ENGINE_ENGINE_H
#define TUTTI_COLL_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/coll.h"
#include "coll/packet/packet.h"
#include "coll/state/engine.h"
#include "coll/transport.h"

/*
 * One turn: inbox, transport, ops that asked for a turn, devices, timers, questions for peers.
 * Returns how much was done; 0 = nothing was ready, and the caller may sleep. The caller holds
 * progress_lock. Ops end and are released inside.
 */
unsigned tutti_coll_engine_step(tutti_coll_engine *engine);

/*
 * A poster that finds the engine asleep does its work, for TUTTI_COLL_INLINE_NS without progress at
 * most. Any thread, without locks; callbacks of ops run inside. Returns true if the engine's own
 * thread may sleep on; false: the caller wakes it (tutti_coll_engine_wake).
 */
#define TUTTI_COLL_INLINE_NS (400 * 1000ULL)
bool tutti_coll_progress_inline(tutti_coll_engine *engine);

/* ------------------------------------------------------------------------------ route */

/* The on_packet of the transport's events: `engine` is what was given to listen. The data is
 * borrowed until return; the rndv is now the engine's, which pulls or drops it. */
void tutti_coll_arrive(void *engine, const void *header, size_t header_size, const void *data,
                       size_t size, tutti_transport_rndv *rndv);

/* Was it sent by a process that has been replaced? */
bool tutti_coll_is_stale(tutti_coll_engine *engine, const tutti_packet *packet);

/* Route packets that waited once more: the event of events.h. */
void coll_route_replay(tutti_coll_engine *engine, tutti_list_node *where);

#endif
