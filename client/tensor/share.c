/*
 * A view: a tensor's memory mapped into this process, or, where that is not possible (another
 * host, another user, the agent does not lend), a copy that is pulled and pushed. One thread at a
 * time for each view.
 */
#include "client/tensor/share.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/local.h"
#include "base/os/log.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "tutti/share.h"

#define ALIGN 64U
#define LOOK_AGAIN_NS (5 * TUTTI_NS_PER_MS)

struct tutti_view {
    tutti_client *client;
    tutti_handle handle;
    tutti_share_view share; /* zero of a copy */
    void *copy;             /* [owned] NULL = it is shared */
    tutti_error why;        /* of a copy */
    uint64_t bytes;
    bool writable;
};

/* ------------------------------------------------------------------------------ mapping */

static tutti_code
map_share(tutti_client *client, const char *handle, bool writable, tutti_view *view,
          tutti_error *err)
{
    char host_id[TUTTI_LOCAL_HOST_MAX + 1];
    client_share_offer offer;

    tutti_local_host_id(getenv("TUTTI_HOST_ID"), host_id);
    TUTTI_TRY(client_wire_share(client, handle, writable, host_id, &offer, err));
    TUTTI_TRY(tutti_share_take(offer.socket, (tutti_bytes){offer.token, sizeof(offer.token)},
                               client->settings.timeout_ms, &view->share, err));
    if (view->share.bytes != offer.bytes || view->share.writable != writable) {
        tutti_share_drop(&view->share);
        return TUTTI_FAIL_FOR(
            err, TUTTI_DATA_LOSS, "BAD_ANSWER",
            "the memory that the agent sent is not the memory that was asked for");
    }
    view->handle = offer.handle;
    view->bytes = offer.bytes;
    return TUTTI_OK;
}

/*
 * Is this a reason for which a copy helps? Others (no such tensor, no permission) would fail for
 * a copy, too.
 */
static bool
helps_copy(const tutti_error *err)
{
    static const char *const reasons[] = {"SHARE_OFF",       "OTHER_HOST", "CANNOT_SHARE",
                                          "NO_SHARE_SOCKET", "OTHER_USER", "SHARE_LIMIT"};
    size_t i;

    for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (strcmp(err->reason, reasons[i]) == 0) {
            return true;
        }
    }
    return err->code == TUTTI_UNIMPLEMENTED;
}

/* ------------------------------------------------------------------------------ a copy */

/* What it is, once the op that makes it has said so. */
static tutti_code
learn_share(tutti_client *client, const char *handle, tutti_view *view, tutti_error *err)
{
    const uint64_t deadline_ns = client_deadline(client, 0);
    tutti_tensor_info info;
    tutti_code code = tutti_tensor_stat(client, handle, &info, err);

    while (code == TUTTI_OK && !info.handle.known && !info.failed) {
        if (tutti_clock_ns() >= deadline_ns) {
            return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "TIMEOUT",
                                  "the op that makes %.127s has not ended after %" PRIu32 " ms",
                                  handle, client->settings.timeout_ms);
        }
        client_pause_ns(LOOK_AGAIN_NS);
        code = tutti_tensor_stat(client, handle, &info, err);
    }
    if (code == TUTTI_OK && info.failed) {
        code = tutti_error_pass(err, &info.error);
    }
    if (code == TUTTI_OK) {
        view->handle = info.handle;
        view->bytes = info.bytes;
    }
    return code;
}

static tutti_code
copy_share(tutti_client *client, const char *handle, tutti_view *view, tutti_error *err)
{
    size_t room;

    TUTTI_TRY(learn_share(client, handle, view, err));
    room = ((size_t)view->bytes / ALIGN + 1) * ALIGN;
    view->copy = view->bytes > SIZE_MAX / 2 ? NULL : aligned_alloc(ALIGN, room);
    if (view->copy == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a copy of %" PRIu64 " bytes", view->bytes);
    }
    return tutti_view_pull(view, err);
}

/* Once for a process: from then on it is no news. That there is nothing to map is none either. */
static void
say_copy(const tutti_error *why)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;

    if (strcmp(why->reason, "CANNOT_SHARE") != 0 && !atomic_flag_test_and_set(&said)) {
        TUTTI_LOG("client", WARN, "tensors are copied instead of mapped: %s", why->text);
    }
}

/* ------------------------------------------------------------------------------ the door */

static tutti_code
fill_view(tutti_client *client, const char *handle, uint32_t flags, tutti_view *view,
          tutti_error *err)
{
    tutti_code code = map_share(client, handle, view->writable, view, &view->why);

    if (code == TUTTI_OK) {
        return code;
    }
    if ((flags & TUTTI_MAP_OR_COPY) == 0 || !helps_copy(&view->why)) {
        return tutti_error_pass(err, &view->why);
    }
    say_copy(&view->why);
    return copy_share(client, handle, view, err);
}

tutti_code
tutti_tensor_map(tutti_client *client, const char *handle, uint32_t flags, tutti_view **ret_view,
                 tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_view, err);

    tutti_view *view;
    tutti_code code = client_check_handle(handle, err);

    if (code == TUTTI_OK && (flags & ~(TUTTI_MAP_WRITE | TUTTI_MAP_OR_COPY)) != 0) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_FLAGS",
                              "flags 0x%" PRIx32 " are unknown", flags);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    view = calloc(1, sizeof(*view));
    if (view == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a view");
    }
    view->client = client;
    view->writable = (flags & TUTTI_MAP_WRITE) != 0;
    code = fill_view(client, handle, flags, view, err);
    if (code != TUTTI_OK) {
        tutti_tensor_unmap(view);
        return code;
    }
    *ret_view = view;
    return TUTTI_OK;
}

void
tutti_tensor_unmap(tutti_view *view)
{
    if (view != NULL) {
        tutti_share_drop(&view->share);
        free(view->copy);
        free(view);
    }
}

void *
tutti_view_data(const tutti_view *view)
{
    return view->copy != NULL ? view->copy : view->share.data;
}

uint64_t
tutti_view_bytes(const tutti_view *view)
{
    return view->bytes;
}

const tutti_handle *
tutti_view_handle(const tutti_view *view)
{
    return &view->handle;
}

bool
tutti_view_is_shared(const tutti_view *view)
{
    return view->copy == NULL;
}

const tutti_error *
tutti_view_why(const tutti_view *view)
{
    return view->copy == NULL ? NULL : &view->why;
}

bool
tutti_view_is_revoked(const tutti_view *view)
{
    return view->copy == NULL && tutti_share_is_revoked(&view->share);
}

tutti_code
tutti_view_push(tutti_view *view, tutti_error *err)
{
    TUTTI_NEED(view, err);

    if (!view->writable) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "READ_ONLY",
                              "%s was mapped for reading: map it with TUTTI_MAP_WRITE to write it",
                              view->handle.text);
    }
    if (view->copy == NULL) {
        return TUTTI_OK;
    }
    return tutti_tensor_write(view->client, view->handle.text, &view->handle.spec, view->copy, NULL,
                              err);
}

tutti_code
tutti_view_pull(tutti_view *view, tutti_error *err)
{
    TUTTI_NEED(view, err);

    if (view->copy == NULL) {
        return TUTTI_OK;
    }
    return tutti_tensor_read(view->client, view->handle.text, view->copy, view->bytes, NULL, err);
}
