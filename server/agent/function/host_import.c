/* Importing: a host is asked for a module of its language. Control loop. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "server/agent/function/functions.h"
#include "server/agent/function/host.h"
#include "server/agent/state/state.h"

/* A call of ImportModule that waits for a host. */
typedef struct import {
    tutti_list_node link; /* in functions->imports */
    agent_host *host;
    uint64_t number;
    tutti_rpc_call *rpc; /* [ref] */
    agent_import_fn answer;
    bool answered;   /* nobody waits any more */
    tutti_error why; /* the first host's that could not; code OK = none yet */
    char module[AGENT_FUNCTION_NAME_MAX + 1];
} import;

/* The first one behind `after` that can import; NULL = from the beginning, or there is none. */
static agent_host *
find_importer(const tutti_agent *agent, const agent_host *after)
{
    const tutti_list_node *hosts = &agent->functions->hosts;
    tutti_list_node *link;

    for (link = after == NULL ? hosts->next : after->link.next; link != hosts; link = link->next) {
        agent_host *host = tutti_container_of(link, agent_host, link);

        if (host->imports && !host->closed) {
            return host;
        }
    }
    return NULL;
}

static void
end_import(import *self, agent_function *const *functions, size_t count, const tutti_error *err)
{
    tutti_list_remove(&self->link);
    if (!self->answered) {
        self->answer(self->rpc, functions, count, err);
    }
    tutti_rpc_call_unref(self->rpc);
    free(self);
}

static void
on_import_cancel(tutti_rpc_call *rpc, void *arg)
{
    import *self = tutti_rpc_call_user(rpc);
    tutti_error err;

    (void)arg;
    (void)TUTTI_FAIL_FOR(&err, TUTTI_CANCELLED, "CALLER_GONE", "the call was given up");
    self->answered = true;
    self->answer(rpc, NULL, 0, &err);
}

static tutti_code
check_import(const tutti_agent *agent, const char *module, agent_host **ret_host, tutti_error *err)
{
    if (!agent_function_is_name(module, AGENT_FUNCTION_NAME_MAX) ||
        !agent_host_allows(agent, module)) {
        return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "NOT_ALLOWED",
                              "module \"%.100s\" is not under one of --functions", module);
    }
    *ret_host = find_importer(agent, NULL);
    if (*ret_host == NULL) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_NOT_FOUND, "NO_HOST",
            "no host that can import modules is connected to this agent: start it "
            "with --python, or serve from a program");
    }
    return TUTTI_OK;
}

static void
ask_host(import *self, agent_host *host)
{
    self->host = host;
    self->number = ++host->last_number;
    host->wire->import(host, self->number, self->module);
}

void
agent_host_import(tutti_agent *agent, tutti_rpc_call *rpc, const char *module,
                  agent_import_fn answer)
{
    agent_host *host = NULL;
    import *self = NULL;
    tutti_error err;

    if (check_import(agent, module, &host, &err) == TUTTI_OK) {
        self = calloc(1, sizeof(*self));
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for an import");
    }
    if (self == NULL) {
        answer(rpc, NULL, 0, &err);
        return;
    }
    self->rpc = rpc;
    self->answer = answer;
    (void)snprintf(self->module, sizeof(self->module), "%s", module);
    tutti_list_init(&self->link);
    tutti_list_add(&agent->functions->imports, &self->link);
    tutti_rpc_call_ref(rpc);
    tutti_rpc_call_set_user(rpc, self);
    tutti_rpc_call_on_cancel(rpc, on_import_cancel);
    ask_host(self, host);
}

static import *
find_import(const agent_host *host, uint64_t number)
{
    const tutti_list_node *imports = &host->agent->functions->imports;
    tutti_list_node *link;

    for (link = imports->next; link != imports; link = link->next) {
        import *self = tutti_container_of(link, import, link);

        if (self->host == host && self->number == number) {
            return self;
        }
    }
    return NULL;
}

/* Its functions are callable from now on, and told. */
static void
take_import(import *self, const agent_host_function *functions, size_t count)
{
    agent_function **found = calloc(count + 1, sizeof(*found));
    tutti_error err;
    size_t i;

    if (found == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for functions");
        end_import(self, NULL, 0, &err);
        return;
    }
    if (agent_host_offer(self->host, functions, count, &err) != TUTTI_OK) {
        end_import(self, NULL, 0, &err);
        free(found);
        return;
    }
    for (i = 0; i < count; i++) {
        found[i] = agent_registry_find(&self->host->agent->functions->registry, functions[i].name);
    }
    TUTTI_LOG("agent", INFO, "host %s has imported %s: %zu functions", self->host->name,
              self->module, count);
    end_import(self, found, count, NULL);
    free(found);
}

/*
 * One after the other, and not all at once: two hosts that have imported the same module would offer
 * the same names. A host that is lost by an import is not followed by others (imports_fail), which
 * would be lost the same way. What the first one said is told: the operator began with it.
 */
static void
refuse_import(import *self, const tutti_error *failure)
{
    agent_host *host = self->host;
    agent_host *next = self->answered ? NULL : find_importer(host->agent, host);

    if (self->why.code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(&self->why, TUTTI_FAILED_PRECONDITION, "IMPORT_FAILED",
                             "host %s cannot import %s: %.700s", host->name, self->module,
                             failure->text);
    }
    if (next != NULL) {
        ask_host(self, next);
    } else {
        end_import(self, NULL, 0, &self->why);
    }
}

tutti_code
agent_host_imported(agent_host *host, uint64_t request, const agent_host_function *functions,
                    size_t count, const tutti_error *failure, tutti_error *err)
{
    import *self = find_import(host, request);

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ORDER",
                              "import %" PRIu64 ": this host was not asked for it", request);
    }
    if (failure == NULL) {
        take_import(self, functions, count);
        return TUTTI_OK;
    }
    refuse_import(self, failure);
    return TUTTI_OK;
}

void
agent_host_imports_fail(agent_host *host, const tutti_error *err)
{
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &host->agent->functions->imports)
    {
        import *self = tutti_container_of(link, import, link);

        if (self->host == host) {
            end_import(self, NULL, 0, err);
        }
    }
}
