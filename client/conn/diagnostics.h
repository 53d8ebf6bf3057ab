/* Private to client: what an agent says of itself. */
#ifndef TUTTI_CLIENT_CONN_DIAGNOSTICS_H
#define TUTTI_CLIENT_CONN_DIAGNOSTICS_H

#include "client/conn/client.h"

tutti_code client_wire_describe(tutti_client *client, uint64_t deadline_ns,
                                client_description *ret_description, tutti_error *err);
tutti_code client_wire_health(tutti_client *client, const char *service, uint64_t deadline_ns,
                              bool *ret_serving, tutti_error *err);

#endif
