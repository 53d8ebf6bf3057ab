/*
 * Coll: collectives over memory we can touch.
 *
 * An engine is one thread that runs the ops of one agent, any number of them at once, against the
 * engines of the other ranks. An op is posted on a group and ends by itself: with a result, or with
 * an error that every rank of the group gets. Nothing waits for ever: each op has a deadline.
 *
 * What happens to an op: its arguments become a signature; the ranks of the group exchange
 * signatures (agree.h); when they fit, a backend moves the data; else nobody's data is touched and
 * all get the same error. The words of an error name the ranks and what each of them called.
 *
 * Threads: functions here may be called from any thread. Callbacks run on the engine's thread, or
 * inside a post that finds the engine asleep and does its work; they must not block, and may post.
 */
#ifndef TUTTI_COLL_COLL_H
#define TUTTI_COLL_COLL_H

#include "coll/args.h"
#include "coll/engine.h"
#include "coll/group.h"

#endif
