/*
 * A tutti_error as a gRPC status and back. The whole error (reason, group, sequence number, rank,
 * scope) travels in the trailer grpc-status-details-bin as google.rpc.Status with one ErrorInfo;
 * the text also in grpc-message, cut to TEXT_ENCODED_MAX.
 *
 * gRPC 1.51 refuses metadata above 8 KiB, the whole status with it, so the sizes are bounded: the
 * static_asserts add them up. What comes in may be hostile: it is unpacked with the checks of any
 * message, cleaned, and believed only if it says the same code as the status itself.
 */
#include "rpc/message/status_pb.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "rpc/message.h"
#include "rpc/message/message.h"

#define TEXT_ENCODED_MAX 1600 /* of grpc-message; the details carry the whole text */
#define INFO_BYTES_MAX 640
#define DETAILS_BYTES_MAX 1840 /* 2453 as base64 */
#define ENTRIES_MAX 4
#define VALUE_BYTES_MAX TUTTI_ERROR_GROUP_MAX
#define TYPE_URL "type.googleapis.com/google.rpc.ErrorInfo"
#define DOMAIN "tutti"

static_assert(TEXT_ENCODED_MAX + (DETAILS_BYTES_MAX + 2) / 3 * 4 < TUTTI_RPC_STATUS_MAX,
              "a status fits into its limit");
static_assert(INFO_BYTES_MAX + TUTTI_ERROR_TEXT_MAX + 64 < DETAILS_BYTES_MAX,
              "the longest error fits into the details");

typedef Google__Rpc__ErrorInfo__MetadataEntry entry;

static const char *const scope_names[] = {"call", "group", "agent"};

/* The map of an ErrorInfo, with the memory its entries point to. */
typedef struct entries {
    entry list[ENTRIES_MAX];
    entry *pointers[ENTRIES_MAX];
    char values[ENTRIES_MAX][VALUE_BYTES_MAX];
    size_t count;
} entries;

static char *
add_entry(entries *all, const char *key)
{
    entry *one = &all->list[all->count];
    char *value = all->values[all->count];

    assert(all->count < ENTRIES_MAX);
    google__rpc__error_info__metadata_entry__init(one);
    one->key = (char *)(uintptr_t)key;
    one->value = value;
    all->pointers[all->count++] = one;
    return value;
}

/* Of NOT_LEADER, which is about no group, it is the address of the leader. */
static const char *
name_of_group(const tutti_error *err)
{
    return strcmp(err->reason, "NOT_LEADER") == 0 ? "leader" : "group";
}

static void
fill_entries(entries *all, const tutti_error *err)
{
    all->count = 0;
    if (err->group[0] != '\0') {
        rpc_status_clean(add_entry(all, name_of_group(err)), VALUE_BYTES_MAX,
                         tutti_bytes_of(err->group), SIZE_MAX);
    }
    if (err->sequence != 0) {
        (void)snprintf(add_entry(all, "sequence"), VALUE_BYTES_MAX, "%" PRIu64, err->sequence);
    }
    if (err->rank != TUTTI_ERROR_RANK_NONE) {
        (void)snprintf(add_entry(all, "rank"), VALUE_BYTES_MAX, "%" PRId32, err->rank);
    }
    if (err->scope != TUTTI_SCOPE_CALL) {
        (void)snprintf(add_entry(all, "scope"), VALUE_BYTES_MAX, "%s", scope_names[err->scope]);
    }
}

/* Packed into `ret_bytes`; the size. */
static size_t
pack_info(const tutti_error *err, unsigned char ret_bytes[INFO_BYTES_MAX])
{
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    char reason[TUTTI_ERROR_REASON_MAX];
    entries all;

    rpc_status_clean(reason, sizeof(reason), tutti_bytes_of(err->reason), SIZE_MAX);
    fill_entries(&all, err);
    info.reason = reason[0] != '\0' ? reason : (char *)(uintptr_t)tutti_code_name(err->code);
    info.domain = (char *)(uintptr_t)DOMAIN;
    info.n_metadata = all.count;
    info.metadata = all.pointers;
    assert(google__rpc__error_info__get_packed_size(&info) <= INFO_BYTES_MAX);
    return google__rpc__error_info__pack(&info, ret_bytes);
}

size_t
rpc_status_pack(const tutti_error *err, unsigned char *ret_bytes, size_t size)
{
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT;
    Google__Protobuf__Any *details = &any;
    unsigned char info[INFO_BYTES_MAX];
    char text[TUTTI_ERROR_TEXT_MAX];

    rpc_status_clean(text, sizeof(text), tutti_bytes_of(err->text), SIZE_MAX);
    any.type_url = (char *)(uintptr_t)TYPE_URL;
    any.value = (ProtobufCBinaryData){pack_info(err, info), info};
    status.code = (int32_t)err->code;
    status.message = text;
    status.n_details = 1;
    status.details = &details;
    if (google__rpc__status__get_packed_size(&status) > size) {
        return 0;
    }
    return google__rpc__status__pack(&status, ret_bytes);
}

