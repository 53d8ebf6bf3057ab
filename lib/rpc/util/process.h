/* What a process has once of gRPC: that it was not forked, its clock, its marks for the thread
 * sanitizer. */
#ifndef TUTTI_RPC_UTIL_PROCESS_H
#define TUTTI_RPC_UTIL_PROCESS_H

#include <grpc/support/time.h>
#include <stdint.h>

#include "tutti/error.h"

/*
 * Tell the thread sanitizer that what was written before a batch is seen behind its event, and what
 * was written into a payload where it is released: it cannot look into gRPC. Nothing in other
 * builds.
 */
void rpc_tag_release(void *tag);
void rpc_tag_acquire(void *tag);

/*
 * gRPC does not survive fork(): not in the child, and not in the parent once the child has used it.
 *
 * TUTTI_FAILED_PRECONDITION  this process is not the one that called tutti_rpc_init
 */
tutti_code rpc_check_process(tutti_error *err);

/* tutti_clock_ns() and gRPC's monotonic clock are the same; NEVER is for ever. */
gpr_timespec rpc_time_to(uint64_t at_ns);
uint64_t rpc_time_from(gpr_timespec at);

#endif
