/* Private to client: which of an agent's addresses to take. */
#ifndef TUTTI_CLIENT_CONN_ADDRESS_PICK_H
#define TUTTI_CLIENT_CONN_ADDRESS_PICK_H

#include <stdbool.h>
#include <stddef.h>

bool client_is_unix(const char *address);

/*
 * Of an agent's addresses the one to take from here: its Unix socket where host ids are alike and
 * the socket is there, else the first that is none. Borrows from them; "" = there are none.
 */
const char *client_pick_address(char *const *addresses, size_t count, const char *host_id);

/* The same where it is known whether the agent is on this host. */
const char *client_pick_address_near(char *const *addresses, size_t count, bool near);

#endif
