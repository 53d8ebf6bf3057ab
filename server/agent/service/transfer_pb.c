/*
 * Upload and Download: the messages of streams of chunks. Bulk loop. transfer/ has what they do.
 *
 * The user pointer of a call is its access, from on_open to on_end; NULL where there was no memory.
 * stream_on_end is the last callback: it stops the timer, frees chunks, ends the parts of the same
 * tensor, and gives up the call's reference.
 */
#include <inttypes.h>

#include "base/error/fail.h"
#include "server/agent/service/transfer.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/state.h"
#include "server/agent/tensor/table.h"
#include "server/agent/transfer/access.h"
#include "server/agent/transfer/gpu.h"
#include "tutti/v1/tensors_service.pb-c.h"

#define CHUNK_DEFAULT (2u << 20)
#define CHUNK_MIN 4096

/* ------------------------------------------------------------------------------ Upload */

/*
 * A part's own stream is told how many bytes it brought; the tensor is named to the leader alone.
 */
void
agent_answer_upload(agent_access *access, const tutti_tensor *tensor)
{
    Tutti__V1__UploadResponse response = TUTTI__V1__UPLOAD_RESPONSE__INIT;
    wire_use ref;

    if (access->leader == NULL) {
        agent_write_use(access, access->lock_set.count - 1, &tensor->spec, &ref);
        response.tensor = &ref.message;
        response.byte_count = access->total_bytes;
    } else {
        response.byte_count = access->end_offset - access->begin_offset;
    }
    tutti_rpc_call_reply(access->call, &response.base, NULL);
}

static void
upload_on_open(tutti_rpc_call *call, void *self)
{
    agent_access *access = agent_access_new(self, call, agent_upload_turn);

    if (access != NULL) {
        tutti_rpc_call_set_user(call, access);
        agent_access_watch(access, false);
        tutti_rpc_call_read(call);
    }
}

/*
 * dtype is compared now, without a lock, so that a client hears of a mistake before it sends all
 * bytes; the size is compared at the turn (agent_upload_open), when it is final.
 */
static tutti_code
begin_whole(agent_access *access, const Tutti__V1__UploadStart *start, tutti_error *err)
{
    tutti_table_info info;
    tutti_spec spec;

    TUTTI_TRY(agent_read_spec(start->spec, &spec, err));

    if (start->into[0] != '\0') {
        TUTTI_TRY(tutti_table_stat(access->agent->table, start->into, &info, err));
        if (info.has_spec && info.spec.dtype != spec.dtype) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "DTYPE_MISMATCH",
                                  "the data are %s, the tensor is %s, need the same dtype",
                                  tutti_dtype_name(spec.dtype), tutti_dtype_name(info.spec.dtype));
        }
    }
    TUTTI_TRY(agent_access_destination(access, &spec, start->into, start->name, start->device,
                                       false, err));
    access->total_bytes = tutti_spec_bytes(&spec);
    access->end_offset = access->total_bytes;
    return TUTTI_OK;
}

/* Part 0 of several is a whole upload that others follow. */
static tutti_code
begin_upload(agent_access *access, const Tutti__V1__UploadStart *start, tutti_error *err)
{
    const tutti_bytes transfer = {start->transfer.data, start->transfer.len};

    if (transfer.size == 0 && start->part_offset == 0 && start->part_bytes == 0) {
        return begin_whole(access, start, err);
    }
    if (start->part_offset > 0) {
        return agent_parts_follow(access, transfer, start->part_offset, start->part_bytes, err);
    }
    TUTTI_TRY(begin_whole(access, start, err));
    return agent_parts_lead(access, transfer, start->part_bytes, err);
}

static void
upload_on_message(tutti_rpc_call *call, void *self, tutti_rpc_message *message)
{
    const Tutti__V1__UploadRequest *request = tutti_rpc_message_get(message);
    agent_access *access = tutti_rpc_call_user(call);
    const bool begins = access->lock_set.count == 0 && !access->parted;
    tutti_error err;
    tutti_code code = TUTTI_OK;

    (void)self;
    if (!agent_access_is_open(access)) {
        return;
    }
    agent_access_moved(access);
    if (begins != (request->start != NULL)) {
        code = TUTTI_FAIL_FOR(
            &err, TUTTI_INVALID_ARGUMENT, "NO_START",
            begins ? "the first message has no start: say what the tensor is"
                   : "a second start in one upload: open another stream for another tensor");
    } else if (begins) {
        code = begin_upload(access, request->start, &err);
    }
    if (code != TUTTI_OK) {
        agent_stream_finish(access, &err);
        return;
    }
    /*
     * In line before the first chunk is looked at: where nobody else uses the tensor, the turn
     * comes at once and the bytes go to their place; else the message is kept until the turn.
     */
    if (begins && access->lock_set.count > 0 && agent_access_acquire(access) &&
        !agent_upload_open(access)) {
        return;
    }
    agent_upload_chunk(access, request->offset, message);
    /*
     * Before the turn nothing more is read, and while a slot is awaited neither: agent_upload_turn
     * or on_late_slot reads on.
     */
    if (agent_access_is_open(access) && agent_access_is_granted(access) &&
        !access->waits_for_slot) {
        tutti_rpc_call_read(call);
    }
}

