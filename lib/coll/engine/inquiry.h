/* Private to lib/coll: who is missing, when an op is late. */
#ifndef TUTTI_COLL_ENGINE_INQUIRY_H
#define TUTTI_COLL_ENGINE_INQUIRY_H

#include "coll/coll.h"
#include "coll/packet/packet.h"

#define INQUIRY_NS (100 * 1000000ULL) /* how long a late op asks who is missing */

void tutti_coll_on_deadline(tutti_timer *timer);
void tutti_coll_answer_query(tutti_coll_engine *engine, const tutti_packet *packet);
void tutti_coll_recv_report(tutti_coll_op *op, const tutti_packet *packet, const void *words,
                            size_t size);
void tutti_coll_inquiry_free(tutti_coll_op *op);

#endif
