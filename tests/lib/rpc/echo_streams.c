/* Streams in all directions. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "echo_service.h"

/* A stream's own state. */
typedef struct stream {
    tutti_list_node link;
    tutti_rpc_call *call;
    uint64_t messages;
    uint64_t bytes;
    uint64_t sum;
    bool finishing; /* by another thread */
    bool nesting;   /* chat: messages are nested calls */
    echo_nest *nest;
} stream;

static void *
finish_later(void *arg)
{
    tutti_rpc_call_finish(arg, NULL);
    return NULL;
}

static stream *
open_stream(tutti_rpc_call *call)
{
    stream *self = calloc(1, sizeof(*self));

    assert(self != NULL);
    self->call = call;
    tutti_list_init(&self->link);
    tutti_rpc_call_set_user(call, self);
    return self;
}

static void
on_stream_cancel(tutti_rpc_call *call, void *arg)
{
    echo_server *self = arg;
    tutti_error err;

    (void)atomic_fetch_add(&self->cancel_count, 1);
    (void)TUTTI_FAIL(&err, TUTTI_UNAVAILABLE, "the stream was cut");
    tutti_rpc_call_finish(call, &err);
}

static void
on_stream_end(tutti_rpc_call *call, void *arg)
{
    echo_server *self = arg;
    stream *one = tutti_rpc_call_user(call);

    (void)atomic_fetch_add(&self->end_count, 1);
    tutti_list_remove(&one->link);
    echo_nest_end(one->nest, false);
    free(one);
}

static void
on_upload_open(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    (void)open_stream(call);
    tutti_rpc_call_read(call);
}

static void
on_upload_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    echo_server *self = arg;
    stream *one = tutti_rpc_call_user(call);
    const echo_fields asked = echo_request_fields(tutti_rpc_message_get(message));

    one->messages++;
    one->bytes += tutti_rpc_message_payload_bytes(message);
    one->sum += echo_sum_payload(message);
    (void)atomic_fetch_add(&self->message_count, 1);
    if (asked.fail != 0) {
        echo_fail_fully(call, asked.fail);
    } else if (strcmp(asked.text, "/slow") == 0) {
        tutti_list_add(&self->slow, &one->link);
    } else {
        tutti_rpc_call_read(call);
    }
}

static void
on_upload_half_close(tutti_rpc_call *call, void *arg)
{
    echo_server *self = arg;
    const stream *one = tutti_rpc_call_user(call);
    const echo_fields fields = {.count = one->messages, .number = one->bytes, .sum = one->sum};

    (void)atomic_fetch_add(&self->half_close_count, 1);
    echo_reply(call, &fields);
}

/* "/together": all but the last say that another one follows. */
static void
write_download(tutti_rpc_call *call, const echo_fields *asked, const echo_fields *fields,
               const tutti_rpc_blob *payload)
{
    const bool more = strcmp(asked->text, "/together") == 0 && fields->number + 1 < asked->count;
    tutti_rpc_packed *packed = NULL;
    echo_storage storage;
    tutti_code code = tutti_rpc_pack(echo_response(&storage, fields), payload, &packed, NULL);

    assert(code == TUTTI_OK);
    (void)code;
    (void)tutti_rpc_call_write_packed(call, packed, more);
}

static void
download_next(tutti_rpc_call *call, void *arg)
{
    echo_server *self = arg;
    stream *one = tutti_rpc_call_user(call);
    const echo_fields asked = echo_request_fields(tutti_rpc_call_request(call));
    const echo_fields fields = {.number = one->messages};
    tutti_rpc_blob payload;

    if (one->messages == asked.count) {
        if (asked.fail != 0) {
            echo_fail_fully(call, asked.fail);
        } else {
            tutti_rpc_call_finish(call, NULL);
        }
        return;
    }
    one->messages++;
    payload = echo_make_payload(self, (size_t)asked.number);
    write_download(call, &asked, &fields, &payload);
}

static void
on_download_open(tutti_rpc_call *call, void *arg)
{
    (void)open_stream(call);
    download_next(call, arg);
}

static void
on_download_written(tutti_rpc_call *call, void *arg)
{
    echo_server *self = arg;

    (void)atomic_fetch_add(&self->written_count, 1);
    download_next(call, arg);
}

static void
on_chat_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    const echo_fields asked = echo_request_fields(tutti_rpc_message_get(message));
    echo_fields fields = {.text = asked.text, .number = asked.number};
    stream *one = tutti_rpc_call_user(call);
    echo_storage storage;
    char lease[256];
    char thread[16];

    (void)arg;
    if (strcmp(asked.text, "/thread") == 0) {
        (void)pthread_getname_np(pthread_self(), thread, sizeof(thread));
        fields.text = thread;
    }
    if (strcmp(asked.text, "/lease") == 0) {
        (void)echo_read_metadata(call, "tutti-lease", lease);
        fields.text = lease;
    }
    if (one->nesting) {
        one->nest = echo_nest_begin(call);
        return;
    }
    one->nesting = strcmp(asked.text, "/nest") == 0;
    if (asked.fail != 0) {
        echo_fail_fully(call, asked.fail);
        return;
    }
    tutti_rpc_call_write(call, echo_response(&storage, &fields), NULL);
    if (strcmp(asked.text, "/finish") == 0) {
        one->finishing = true;
        echo_answer_elsewhere(call, finish_later);
    }
}

static void
on_chat_written(tutti_rpc_call *call, void *arg)
{
    stream *one = tutti_rpc_call_user(call);

    (void)arg;
    echo_nest_end(one->nest, true);
    one->nest = NULL;
    if (!one->finishing) {
        tutti_rpc_call_read(call);
    }
}

static void
on_chat_half_close(tutti_rpc_call *call, void *arg)
{
    echo_server *self = arg;

    (void)atomic_fetch_add(&self->half_close_count, 1);
    tutti_rpc_call_finish(call, NULL);
}

const tutti_rpc_stream_ops echo_upload_ops = {.on_open = on_upload_open,
                                              .on_message = on_upload_message,
                                              .on_half_close = on_upload_half_close,
                                              .on_cancel = on_stream_cancel,
                                              .on_end = on_stream_end};

const tutti_rpc_stream_ops echo_download_ops = {.on_open = on_download_open,
                                                .on_written = on_download_written,
                                                .on_cancel = on_stream_cancel,
                                                .on_end = on_stream_end};

const tutti_rpc_stream_ops echo_chat_ops = {.on_open = on_upload_open,
                                            .on_message = on_chat_message,
                                            .on_half_close = on_chat_half_close,
                                            .on_written = on_chat_written,
                                            .on_cancel = on_stream_cancel,
                                            .on_end = on_stream_end};

void
echo_release_slow(echo_server *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->slow)) != NULL) {
        tutti_rpc_call_read(tutti_container_of(link, stream, link)->call);
    }
}
