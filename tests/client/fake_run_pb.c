/* The fake agent's streams of commands: one command at a time, by the methods that take calls. */
#include "fake_pb.h"

#include "rpc/nested.h"
#include "tutti/v1/commands_service.pb-c.h"

typedef struct fake_stream {
    fake_agent *self;
    tutti_rpc_call *call;
    tutti_rpc_call *command; /* that runs; NULL = none */
    uint64_t id;
    uint32_t number; /* of the call, in the oneof */
    unsigned count;
    bool answered; /* the answer is leaving */
    bool over;     /* it ends when the answer has left */
    bool ended;
} fake_stream;

static char *
text_of(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

static void
end_stream(fake_stream *stream, const tutti_error *err)
{
    if (!stream->ended) {
        stream->ended = true;
        tutti_rpc_call_finish(stream->call, err == NULL || err->code == TUTTI_OK ? NULL : err);
    }
}

static void
write_answer(fake_stream *stream, const ProtobufCMessage *response, const tutti_rpc_blob *payload,
             const tutti_error *err)
{
    Tutti__V1__RunResponse message = TUTTI__V1__RUN_RESPONSE__INIT;
    Tutti__V1__StatResponse other = TUTTI__V1__STAT_RESPONSE__INIT;
    Tutti__V1__Error error = TUTTI__V1__ERROR__INIT;
    const fake_run run = stream->self->script.run;
    tutti_rpc_packed *packed = NULL;

    message.id = stream->id + (run == FAKE_RUN_OTHER_ID ? 1 : 0);
    if (run == FAKE_RUN_ERROR) {
        err = &stream->self->script.error;
    }
    if (err != NULL) {
        error.code = (uint32_t)err->code;
        error.reason = text_of(err->reason);
        error.text = text_of(err->text);
        error.group = text_of(err->group);
        error.sequence = err->sequence;
        error.rank = err->rank;
        error.scope = err->scope == TUTTI_SCOPE_GROUP ? text_of("group") : text_of("");
        message.result_case = TUTTI__V1__RUN_RESPONSE__RESULT_ERROR;
        message.error = &error;
    } else if (run == FAKE_RUN_OTHER_CALL) {
        message.result_case = TUTTI__V1__RUN_RESPONSE__RESULT_STAT;
        message.stat = &other;
    } else if (run != FAKE_RUN_NOTHING) {
        message.result_case = (Tutti__V1__RunResponse__ResultCase)stream->number;
        message.all_reduce = (void *)(uintptr_t)response;
    }
    assert_int_equal(tutti_rpc_pack(&message.base, payload, &packed, NULL), TUTTI_OK);
    (void)tutti_rpc_call_write_packed(stream->call, packed, false);
}

static void
end_command(fake_stream *stream, bool delivered)
{
    tutti_rpc_call *command = stream->command;

    stream->command = NULL;
    stream->answered = false;
    tutti_rpc_nested_end(command, delivered);
}

static void
on_answer(void *arg, const ProtobufCMessage *response, const tutti_rpc_blob *payload,
          const tutti_error *err)
{
    fake_stream *stream = arg;

    if (stream->ended) { /* the client has gone: nobody hears it */
        end_command(stream, false);
        return;
    }
    stream->answered = true;
    stream->over = stream->self->script.run == FAKE_RUN_END_AFTER;
    write_answer(stream, response, payload, err);
}

static void
on_open(tutti_rpc_call *call, void *arg)
{
    fake_stream *stream = calloc(1, sizeof(*stream));
    fake_agent *self = arg;
    const unsigned open = atomic_fetch_add(&self->run_open, 1) + 1;

    assert_non_null(stream);
    (void)atomic_fetch_add(&self->run_count, 1);
    (void)atomic_fetch_add(&self->stream_count, 1);
    if (open > atomic_load(&self->run_most)) {
        atomic_store(&self->run_most, open);
    }
    stream->self = self;
    stream->call = call;
    tutti_rpc_call_set_user(call, stream);
    if (self->script.run == FAKE_RUN_REFUSE) {
        end_stream(stream, &self->script.error);
    } else {
        tutti_rpc_call_read(call);
    }
}

static void
on_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    const Tutti__V1__RunRequest *request = tutti_rpc_message_get(message);
    fake_stream *stream = tutti_rpc_call_user(call);
    fake_agent *self = arg;
    tutti_rpc_nested nested;

    if (++stream->count == 2 && self->script.run == FAKE_RUN_END_BEFORE) {
        end_stream(stream, &self->script.error);
        return;
    }
    (void)atomic_fetch_add(&self->command_count, 1);
    assert_true((request->options != NULL) == (stream->count == 1));
    stream->id = request->id;
    stream->number = (uint32_t)request->command_case;
    nested = (tutti_rpc_nested){.stream = call,
                                .message = tutti_rpc_call_take(call),
                                .request = (const ProtobufCMessage *)request->all_reduce,
                                .on_answer = on_answer,
                                .arg = stream};
    assert_int_equal(tutti_rpc_nested_new(&nested, &stream->command, NULL), TUTTI_OK);
    tutti_rpc_nested_start(stream->command);
}

static void
on_written(tutti_rpc_call *call, void *arg)
{
    fake_stream *stream = tutti_rpc_call_user(call);

    (void)arg;
    if (stream->command != NULL) { /* else it was given up meanwhile */
        end_command(stream, true);
    }
    if (stream->over) {
        end_stream(stream, NULL);
    } else if (!stream->ended) {
        tutti_rpc_call_read(call);
    }
}

static void
on_half_close(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    end_stream(tutti_rpc_call_user(call), NULL);
}

static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    fake_stream *stream = tutti_rpc_call_user(call);
    fake_agent *self = arg;
    tutti_error err;

    if (!stream->ended) {
        (void)atomic_fetch_add(&self->run_cancelled, 1);
    }
    (void)TUTTI_FAIL(&err, TUTTI_CANCELLED, "given up");
    end_stream(stream, &err);
    if (stream->answered) {
        end_command(stream, false);
    } else if (stream->command != NULL) {
        tutti_rpc_nested_cancel(stream->command, true);
    }
}

static void
on_end(tutti_rpc_call *call, void *arg)
{
    fake_agent *self = arg;

    free(tutti_rpc_call_user(call));
    (void)atomic_fetch_sub(&self->run_open, 1);
    (void)atomic_fetch_sub(&self->stream_count, 1);
}

const tutti_rpc_stream_ops fake_run_ops = {.on_open = on_open,
                                           .on_message = on_message,
                                           .on_half_close = on_half_close,
                                           .on_written = on_written,
                                           .on_cancel = on_cancel,
                                           .on_end = on_end};
