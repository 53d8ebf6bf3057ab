/* Private to client: init addresses (file://, tutti://, env://) become addresses of agents. */
#ifndef TUTTI_CLIENT_CONN_INIT_H
#define TUTTI_CLIENT_CONN_INIT_H

#include <stdint.h>

#include "tutti/client.h"

/*
 * Where the settings name an init address instead of an agent: wait for its file and for its rank,
 * and put the agent's address, and the coordinator's, in its place. Else nothing.
 *
 * [out] ret_world_size  what the address says; 0 = it is none
 *
 * TUTTI_INVALID_ARGUMENT   BAD_URL
 * TUTTI_DEADLINE_EXCEEDED  NOT_JOINED: the file or the rank did not come in time, and why
 */
tutti_code client_init_find(tutti_client *client, uint32_t *ret_world_size, tutti_error *err);

/* TUTTI_INVALID_ARGUMENT  WORLD_SIZE: the job has another */
tutti_code client_init_check(const tutti_client *client, uint32_t world_size, tutti_error *err);

#endif
