/*
 * Private to lib/coll: who is missing, when an op is late. Engine's thread.
 *
 * The deadline of a collective does not fail it at once: for INQUIRY_NS the op asks all members
 * where they stand, and the answers become the words of its error. A message that comes meanwhile
 * may still let the op succeed.
 */
#ifndef TUTTI_COLL_ENGINE_INQUIRY_H
#define TUTTI_COLL_ENGINE_INQUIRY_H

#include "coll/coll.h"
#include "coll/packet/packet.h"

#define INQUIRY_NS (100 * 1000000ULL) /* how long a late op asks who is missing */

/* The on_expiry of op->timer, at the deadline and once more when the time to answer is over. The op
 * may have failed and be released when it returns. */
void tutti_coll_on_deadline(tutti_timer *timer);
/* Answer a QUERY of a member, also about groups and ops that do not exist here. */
void tutti_coll_answer_query(tutti_coll_engine *engine, const tutti_packet *packet);
/* A member's answer. `words` come from another process. Ignored if this op does not ask, or the
 * member has answered. After the last answer the op has failed, and may be released. */
void tutti_coll_recv_report(tutti_coll_op *op, const tutti_packet *packet, const void *words,
                            size_t size);
/* Harmless when there is none. */
void tutti_coll_inquiry_free(tutti_coll_op *op);

#endif