void
rpc_status_init(rpc_status *status, const tutti_error *err)
{
    unsigned char details[DETAILS_BYTES_MAX];
    char text[TUTTI_ERROR_TEXT_MAX];
    size_t size;

    *status = (rpc_status){.code = GRPC_STATUS_OK, .text = grpc_empty_slice()};
    if (err == NULL) {
        return;
    }
    assert(err->code != TUTTI_OK);
    rpc_status_clean(text, sizeof(text), tutti_bytes_of(err->text), TEXT_ENCODED_MAX);
    status->code = (grpc_status_code)err->code;
    status->text = grpc_slice_from_copied_string(text);
    size = rpc_status_pack(err, details, sizeof(details));
    if (size > 0) {
        status->details.key = grpc_slice_from_static_string("grpc-status-details-bin");
        status->details.value = grpc_slice_from_copied_buffer((const char *)details, size);
        status->detail_count = 1;
    }
}

void
rpc_status_fini(rpc_status *status)
{
    grpc_slice_unref(status->text);
    status->text = grpc_empty_slice();
    if (status->detail_count > 0) {
        grpc_slice_unref(status->details.value);
        status->detail_count = 0;
    }
}

static tutti_scope
parse_scope(const char *name)
{
    size_t i;

    for (i = 0; i < sizeof(scope_names) / sizeof(scope_names[0]); i++) {
        if (strcmp(name, scope_names[i]) == 0) {
            return (tutti_scope)i;
        }
    }
    return TUTTI_SCOPE_CALL;
}

static void
read_status_entry(const entry *one, tutti_error *err)
{
    uint64_t number = 0;

    if (strcmp(one->key, name_of_group(err)) == 0) {
        rpc_status_clean(err->group, sizeof(err->group), tutti_bytes_of(one->value), SIZE_MAX);
    } else if (strcmp(one->key, "sequence") == 0) {
        if (tutti_parse_uint(one->value, UINT64_MAX, &number, NULL) == TUTTI_OK) {
            err->sequence = number;
        }
    } else if (strcmp(one->key, "rank") == 0) {
        if (tutti_parse_uint(one->value, INT32_MAX, &number, NULL) == TUTTI_OK) {
            err->rank = (int32_t)number;
        }
    } else if (strcmp(one->key, "scope") == 0) {
        err->scope = parse_scope(one->value);
    }
}

static void
read_status_info(const Google__Protobuf__Any *any, tutti_error *err)
{
    const tutti_bytes wire = {any->value.data, any->value.len};
    tutti_rpc_message *message = NULL;
    const Google__Rpc__ErrorInfo *info;
    size_t i;

    if (strcmp(any->type_url, TYPE_URL) != 0 ||
        rpc_unpack_bytes(&google__rpc__error_info__descriptor, wire, &message, NULL) != TUTTI_OK) {
        return;
    }
    info = tutti_rpc_message_get(message);
    if (strcmp(info->domain, DOMAIN) == 0) {
        if (strcmp(info->reason, tutti_code_name(err->code)) != 0) {
            rpc_status_clean(err->reason, sizeof(err->reason), tutti_bytes_of(info->reason),
                             SIZE_MAX);
        }
        for (i = 0; i < info->n_metadata; i++) {
            read_status_entry(info->metadata[i], err);
        }
    }
    tutti_rpc_message_free(message);
}

/* True when they were what they claim to be, and say the same code. */
static bool
read_details(tutti_bytes details, tutti_error *err)
{
    tutti_rpc_message *message = NULL;
    const Google__Rpc__Status *status;
    bool same;
    size_t i;

    if (details.size == 0 || details.size > 2 * TUTTI_RPC_STATUS_MAX ||
        rpc_unpack_bytes(&google__rpc__status__descriptor, details, &message, NULL) != TUTTI_OK) {
        return false;
    }
    status = tutti_rpc_message_get(message);
    same = status->code == (int32_t)err->code;
    if (same && status->message[0] != '\0') {
        rpc_status_clean(err->text, sizeof(err->text), tutti_bytes_of(status->message), SIZE_MAX);
    }
    for (i = 0; same && i < status->n_details; i++) {
        read_status_info(status->details[i], err);
    }
    tutti_rpc_message_free(message);
    return same;
}

tutti_code
rpc_status_decode(grpc_status_code status, tutti_bytes text, tutti_bytes details,
                  bool *ret_from_peer, tutti_error *err)
{
    const bool known = status >= GRPC_STATUS_OK && status <= GRPC_STATUS_UNAUTHENTICATED;
    const tutti_code code = known ? (tutti_code)status : TUTTI_UNKNOWN;
    tutti_error all;

    *ret_from_peer = false;
    if (code == TUTTI_OK) {
        return TUTTI_OK;
    }
    (void)TUTTI_FAIL(&all, code, "%s", "");
    rpc_status_clean(all.text, sizeof(all.text), text, SIZE_MAX);
    *ret_from_peer = read_details(details, &all);
    if (!*ret_from_peer) {
        tutti_error_set_cause(&all, "grpc", (int)status);
    }
    if (all.reason[0] == '\0') { /* gRPC itself, a proxy, or a server of somebody else's */
        (void)strcpy(all.reason, "GRPC_STATUS");
    }
    if (all.text[0] == '\0') {
        (void)snprintf(all.text, sizeof(all.text), "the server answered %s", tutti_code_name(code));
    }
    return tutti_error_pass(err, &all);
}
