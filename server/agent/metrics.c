/*
 * What an agent counts, as a page for /metrics. Control loop, which owns most of what is read here;
 * numbers that other threads count are atomic, and the page may have two of them from different
 * moments.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/os/clock.h"
#include "base/os/log.h"
#include "lane_offer/lane_offer.h"
#include "server/agent/agent.h"
#include "server/agent/function/functions.h"
#include "server/agent/op/works.h"
#include "server/agent/session/sessions.h"
#include "server/agent/state/counters.h"
#include "server/agent/state/device.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "share/share.h"

/* ------------------------------------------------------------------------------ the page */

static void
write_gauge(tutti_page *page, const char *name, const char *type, const char *help, uint64_t value)
{
    tutti_page_family(page, name, type, help);
    tutti_page_number(page, name, "", value);
}

static void
write_label(char ret_labels[TUTTI_PAGE_LABELS_MAX], size_t kind, const char *key, const char *value)
{
    tutti_page_labels(ret_labels,
                      (const char *const[]){"kind", tutti_coll_kind_name((tutti_coll_kind)kind),
                                            key, value, NULL});
}

static void
expose_counts(const agent_numbers *numbers, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    size_t kind;
    size_t code;

    tutti_page_family(page, "tutti_agent_ops_total", "counter",
                      "Ops that ended on this rank, by kind and by how they ended.");
    for (kind = 0; kind < AGENT_KINDS; kind++) {
        for (code = 0; code < AGENT_CODES; code++) {
            if (numbers->ops[kind][code] > 0) {
                write_label(labels, kind, "result", tutti_code_name((tutti_code)code));
                tutti_page_number(page, "tutti_agent_ops_total", labels, numbers->ops[kind][code]);
            }
        }
    }
}

static void
expose_bytes(const agent_numbers *numbers, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    size_t kind;

    tutti_page_family(page, "tutti_agent_op_bytes_total", "counter",
                      "Bytes that this rank gave to ops that succeeded.");
    for (kind = 0; kind < AGENT_KINDS; kind++) {
        if (tutti_meter_count(&numbers->op_durations[kind]) > 0) {
            write_label(labels, kind, NULL, NULL);
            tutti_page_number(page, "tutti_agent_op_bytes_total", labels, numbers->op_bytes[kind]);
        }
    }
}

static void
expose_durations(const agent_numbers *numbers, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    size_t kind;

    tutti_page_family(page, "tutti_agent_op_duration_seconds", "histogram",
                      "Time from the call to the end of an op, waiting for others included.");
    for (kind = 0; kind < AGENT_KINDS; kind++) {
        if (tutti_meter_count(&numbers->op_durations[kind]) > 0) {
            write_label(labels, kind, NULL, NULL);
            tutti_page_meter(page, "tutti_agent_op_duration_seconds", labels,
                             &numbers->op_durations[kind]);
        }
    }
}

static void
expose_seat(const tutti_agent *agent, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    char rank[16] = "";

    if (agent->state != AGENT_JOINING) {
        (void)snprintf(rank, sizeof(rank), "%" PRIu32, agent->rank);
    }
    tutti_page_labels(labels, (const char *const[]){"job", agent->options->job, "rank", rank,
                                                    "device", agent->options->device, NULL});
    tutti_page_family(page, "tutti_agent_info", "gauge", "Which seat this agent has; always 1.");
    tutti_page_number(page, "tutti_agent_info", labels, 1);
    write_gauge(page, "tutti_agent_joined", "gauge", "1 while it has a seat in its job.",
                agent->state == AGENT_JOINED);
    write_gauge(page, "tutti_agent_session_up", "gauge", "1 while the coordinator hears it.",
                agent->in_session);
    write_gauge(page, "tutti_agent_sessions_total", "counter", "Sessions the coordinator accepted.",
                agent->numbers.sessions);
    write_gauge(page, "tutti_agent_epoch", "gauge", "Epoch of the job as this agent knows it.",
                agent->epoch);
    write_gauge(page, "tutti_agent_world_size", "gauge", "Ranks of the job.", agent->world_size);
}

static const char *const memory_owners[TUTTI_HOLDERS] = {"registers", "tensors", "mapped", "ops",
                                                         "staged",    "results", "lent"};

