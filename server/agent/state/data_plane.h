/* Data plane: what goes between hosts goes by TCP of our own or by UCX, and by whose word. */
#ifndef TUTTI_SERVER_AGENT_STATE_DATA_PLANE_H
#define TUTTI_SERVER_AGENT_STATE_DATA_PLANE_H

#include "coll/transport.h"

struct tutti_agent_options;

/* "tcp", "ucx", or what UCX may use. Borrowed from the options. [in] listen  as below */
const char *tutti_agent_data_plane_name(const struct tutti_agent_options *options,
                                        const char *listen);

/*
 * The interfaces on which the agents of other hosts are heard: those of --net-devices; without it
 * that of loopback when --listen serves this machine alone; "" = all. Borrowed.
 *
 * [in] listen  --listen, which was checked
 */
const char *tutti_agent_data_plane_devices(const struct tutti_agent_options *options,
                                           const char *listen);

/*
 * The wire between hosts: UCX when the options name it or what it may use, or when they say nothing
 * and there is RDMA here, which is not kept to loopback, or UCX_TLS in the environment; else
 * coll/tcp.
 *
 * [in] listen  as above
 *
 * TUTTI_FAILED_PRECONDITION  no such interface or transport, or the port is taken
 * TUTTI_INVALID_ARGUMENT     a port for UCX, which takes any
 */
tutti_code tutti_agent_data_plane_open(const struct tutti_agent_options *options,
                                       const char *listen, tutti_transport **ret_wire,
                                       tutti_error *err);

#endif
