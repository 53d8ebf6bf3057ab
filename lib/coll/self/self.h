/*
 * The self backend: groups of one rank, in host memory.
 *
 * It is also the example that docs/backend.md explains: the smallest backend that is complete.
 *
 * On one rank every collective is a copy of the input to the output, or nothing. An op that reduces
 * runs the reduction kernel on its one input, because that is more than a copy: PREMUL_SUM
 * multiplies, a BOOL becomes 0 or 1, a NaN becomes the one that coll/reduce promises. So the result
 * has the same bits as that of coll/host would have.
 *
 * The engine gives it all ops of groups of one rank (tutti_coll_engine_options.self_backend) but
 * those on a device. Nothing is chosen and nothing is sent, so no rule of coll/select names it;
 * `tutti explain` calls it "self".
 */
#ifndef TUTTI_COLL_SELF_SELF_H
#define TUTTI_COLL_SELF_SELF_H

#include "coll/backend.h"

extern const tutti_coll_backend tutti_coll_self;

#endif
