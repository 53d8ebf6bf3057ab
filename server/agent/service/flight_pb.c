/*
 * DiagnosticsService.GetFlightRecord: a page of the flight recorder. Control loop. Entries are
 * copied under the recorder's lock (agent_flight_read) and made into messages without it. Groups go
 * with the first page alone, limited by the ranks that they list.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/record/flight.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/group.h"
#include "server/agent/state/state.h"
#include "tutti/v1/diagnostics_service.pb-c.h"

#define PAGE_MAX 1024
#define PAGE_DEFAULT 512
#define GROUPS_MAX 256
#define RANKS_MAX (256u << 10) /* of all groups of an answer together */

/* One entry out, with the memory that it points to. */
typedef struct wire_entry {
    Tutti__V1__FlightEntry message;
    Tutti__V1__FlightShape input;
    Tutti__V1__FlightShape output;
    Tutti__V1__FlightShape *inputs[1];
    Tutti__V1__FlightShape *outputs[1];
    char *input_dtypes[1];
    char *output_dtypes[1];
    char name[AGENT_FLIGHT_NAME_SIZE];
} wire_entry;

typedef struct page {
    Tutti__V1__GetFlightRecordResponse response;
    agent_flight_entry entries[PAGE_MAX];
    wire_entry wires[PAGE_MAX];
    Tutti__V1__FlightEntry *pointers[PAGE_MAX];
    Tutti__V1__FlightGroup groups[GROUPS_MAX];
    Tutti__V1__FlightGroup *group_pointers[GROUPS_MAX];
} page;

static char *
get_flight_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void
shape_to_wire(const tutti_spec *spec, Tutti__V1__FlightShape *ret_wire)
{
    tutti__v1__flight_shape__init(ret_wire);
    ret_wire->dims = (int64_t *)(uintptr_t)spec->dims;
    ret_wire->n_dims = spec->dim_count;
}

static void
tensors_to_wire(const agent_flight_entry *entry, wire_entry *wire)
{
    shape_to_wire(&entry->input, &wire->input);
    shape_to_wire(&entry->output, &wire->output);
    wire->inputs[0] = &wire->input;
    wire->outputs[0] = &wire->output;
    wire->input_dtypes[0] = get_flight_text(tutti_dtype_name(entry->input.dtype));
    wire->output_dtypes[0] = get_flight_text(tutti_dtype_name(entry->output.dtype));
    wire->message.input_sizes = wire->inputs;
    wire->message.input_dtypes = wire->input_dtypes;
    wire->message.output_sizes = wire->outputs;
    wire->message.output_dtypes = wire->output_dtypes;
    wire->message.n_input_sizes = wire->message.n_input_dtypes = entry->input_count > 0 ? 1 : 0;
    wire->message.n_output_sizes = wire->message.n_output_dtypes = entry->output_count > 0 ? 1 : 0;
    wire->message.input_count = entry->input_count;
    wire->message.output_count = entry->output_count;
}

static void
times_to_wire(const agent_flight_entry *entry, uint64_t offset_ns, Tutti__V1__FlightEntry *message)
{
    message->time_created_ns = entry->created_ns + offset_ns;
    if (entry->started_ns != 0) {
        message->time_discovered_started_ns = entry->started_ns + offset_ns;
    }
    if (entry->completed_ns != 0) {
        message->time_discovered_completed_ns = entry->completed_ns + offset_ns;
    }
    if (entry->completed_ns != 0 && entry->started_ns != 0) {
        message->duration_ms = (double)(entry->completed_ns - entry->started_ns) / TUTTI_NS_PER_MS;
    }
}

