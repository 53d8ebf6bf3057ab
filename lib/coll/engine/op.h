/* Private to lib/coll: what an op does next, and how it ends. The engine's thread. */
#ifndef TUTTI_COLL_ENGINE_OP_H
#define TUTTI_COLL_ENGINE_OP_H

#include <stdbool.h>

#include "coll/coll.h"
#include "coll/state/op.h"

/*
 * The events of events.h that ops have.
 *
 * run: nothing that the op waits for is in flight. It advances until something is, or to its end.
 * succeed: nothing is pending. fail: at any time; the first failure counts, later ones do nothing.
 * release: pending == 0 and ended, once. After each of them the op may be gone, except inside a
 * frame that has set op->held: then that frame releases it.
 */
void coll_op_run(tutti_coll_op *op);
void coll_op_succeed(tutti_coll_op *op);
void coll_op_fail(tutti_coll_op *op, const tutti_error *err, bool tell);
void coll_op_release(tutti_coll_op *op);

#endif
