/*
 * Puts the rooms together: opens them in their order, fills the table of hooks, starts serving, and
 * frees all in the end. How an agent ends while it runs is in shutdown.c.
 *
 * tutti_agent_new runs on main's thread before any loop runs, so nothing here needs a lock. If a
 * room fails to open, tutti_agent_free closes those before it: every close is fine on what was not
 * opened, as the struct is zeroed.
 */
#include "server/agent/agent.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/local.h"
#include "base/os/log.h"
#include "base/os/process.h"
#include "coll/fault_inject/fault_inject.h"
#include "coll/host/host.h"
#include "coll/self/self.h"
#include "coll/shm/shm.h"
#include "coll/transport_auth/transport_auth.h"
#include "lane_offer/lane_offer.h"
#include "server/agent/autograd/backward.h"
#include "server/agent/autograd/recording.h"
#include "server/agent/autograd/tape.h"
#include "server/agent/function/functions.h"
#include "server/agent/member/member.h"
#include "server/agent/member/partition.h"
#include "server/agent/op/answers.h"
#include "server/agent/op/op.h"
#include "server/agent/op/sync.h"
#include "server/agent/op/works.h"
#include "server/agent/record/progress.h"
#include "server/agent/service/services.h"
#include "server/agent/service/transfer.h"
#include "server/agent/session/sessions.h"
#include "server/agent/shutdown.h"
#include "server/agent/state/algorithms.h"
#include "server/agent/state/clients.h"
#include "server/agent/state/coordinator_channel.h"
#include "server/agent/state/data_plane.h"
#include "server/agent/state/device.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/lanes.h"
#include "server/agent/state/share.h"
#include "server/agent/state/state.h"
#include "server/agent/state/trim.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"
#include "tensor/host/host.h"
#include "tutti/version.h"

extern const unsigned char tutti_descriptor_set[];
extern const size_t tutti_descriptor_set_size;

/* ------------------------------------------------------------------------------ who we are */

static void
read_host(tutti_agent *agent)
{
    if (agent->options->host[0] != '\0') {
        (void)snprintf(agent->host, sizeof(agent->host), "%s", agent->options->host);
    } else if (gethostname(agent->host, sizeof(agent->host) - 1) != 0) {
        (void)snprintf(agent->host, sizeof(agent->host), "localhost");
    }
    tutti_local_host_id(agent->options->host_id, agent->host_id);
}

/*
 * An agent that listens on all interfaces has no single address: clients are told the host's name.
 */
static void
advertise_agent(tutti_agent *agent, const tutti_address *address)
{
    char *text = agent->advertised[agent->advertised_count++];
    const bool any = strcmp(address->host, "0.0.0.0") == 0 || strcmp(address->host, "::") == 0;

    if (any) {
        (void)snprintf(text, TUTTI_ADDRESS_MAX, "%.120s:%u", agent->host, (unsigned)address->port);
    } else {
        memcpy(text, address->text, TUTTI_ADDRESS_MAX);
    }
}

static tutti_code
read_addresses(tutti_agent *agent, tutti_error *err)
{
    tutti_address stated[TUTTI_ADDRESSES_MAX];
    const tutti_address *addresses;
    size_t count = 0;
    tutti_code code = TUTTI_OK;
    size_t i;

    if (agent->options->advertise[0] != '\0') {
        code = tutti_address_parse_list(agent->options->advertise, stated, &count, err);
        addresses = stated;
    } else {
        addresses = tutti_rpc_server_addresses(agent->server, &count);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        advertise_agent(agent, &addresses[i]);
    }
    return code;
}

/* Where clients reach it, as the coordinator says where it listens. */
static void
say_addresses(const tutti_agent *agent)
{
    char words[1024];
    tutti_text text = tutti_text_in(words, sizeof(words));
    size_t i;

    for (i = 0; i < agent->advertised_count; i++) {
        tutti_text_add(&text, "%s%s", i == 0 ? "" : ", ", agent->advertised[i]);
    }
    TUTTI_LOG("agent", INFO, "version %s serves at %s", TUTTI_VERSION, words);
}

/* ------------------------------------------------------------------------------ opening */

/* The thread that runs the engine: it needs the addresses of ranks. */
typedef struct need {
    tutti_rpc_task task;
    tutti_agent *agent;
    size_t count;
    uint32_t ranks[];
} need;

/*
 * Control loop. An agent that is not joined has nobody to ask, and the engine will need the ranks
 * again when ops are posted.
 */
static void
run_need(tutti_rpc_task *task)
{
    need *self = tutti_container_of(task, need, task);

    if (self->agent->state == AGENT_JOINED) {
        agent_wire_lookup(self->agent, self->ranks, self->count, 0);
    }
    free(self);
}

/*
 * The thread that runs the engine: lookups are the control loop's, so it is posted. Without memory
 * the ops that need the ranks end by their deadlines.
 */