/* Its sum is tutti_agent_memory_used_bytes. */
static void
expose_holders(const tutti_space_stats *space, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    size_t i;

    tutti_page_family(
        page, "tutti_agent_memory_bytes", "gauge",
        "Tensor memory in use, by what it is: registers of sessions, tensors with a handle, "
        "deleted ones that clients have mapped, what came with calls, results that go with "
        "answers, what is deleted and still lent to ops or ranks, and what ops make for "
        "themselves.");
    for (i = 0; i < TUTTI_HOLDERS; i++) {
        tutti_page_labels(labels, (const char *const[]){"owner", memory_owners[i], NULL});
        tutti_page_number(page, "tutti_agent_memory_bytes", labels, space->held_bytes[i]);
    }
    write_gauge(page, "tutti_agent_memory_kept_bytes", "gauge",
                "Free, but kept for new tensors for --memory-keep.", space->kept_bytes);
}

static void
expose_memory(tutti_agent *agent, tutti_page *page)
{
    tutti_space_stats space;

    tutti_space_stat(agent->space, &space);
    write_gauge(page, "tutti_agent_tensors", "gauge", "Tensors held.",
                tutti_table_count(agent->table));
    write_gauge(page, "tutti_agent_tensors_limit", "gauge", "Tensors it may hold (--handles-max).",
                agent->options->handles_max);
    write_gauge(page, "tutti_agent_lanes", "gauge",
                "Streams of clients of this host whose messages go through shared memory.",
                tutti_lane_offers_count(agent->lanes));
    write_gauge(page, "tutti_agent_lane_messages_total", "counter",
                "Messages of clients that came through shared memory.",
                tutti_lane_offers_messages(agent->lanes));
    write_gauge(page, "tutti_agent_shares", "gauge",
                "Tensors that clients have mapped, or may yet.",
                agent->share == NULL ? 0 : tutti_share_count(agent->share));
    write_gauge(page, "tutti_agent_memory_used_bytes", "gauge", "Tensor memory in use.",
                space.used_bytes);
    expose_holders(&space, page);
    write_gauge(page, "tutti_agent_memory_limit_bytes", "gauge", "Tensor memory there is.",
                space.limit_bytes);
    write_gauge(page, "tutti_agent_memory_largest_hole_bytes", "gauge",
                "The largest tensor that has room now.", space.hole_bytes_max);
    write_gauge(page, "tutti_agent_received_bytes_total", "counter",
                "Tensor bytes by Put and Upload.", agent->numbers.bytes_in);
    write_gauge(page, "tutti_agent_sent_bytes_total", "counter",
                "Tensor bytes by Get and Download.", agent->numbers.bytes_out);
}

static void
expose_gpus(tutti_agent *agent, tutti_page *page, bool limits)
{
    const char *name =
        limits ? "tutti_agent_gpu_memory_limit_bytes" : "tutti_agent_gpu_memory_used_bytes";
    char labels[TUTTI_PAGE_LABELS_MAX];
    tutti_space_stats space;
    size_t i;

    if (agent->devices.count > 0) {
        tutti_page_family(page, name, "gauge",
                          limits ? "Tensor memory there is on a GPU." : "Of that, in use.");
    }
    for (i = 0; i < agent->devices.count; i++) {
        const agent_device *device = &agent->devices.list[i];

        tutti_space_stat(device->space, &space);
        tutti_page_labels(labels, (const char *const[]){"device", tutti_space_device(device->space),
                                                        "uuid", device->cuda.uuid, NULL});
        tutti_page_number(page, name, labels, limits ? space.limit_bytes : space.used_bytes);
    }
}

static void
expose_gpu_holders(tutti_agent *agent, tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    tutti_space_stats space;
    size_t i;
    size_t k;

    if (agent->devices.count > 0) {
        tutti_page_family(page, "tutti_agent_gpu_memory_bytes", "gauge",
                          "Of that in use, by what it is, as tutti_agent_memory_bytes.");
    }
    for (i = 0; i < agent->devices.count; i++) {
        const agent_device *device = &agent->devices.list[i];

        tutti_space_stat(device->space, &space);
        for (k = 0; k < TUTTI_HOLDERS; k++) {
            tutti_page_labels(
                labels, (const char *const[]){"device", tutti_space_device(device->space), "uuid",
                                              device->cuda.uuid, "owner", memory_owners[k], NULL});
            tutti_page_number(page, "tutti_agent_gpu_memory_bytes", labels, space.held_bytes[k]);
        }
    }
}