static void
upload_on_half_close(tutti_rpc_call *call, void *self)
{
    agent_access *access = tutti_rpc_call_user(call);
    tutti_error err;

    (void)self;
    if (!agent_access_is_open(access)) {
        return;
    }
    if (access->lock_set.count == 0 && !access->parted) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "NO_START",
                             "the upload ended before its first message");
        agent_stream_finish(access, &err);
        return;
    }
    agent_upload_end(access);
}

/*
 * The client is gone, or the server drains. On a drain, transfers that move already may end within
 * the grace; those that still wait for their turn end now.
 */
static void
stream_on_cancel(tutti_rpc_call *call, void *self)
{
    agent_access *access = tutti_rpc_call_user(call);
    tutti_error err;

    (void)self;
    if (access == NULL || !agent_access_is_open(access) ||
        (agent_access_is_granted(access) && !tutti_rpc_call_cancelled(call))) {
        return;
    }
    agent_access_stop_waiting(access, &err);
    tutti_rpc_call_finish(call, &err);
}

static void
stream_on_end(tutti_rpc_call *call, void *self)
{
    agent_access *access = tutti_rpc_call_user(call);

    (void)self;
    if (access == NULL) {
        return;
    }
    agent_access_unwatch(access);
    if (agent_access_is_open(access)) {
        agent_access_answered(access);
    }
    agent_staged_end(access);
    agent_parts_end(access);
    agent_access_end_call(access);
}

/* ------------------------------------------------------------------------------ Download */

/*
 * The first message says what the tensor is, and its version: a client that reads by several
 * streams sees whether all of them read the same bytes.
 */
void
agent_write_download(agent_access *access, const tutti_tensor *tensor, const tutti_rpc_blob *blob)
{
    Tutti__V1__DownloadResponse response = TUTTI__V1__DOWNLOAD_RESPONSE__INIT;
    wire_use ref;

    if (access->first) {
        agent_write_use(access, 0, &tensor->spec, &ref);
        response.tensor = &ref.message;
        response.version = tutti_table_version(access->agent->table, &access->lock_set.locks[0]);
    }
    response.offset = access->offset;
    tutti_rpc_call_write(access->call, &response.base, blob);
}

static tutti_code
begin_download(agent_access *access, const Tutti__V1__DownloadRequest *request, tutti_error *err)
{
    const uint32_t chunk = request->chunk_bytes == 0 ? CHUNK_DEFAULT : request->chunk_bytes;

    if (chunk < CHUNK_MIN || chunk > TUTTI_CHUNK_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "CHUNK_LIMIT",
                              "chunks of %" PRIu32 " bytes, need %u to %u", chunk, CHUNK_MIN,
                              TUTTI_CHUNK_BYTES_MAX);
    }
    access->chunk_bytes = chunk;
    access->offset = request->offset;
    access->length = request->length;
    return tutti_table_lock_by_name(access->agent->table, &access->lock_set, request->handle, false,
                                    err);
}

static void
download_on_open(tutti_rpc_call *call, void *self)
{
    const Tutti__V1__DownloadRequest *request = tutti_rpc_call_request(call);
    agent_access *access = agent_access_new(self, call, agent_download_turn);
    tutti_error err;

    if (access == NULL) {
        return;
    }
    tutti_rpc_call_set_user(call, access);
    agent_access_watch(access, true);
    if (begin_download(access, request, &err) != TUTTI_OK) {
        agent_stream_finish(access, &err);
        return;
    }
    agent_access_go(access);
}

static void
download_on_written(tutti_rpc_call *call, void *self)
{
    (void)self;
    agent_access_moved(tutti_rpc_call_user(call));
    agent_download_next(tutti_rpc_call_user(call));
}

const tutti_rpc_stream_ops agent_upload_ops = {
    .on_open = upload_on_open,
    .on_message = upload_on_message,
    .on_half_close = upload_on_half_close,
    .on_cancel = stream_on_cancel,
    .on_end = stream_on_end,
};

const tutti_rpc_stream_ops agent_download_ops = {
    .on_open = download_on_open,
    .on_written = download_on_written,
    .on_cancel = stream_on_cancel,
    .on_end = stream_on_end,
};
