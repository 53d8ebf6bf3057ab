/* Private to lib/coll: ops of which a device has something. */
#ifndef TUTTI_COLL_ENGINE_DEVICE_PENDING_H
#define TUTTI_COLL_ENGINE_DEVICE_PENDING_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/backend.h"

const tutti_coll_backend *tutti_coll_backend_of(const tutti_coll_op *op);
unsigned tutti_coll_poll_devices(tutti_coll_engine *engine);
void tutti_coll_close_devices(const tutti_coll_engine_options *options);
void tutti_coll_forget_group(tutti_coll_group *group);
/* Where a send's or receive's bytes are for the transport: the tensor, or the stage of a device's.
 */
void *tutti_coll_stage_or(const tutti_coll_op *op, const void *data);
/* Is it time to fetch what is to be sent (false: it is here), or to store what came? On its way. */
tutti_code tutti_coll_fetch(tutti_coll_op *op, bool *ret_begun, tutti_error *err);
tutti_code tutti_coll_store(tutti_coll_op *op, bool *ret_begun, tutti_error *err);
/* Of a receive: where `size` bytes shall come. */
tutti_code tutti_coll_place(tutti_coll_op *op, size_t size, void **ret_data, tutti_error *err);

#endif