/* Of calls or commands, by the status of their answers; OK is there from the start. */
static void
expose_results(const _Atomic uint64_t numbers[AGENT_CODES], const char *name, const char *help,
               tutti_page *page)
{
    char labels[TUTTI_PAGE_LABELS_MAX];
    size_t code;

    tutti_page_family(page, name, "counter", help);
    for (code = 0; code < AGENT_CODES; code++) {
        if (code == 0 || numbers[code] > 0) {
            tutti_page_labels(
                labels, (const char *const[]){"result", tutti_code_name((tutti_code)code), NULL});
            tutti_page_number(page, name, labels, numbers[code]);
        }
    }
}

static void
expose_functions(const tutti_agent *agent, tutti_page *page)
{
    const agent_numbers *numbers = &agent->numbers;
    agent_function_counts counts;

    agent_functions_count(agent, &counts);
    write_gauge(page, "tutti_agent_functions", "gauge", "Functions that clients may call.",
                counts.functions);
    write_gauge(page, "tutti_agent_function_hosts", "gauge", "Processes that offer functions.",
                counts.hosts);
    write_gauge(page, "tutti_agent_function_hosts_total", "counter",
                "Processes that came to offer functions; more than there should be have crashed.",
                numbers->hosts);
    write_gauge(page, "tutti_agent_function_calls_running", "gauge",
                "Calls that a thread or a host has.", counts.running);
    write_gauge(page, "tutti_agent_function_calls_waiting", "gauge",
                "Calls that wait for their tensors, or for an earlier call of their session.",
                counts.waiting);
    expose_results(numbers->function_calls, "tutti_agent_function_calls_total",
                   "Calls of functions that were answered, by how.", page);
    tutti_page_family(page, "tutti_agent_function_call_duration_seconds", "histogram",
                      "Time from a call's arrival to its answer, waiting included.");
    tutti_page_meter(page, "tutti_agent_function_call_duration_seconds", "",
                     &numbers->function_durations);
}

static void
expose_sessions(const tutti_agent *agent, tutti_page *page)
{
    write_gauge(page, "tutti_agent_sessions_led", "gauge", "Sessions of controllers that it leads.",
                agent->session_count);
    write_gauge(page, "tutti_agent_sessions_led_total", "counter",
                "Sessions of controllers that were opened here, or resumed.",
                agent->numbers.drives);
    write_gauge(page, "tutti_agent_session_registers", "gauge",
                "Registers of sessions that hold something here, whoever leads.",
                tutti_table_register_count(agent->table));
    write_gauge(page, "tutti_agent_session_commands_running", "gauge",
                "Commands of the sessions that it leads, which are not answered yet.",
                agent_sessions_command_count(agent));
    expose_results(agent->numbers.commands, "tutti_agent_session_commands_total",
                   "Commands of the sessions that it leads, by how they were answered.", page);
}

void
tutti_agent_expose(tutti_agent *agent, tutti_page *page)
{
    expose_seat(agent, page);
    expose_memory(agent, page);
    expose_gpus(agent, page, true);
    expose_gpus(agent, page, false);
    expose_gpu_holders(agent, page);
    write_gauge(page, "tutti_agent_groups", "gauge", "Groups it has met.", agent->groups.count);
    write_gauge(page, "tutti_agent_ops_running", "gauge", "Ops that came and have not ended.",
                agent->ops_live);
    write_gauge(page, "tutti_agent_works", "gauge", "Async ops that run or are remembered.",
                agent_works_count(agent));
    write_gauge(page, "tutti_agent_transfers_running", "gauge",
                "Uploads, downloads and gets under way.", atomic_load(&agent->calls));
    expose_counts(&agent->numbers, page);
    expose_bytes(&agent->numbers, page);
    expose_durations(&agent->numbers, page);
    expose_functions(agent, page);
    expose_sessions(agent, page);
    tutti_rpc_server_expose(agent->server, page);
}

bool
tutti_agent_ready(tutti_agent *agent, tutti_text *why)
{
    if (tutti_rpc_server_is_serving(agent->server)) {
        return true;
    }
    tutti_text_add(why,
                   agent->state == AGENT_JOINING ? "job %s is not joined yet" : "leaving job %s",
                   agent->options->job);
    return false;
}
