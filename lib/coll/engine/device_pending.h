/* Private to lib/coll: ops of which a device has something; which backend an op has. Engine's
 * thread, except tutti_coll_close_devices at the end. */
#ifndef TUTTI_COLL_ENGINE_DEVICE_PENDING_H
#define TUTTI_COLL_ENGINE_DEVICE_PENDING_H

#include <stdbool.h>
#include <stddef.h>

#include "coll/backend.h"

/* The backend of an op: device, self (a group of one) or host. Fixed from the post on. Static. */
const tutti_coll_backend *tutti_coll_backend_of(const tutti_coll_op *op);
/* Ask each device once; sets engine->device_ns to when the next one is due. Returns how much was
 * done. Ops go on, end and are released inside. */
unsigned tutti_coll_poll_devices(tutti_coll_engine *engine);
/* Close the devices of these options. May wait. After the transport is closed, or if there is no
 * engine. */
void tutti_coll_close_devices(const tutti_coll_engine_options *options);
/* Tell all devices that nothing shared with the members of this group can be used again: it ends,
 * or begins an epoch. */
void tutti_coll_forget_group(tutti_coll_group *group);
/* Where the transport finds the bytes of a Send or Recv: `data` itself, or the stage in host memory
 * of a device's tensor. Borrowed from the op. */
void *tutti_coll_stage_or(const tutti_coll_op *op, const void *data);
/* Copy what is to be sent from the device to the stage, or what came from the stage to the device.
 * *ret_begun: the copy runs, and the op goes on when poll finds it complete; false: there is
 * nothing to copy (any more). On failure nothing runs; the caller fails the op. */
tutti_code tutti_coll_fetch(tutti_coll_op *op, bool *ret_begun, tutti_error *err);
tutti_code tutti_coll_store(tutti_coll_op *op, bool *ret_begun, tutti_error *err);
/* Where the `size` bytes of a receive go: the output, or a new stage. TUTTI_RESOURCE_EXHAUSTED */
tutti_code tutti_coll_place(tutti_coll_op *op, size_t size, void **ret_data, tutti_error *err);

#endif
