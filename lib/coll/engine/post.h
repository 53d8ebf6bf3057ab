/* Private to lib/coll: how an op begins. */
#ifndef TUTTI_COLL_ENGINE_POST_H
#define TUTTI_COLL_ENGINE_POST_H

#include "coll/coll.h"

void tutti_coll_op_begin(tutti_coll_engine *engine, tutti_coll_item *item);

#endif
