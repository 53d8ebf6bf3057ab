/*
 * Tensors: what is checked before a call, and which way bytes take: up to TUTTI_INLINE_BYTES_MAX
 * in one message, more by streams.
 */
#include "client/tensor/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/options.h"
#include "client/tensor/tensors.h"
#include "client/tensor/transfer.h"
#include "tensor/spec.h"

tutti_code
tutti_spec_size(const tutti_spec *spec, uint64_t *ret_count, uint64_t *ret_bytes, tutti_error *err)
{
    TUTTI_NEED(spec, err);

    return tutti_spec_check(spec, ret_count, ret_bytes, err);
}

static tutti_code
check_range(const char *handle, uint64_t offset, const tutti_spec *spec, tutti_error *err)
{
    const size_t element = tutti_dtype_bytes(spec->dtype);

    if (handle == NULL || handle[0] == '\0' || strlen(handle) > TUTTI_NAME_MAX ||
        strchr(handle, '@') != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "a range of %.140s: need the handle or name of a tensor, of 1 to %d "
                              "bytes and without @",
                              handle == NULL ? "NULL" : handle, TUTTI_NAME_MAX);
    }
    TUTTI_TRY(tutti_spec_check(spec, NULL, NULL, err));
    if (offset % element != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANGE_ALIGN",
                              "a range of %s from byte %" PRIu64 " on: need a multiple of the %zu "
                              "bytes of an element",
                              tutti_dtype_name(spec->dtype), offset, element);
    }
    return TUTTI_OK;
}

tutti_code
tutti_range_format(const char *handle, uint64_t offset, const tutti_spec *spec,
                   char ret_text[TUTTI_RANGE_MAX + 1], tutti_error *err)
{
    TUTTI_NEED(spec, err);
    TUTTI_NEED(handle, err);
    TUTTI_NEED(ret_text, err);

    tutti_text text;
    uint32_t i;

    TUTTI_TRY(check_range(handle, offset, spec, err));
    text = tutti_text_in(ret_text, TUTTI_RANGE_MAX + 1);
    tutti_text_add(&text, "%s@%" PRIu64 ":%s[", handle, offset, tutti_dtype_name(spec->dtype));
    for (i = 0; i < spec->dim_count; i++) {
        tutti_text_add(&text, i == 0 ? "%" PRId64 : ",%" PRId64, spec->dims[i]);
    }
    tutti_text_add(&text, "]");
    return TUTTI_OK;
}

void
tutti_transfer_init(tutti_transfer *transfer)
{
    *transfer = (tutti_transfer){.size = sizeof(*transfer)};
}

static tutti_code
take_transfer(const tutti_transfer *given, tutti_transfer *ret, tutti_error *err)
{
    tutti_transfer own;
    tutti_code code = TUTTI_OK;

    tutti_transfer_init(&own);
    if (given != NULL) {
        code = client_take_struct(&own, sizeof(own), given, given->size, "transfer", err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    own.chunk_bytes = own.chunk_bytes == 0 ? CLIENT_CHUNK_BYTES : own.chunk_bytes;
    if (own.chunk_bytes < CLIENT_CHUNK_BYTES_MIN || own.chunk_bytes > TUTTI_CHUNK_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "CHUNK_LIMIT",
                              "chunks of %" PRIu32 " bytes, need %u to %u", own.chunk_bytes,
                              CLIENT_CHUNK_BYTES_MIN, TUTTI_CHUNK_BYTES_MAX);
    }
    if (own.streams > TUTTI_STREAMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "STREAM_LIMIT",
                              "%" PRIu32 " streams for a transfer, at most %d", own.streams,
                              TUTTI_STREAMS_MAX);
    }
    *ret = own;
    return TUTTI_OK;
}

/* After a transfer in one message: there was nothing to tell before. */
static void
tell_done(const tutti_transfer *transfer, uint64_t bytes)
{
    if (transfer->on_progress != NULL) {
        (void)transfer->on_progress(transfer->arg, bytes, bytes);
    }
}

static tutti_code
put_any(tutti_client *client, const client_put *put, const tutti_transfer *transfer,
        tutti_handle *ret_handle, tutti_error *err)
{
    if (put->bytes > TUTTI_INLINE_BYTES_MAX) {
        return client_wire_upload(client, put, transfer, ret_handle, err);
    }
    TUTTI_TRY(client_wire_put(client, put, client_deadline(client, transfer->timeout_ms),
                              ret_handle, err));
    tell_done(transfer, put->bytes);
    return TUTTI_OK;
}

tutti_code
client_put_any(tutti_client *client, const client_put *put, const tutti_transfer *transfer,
               tutti_handle *ret_handle, tutti_error *err)
{
    const void *data = put->data;
    client_put checked = *put;
    tutti_transfer own;

    TUTTI_TRY(tutti_spec_size(put->spec, NULL, &checked.bytes, err));
    TUTTI_NEED_LIST(data, checked.bytes, err);
    TUTTI_TRY(take_transfer(transfer, &own, err));
    return put_any(client, &checked, &own, ret_handle, err);
}

tutti_code
tutti_tensor_put(tutti_client *client, const tutti_spec *spec, const void *data, const char *name,
                 const tutti_transfer *transfer, tutti_handle *ret_handle, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);
    TUTTI_NEED(ret_handle, err);

    const client_put put = {.spec = spec, .data = data, .name = name};

    return client_put_any(client, &put, transfer, ret_handle, err);
}

tutti_code
tutti_tensor_write(tutti_client *client, const char *handle, const tutti_spec *spec,
                   const void *data, const tutti_transfer *transfer, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(spec, err);

    const client_put put = {.spec = spec, .data = data, .into = handle};
    tutti_handle written;

    TUTTI_TRY(client_check_handle(handle, err));

    return client_put_any(client, &put, transfer, &written, err);
}

tutti_code
tutti_tensor_read(tutti_client *client, const char *handle, void *data, uint64_t bytes,
                  const tutti_transfer *transfer, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED_LIST(data, bytes, err);

    tutti_transfer own;

    TUTTI_TRY(client_check_handle(handle, err));
    TUTTI_TRY(take_transfer(transfer, &own, err));
    if (bytes > TUTTI_INLINE_BYTES_MAX) {
        return client_wire_download(client, handle, data, bytes, &own, err);
    }
    TUTTI_TRY(
        client_wire_get(client, handle, data, bytes, client_deadline(client, own.timeout_ms), err));
    tell_done(&own, bytes);
    return TUTTI_OK;
}
