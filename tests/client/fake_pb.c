/* The services of the fake agent. */
#include "fake_pb.h"

#include <inttypes.h>

#include "base/os/clock.h"
#include "tutti/v1/commands_service.pb-c.h"
#include "tutti/v1/coordinator_service.pb-c.h"
#include "tutti/v1/diagnostics_service.pb-c.h"
#include "tutti/v1/functions_service.pb-c.h"
#include "tutti/v1/session_service.pb-c.h"
#include "tutti/v1/store_service.pb-c.h"
#include "tutti/v1/tensors_service.pb-c.h"

#define CHUNK (1u << 20)
#define HANDLE "tensor:0.0000000000000001.1"

static char *
text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

/* ------------------------------------------------------------------------------ the script */

static void
on_parked_cancel(tutti_rpc_call *call, void *arg)
{
    tutti_error err;

    (void)arg;
    (void)TUTTI_FAIL(&err, TUTTI_CANCELLED, "parked");
    tutti_rpc_call_fail(call, &err);
}

bool
fake_scripted(fake_agent *self, tutti_rpc_call *call, const char *method)
{
    const fake_script *script = &self->script;

    if (script->fail_method != NULL && strcmp(script->fail_method, method) == 0) {
        tutti_rpc_call_fail(call, &script->error);
        return true;
    }
    if (script->park_method != NULL && strcmp(script->park_method, method) == 0) {
        tutti_rpc_call_on_cancel(call, on_parked_cancel);
        return true;
    }
    return false;
}

static void
note_deadline(fake_agent *self, tutti_rpc_call *call)
{
    const uint64_t at = tutti_rpc_call_deadline(call);

    self->call_left_ms = at == TUTTI_TIMERS_NEVER ? 0 : (at - tutti_clock_ns()) / TUTTI_NS_PER_MS;
}

Tutti__V1__TensorRef *
fake_describe(const fake_agent *self, wire_tensor *ret)
{
    const tutti_spec *spec = &self->script.spec;
    uint32_t i;

    tutti__v1__tensor_ref__init(&ret->ref);
    tutti__v1__tensor_spec__init(&ret->spec);
    ret->spec.dtype = (Tutti__V1__Dtype)spec->dtype;
    for (i = 0; i < 32; i++) {
        ret->dims[i] = i < TUTTI_DIMS_MAX ? spec->dims[i] : 1;
    }
    ret->spec.n_shape = self->script.mischief == FAKE_WRONG_SPEC ? 17 : spec->dim_count;
    ret->spec.shape = ret->dims;
    ret->ref.handle = text(HANDLE);
    if (self->script.mischief == FAKE_NO_HANDLE) {
        ret->ref.handle = text("");
    } else if (self->script.mischief == FAKE_LONG_HANDLE) {
        ret->ref.handle = text("0123456789012345678901234567890123456789012345678901234567890123");
    }
    ret->ref.spec = &ret->spec;
    return &ret->ref;
}

static void
keep(char list[FAKE_NAMES_MAX][128], atomic_uint *count, const char *name)
{
    const unsigned number = atomic_fetch_add(count, 1);

    assert_true(number < FAKE_NAMES_MAX);
    (void)snprintf(list[number], 128, "%s", name);
}

/* ------------------------------------------------------------------------------ diagnostics */

