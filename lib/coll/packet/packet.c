/*
 * The bytes of a packet's header, of specs and of errors inside packets. Pure, any thread. All
 * readers take bytes of another process: they check sizes before they read, and give only values
 * that the rest of the code may rely on (a known kind, a spec that can exist, a code and a reason
 * with an end).
 */
#include "coll/packet/packet.h"

#include <assert.h>
#include <string.h>

#include "base/error/fail.h"

void
tutti_packet_put_u32(unsigned char *at, uint32_t number)
{
    int i;

    for (i = 0; i < 4; i++) {
        at[i] = (unsigned char)(number >> (8 * i));
    }
}

uint32_t
tutti_packet_get_u32(const unsigned char *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

void
tutti_packet_put_u64(unsigned char *at, uint64_t number)
{
    tutti_packet_put_u32(at, (uint32_t)number);
    tutti_packet_put_u32(at + 4, (uint32_t)(number >> 32));
}

uint64_t
tutti_packet_get_u64(const unsigned char *at)
{
    return tutti_packet_get_u32(at) | (uint64_t)tutti_packet_get_u32(at + 4) << 32;
}

/* The same with a cursor that moves on. */
static void
put_u32(unsigned char **at, uint32_t number)
{
    tutti_packet_put_u32(*at, number);
    *at += 4;
}

static void
put_u64(unsigned char **at, uint64_t number)
{
    tutti_packet_put_u64(*at, number);
    *at += 8;
}

static uint32_t
get_u32(const unsigned char **at)
{
    const uint32_t number = tutti_packet_get_u32(*at);

    *at += 4;
    return number;
}

static uint64_t
get_u64(const unsigned char **at)
{
    const uint64_t number = tutti_packet_get_u64(*at);

    *at += 8;
    return number;
}

void
tutti_packet_write(const tutti_packet *packet, unsigned char ret_bytes[TUTTI_PACKET_BYTES])
{
    unsigned char *at = ret_bytes;

    put_u32(&at, TUTTI_PACKET_VERSION);
    put_u32(&at, (uint32_t)packet->kind);
    put_u32(&at, packet->from);
    put_u32(&at, packet->step);
    put_u32(&at, packet->tag);
    put_u32(&at, 0);
    put_u64(&at, packet->job_id);
    put_u64(&at, packet->incarnation);
    put_u64(&at, packet->group);
    put_u64(&at, packet->epoch);
    put_u64(&at, packet->sequence);
    put_u64(&at, packet->extra);
    assert(at == ret_bytes + TUTTI_PACKET_BYTES);
}

bool
tutti_packet_read(const void *bytes, size_t size, tutti_packet *ret_packet)
{
    const unsigned char *at = bytes;
    uint32_t kind;

    if (size < TUTTI_PACKET_BYTES || get_u32(&at) != TUTTI_PACKET_VERSION) {
        return false;
    }
    kind = get_u32(&at);
    if (kind < TUTTI_PACKET_AGREE || kind > TUTTI_PACKET_SILENT) {
        return false;
    }
    ret_packet->kind = (tutti_packet_kind)kind;
    ret_packet->from = get_u32(&at);
    ret_packet->step = get_u32(&at);
    ret_packet->tag = get_u32(&at);
    (void)get_u32(&at);
    ret_packet->job_id = get_u64(&at);
    ret_packet->incarnation = get_u64(&at);
    ret_packet->group = get_u64(&at);
    ret_packet->epoch = get_u64(&at);
    ret_packet->sequence = get_u64(&at);
    ret_packet->extra = get_u64(&at);
    ret_packet->came_ns = 0;
    return true;
}

size_t
tutti_packet_write_spec(const tutti_spec *spec, unsigned char *ret_bytes)
{
    unsigned char *at = ret_bytes;
    uint32_t i;

    put_u32(&at, (uint32_t)spec->dtype | spec->dim_count << 16);
    for (i = 0; i < spec->dim_count; i++) {
        put_u64(&at, (uint64_t)spec->dims[i]);
    }
    return (size_t)(at - ret_bytes);
}

/* tutti_spec_check also excludes shapes whose bytes overflow: sizes are computed from this spec
 * later. */
size_t
tutti_packet_read_spec(const void *bytes, size_t size, tutti_spec *ret_spec)
{
    const unsigned char *at = bytes;
    tutti_spec spec = {0};
    uint32_t word;
    uint32_t i;

    if (size < 4) {
        return 0;
    }
    word = get_u32(&at);
    spec.dtype = (tutti_dtype)(word & 0xffff);
    spec.dim_count = word >> 16;
    if (spec.dim_count > TUTTI_DIMS_MAX || size < 4 + 8 * (size_t)spec.dim_count) {
        return 0;
    }
    for (i = 0; i < spec.dim_count; i++) {
        spec.dims[i] = (int64_t)get_u64(&at);
    }
    if (tutti_spec_check(&spec, NULL, NULL, NULL) != TUTTI_OK) {
        return 0;
    }
    *ret_spec = spec;
    return 4 + 8 * (size_t)spec.dim_count;
}

/* code, scope, rank, reason's bytes, reason, text to the end */
size_t
tutti_packet_write_error(const tutti_error *err, unsigned char *ret_bytes)
{
    const uint32_t reason_bytes = (uint32_t)strlen(err->reason);
    const size_t text_bytes = strlen(err->text);
    unsigned char *at = ret_bytes;

    put_u32(&at, (uint32_t)err->code);
    put_u32(&at, (uint32_t)err->scope);
    put_u32(&at, (uint32_t)err->rank);
    put_u32(&at, reason_bytes);
    memcpy(at, err->reason, reason_bytes);
    at += reason_bytes;
    memcpy(at, err->text, text_bytes);
    return (size_t)(at - ret_bytes) + text_bytes;
}

/* A peer's error must have a code that is a failure: OK as a failure would let an op end well that
 * another rank has failed. The text is copied with its length, as it has no end mark. */
void
tutti_packet_read_error(const void *bytes, size_t size, tutti_error *ret_err)
{
    const unsigned char *at = bytes;
    uint32_t code = 0;
    uint32_t scope = 0;
    int32_t rank = 0;
    uint32_t reason_bytes = UINT32_MAX;

    if (size >= 16) {
        code = get_u32(&at);
        scope = get_u32(&at);
        rank = (int32_t)get_u32(&at);
        reason_bytes = get_u32(&at);
    }
    if (code < TUTTI_CANCELLED || code > TUTTI_UNAUTHENTICATED || scope > TUTTI_SCOPE_AGENT ||
        reason_bytes >= TUTTI_ERROR_REASON_MAX || reason_bytes > size - 16 ||
        size - 16 - reason_bytes >= TUTTI_ERROR_TEXT_MAX) {
        (void)TUTTI_FAIL_FOR(ret_err, TUTTI_INTERNAL, "BAD_PACKET",
                             "another rank sent an error of %zu bytes that is malformed", size);
        return;
    }
    (void)TUTTI_FAIL(ret_err, (tutti_code)code, "%.*s", (int)(size - 16 - reason_bytes),
                     (const char *)at + reason_bytes);
    ret_err->scope = (tutti_scope)scope;
    ret_err->rank = rank;
    memcpy(ret_err->reason, at, reason_bytes);
    ret_err->reason[reason_bytes] = '\0';
}
