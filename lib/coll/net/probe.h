/* Private to lib/coll: is there a connection between two ranks? The part of tutti_coll_probe
 * (coll/engine.h) that packets and the end of the engine reach. Engine's thread. */
#ifndef TUTTI_COLL_NET_PROBE_H
#define TUTTI_COLL_NET_PROBE_H

#include "coll/coll.h"
#include "coll/packet/packet.h"

/* A REPORT about no group has come: the answer of a rank. Unknown ids are ignored: the probe is
 * over. */
void tutti_coll_probe_heard(tutti_coll_engine *engine, const tutti_packet *report);
/* End all probes at once with what they have: the engine stops. */
void tutti_coll_probes_end(tutti_coll_engine *engine);

#endif
