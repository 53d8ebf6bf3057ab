/* Private to lib/coll: working in each other's memory. */
#ifndef TUTTI_COLL_NET_EXPOSE_H
#define TUTTI_COLL_NET_EXPOSE_H

#include "coll/coll.h"
#include "coll/net/io.h"
#include "coll/transport.h"

uint64_t tutti_coll_own_word(tutti_coll_op *op);  /* what this rank says yes to */
void tutti_coll_set_same_host(tutti_coll_op *op); /* what a round of the agreement brought */
void tutti_coll_take_mapping(coll_io *io, tutti_transport_rndv *rndv);
void tutti_coll_unmap_all(tutti_coll_op *op, bool done);
void tutti_coll_region_released(coll_io *io); /* its ticket is back */
unsigned tutti_coll_run_turns(tutti_coll_engine *engine);

#endif
