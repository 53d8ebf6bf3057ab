/*
 * The services of an agent.
 */
#ifndef TUTTI_SERVER_AGENT_SERVICE_SERVICES_H
#define TUTTI_SERVER_AGENT_SERVICE_SERVICES_H

#include "server/agent/agent.h"

/*
 * Add a service to agent->server, before the server starts. TensorsService is served on the bulk
 * loop, all others on the control loop.
 */
void agent_add_tensors(tutti_agent *agent);     /* tensors_pb.c */
void agent_add_collectives(tutti_agent *agent); /* collectives_pb.c */
void agent_add_diagnostics(tutti_agent *agent); /* diagnostics_pb.c */
void agent_add_commands(tutti_agent *agent);    /* commands_pb.c */
void agent_add_tracers(tutti_agent *agent);     /* tracers_pb.c */
void agent_add_functions(tutti_agent *agent);   /* functions_pb.c */

/* End the leases that linger. When the loops have stopped. */
void agent_leases_close(tutti_agent *agent); /* lease_pb.c */

#endif
