/* Private to client: leases that are not the client's own (tutti_lease_open). Any thread. */
#ifndef TUTTI_CLIENT_TENSOR_LEASE_H
#define TUTTI_CLIENT_TENSOR_LEASE_H

#include <stdint.h>

#include "tutti/tensor.h"

/*
 * Open a lease that only calls which name it are under (client_call.lease). It ends with the program.
 *
 * [out, owned] ret_lease   client_lease_drop it
 * [out]        ret_number  of the agent
 */
tutti_code client_lease_take(tutti_client *client, tutti_lease **ret_lease, uint64_t *ret_number,
                             tutti_error *err);

void client_lease_drop(tutti_lease *lease); /* NULL is fine */

#endif
