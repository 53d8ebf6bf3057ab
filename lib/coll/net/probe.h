/* Private to lib/coll: is there a connection between two ranks? */
#ifndef TUTTI_COLL_NET_PROBE_H
#define TUTTI_COLL_NET_PROBE_H

#include "coll/coll.h"
#include "coll/packet/packet.h"

void tutti_coll_probe_heard(tutti_coll_engine *engine, const tutti_packet *report);
void tutti_coll_probes_end(tutti_coll_engine *engine); /* at once: we stop */

#endif