static void
entry_to_wire(agent_flight_entry *entry, uint64_t offset_ns, wire_entry *wire)
{
    Tutti__V1__FlightEntry *message = &wire->message;

    tutti__v1__flight_entry__init(message);
    agent_flight_name(entry, wire->name);
    message->record_id = entry->record_id;
    message->pg_id = entry->group_id;
    message->process_group = entry->group;
    message->epoch = entry->epoch;
    message->collective_seq_id = entry->sequence;
    message->p2p_seq_id = entry->p2p_number;
    message->op_id = entry->op_number;
    message->profiling_name = wire->name;
    message->state = get_flight_text(agent_flight_state_name(entry->state));
    message->retired = entry->retired;
    message->timeout_ms = entry->timeout_ms;
    message->is_p2p = entry->p2p_number != 0;
    if (entry->code != TUTTI_OK) {
        message->error_code = get_flight_text(tutti_code_name(entry->code));
        message->error_reason = entry->reason;
        message->error_text = entry->error;
    }
    message->trace_id = entry->trace;
    times_to_wire(entry, offset_ns, message);
    tensors_to_wire(entry, wire);
}

static void
group_to_wire(agent_group *group, Tutti__V1__FlightGroup *wire)
{
    tutti__v1__flight_group__init(wire);
    wire->id = tutti_coll_group_id(group->coll);
    wire->name = group->name;
    wire->ranks = (uint32_t *)(uintptr_t)tutti_coll_group_ranks(group->coll);
    wire->n_ranks = tutti_coll_group_size(group->coll);
    wire->last_enqueued_collective = group->sequence;
    wire->last_started_collective = group->entered;
    wire->last_completed_collective = agent_group_left(group);
}

static void
add_groups(const tutti_agent *agent, page *self)
{
    tutti_map_node *node;
    size_t ranks = 0;
    size_t count = 0;

    for (node = tutti_map_first(&agent->groups); node != NULL && count < GROUPS_MAX;
         node = tutti_map_next(node)) {
        agent_group *group = tutti_container_of(node, agent_group, by_name);

        if (group->coll == NULL || ranks + tutti_coll_group_size(group->coll) > RANKS_MAX) {
            continue;
        }
        ranks += tutti_coll_group_size(group->coll);
        group_to_wire(group, &self->groups[count]);
        self->group_pointers[count] = &self->groups[count];
        count++;
    }
    self->response.groups = self->group_pointers;
    self->response.n_groups = count;
}

static void
fill_flight(page *self, const tutti_agent *agent, uint64_t from, size_t size)
{
    const size_t count = agent_flight_read(agent->flight, from, self->entries, size);
    const uint64_t wall_ns = tutti_clock_wall_ns();
    const uint64_t offset_ns = wall_ns - tutti_clock_ns();
    size_t i;

    for (i = 0; i < count; i++) {
        entry_to_wire(&self->entries[i], offset_ns, &self->wires[i]);
        self->pointers[i] = &self->wires[i].message;
    }
    self->response.version = get_flight_text(AGENT_FLIGHT_VERSION);
    self->response.entries = self->pointers;
    self->response.n_entries = count;
    self->response.next_record_id =
        count > 0 ? self->entries[count - 1].record_id + 1 : agent_flight_next(agent->flight);
    self->response.now_ns = wall_ns;
    self->response.rank = agent->rank;
    if (from == 0) {
        add_groups(agent, self);
    }
}

void
agent_on_flight(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__GetFlightRecordRequest *request = tutti_rpc_call_request(call);
    page *answer = NULL;
    tutti_error err;
    tutti_code code = TUTTI_OK;

    if (request->page_size > PAGE_MAX) {
        code = TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "PAGE_LIMIT",
                              "page of %u entries, at most %d", request->page_size, PAGE_MAX);
    } else {
        answer = malloc(sizeof(*answer));
        code = answer != NULL ? TUTTI_OK : TUTTI_FAIL_MEMORY(&err, "no memory for a page");
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    tutti__v1__get_flight_record_response__init(&answer->response);
    fill_flight(answer, self, request->from_record_id,
                request->page_size == 0 ? PAGE_DEFAULT : request->page_size);
    tutti_rpc_call_reply(call, &answer->response.base, NULL);
    free(answer);
}