static void
on_need_peers(void *arg, const uint32_t *ranks, size_t count)
{
    tutti_agent *agent = arg;
    need *self = malloc(sizeof(*self) + count * sizeof(*ranks));

    if (self == NULL) {
        TUTTI_LOG("agent", ERROR, "no memory to ask for %zu ranks", count);
        return;
    }
    *self = (need){.task.on_run = run_need, .agent = agent, .count = count};
    memcpy(self->ranks, ranks, count * sizeof(*ranks));
    tutti_rpc_loop_post(agent->control, &self->task);
}

static uint64_t
on_stood_still(void *arg)
{
    return agent_stood_still_ns(arg);
}

/*
 * Transports are stacked: what carries packets between hosts lies at the bottom, faults of tests on
 * it, then authentication, and shared memory on top, which passes on what is not for this host.
 * Faults lie below authentication, so a damaged packet is refused as one on a wire would be. Each
 * open takes the one below, also when it fails.
 */
static tutti_code
open_engine(tutti_agent *agent, tutti_error *err)
{
    tutti_coll_engine_options options = {.backend = &tutti_coll_host,
                                         .self_backend = &tutti_coll_self,
                                         .on_need_peers = on_need_peers,
                                         .stood_still_ns = on_stood_still,
                                         .arg = agent};
    tutti_transport_shm_options shm = {.off = agent->options->no_shm, .host_id = agent->host_id};

    TUTTI_TRY(agent_algorithms_open(agent, err));
    TUTTI_TRY(tutti_fault_open(getenv("TUTTI_CHAOS"), err));
    TUTTI_TRY(tutti_agent_data_plane_open(agent->options, agent->server_options->listen, &shm.inner,
                                          err));
    if (tutti_fault_is_on()) {
        TUTTI_TRY(tutti_transport_fault_open(shm.inner, &shm.inner, err));
    }
    TUTTI_TRY(tutti_transport_auth_open(shm.inner, agent->incarnation, &shm.inner, err));
    shm.memory = tutti_space_host_descriptor(agent->space);
    shm.base = tutti_space_host_memory(agent->space, &shm.size);
    agent_share_expose(agent, &shm);
    TUTTI_TRY(tutti_transport_shm_open(&shm, &options.transport, err));
    agent_devices_backends(agent, options.devices);
    options.backend_arg = agent->selector;
    return tutti_coll_engine_start(&options, &agent->engine, err);
}

