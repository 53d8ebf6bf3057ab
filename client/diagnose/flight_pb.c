/* DiagnosticsService.GetFlightRecord: what an agent did last, and how late its clock is. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "client/conn/types_pb.h"
#include "tutti/diagnose.h"
#include "tutti/v1/diagnostics_service.pb-c.h"

#define PAGE 512
#define ENTRIES_MAX 16384 /* an agent keeps fewer: it must not fill our memory */
#define TRIPS 8

static const tutti_rpc_stub stub_flight = {&tutti__v1__diagnostics_service__descriptor,
                                           "GetFlightRecord"};

/* A page from UINT64_MAX on is empty, and still has the agent's time. */
static tutti_code
get_page(tutti_client *client, uint64_t from, tutti_rpc_message **ret_message, tutti_error *err)
{
    Tutti__V1__GetFlightRecordRequest request = TUTTI__V1__GET_FLIGHT_RECORD_REQUEST__INIT;
    const client_call call = {
        .stub = &stub_flight, .kind = CLIENT_CONTROL, .deadline_ns = client_deadline(client, 0)};

    request.from_record_id = from;
    request.page_size = PAGE;
    return client_invoke(client, &call, &request.base, ret_message, err);
}

/* "nccl:all_reduce" is what other readers want; for people the op is enough. */
static const char *
plain_name(const char *name)
{
    const char *colon = strchr(name, ':');

    return colon == NULL ? name : colon + 1;
}

/* The first tensor only; sizes and dtypes are two lists, which should be equally long. */
static void
read_shape(Tutti__V1__FlightShape *const *shapes, char *const *dtypes, size_t count,
           tutti_spec *ret)
{
    uint32_t i;

    *ret = (tutti_spec){.dtype = TUTTI_DTYPE_NONE};
    if (count == 0) {
        return;
    }
    ret->dtype = tutti_dtype_parse(dtypes[0]);
    for (i = 0; i < shapes[0]->n_dims && i < TUTTI_DIMS_MAX; i++) {
        ret->dims[i] = shapes[0]->dims[i];
    }
    ret->dim_count = i;
}

static size_t
get_least(size_t left, size_t right)
{
    return left < right ? left : right;
}

static void
read_flight_entry(const Tutti__V1__FlightEntry *message, tutti_flight_entry *ret)
{
    *ret = (tutti_flight_entry){.record_id = message->record_id,
                                .group_id = message->pg_id,
                                .epoch = message->epoch,
                                .sequence = message->collective_seq_id,
                                .p2p_count = message->p2p_seq_id,
                                .created_ns = message->time_created_ns,
                                .started_ns = message->time_discovered_started_ns,
                                .completed_ns = message->time_discovered_completed_ns,
                                .timeout_ms = message->timeout_ms,
                                .input_count = message->input_count,
                                .output_count = message->output_count};
    client_read_text(message->process_group, ret->group, sizeof(ret->group));
    client_read_text(plain_name(message->profiling_name), ret->name, sizeof(ret->name));
    client_read_text(message->state, ret->state, sizeof(ret->state));
    client_read_text(message->error_reason, ret->error_reason, sizeof(ret->error_reason));
    client_read_text(message->error_text, ret->error_text, sizeof(ret->error_text));
    read_shape(message->input_sizes, message->input_dtypes,
               get_least(message->n_input_sizes, message->n_input_dtypes), &ret->input);
    read_shape(message->output_sizes, message->output_dtypes,
               get_least(message->n_output_sizes, message->n_output_dtypes), &ret->output);
}

/* *ret_more: there may be another page behind it. */
static tutti_code
add_page(const Tutti__V1__GetFlightRecordResponse *page, tutti_flight_entry **entries,
         size_t *count, bool *ret_more, tutti_error *err)
{
    tutti_flight_entry *more =
        reallocarray(*entries, *count + page->n_entries + 1, sizeof(**entries));
    size_t i;

    if (more == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a flight record");
    }
    *entries = more;
    for (i = 0; i < page->n_entries; i++) {
        read_flight_entry(page->entries[i], &more[(*count)++]);
    }
    *ret_more = page->n_entries > 0 && *count < ENTRIES_MAX;
    return TUTTI_OK;
}

tutti_code
tutti_flight_get(tutti_client *client, tutti_flight_entry **ret_entries, size_t *ret_count,
                 tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_entries, err);
    TUTTI_NEED(ret_count, err);

    tutti_flight_entry *entries = NULL;
    size_t count = 0;
    uint64_t from = 0;
    bool more = true;
    tutti_code code = TUTTI_OK;

    while (more && code == TUTTI_OK) {
        tutti_rpc_message *message = NULL;
        const Tutti__V1__GetFlightRecordResponse *page;

        code = get_page(client, from, &message, err);
        if (code == TUTTI_OK) {
            page = tutti_rpc_message_get(message);
            from = page->next_record_id;
            code = add_page(page, &entries, &count, &more, err);
            tutti_rpc_message_free(message);
        }
    }
    if (code != TUTTI_OK) {
        free(entries);
        return code;
    }
    *ret_entries = entries;
    *ret_count = count;
    return TUTTI_OK;
}

/*
 * Several trips are made, and the fastest one counts: the agent's time was read somewhere in it,
 * so half of it is the most that the result can be wrong by.
 */
tutti_code
tutti_clock_compare(tutti_client *client, int64_t *ret_offset_ns, uint64_t *ret_error_ns,
                    tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_offset_ns, err);
    TUTTI_NEED(ret_error_ns, err);

    uint64_t best_ns = UINT64_MAX;
    int64_t offset_ns = 0;
    int i;

    for (i = 0; i < TRIPS; i++) {
        const uint64_t began_ns = tutti_clock_wall_ns();
        tutti_rpc_message *message = NULL;
        const tutti_code code = get_page(client, UINT64_MAX, &message, err);
        const uint64_t trip_ns = tutti_clock_wall_ns() - began_ns;

        if (code != TUTTI_OK) {
            return code;
        }
        if (trip_ns < best_ns) {
            const Tutti__V1__GetFlightRecordResponse *page = tutti_rpc_message_get(message);

            best_ns = trip_ns;
            offset_ns = (int64_t)(page->now_ns - (began_ns + trip_ns / 2));
        }
        tutti_rpc_message_free(message);
    }
    *ret_offset_ns = offset_ns;
    *ret_error_ns = best_ns / 2 + 1;
    return TUTTI_OK;
}
