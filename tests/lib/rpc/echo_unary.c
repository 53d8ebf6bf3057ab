/* Calls with one answer, and those that are parked. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "echo_service.h"
#include "rpc/loop/loop_private.h"
#include "rpc/util/process.h"

typedef struct parked_call {
    tutti_list_node link;
    tutti_rpc_call *call;
    echo_server *server;
} parked_call;

uint64_t
echo_sum_payload(tutti_rpc_message *message)
{
    uint64_t sum = 0;
    tutti_bytes run;

    while ((run = tutti_rpc_message_peek(message, SIZE_MAX)).size > 0) {
        size_t i;

        for (i = 0; i < run.size; i++) {
            sum += ((const unsigned char *)run.data)[i];
        }
    }
    return sum;
}

void
echo_fail_fully(tutti_rpc_call *call, int32_t code)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, (tutti_code)code, "SHAPE_MISMATCH",
                         "caf\xc3\xa9 100%%: rank 3 called all_reduce(FP16[1024])");
    tutti_error_set_op(&err, "tp/0", 41, 3);
    err.scope = TUTTI_SCOPE_GROUP;
    tutti_rpc_call_fail(call, &err);
}

void
echo_reply(tutti_rpc_call *call, const echo_fields *fields)
{
    echo_storage storage;

    tutti_rpc_call_reply(call, echo_response(&storage, fields), NULL);
}

static void *
reply_later(void *arg)
{
    tutti_rpc_call *call = arg;
    const echo_fields asked = echo_request_fields(tutti_rpc_call_request(call));
    const echo_fields fields = {.text = asked.text, .number = asked.number};

    echo_reply(call, &fields);
    return NULL;
}

void
echo_answer_elsewhere(tutti_rpc_call *call, void *(*answer)(void *arg))
{
    pthread_t thread;
    const int failed = pthread_create(&thread, NULL, answer, call);

    assert(failed == 0);
    (void)failed;
    (void)pthread_detach(thread);
}

typedef struct counted_payload {
    echo_server *server;
    unsigned char bytes[];
} counted_payload;

static void
on_release(void *arg)
{
    counted_payload *payload = arg;

    rpc_tag_acquire(arg);
    (void)atomic_fetch_add(&payload->server->released, 1);
    free(payload);
}

tutti_rpc_blob
echo_make_payload(echo_server *self, size_t size)
{
    counted_payload *payload = malloc(sizeof(*payload) + size);

    assert(payload != NULL);
    payload->server = self;
    memset(payload->bytes, 7, size);
    (void)atomic_fetch_add(&self->made, 1);
    return (tutti_rpc_blob){payload->bytes, size, on_release, payload};
}

static void
reply_payload(echo_server *self, tutti_rpc_call *call, uint64_t size)
{
    const tutti_rpc_blob payload = echo_make_payload(self, (size_t)size);
    const echo_fields fields = {.number = size};
    echo_storage storage;

    tutti_rpc_call_reply(call, echo_response(&storage, &fields), &payload);
}

size_t
echo_read_metadata(const tutti_rpc_call *call, const char *key, char ret_text[256])
{
    const tutti_bytes value = tutti_rpc_call_metadata(call, key);
    const size_t size = value.size < 255 ? value.size : 255;

    memcpy(ret_text, value.data == NULL ? "" : value.data, size);
    ret_text[size] = '\0';
    return value.size;
}

static void
reply_metadata(tutti_rpc_call *call, const char *key)
{
    char text[256];
    const echo_fields fields = {.text = text, .number = echo_read_metadata(call, key, text)};

    echo_reply(call, &fields);
}

static void
reply_colour(tutti_rpc_call *call, int colour)
{
    char text[32];
    const echo_fields fields = {.text = text};

    (void)snprintf(text, sizeof(text), "colour %d", colour);
    echo_reply(call, &fields);
}

static void
reply_deadline(tutti_rpc_call *call)
{
    const uint64_t deadline = tutti_rpc_call_deadline(call);
    const uint64_t now = tutti_clock_ns();
    const echo_fields fields = {
        .number = deadline == TUTTI_TIMERS_NEVER ? 0 : (deadline - now) / TUTTI_NS_PER_MS};

    echo_reply(call, &fields);
}

static void
reply_stats(const echo_server *self, tutti_rpc_call *call)
{
    char text[256];
    const echo_fields fields = {.text = text};

    (void)snprintf(text, sizeof(text),
                   "cancelled=%zu ended=%zu messages=%zu half-closed=%zu parked=%zu calls=%zu",
                   self->cancel_count, self->end_count, self->message_count, self->half_close_count,
                   self->parked_count, tutti_rpc_server_call_count(self->server));
    echo_reply(call, &fields);
}

void
echo_on_unary(tutti_rpc_call *call, void *arg)
{
    tutti_rpc_message *message = tutti_rpc_call_message(call);
    const echo_fields asked = echo_request_fields(tutti_rpc_call_request(call));
    echo_fields fields = {.text = asked.text, .number = tutti_rpc_message_payload_bytes(message)};

    if (asked.fail != 0) {
        echo_fail_fully(call, asked.fail);
    } else if (strcmp(asked.text, "/later") == 0) {
        echo_answer_elsewhere(call, reply_later);
    } else if (strcmp(asked.text, "/payload") == 0) {
        reply_payload(arg, call, asked.count);
    } else if (strcmp(asked.text, "/metadata") == 0) {
        reply_metadata(call, "x-echo");
    } else if (strcmp(asked.text, "/lease") == 0) {
        reply_metadata(call, "tutti-lease");
    } else if (strcmp(asked.text, "/identity") == 0) {
        fields.text = tutti_rpc_call_identity(call);
        echo_reply(call, &fields);
    } else if (strcmp(asked.text, "/peer") == 0) {
        fields.text = tutti_rpc_call_peer(call);
        echo_reply(call, &fields);
    } else if (strcmp(asked.text, "/colour") == 0) {
        reply_colour(call, asked.colour);
    } else if (strcmp(asked.text, "/stats") == 0) {
        reply_stats(arg, call);
    } else if (strcmp(asked.text, "/deadline") == 0) {
        reply_deadline(call);
    } else {
        if (strcmp(asked.text, "/sleep") == 0) {
            (void)usleep((useconds_t)asked.number * 1000);
        }
        fields.sum = echo_sum_payload(message);
        echo_reply(call, &fields);
    }
}

static void
unpark(parked_call *parked)
{
    tutti_list_remove(&parked->link);
    (void)atomic_fetch_sub(&parked->server->parked_count, 1);
    free(parked);
}

static void
on_park_cancel(tutti_rpc_call *call, void *arg)
{
    echo_server *self = arg;
    tutti_error err;

    (void)atomic_fetch_add(&self->cancel_count, 1);
    if (!atomic_load(&self->keep_parked)) {
        unpark(tutti_rpc_call_user(call));
        (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "DRAINING", "not today");
        tutti_rpc_call_fail(call, &err);
    }
}

void
echo_on_park(tutti_rpc_call *call, void *arg)
{
    echo_server *self = arg;
    parked_call *parked = calloc(1, sizeof(*parked));

    assert(parked != NULL);
    parked->call = call;
    parked->server = self;
    tutti_list_add(&self->parked, &parked->link);
    tutti_rpc_call_set_user(call, parked);
    tutti_rpc_call_on_cancel(call, on_park_cancel);
    (void)atomic_fetch_add(&self->parked_count, 1);
}

void
echo_release_parked(echo_server *self)
{
    const echo_fields fields = {.text = "released"};

    while (!tutti_list_empty(&self->parked)) {
        parked_call *parked = tutti_container_of(self->parked.next, parked_call, link);
        tutti_rpc_call *call = parked->call;

        unpark(parked);
        echo_reply(call, &fields);
    }
}