static tutti_code
open_memory(tutti_agent *agent, tutti_error *err)
{
    const uint64_t limit = agent->options->memory_limit;
    const tutti_space_host_options options = {.limit_bytes =
                                                  limit != 0 ? limit : tutti_process_memory() / 2};
    tutti_code code = tutti_space_host_open(&options, &agent->space, err);

    code = code == TUTTI_OK ? agent_devices_open(agent, err) : code;
    if (code == TUTTI_OK) {
        code = tutti_table_new(agent->incarnation, (uint32_t)agent->options->handles_max,
                               &agent->table, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_tapes_new((uint32_t)agent->options->tracers_max,
                               (uint32_t)agent->options->tape_max, &agent->tapes, err);
    }
    return code == TUTTI_OK ? agent_dump_open(agent, err) : code;
}

/*
 * The server drains: no new calls, and those that wait must end. Control loop. The engine's refusal
 * fails what runs on all ranks, which ends async ops and calls that wait for their tensors; Waits
 * and Syncs are ended here.
 */
static void
on_drain(void *arg)
{
    tutti_agent *agent = arg;

    tutti_coll_engine_refuse(agent->engine); /* ends async ops, and who waits for their tensors */
    agent_works_drain(agent);
    agent_sync_drain(agent);
    agent_functions_drain(agent);
}

static tutti_code
open_services(tutti_agent *agent, tutti_error *err)
{
    TUTTI_TRY(agent_open_channel(agent, err));

    TUTTI_TRY(tutti_rpc_server_new(agent->server_options,
                                   (tutti_bytes){tutti_descriptor_set, tutti_descriptor_set_size},
                                   agent->control, &agent->server, err));
    agent_add_tensors(agent);
    agent_add_collectives(agent);
    agent_add_diagnostics(agent);
    agent_add_commands(agent);
    agent_add_tracers(agent);
    agent_add_functions(agent);
    agent_add_sessions(agent);
    agent_lanes_open(agent);
    tutti_rpc_server_on_drain(agent->server, on_drain, agent);
    return open_engine(agent, err);
}

static tutti_code
check_options(const tutti_agent_options *options, tutti_error *err)
{
    uint64_t rank = 0;

    TUTTI_TRY(tutti_check_name(options->job, "job", err));

    if (options->rank[0] != '\0') {
        TUTTI_TRY(tutti_parse_uint(options->rank, TUTTI_RANKS_MAX - 1, &rank, err));
    }
    return TUTTI_OK;
}

static const struct agent_hooks hooks_of_rooms = {
    .check_begin = agent_check_begin,
    .tell_progress = agent_beat_now,
    .launch = agent_op_launch,
    .end_early = agent_op_end_early,
    .record_take = agent_recording_take,
    .record_begin = agent_recording_begin,
    .record_list = agent_recording_list,
    .record_pack = agent_recording_pack,
    .record_unpack = agent_recording_unpack,
    .record_computed = agent_recording_computed,
    .record_end = agent_recording_end,
    .op_ended = agent_walks_op_ended,
    .place_reached = agent_backward_on_slot_reached,
    .answer_upload = agent_answer_upload,
    .write_download = agent_write_download,
    .give_up = agent_give_up,
    .op_over = agent_stop_look,
    .announced = agent_announced,
    .rank_lost = agent_sessions_lose_rank,
    .seat_lost = agent_sessions_lose_seat,
};

tutti_code
tutti_agent_new(const tutti_agent_options *options, const tutti_rpc_server_options *server_options,
                tutti_rpc_loop *control, tutti_rpc_loop *bulk, tutti_agent **ret_agent,
                tutti_error *err)
{
    tutti_agent *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the agent");
    }
    self->options = options;
    self->hooks = &hooks_of_rooms;
    self->server_options = server_options;
    self->control = control;
    self->bulk = bulk;
    self->incarnation = tutti_id_draw();
    tutti_map_init(&self->groups);
    agent_answers_init(self);
    agent_events_init(&self->events);
    agent_clients_init(&self->clients, options->client_ops_max);
    tutti_list_init(&self->coordinator_requests);
    tutti_list_init(&self->ops);
    tutti_list_init(&self->syncs);
    tutti_list_init(&self->leases);
    tutti_list_init(&self->backwards);
    tutti_list_init(&self->sessions);
    read_host(self);
    code = check_options(options, err);
    if (code == TUTTI_OK) {
        code = open_memory(self, err);
    }
    if (code == TUTTI_OK) {
        agent_share_open(self);
        code = agent_works_open(self, err);
    }
    if (code == TUTTI_OK) {
        code = agent_parts_open(self, err);
    }
    if (code == TUTTI_OK) {
        code = agent_member_open(self, err);
    }
    if (code == TUTTI_OK) {
        code = agent_functions_open(self, err);
    }
    if (code == TUTTI_OK) {
        code = open_services(self, err);
    }
    if (code != TUTTI_OK) {
        tutti_agent_free(self);
        return code;
    }
    *ret_agent = self;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ start, end */

static void
run_start(tutti_rpc_task *task)
{
    tutti_agent *agent = tutti_container_of(task, tutti_agent, start_task);

    agent_trim_start(agent);
    agent_functions_start(agent);
    agent_member_start(agent);
}

/*
 * The server listens before the job is joined: other calls are refused with NOT_JOINED, and health
 * says so. Its addresses are known only now, and Join tells them.
 */
tutti_code
tutti_agent_start(tutti_agent *agent, tutti_error *err)
{
    assert(agent->on_end != NULL);
    TUTTI_TRY(tutti_rpc_server_start(agent->server, err));

    TUTTI_TRY(read_addresses(agent, err));
    say_addresses(agent);
    agent->start_task.on_run = run_start;
    tutti_rpc_loop_post(agent->control, &agent->start_task);
    return TUTTI_OK;
}

void
tutti_agent_on_end(tutti_agent *agent, void (*on_end)(void *arg, const tutti_error *err), void *arg)
{
    agent->on_end = on_end;
    agent->on_end_arg = arg;
}

/*
 * Both loops have stopped, so no callback can come. The order is that of use: the engine before the
 * memory that its ops use, answers and tapes before the table and the spaces whose tensors they
 * hold.
 */
void
tutti_agent_free(tutti_agent *agent)
{
    if (agent == NULL) {
        return;
    }
    tutti_rpc_server_free(agent->server);
    tutti_lane_offers_close(agent->lanes);
    tutti_coll_engine_stop(agent->engine); /* NULL when it has been stopped */
    tutti_rpc_channel_close(agent->coordinator);
    agent_member_close(agent);
    if (!agent_functions_close(agent)) {
        return; /* a function runs on in what is left of it, until the process ends */
    }
    agent_works_close(agent);
    agent_parts_close(agent);
    agent_answers_fini(agent);
    tutti_tapes_free(agent->tapes);
    agent_dump_close(agent);
    agent_leases_close(agent);
    agent_clients_fini(&agent->clients);
    agent_share_close(agent);
    tutti_table_free(agent->table);
    agent_devices_close(agent);
    agent_events_fini(&agent->events);
    tutti_space_close(agent->space);
    tutti_selector_free(agent->selector);
    free(agent);
}
