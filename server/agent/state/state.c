/*
 * What every room asks of the agent. Control loop, but for agent_job and agent_addresses, which are
 * fixed once the agent serves.
 */
#include "server/agent/state/state.h"

#include "base/error/fail.h"
#include "server/agent/state/group.h"
#include "server/agent/state/op.h"

const char *
agent_job(const tutti_agent *agent)
{
    return agent->options->job;
}

size_t
agent_addresses(tutti_agent *agent, char *ret_addresses[TUTTI_ADDRESSES_MAX])
{
    size_t i;

    for (i = 0; i < agent->advertised_count; i++) {
        ret_addresses[i] = agent->advertised[i];
    }
    return agent->advertised_count;
}

/*
 * A draining agent is NOT_SERVING, so that load balancers send no more calls; those that come all
 * the same are refused with STOPPING.
 */
void
agent_say_serving(tutti_agent *agent)
{
    static const char *const services[] = {"",
                                           "tutti.v1.CollectivesService",
                                           "tutti.v1.TensorsService",
                                           "tutti.v1.TracersService",
                                           "tutti.v1.DiagnosticsService",
                                           "tutti.v1.CommandsService"};
    size_t i;

    for (i = 0; i < sizeof(services) / sizeof(services[0]); i++) {
        tutti_rpc_server_set_health(agent->server, services[i], !agent->draining);
    }
}

tutti_code
agent_check_open(const tutti_agent *agent, tutti_error *err)
{
    if (agent->state == AGENT_JOINING) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_JOINED",
                              "this agent has not joined its job yet: wait until it serves");
    }
    if (agent->state == AGENT_LEAVING || agent->draining) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING", "this agent is stopping");
    }
    return TUTTI_OK;
}

/*
 * Ops end in any order; what the coordinator wants is the number up to which all have ended. An op
 * of an older epoch has a number that means nothing now.
 */
uint64_t
agent_group_left(const agent_group *group)
{
    tutti_list_node *link;

    for (link = group->running.next; link != &group->running; link = link->next) {
        const agent_op *op = tutti_container_of(link, agent_op, link);

        if (op->op.sequence != 0 && op->op.epoch == group->epoch) {
            return op->op.sequence - 1;
        }
    }
    return group->entered;
}
