/*
 * Tensors that clients of this machine have mapped: each gets a memfd of its own, and peers and
 * clients hear when it goes. docs/decisions/0015.
 *
 * Threads. agent_share_tensor runs under the tensor's exclusive lock, on the loop that answers
 * Share, so nobody is in the memory while it moves. on_leave runs on any thread that lets go of a
 * tensor, on_gone on the thread that has freed such memory, on_over on any thread when an offer is
 * over: the reference that it drops keeps the memory from being used again while a client has it
 * mapped.
 */
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
    tutti_tensor_let_go(owner, TUTTI_HOLDER_MAPPING);
    tutti_tensor_unref(owner);
}

/* The handle is deleted and no call uses the tensor: clients that have it mapped are told. */
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

/* on_gone posts to a loop that does not run any more, so it is taken away first. */
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

/*
 * Control loop: the engine tells peers that have the memory mapped; without this wake-up an idle
 * engine would tell them only with its next op.
 */
static void
run_gone(tutti_rpc_task *task)
{
    tutti_agent *agent = tutti_container_of(task, tutti_agent, gone_task);

    atomic_store(&agent->gone_posted, false);
    if (agent->engine != NULL) {
        tutti_coll_engine_wake(agent->engine);
    }
}

/*
 * gone_posted keeps the task from being posted twice, which a loop does not allow. run_gone clears
 * it before it wakes the engine, so memory that goes meanwhile posts again.
 */
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

/*
 * A tensor with memory of its own keeps a descriptor and a mapping for its life, also when nobody
 * has it mapped any more; so such tensors are limited, not only the mappings.
 */
static tutti_code
check_own(tutti_agent *agent, const tutti_tensor *tensor, tutti_error *err)
{
    if (tutti_space_host_owned(agent->space) >= agent->options->shares_max) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_RESOURCE_EXHAUSTED, "SHARE_LIMIT",
            "%" PRIu64
            " tensors are or were shared, the limit: delete some of them, or raise --shares-max",
            agent->options->shares_max);
    }
    return tutti_tensor_can_own(tensor, err);
}

/*
 * The tensor moves to memory of its own. A reference without a lock (a tape's) may read the bytes
 * at any time, so such a tensor stays where it is, and the handle gets a copy.
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

/* The reference belongs to the offer, and on_over gives it back. */
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
    tutti_tensor_hold(tensor, TUTTI_HOLDER_MAPPING);
    code = tutti_share_offer(agent->share, &item, ret_shared->token, err);
    if (code != TUTTI_OK) {
        on_over(tensor);
        return code;
    }
    ret_shared->socket = tutti_share_socket(agent->share);
    return TUTTI_OK;
}

tutti_code
agent_share_check_host(const tutti_agent *agent, const char *host_id, tutti_error *err)
{
    if (host_id[0] != '\0' && strcmp(host_id, agent->host_id) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "OTHER_HOST",
                              "the agent is on host %.100s, the caller on %.100s: they share no "
                              "memory",
                              agent->host_id, host_id);
    }
    return TUTTI_OK;
}
