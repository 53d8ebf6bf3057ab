/*
 * What protobuf-c does not check, checked on the bytes before they are unpacked: depth (it
 * recurses), UTF-8 and NUL in texts (it cuts them), enum numbers (it takes any). Pure functions
 * of the bytes; any thread. The recursion here is bounded by TUTTI_RPC_DEPTH_MAX, so no message
 * can run this or protobuf-c out of stack.
 */
#include "rpc/message/check.h"

#include <inttypes.h>
#include <protobuf-c/protobuf-c.h>

#include "base/data/utf8.h"
#include "base/error/fail.h"
#include "rpc/message/scan.h"

typedef struct walk {
    bool strict;
    unsigned depth;
} walk;

static tutti_code check_message(const ProtobufCMessageDescriptor *type, tutti_bytes wire, walk at,
                                tutti_error *err);

bool
rpc_check_text(tutti_bytes text)
{
    const unsigned char *at = text.data;
    size_t left = text.size;

    while (left > 0) {
        const size_t size = tutti_utf8_size(at, left);

        if (size == 0) {
            return false;
        }
        at += size;
        left -= size;
    }
    return true;
}

static tutti_code
check_enum(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
           uint64_t number, tutti_error *err)
{
    const ProtobufCEnumDescriptor *names = field->descriptor;

    if (protobuf_c_enum_descriptor_get_value(names, (int)(int64_t)number) == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ENUM",
                              "%s.%s: %" PRId64 " is no value of %s", type->name, field->name,
                              (int64_t)number, names->name);
    }
    return TUTTI_OK;
}

static tutti_code
fail_malformed(const ProtobufCMessageDescriptor *type, tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "MALFORMED_MESSAGE", "malformed %s",
                          type->name);
}

/* A field of wire type 2: text, a message, or packed numbers. */
static tutti_code
check_field_bytes(const ProtobufCMessageDescriptor *type, const ProtobufCFieldDescriptor *field,
                  tutti_bytes value, walk at, tutti_error *err)
{
    rpc_cursor cursor;
    uint64_t number = 0;
    tutti_code code = TUTTI_OK;

    if (field->type == PROTOBUF_C_TYPE_STRING && !rpc_check_text(value)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_TEXT",
                              "%s.%s: %zu bytes that are not UTF-8, or hold a NUL", type->name,
                              field->name, value.size);
    }
    if (field->type == PROTOBUF_C_TYPE_MESSAGE) {
        return check_message(field->descriptor, value, at, err);
    }
    if (field->type != PROTOBUF_C_TYPE_ENUM || !at.strict) {
        return TUTTI_OK;
    }
    rpc_cursor_init(&cursor, &value, value.size);
    while (cursor.left > 0 && code == TUTTI_OK) {
        code = rpc_cursor_varint(&cursor, 10, &number) ? check_enum(type, field, number, err)
                                                       : fail_malformed(type, err);
    }
    return code;
}

/* One field at the cursor, which moves behind it. */
static tutti_code
check_field(const ProtobufCMessageDescriptor *type, rpc_cursor *cursor, walk at, tutti_error *err)
{
    const ProtobufCFieldDescriptor *field;
    uint64_t tag = 0;
    uint64_t number = 0;
    unsigned wire;
    size_t fixed;

    if (!rpc_cursor_varint(cursor, 5, &tag) || tag > UINT32_MAX || tag >> 3 == 0) {
        return fail_malformed(type, err);
    }
    wire = (unsigned)(tag & 7);
    field = protobuf_c_message_descriptor_get_field(type, (unsigned)(tag >> 3));
    if (wire == PROTOBUF_C_WIRE_TYPE_VARINT || wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
        if (!rpc_cursor_varint(cursor, 10, &number)) {
            return fail_malformed(type, err);
        }
    }
    if (wire == PROTOBUF_C_WIRE_TYPE_VARINT) {
        return field != NULL && field->type == PROTOBUF_C_TYPE_ENUM && at.strict
                   ? check_enum(type, field, number, err)
                   : TUTTI_OK;
    }
    if (wire == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED && number <= cursor->left) {
        const tutti_bytes value = rpc_cursor_take(cursor, (size_t)number);

        return field == NULL ? TUTTI_OK : check_field_bytes(type, field, value, at, err);
    }
    fixed = wire == PROTOBUF_C_WIRE_TYPE_32BIT ? 4 : wire == PROTOBUF_C_WIRE_TYPE_64BIT ? 8 : 0;
    if (fixed == 0 || fixed > cursor->left) {
        return fail_malformed(type, err);
    }
    rpc_cursor_skip(cursor, fixed);
    return TUTTI_OK;
}

static tutti_code
check_message(const ProtobufCMessageDescriptor *type, tutti_bytes wire, walk at, tutti_error *err)
{
    rpc_cursor cursor;
    tutti_code code = TUTTI_OK;

    if (++at.depth > TUTTI_RPC_DEPTH_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TOO_DEEP",
                              "messages are nested more than %d deep, the limit",
                              TUTTI_RPC_DEPTH_MAX);
    }
    rpc_cursor_init(&cursor, &wire, wire.size);
    while (cursor.left > 0 && code == TUTTI_OK) {
        code = check_field(type, &cursor, at, err);
    }
    return code;
}

tutti_code
rpc_check(const struct ProtobufCMessageDescriptor *type, tutti_bytes wire, bool strict,
          tutti_error *err)
{
    return check_message(type, wire, (walk){.strict = strict}, err);
}
