/*
 * Private to lib/coll: working in each other's memory; ops that go on without a message. Engine's
 * thread.
 *
 * The yes-word: bit 0 = this rank can map the memory of every other member, above it the backend's
 * vote. Words travel with the agreement and are combined by AND (agree_round in coll/engine/op.c).
 */
#ifndef TUTTI_COLL_NET_EXPOSE_H
#define TUTTI_COLL_NET_EXPOSE_H

#include "coll/coll.h"
#include "coll/net/io.h"
#include "coll/transport.h"

/* This rank's yes-word. Asks the backend for its vote, so it is called once for an op, before the
 * agreement; it makes connections to members that may be on this host. */
uint64_t tutti_coll_own_word(tutti_coll_op *op);
/* AND what the last round of the agreement has brought into op->same_host. Harmless twice. */
void tutti_coll_set_same_host(tutti_coll_op *op);
/* The packet that tutti_coll_map waits for has come: op->views gets the mapping. Owns the rndv; the
 * io ends, so the op may go on. */
void tutti_coll_take_mapping(coll_io *io, tutti_transport_rndv *rndv);
/* Give back all that the op has mapped. `done`: its part of the work is done. */
void tutti_coll_unmap_all(tutti_coll_op *op, bool done);
/* An exposed region came back, and its borrower has not done its part. */
void tutti_coll_region_released(coll_io *io);
/* Let each op that called tutti_coll_again go on. Returns how many. */
unsigned tutti_coll_run_turns(tutti_coll_engine *engine);

#endif
