#include "server/agent/function/functions.h"

#include <stdlib.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/agent/function/builtins.h"
#include "server/agent/function/host.h"
#include "server/agent/function/module.h"
#include "server/agent/function/python.h"
#include "server/agent/state/state.h"

/* shutdown.c has waited for the functions before: threads without one only have to be scheduled. */
#define IDLE_NS (30 * TUTTI_NS_PER_S)
#define GIVEN_UP_NS (200 * TUTTI_NS_PER_MS)

tutti_code
agent_functions_open(tutti_agent *agent, tutti_error *err)
{
    agent_functions *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for functions");
    }
    agent->functions = self;
    self->agent = agent;
    agent_registry_init(&self->registry);
    tutti_list_init(&self->calls);
    tutti_list_init(&self->loads);
    tutti_list_init(&self->hosts);
    tutti_list_init(&self->imports);
    tutti_map_init(&self->scopes);
    tutti_map_init(&self->modules);
    TUTTI_TRY(agent_pool_new((uint32_t)agent->options->function_threads, &self->pool, err));
    TUTTI_TRY(agent_builtins_add(&self->registry, err));
    TUTTI_TRY(agent_plugins_load(agent, err));
    return agent_python_open(agent, err);
}

uint32_t
agent_functions_live(const tutti_agent *agent)
{
    const agent_functions *self = agent->functions;

    return self == NULL ? 0 : self->call_count + self->load_count;
}

void
agent_functions_count(const tutti_agent *agent, agent_function_counts *ret)
{
    const agent_functions *self = agent->functions;
    const tutti_list_node *link;

    *ret = (agent_function_counts){.functions = self->registry.by_name.count,
                                   .hosts = self->host_count};
    for (link = self->calls.next; link != &self->calls; link = link->next) {
        if (tutti_container_of(link, agent_function_call, link)->state == AGENT_FUNCTION_RUNNING) {
            ret->running++;
        } else {
            ret->waiting++;
        }
    }
}

void
agent_functions_describe(const tutti_agent *agent, tutti_text *text)
{
    const tutti_list_node *calls = &agent->functions->calls;
    const tutti_list_node *link;

    for (link = calls->next; link != calls; link = link->next) {
        const agent_function_call *call = tutti_container_of(link, agent_function_call, link);

        if (call->state == AGENT_FUNCTION_RUNNING) {
            tutti_text_add(text, "%s%s", text->used == 0 ? "" : ", ", call->function_name);
        }
    }
}

void
agent_functions_start(tutti_agent *agent)
{
    agent_python_start(agent);
}

void
agent_functions_drain(tutti_agent *agent)
{
    agent_python_stop(agent);
}

bool
agent_functions_close(tutti_agent *agent)
{
    agent_functions *self = agent->functions;
    const uint64_t limit_ns = agent->functions_given_up ? GIVEN_UP_NS : IDLE_NS;

    if (self == NULL) {
        return true;
    }
    if (self->pool != NULL && !agent_pool_close(self->pool, tutti_clock_ns() + limit_ns)) {
        return false;
    }
    agent_python_close(agent);
    agent_modules_free(agent);
    agent_registry_fini(&self->registry);
    free(self);
    agent->functions = NULL;
    return true;
}
