/* Clients of this machine that map tensors: memory of its own for each such tensor, and its end. */
#include "server/agent/state/share.h"

#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "tensor/host/host.h"

static void
on_over(void *owner)
{
    tutti_tensor_unref(owner);
}

static void
on_leave(void *arg, tutti_tensor *tensor)
{
    const tutti_agent *agent = arg;

    if (agent->share != NULL && tutti_tensor_is_own(tensor)) {
        tutti_share_revoke(agent->share, tensor);
    }
}

void
agent_share_open(tutti_agent *agent)
{
    const tutti_share_options options = {.shares_max = (uint32_t)agent->options->shares_max,
                                         .any_user = agent->options->share_any_user,
                                         .on_over = on_over};
    tutti_error err;

    if (agent->options->no_share) {
        return;
    }
    if (tutti_share_open(&options, &agent->share, &err) != TUTTI_OK) {
        TUTTI_LOG("agent", WARN, "clients cannot map tensors: %s", err.text);
        agent->share = NULL;
        return;
    }
    tutti_table_on_leave(agent->table, on_leave, agent);
}

void
agent_share_close(tutti_agent *agent)
{
    if (agent->share != NULL) {
        tutti_space_host_on_gone(agent->space, NULL, NULL); /* the loops have stopped */
    }
    tutti_share_close(agent->share);
    agent->share = NULL;
}

/* ------------------------------------------------------------------------------ the data plane */

/* Control loop: peers that have it mapped let go of it, though nothing else happens. */
static void
run_gone(tutti_rpc_task *task)
{
    tutti_agent *agent = tutti_container_of(task, tutti_agent, gone_task);

    atomic_store(&agent->gone_posted, false);
    if (agent->engine != NULL) {
        tutti_coll_engine_wake(agent->engine);
    }
}

static void
on_gone(void *arg)
{
    tutti_agent *agent = arg;

    if (!atomic_exchange(&agent->gone_posted, true)) {
        agent->gone_task.on_run = run_gone;
        tutti_rpc_loop_post(agent->control, &agent->gone_task);
    }
}

static bool
find_region(void *arg, const void *data, uint64_t size, tutti_transport_shm_region *ret)
{
    tutti_space_host_region region;

    if (!tutti_space_host_find(arg, data, size, &region)) {
        return false;
    }
    *ret = (tutti_transport_shm_region){region.id, region.fd, region.base, region.size};
    return true;
}

static uint64_t
regions_gone(void *arg)
{
    return tutti_space_host_gone(arg);
}

void
agent_share_expose(tutti_agent *agent, tutti_transport_shm_options *options)
{
    if (agent->share == NULL) {
        return; /* no tensor has memory of its own */
    }
    options->find_region = find_region;
    options->regions_gone = regions_gone;
    options->arg = agent->space;
    tutti_space_host_on_gone(agent->space, on_gone, agent);
}

/* ------------------------------------------------------------------------------ offers */

/* It keeps a descriptor and a mapping for its life, also when nobody has it mapped any more. */
static tutti_code
check_own(tutti_agent *agent, const tutti_tensor *tensor, tutti_error *err)
{
    if (tutti_space_host_owned(agent->space) >= agent->options->shares_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SHARE_LIMIT",
                              "%" PRIu64 " tensors are, or were, shared, as many as may be: delete "
                              "some of these, or raise --shares-max",
                              agent->options->shares_max);
    }
    return tutti_tensor_can_own(tensor, err);
}

/*
 * Who holds a reference without a use, a tape say, may read the bytes at any time: then they stay
 * where they are, and the handle gets a copy.
 */
static tutti_code
make_own(tutti_agent *agent, const tutti_lock *lock, tutti_tensor **ret_tensor, tutti_error *err)
{
    tutti_tensor *tensor = tutti_table_tensor(agent->table, lock);
    tutti_tensor *copy = NULL;
    tutti_code code;

    *ret_tensor = tensor;
    if (tutti_tensor_is_own(tensor)) {
        return TUTTI_OK;
    }
    code = check_own(agent, tensor, err);
    if (code == TUTTI_OK && !tutti_tensor_is_shared(tensor)) {
        return tutti_tensor_own(tensor, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_tensor_new(agent->space, &tensor->spec, false, &copy, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    code = tutti_tensor_own(copy, err);
    if (code != TUTTI_OK) {
        tutti_tensor_unref(copy);
        return code;
    }
    memcpy(copy->data, tensor->data, (size_t)tensor->bytes);
    tutti_table_replace(agent->table, lock, copy);
    *ret_tensor = copy;
    return TUTTI_OK;
}

tutti_code
agent_share_tensor(tutti_agent *agent, const tutti_lock *lock, bool writable,
                   agent_shared *ret_shared, tutti_error *err)
{
    tutti_tensor *tensor = NULL;
    tutti_share_item item;
    tutti_code code = tutti_table_check(agent->table, lock, err);

    if (code == TUTTI_OK) {
        code = make_own(agent, lock, &tensor, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    item = (tutti_share_item){.fd = tutti_tensor_descriptor(tensor),
                              .bytes = tensor->bytes,
                              .writable = writable,
                              .owner = tensor};
    tutti_tensor_ref(tensor); /* until on_over */
    code = tutti_share_offer(agent->share, &item, ret_shared->token, err);
    if (code != TUTTI_OK) {
        tutti_tensor_unref(tensor);
        return code;
    }
    ret_shared->socket = tutti_share_socket(agent->share);
    return TUTTI_OK;
}
