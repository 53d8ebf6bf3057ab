/*
 * Private to coll/host: which algorithm an op takes, and what the ranks have to know of each other
 * for that. The first op of a group that goes over messages learns which ranks share a host.
 */
#ifndef TUTTI_COLL_HOST_PICK_H
#define TUTTI_COLL_HOST_PICK_H

#include "coll/host/plan.h"
#include "coll/select/select.h"

/* Begin an op over messages. `learnt`: which ranks share a host was learnt just now. */
tutti_code tutti_coll_host_pick(tutti_coll_op *op, bool learnt, tutti_error *err);

/* What this rank says yes to: that it knows the hosts, and which selection it has. */
uint64_t tutti_coll_host_vote(tutti_coll_op *op);

/* May its data travel with the agreement? After the vote. Not before the hosts are known: an op by
 * messages learns them. */
bool tutti_coll_host_may_piggyback(const tutti_coll_op *op);

/* Note for tutti_coll_host_look which hosts are known, and whether all ranks choose alike. */
void tutti_coll_host_tell(const tutti_coll_op *op);

/* hosts.c: of the op's epoch; NULL = not known. [out] ret_count  hosts */
const uint32_t *tutti_coll_host_map(const tutti_coll_op *op, uint32_t *ret_count);

/* hosts.c: exchange where all are, then begin the op once more. */
tutti_code tutti_coll_host_learn(tutti_coll_op *op, host_start_fn then, tutti_error *err);

#endif