static void
on_describe(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__DescribeAgentResponse response = TUTTI__V1__DESCRIBE_AGENT_RESPONSE__INIT;
    fake_agent *self = arg;
    const unsigned number = atomic_fetch_add(&self->describe_count, 1);

    if (fake_scripted(self, call, "DescribeAgent")) {
        return;
    }
    response.job = text("training");
    response.joined = number >= self->script.join_after;
    response.rank = self->script.rank;
    response.transfer_streams_max = self->script.streams_max;
    response.commands_max = self->script.commands_max;
    response.world_size = 4;
    response.elastic = self->script.elastic;
    response.incarnation = 0x8f3a9c12e4b07d55;
    response.epoch = 7;
    response.coordinator = text(fake_agent_address(self));
    response.host = text("host-1");
    response.pid = 4711;
    response.device =
        text("cuda:0"); /* where libtutti stages nothing: that needs an agent that lends memory */
    response.version = text("0.1.0");
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_stats(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__GetStatsResponse response = TUTTI__V1__GET_STATS_RESPONSE__INIT;
    Tutti__V1__GroupStats groups[2] = {TUTTI__V1__GROUP_STATS__INIT, TUTTI__V1__GROUP_STATS__INIT};
    Tutti__V1__GroupStats *pointers[] = {&groups[0], &groups[1]};

    (void)arg;
    response.tensor_count = 3;
    response.memory_used_bytes = 4096;
    response.memory_limit_bytes = 1 << 20;
    response.op_done_count = 41;
    response.op_failed_count = 1;
    groups[0].group = text("tp/0");
    groups[0].sequence = 9;
    groups[1].group = text("world");
    groups[1].sequence = 42;
    groups[1].idle_ms = 7;
    groups[1].last_op = text("all_reduce(sum, FP32[1024])");
    response.groups = pointers;
    response.n_groups = 2;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* ------------------------------------------------------------------------------ tensors */

static void
on_create(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__CreateResponse response = TUTTI__V1__CREATE_RESPONSE__INIT;
    const Tutti__V1__CreateRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    wire_tensor tensor;

    keep(self->made, &self->made_count, request->name);
    if (fake_scripted(self, call, "Create")) {
        return;
    }
    response.tensor = fake_describe(self, &tensor);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

void
fake_store(fake_agent *self, tutti_rpc_message *message, size_t offset)
{
    const size_t size = tutti_rpc_message_payload_bytes(message);

    self->bytes = realloc(self->bytes, offset + size + 1);
    assert_non_null(self->bytes);
    tutti_rpc_message_read(message, self->bytes + offset, size);
    self->size = offset + size;
}

static void
on_put(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__PutResponse response = TUTTI__V1__PUT_RESPONSE__INIT;
    const Tutti__V1__PutRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    wire_tensor tensor;

    (void)atomic_fetch_add(&self->put_count, 1);
    keep(self->made, &self->made_count, request->name);
    if (fake_scripted(self, call, "Put")) {
        return;
    }
    fake_store(self, tutti_rpc_call_message(call), 0);
    response.tensor = fake_describe(self, &tensor);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_get(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__GetResponse response = TUTTI__V1__GET_RESPONSE__INIT;
    fake_agent *self = arg;
    tutti_rpc_blob blob = {.data = self->bytes, .size = self->size};
    wire_tensor tensor;

    (void)atomic_fetch_add(&self->get_count, 1);
    if (fake_scripted(self, call, "Get")) {
        return;
    }
    response.tensor = fake_describe(self, &tensor);
    tutti_rpc_call_reply(call, &response.base, self->size > 0 ? &blob : NULL);
}

static void
on_copy(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__CopyResponse response = TUTTI__V1__COPY_RESPONSE__INIT;
    wire_tensor tensor;

    response.tensor = fake_describe(arg, &tensor);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_delete(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__DeleteResponse response = TUTTI__V1__DELETE_RESPONSE__INIT;
    const Tutti__V1__DeleteRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    size_t i;

    for (i = 0; i < request->n_handles; i++) {
        keep(self->deleted, &self->delete_count, request->handles[i]);
    }
    if (!fake_scripted(self, call, "Delete")) {
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
}

static void
on_stat(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__StatResponse response = TUTTI__V1__STAT_RESPONSE__INIT;
    Tutti__V1__TensorInfo info = TUTTI__V1__TENSOR_INFO__INIT;
    Tutti__V1__Error error = TUTTI__V1__ERROR__INIT;
    wire_tensor tensor;

    info.tensor = fake_describe(arg, &tensor);
    info.name = text("weights");
    info.byte_count = 24;
    error.code = TUTTI_UNAVAILABLE;
    error.reason = text("RANK_LOST");
    error.text = text("rank 3 is lost");
    error.group = text("world");
    error.sequence = 41;
    error.rank = 3;
    info.error = &error;
    response.info = &info;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* Pages of three; the token is the number of the next. */
static void
on_list(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__ListResponse response = TUTTI__V1__LIST_RESPONSE__INIT;
    const Tutti__V1__ListRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    const unsigned first = (unsigned)strtoul(request->page_token, NULL, 10);
    Tutti__V1__TensorInfo infos[3];
    Tutti__V1__TensorInfo *pointers[3];
    wire_tensor tensor;
    char names[3][32];
    char token[32] = "";
    unsigned i;

    (void)fake_describe(self, &tensor);
    for (i = 0; i < 3 && first + i < self->script.list_count; i++) {
        tutti__v1__tensor_info__init(&infos[i]);
        (void)snprintf(names[i], sizeof(names[i]), "t%u", first + i);
        infos[i].tensor = &tensor.ref;
        infos[i].name = names[i];
        pointers[i] = &infos[i];
    }
    if (first + i < self->script.list_count) {
        (void)snprintf(token, sizeof(token), "%u", first + i);
    }
    response.tensors = pointers;
    response.n_tensors = i;
    response.next_page_token = token;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* ------------------------------------------------------------------------------ transfers */

static void
on_stream_cancel(tutti_rpc_call *call, void *arg)
{
    tutti_error err;

    (void)arg;
    (void)TUTTI_FAIL(&err, TUTTI_CANCELLED, "given up");
    tutti_rpc_call_finish(call, &err);
}

static void
on_stream_end(tutti_rpc_call *call, void *arg)
{
    (void)call;
    (void)atomic_fetch_sub(&((fake_agent *)arg)->stream_count, 1);
}

static void
on_upload_open(tutti_rpc_call *call, void *arg)
{
    fake_agent *self = arg;

    (void)atomic_fetch_add(&self->stream_count, 1);
    (void)atomic_fetch_add(&self->upload_count, 1);
    atomic_store(&self->chunk_count, 0);
    self->size = 0;
    tutti_rpc_call_read(call);
}

static bool
is_time(fake_agent *self, fake_mischief mischief)
{
    return self->script.mischief == mischief &&
           atomic_load(&self->chunk_count) >= self->script.mischief_chunks;
}

/* Parts of an upload: they are not kept. */
static void
on_part_message(tutti_rpc_call *call, fake_agent *self, const Tutti__V1__UploadStart *start)
{
    if (start != NULL && self->script.mischief == FAKE_BREAK_PART &&
        start->part_offset + start->part_bytes == self->script.mischief_chunks) {
        tutti_rpc_call_finish(call, &self->script.error);
    } else {
        tutti_rpc_call_read(call);
    }
}

static void
on_upload_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    const Tutti__V1__UploadRequest *request = tutti_rpc_message_get(message);
    fake_agent *self = arg;

    if (request->start != NULL) {
        keep(self->made, &self->made_count, request->start->name);
    }
    (void)atomic_fetch_add(&self->chunk_count, 1);
    if (self->script.streams_max > 0) {
        on_part_message(call, self, request->start);
        return;
    }
    if (is_time(self, FAKE_STALL)) {
        return;
    }
    if (is_time(self, FAKE_BREAK_OFF)) {
        tutti_rpc_call_finish(call, &self->script.error);
        return;
    }
    assert_int_equal(request->offset, self->size);
    fake_store(self, message, self->size);
    tutti_rpc_call_read(call);
}

static void
on_upload_half_close(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__UploadResponse response = TUTTI__V1__UPLOAD_RESPONSE__INIT;
    fake_agent *self = arg;
    wire_tensor tensor;

    if (self->script.streams_max > 0) {
        return;
    }
    response.tensor = fake_describe(self, &tensor);
    response.byte_count = self->size - (self->script.mischief == FAKE_COUNT_LESS ? 1 : 0);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
download_next(tutti_rpc_call *call, fake_agent *self)
{
    Tutti__V1__DownloadResponse response = TUTTI__V1__DOWNLOAD_RESPONSE__INIT;
    const unsigned number = atomic_fetch_add(&self->chunk_count, 1);
    const size_t offset = (size_t)number * CHUNK;
    const size_t over = self->script.mischief == FAKE_TOO_MUCH ? CHUNK : 0;
    const size_t left = offset < self->size + over ? self->size + over - offset : 0;
    tutti_rpc_blob blob = {.data = self->bytes + (offset < self->size ? offset : 0),
                           .size = left < CHUNK ? left : CHUNK};
    wire_tensor tensor;

    if (is_time(self, FAKE_STALL)) {
        return;
    }
    if (is_time(self, FAKE_BREAK_OFF)) {
        tutti_rpc_call_finish(call, &self->script.error);
        return;
    }
    if ((left == 0 && number > 0) || is_time(self, FAKE_END_EARLY)) {
        tutti_rpc_call_finish(call, NULL);
        return;
    }
    if (number == 0) {
        response.tensor = fake_describe(self, &tensor);
    }
    response.offset = offset + (is_time(self, FAKE_WRONG_OFFSET) ? 1 : 0);
    tutti_rpc_call_write(call, &response.base, blob.size > 0 ? &blob : NULL);
}

static void
on_download_open(tutti_rpc_call *call, void *arg)
{
    fake_agent *self = arg;

    (void)atomic_fetch_add(&self->stream_count, 1);
    (void)atomic_fetch_add(&self->download_count, 1);
    atomic_store(&self->chunk_count, 0);
    download_next(call, self);
}

static void
on_download_written(tutti_rpc_call *call, void *arg)
{
    download_next(call, arg);
}

static const tutti_rpc_stream_ops upload_ops = {.on_open = on_upload_open,
                                                .on_message = on_upload_message,
                                                .on_half_close = on_upload_half_close,
                                                .on_cancel = on_stream_cancel,
                                                .on_end = on_stream_end};
static const tutti_rpc_stream_ops download_ops = {.on_open = on_download_open,
                                                  .on_written = on_download_written,
                                                  .on_cancel = on_stream_cancel,
                                                  .on_end = on_stream_end};

/* ------------------------------------------------------------------------------ collectives */

void
fake_note_op(fake_agent *self, tutti_rpc_call *call, const char *group,
             const Tutti__V1__TensorArg *input, const char *output,
             const Tutti__V1__OpOptions *options)
{
    const bool given = input != NULL && input->kind_case == TUTTI__V1__TENSOR_ARG__KIND_HANDLE;

    (void)atomic_fetch_add(&self->op_count, 1);
    (void)snprintf(self->op_group, sizeof(self->op_group), "%s", group);
    (void)snprintf(self->op_input, sizeof(self->op_input), "%s", given ? input->handle : "");
    (void)snprintf(self->op_output, sizeof(self->op_output), "%s", output);
    self->op_inline =
        input != NULL && input->kind_case == TUTTI__V1__TENSOR_ARG__KIND_INLINE_TENSOR;
    self->op_async = options->async;
    self->op_timeout_ms = options->timeout_ms;
    self->op_sequence = options->sequence;
    note_deadline(self, call);
}

void
fake_write_info(fake_agent *self, Tutti__V1__OpInfo *info)
{
    tutti__v1__op_info__init(info);
    info->sequence = 42;
    info->elapsed_us = 17;
    info->work = self->op_async ? text("work:0.0000000000000001.5") : text("");
}

static void
on_all_reduce(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__AllReduceResponse response = TUTTI__V1__ALL_REDUCE_RESPONSE__INIT;
    const Tutti__V1__AllReduceRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    Tutti__V1__OpInfo info;
    tutti_rpc_blob blob;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    if (fake_scripted(self, call, "AllReduce")) {
        return;
    }
    if (self->op_inline) {
        fake_store(self, tutti_rpc_call_message(call), 0);
    }
    blob = (tutti_rpc_blob){.data = self->bytes, .size = self->size};
    fake_write_info(self, &info);
    response.output = fake_describe(self, &tensor);
    if (self->op_inline) {
        tensor.ref.handle = text("");
    }
    response.info = &info;
    tutti_rpc_call_reply(call, &response.base, self->op_inline && blob.size > 0 ? &blob : NULL);
}

static void
on_broadcast(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__BroadcastResponse response = TUTTI__V1__BROADCAST_RESPONSE__INIT;
    const Tutti__V1__BroadcastRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    const tutti_rpc_blob blob = {.data = self->bytes, .size = self->size};
    Tutti__V1__OpInfo info;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    self->op_inline_result = request->inline_result;
    self->op_root_global =
        request->opt_root_global_case == TUTTI__V1__BROADCAST_REQUEST__OPT_ROOT_GLOBAL_ROOT_GLOBAL;
    self->op_root = self->op_root_global ? request->root_global : request->root;
    if (fake_scripted(self, call, "Broadcast")) {
        return;
    }
    fake_write_info(self, &info);
    response.output = fake_describe(self, &tensor);
    if (self->op_inline || self->op_inline_result) {
        tensor.ref.handle = text("");
    }
    response.info = &info;
    tutti_rpc_call_reply(call, &response.base,
                         self->op_inline_result && blob.size > 0 ? &blob : NULL);
}

/* Two ranks that give the same. */
static void
on_all_gather(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__AllGatherResponse response = TUTTI__V1__ALL_GATHER_RESPONSE__INIT;
    const Tutti__V1__AllGatherRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    Tutti__V1__OpInfo info;
    tutti_rpc_blob blob;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, request->input, request->output, request->options);
    if (fake_scripted(self, call, "AllGather")) {
        return;
    }
    if (self->op_inline) {
        fake_store(self, tutti_rpc_call_message(call), 0);
    }
    self->bytes = realloc(self->bytes, 2 * self->size + 1);
    assert_non_null(self->bytes);
    memcpy(self->bytes + self->size, self->bytes, self->size);
    self->size *= 2;
    blob = (tutti_rpc_blob){.data = self->bytes, .size = self->size};
    fake_write_info(self, &info);
    response.output = fake_describe(self, &tensor);
    response.info = &info;
    tutti_rpc_call_reply(call, &response.base, self->op_inline && blob.size > 0 ? &blob : NULL);
}

static void
on_barrier(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__BarrierResponse response = TUTTI__V1__BARRIER_RESPONSE__INIT;
    const Tutti__V1__BarrierRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__OpInfo info;

    fake_note_op(arg, call, request->group, NULL, "", request->options);
    if (fake_scripted(arg, call, "Barrier")) {
        return;
    }
    fake_write_info(arg, &info);
    response.info = &info;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_send(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__SendResponse response = TUTTI__V1__SEND_RESPONSE__INIT;
    const Tutti__V1__SendRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;

    fake_note_op(self, call, request->group, request->input, "", request->options);
    self->op_root_global = request->opt_destination_case ==
                           TUTTI__V1__SEND_REQUEST__OPT_DESTINATION_DESTINATION_GLOBAL;
    self->op_has_peer =
        request->opt_destination_case != TUTTI__V1__SEND_REQUEST__OPT_DESTINATION__NOT_SET;
    self->op_root = self->op_root_global ? request->destination_global : request->destination;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

static void
on_recv(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__RecvResponse response = TUTTI__V1__RECV_RESPONSE__INIT;
    const Tutti__V1__RecvRequest *request = tutti_rpc_call_request(call);
    fake_agent *self = arg;
    wire_tensor tensor;

    fake_note_op(self, call, request->group, NULL, request->output, request->options);
    self->op_has_peer = request->opt_source_case != TUTTI__V1__RECV_REQUEST__OPT_SOURCE__NOT_SET;
    self->op_root = request->source;
    response.output = fake_describe(self, &tensor);
    response.source = 1;
    response.source_global = 3;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* The first is done, the second failed. */
static void
on_wait(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__WaitResponse response = TUTTI__V1__WAIT_RESPONSE__INIT;
    const Tutti__V1__WaitRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__WorkStatus statuses[2] = {TUTTI__V1__WORK_STATUS__INIT,
                                         TUTTI__V1__WORK_STATUS__INIT};
    Tutti__V1__WorkStatus *pointers[2] = {&statuses[0], &statuses[1]};
    Tutti__V1__Error error = TUTTI__V1__ERROR__INIT;
    fake_agent *self = arg;
    wire_tensor tensor;

    note_deadline(self, call);
    self->op_timeout_ms = request->timeout_ms;
    if (fake_scripted(self, call, "Wait")) {
        return;
    }
    statuses[0].work = request->works[0];
    statuses[0].done = true;
    statuses[self->script.mischief == FAKE_LONG_HANDLE ? 1 : 0].output =
        fake_describe(self, &tensor);
    statuses[0].elapsed_us = 5;
    statuses[1].work = request->n_works > 1 ? request->works[1] : text("");
    statuses[1].done = true;
    error.code = TUTTI_DEADLINE_EXCEEDED;
    error.reason = text("TIMEOUT");
    error.text = text("rank 2 did not come");
    error.rank = 2;
    error.sequence = 43;
    error.group = text("world");
    statuses[1].error = &error;
    response.works = pointers;
    response.n_works = request->n_works > 2 ? 2 : request->n_works;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* The last still runs. */
static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__CancelResponse response = TUTTI__V1__CANCEL_RESPONSE__INIT;
    const Tutti__V1__CancelRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__WorkStatus statuses[2] = {TUTTI__V1__WORK_STATUS__INIT,
                                         TUTTI__V1__WORK_STATUS__INIT};
    Tutti__V1__WorkStatus *pointers[2] = {&statuses[0], &statuses[1]};
    size_t i;

    if (fake_scripted(arg, call, "Cancel")) {
        return;
    }
    for (i = 0; i < request->n_works && i < 2; i++) {
        statuses[i].work = request->works[i];
        statuses[i].done = i + 1 < request->n_works;
    }
    response.works = pointers;
    response.n_works = i;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* ------------------------------------------------------------------------------ coordinator */

/* Ranks 0 and 1 wait, 2 is free, 3 is lost. */
static void
on_lookup(tutti_rpc_call *call, void *arg)
{
    static const Tutti__V1__RankState states[] = {
        TUTTI__V1__RANK_STATE__RANK_STATE_WAITING, TUTTI__V1__RANK_STATE__RANK_STATE_WAITING,
        TUTTI__V1__RANK_STATE__RANK_STATE_FREE, TUTTI__V1__RANK_STATE__RANK_STATE_LOST};
    Tutti__V1__LookupRanksResponse response = TUTTI__V1__LOOKUP_RANKS_RESPONSE__INIT;
    Tutti__V1__RankInfo infos[4];
    Tutti__V1__RankInfo *pointers[4];
    uint32_t i;

    if (fake_scripted(arg, call, "LookupRanks")) {
        return;
    }
    for (i = 0; i < 4; i++) {
        tutti__v1__rank_info__init(&infos[i]);
        infos[i].rank = i;
        infos[i].state = states[i];
        pointers[i] = &infos[i];
    }
    response.ranks = pointers;
    response.n_ranks = 4;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* Every group is ranks 3, 1. */
static void
on_get_group(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__GetGroupResponse response = TUTTI__V1__GET_GROUP_RESPONSE__INIT;
    const Tutti__V1__GetGroupRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__Group group = TUTTI__V1__GROUP__INIT;
    uint32_t ranks[] = {3, 1};

    if (fake_scripted(arg, call, "GetGroup")) {
        return;
    }
    group.id = 12;
    group.name = request->name;
    group.ranks = ranks;
    group.n_ranks = 2;
    group.epoch = 3;
    response.group = &group;
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* The coordinator ends before it has answered the first call. */
static bool
lose_first(fake_agent *self, tutti_rpc_call *call, uint64_t token)
{
    tutti_error err;

    assert_true(self->group_calls < COUNT_OF(self->group_tokens));
    self->group_tokens[self->group_calls++] = token;
    if (self->group_calls > 1) {
        return false;
    }
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "DRAINING", "the coordinator is stopping");
    tutti_rpc_call_fail(call, &err);
    return true;
}

static void
on_create_group(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__CreateGroupResponse response = TUTTI__V1__CREATE_GROUP_RESPONSE__INIT;
    const Tutti__V1__CreateGroupRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__Group group = TUTTI__V1__GROUP__INIT;
    uint32_t ranks[] = {0, 1};

    if (!lose_first(arg, call, request->token)) {
        group.id = 12;
        group.name = text("unnamed/12");
        group.ranks = ranks;
        group.n_ranks = 2;
        response.group = &group;
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
}

static void
on_create_subgroups(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__CreateSubgroupsResponse response = TUTTI__V1__CREATE_SUBGROUPS_RESPONSE__INIT;
    const Tutti__V1__CreateSubgroupsRequest *request = tutti_rpc_call_request(call);

    if (!lose_first(arg, call, request->token)) {
        response.group_rank = -1;
        tutti_rpc_call_reply(call, &response.base, NULL);
    }
}

/* A store whose pages never end well: the token is longer than any key. */
static void
on_kv_list(tutti_rpc_call *call, void *arg)
{
    Tutti__V1__StoreServiceListResponse response = TUTTI__V1__STORE_SERVICE_LIST_RESPONSE__INIT;
    Tutti__V1__Entry entry = TUTTI__V1__ENTRY__INIT;
    Tutti__V1__Entry *pointers[] = {&entry};
    static uint8_t long_token[8192];

    (void)arg;
    entry.key.data = long_token;
    entry.key.len = 4;
    response.entries = pointers;
    response.n_entries = 1;
    response.next_page_token.data = long_token;
    response.next_page_token.len = sizeof(long_token);
    tutti_rpc_call_reply(call, &response.base, NULL);
}

/* ------------------------------------------------------------------------------ all of them */

static void
add(fake_agent *self, const ProtobufCServiceDescriptor *descriptor, const tutti_rpc_method *methods,
    size_t count)
{
    const tutti_rpc_service service = {.descriptor = descriptor,
                                       .methods = methods,
                                       .method_count = count,
                                       .self = self,
                                       .loop = self->loop};

    tutti_rpc_server_add(self->server, &service);
}

void
fake_agent_add_services(fake_agent *self)
{
    static const tutti_rpc_method diagnostics[] = {TUTTI_RPC_UNARY("DescribeAgent", on_describe),
                                                   TUTTI_RPC_UNARY("GetStats", on_stats)};
    static const tutti_rpc_method tensors[] = {TUTTI_RPC_UNARY("Create", on_create),
                                               TUTTI_RPC_UNARY("Put", on_put),
                                               TUTTI_RPC_UNARY("Get", on_get),
                                               TUTTI_RPC_UNARY("Copy", on_copy),
                                               TUTTI_RPC_UNARY("Delete", on_delete),
                                               TUTTI_RPC_UNARY("Stat", on_stat),
                                               TUTTI_RPC_UNARY("List", on_list),
                                               TUTTI_RPC_STREAM("Upload", &upload_ops),
                                               TUTTI_RPC_STREAM("Download", &download_ops)};
    static const tutti_rpc_method common[] = {TUTTI_RPC_UNARY("AllReduce", on_all_reduce),
                                              TUTTI_RPC_UNARY("Broadcast", on_broadcast),
                                              TUTTI_RPC_UNARY("AllGather", on_all_gather),
                                              TUTTI_RPC_UNARY("Barrier", on_barrier),
                                              TUTTI_RPC_UNARY("Send", on_send),
                                              TUTTI_RPC_UNARY("Recv", on_recv),
                                              TUTTI_RPC_UNARY("Wait", on_wait),
                                              TUTTI_RPC_UNARY("Cancel", on_cancel)};
    static tutti_rpc_method collectives[COUNT_OF(common) + FAKE_PARTS_COUNT];
    static const tutti_rpc_method coordinator[] = {
        TUTTI_RPC_UNARY("LookupRanks", on_lookup), TUTTI_RPC_UNARY("CreateGroup", on_create_group),
        TUTTI_RPC_UNARY("CreateSubgroups", on_create_subgroups),
        TUTTI_RPC_UNARY("GetGroup", on_get_group)};
    static const tutti_rpc_method run[] = {TUTTI_RPC_STREAM("Run", &fake_run_ops)};
    static const tutti_rpc_method kv[] = {TUTTI_RPC_UNARY("List", on_kv_list)};

    add(self, &tutti__v1__diagnostics_service__descriptor, diagnostics, COUNT_OF(diagnostics));
    add(self, &tutti__v1__tensors_service__descriptor, tensors, COUNT_OF(tensors));
    memcpy(collectives, common, sizeof(common));
    memcpy(collectives + COUNT_OF(common), fake_parts, sizeof(fake_parts));
    add(self, &tutti__v1__collectives_service__descriptor, collectives, COUNT_OF(collectives));
    add(self, &tutti__v1__coordinator_service__descriptor, coordinator, COUNT_OF(coordinator));
    add(self, &tutti__v1__commands_service__descriptor, run, COUNT_OF(run));
    add(self, &tutti__v1__store_service__descriptor, kv, COUNT_OF(kv));
    add(self, &tutti__v1__session_service__descriptor, fake_sessions, COUNT_OF(fake_sessions));
    add(self, &tutti__v1__functions_service__descriptor, fake_functions, COUNT_OF(fake_functions));
}
