/* Chat behind "/nest": every message is a nested Unary call, and its answer the stream's. */
#include <assert.h>
#include <stdlib.h>

#include "echo_service.h"
#include "rpc/nested.h"

struct echo_nest {
    tutti_rpc_call *stream;
    tutti_rpc_call *call;
};

/* Packed at once, as what an answer points to is borrowed; an error becomes text. */
static void
on_answer(void *arg, const struct ProtobufCMessage *response, const tutti_rpc_blob *payload,
          const tutti_error *err)
{
    const echo_nest *self = arg;
    tutti_rpc_packed *packed = NULL;
    echo_storage storage;
    echo_fields fields = {0};
    tutti_code code;

    if (err != NULL) {
        fields.text = err->reason;
        fields.number = (uint64_t)err->code;
        response = echo_response(&storage, &fields);
    }
    code = tutti_rpc_pack(response, payload, &packed, NULL);
    assert(code == TUTTI_OK);
    (void)code;
    (void)tutti_rpc_call_write_packed(self->stream, packed, false);
}

echo_nest *
echo_nest_begin(tutti_rpc_call *stream)
{
    tutti_rpc_message *message = tutti_rpc_call_take(stream);
    const echo_fields asked = echo_request_fields(tutti_rpc_message_get(message));
    echo_nest *self = calloc(1, sizeof(*self));
    const tutti_rpc_nested nested = {.stream = stream,
                                     .message = message,
                                     .request = tutti_rpc_message_get(message),
                                     .on_answer = on_answer,
                                     .arg = self,
                                     .lease = asked.count};
    tutti_code code;

    assert(self != NULL);
    self->stream = stream;
    code = tutti_rpc_nested_new(&nested, &self->call, NULL);
    assert(code == TUTTI_OK);
    (void)code;
    assert(tutti_rpc_loop_is_current(tutti_rpc_nested_loop(self->call)));
    tutti_rpc_nested_start(self->call);
    return self;
}

void
echo_nest_end(echo_nest *self, bool delivered)
{
    if (self != NULL) {
        tutti_rpc_nested_end(self->call, delivered);
        free(self);
    }
}
