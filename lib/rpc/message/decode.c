/*
 * One pass over the bytes. `at` moves forward; each read is bounded by `end`, which is that of the innermost message.
 * The recursion is bounded by TUTTI_RPC_DEPTH_MAX.
 *
 * A repeated field is counted where it is met first, as all of it mostly lies together, so its array is taken once. The
 * formats are those of the protobuf encoding specification; how members lie in structs, and what their initial values are, is
 * protobuf-c's.
 */
#include "rpc/message/decode.h"

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>
#include <string.h>

#include "rpc/message/check.h"
#include "rpc/message/wire_type.h"

#define VARINT_BYTES_MAX 10
#define HEAD_BYTES_MAX 5 /* of a tag, and of a length */

typedef struct decoder {
    const unsigned char *at;
    const unsigned char *end;
    rpc_arena *arena;
    bool strict;
    unsigned depth;
} decoder;

static bool decode_message(decoder *self, const ProtobufCMessageDescriptor *type,
                           unsigned char *to);

static bool
read_varint(decoder *self, uint64_t *ret_number)
{
    uint64_t number = 0;
    unsigned shift;

    if (self->at < self->end && *self->at < 0x80) {
        *ret_number = *self->at++;
        return true;
    }
    for (shift = 0; shift < 7 * VARINT_BYTES_MAX && self->at < self->end; shift += 7) {
        const unsigned char byte = *self->at++;

        number |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret_number = number;
            return true;
        }
    }
    return false;
}

/* A tag, or a length. */
static bool
read_head(decoder *self, uint64_t *ret_number)
{
    const unsigned char *begin = self->at;

    return read_varint(self, ret_number) && self->at - begin <= HEAD_BYTES_MAX;
}

/* The bytes of a field of wire type 2; the cursor stands behind them. */
static bool
read_bytes(decoder *self, tutti_bytes *ret_value)
{
    uint64_t size;

    if (!read_head(self, &size) || size > (uint64_t)(self->end - self->at)) {
        return false;
    }
    *ret_value = (tutti_bytes){self->at, (size_t)size};
    self->at += size;
    return true;
}

/* Texts are ASCII, mostly: those need no look at each character. NUL is none of these. */
static bool
is_text(tutti_bytes value)
{
    const unsigned char *bytes = value.data;
    size_t i;

    for (i = 0; i < value.size; i++) {
        if (bytes[i] == 0 || bytes[i] >= 0x80) {
            return rpc_check_text(value);
        }
    }
    return true;
}

static bool
decode_text(decoder *self, char **to)
{
    tutti_bytes value;
    char *text;

    if (!read_bytes(self, &value) || !is_text(value)) {
        return false;
    }
    text = rpc_arena_take(self->arena, value.size + 1);
    if (text == NULL) {
        return false;
    }
    memcpy(text, value.data, value.size);
    text[value.size] = '\0';
    *to = text;
    return true;
}

static bool
decode_bytes(decoder *self, ProtobufCBinaryData *to)
{
    tutti_bytes value;
    uint8_t *data = NULL;

    if (!read_bytes(self, &value)) {
        return false;
    }
    if (value.size > 0) {
        data = rpc_arena_take(self->arena, value.size);
        if (data == NULL) {
            return false;
        }
        memcpy(data, value.data, value.size);
    }
    *to = (ProtobufCBinaryData){.len = value.size, .data = data};
    return true;
}

static bool
decode_part(decoder *self, const ProtobufCMessageDescriptor *type, ProtobufCMessage **to)
{
    const unsigned char *end = self->end;
    tutti_bytes value;
    unsigned char *part;
    bool fine;

    if (!read_bytes(self, &value) || self->depth >= TUTTI_RPC_DEPTH_MAX) {
        return false;
    }
    part = rpc_arena_take(self->arena, type->sizeof_message);
    if (part == NULL) {
        return false;
    }
    self->at = value.data;
    self->end = self->at + value.size;
    self->depth++;
    fine = decode_message(self, type, part);
    self->depth--;
    self->end = end;
    *to = (ProtobufCMessage *)(void *)part;
    return fine;
}

/* ------------------------------------------------------------------------------ numbers */

static bool
decode_fixed(decoder *self, size_t size, void *to)
{
    if (size > (size_t)(self->end - self->at)) {
        return false;
    }
    memcpy(to, self->at, size); /* little-endian, as this machine (base/data) */
    self->at += size;
    return true;
}

static uint64_t
from_zigzag(uint64_t number)
{
    return number >> 1 ^ (0 - (number & 1));
}

static bool
decode_varint(decoder *self, const ProtobufCFieldDescriptor *field, unsigned char *to)
{
    const unsigned char *begin = self->at;
    uint64_t number;
    uint32_t small;

    if (!read_varint(self, &number)) {
        return false;
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL:
        if (self->at - begin != 1) { /* protobuf-c looks at each byte */
            return false;
        }
        *(protobuf_c_boolean *)(void *)to = number != 0;
        return true;
    case PROTOBUF_C_TYPE_ENUM:
        if (self->strict &&
            protobuf_c_enum_descriptor_get_value(field->descriptor, (int)(int64_t)number) == NULL) {
            return false;
        }
        break;
    case PROTOBUF_C_TYPE_SINT32:
        number = from_zigzag((uint32_t)number);
        break;
    case PROTOBUF_C_TYPE_SINT64:
        number = from_zigzag(number);
        break;
    default:
        break;
    }
    if (rpc_value_bytes(field->type) == sizeof(number)) {
        memcpy(to, &number, sizeof(number));
    } else {
        small = (uint32_t)number;
        memcpy(to, &small, sizeof(small));
    }
    return true;
}

static bool
decode_number(decoder *self, const ProtobufCFieldDescriptor *field, unsigned char *to)
{
    return rpc_wire_type_of(field->type) == PROTOBUF_C_WIRE_TYPE_VARINT
               ? decode_varint(self, field, to)
               : decode_fixed(self, rpc_value_bytes(field->type), to);
}

/* ------------------------------------------------------------------------------ fields */

/* One value of a field; the cursor stands behind its tag. */
static bool
decode_value(decoder *self, const ProtobufCFieldDescriptor *field, unsigned char *to)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        return decode_text(self, (char **)(void *)to);
    case PROTOBUF_C_TYPE_BYTES:
        return decode_bytes(self, (ProtobufCBinaryData *)(void *)to);
    case PROTOBUF_C_TYPE_MESSAGE:
        return decode_part(self, field->descriptor, (ProtobufCMessage **)(void *)to);
    default:
        return decode_number(self, field, to);
    }
}

/* How many numbers are in a packed field; 0: their last one is cut. */
static size_t
count_packed(const ProtobufCFieldDescriptor *field, tutti_bytes packed)
{
    const unsigned char *bytes = packed.data;
    size_t count = 0;
    size_t i;

    if (rpc_wire_type_of(field->type) != PROTOBUF_C_WIRE_TYPE_VARINT) {
        return packed.size % rpc_value_bytes(field->type) == 0
                   ? packed.size / rpc_value_bytes(field->type)
                   : 0;
    }
    for (i = 0; i < packed.size; i++) {
        count += bytes[i] < 0x80;
    }
    return packed.size > 0 && bytes[packed.size - 1] < 0x80 ? count : 0;
}

static bool
decode_packed(decoder *self, const ProtobufCFieldDescriptor *field, size_t *ret_count, void **to)
{
    const size_t size = rpc_value_bytes(field->type);
    const unsigned char *end = self->end;
    tutti_bytes packed;
    unsigned char *array;
    size_t count;
    size_t i;

    if (!read_bytes(self, &packed)) {
        return false;
    }
    count = count_packed(field, packed);
    array = count == 0 ? NULL : rpc_arena_take(self->arena, count * size);
    if (array == NULL) {
        return false;
    }
    self->at = packed.data;
    self->end = self->at + packed.size;
    for (i = 0; i < count; i++) {
        if (!decode_number(self, field, array + i * size)) {
            return false;
        }
    }
    self->end = end;
    *ret_count = count;
    *to = array;
    return true;
}

/* How many fields with this tag, whose values have lengths, begin at the cursor: it is behind the first tag. */
static size_t
count_together(const decoder *self, uint64_t tag)
{
    decoder ahead = *self;
    tutti_bytes ignored;
    uint64_t next = tag;
    size_t count = 0;

    while (next == tag && read_bytes(&ahead, &ignored)) {
        count++;
        if (!read_head(&ahead, &next)) {
            break;
        }
    }
    return count;
}

/* Texts, bytes and messages; the tag of the first one has been read. */
static bool
decode_list(decoder *self, const ProtobufCFieldDescriptor *field, uint64_t tag, size_t *ret_count,
            void **to)
{
    const size_t size = rpc_value_bytes(field->type);
    const size_t count = count_together(self, tag);
    unsigned char *array;
    size_t i;

    array = count == 0 ? NULL : rpc_arena_take(self->arena, count * size);
    if (array == NULL) {
        return false;
    }
    for (i = 0; i < count; i++) {
        if ((i > 0 && !read_head(self, &tag)) || !decode_value(self, field, array + i * size)) {
            return false;
        }
    }
    *ret_count = count;
    *to = array;
    return true;
}

static bool
decode_repeated(decoder *self, const ProtobufCFieldDescriptor *field, uint64_t tag,
                unsigned char *message)
{
    size_t *count = (size_t *)(void *)(message + field->quantifier_offset);
    void **array = (void **)(void *)(message + field->offset);

    if (*count != 0 || (tag & 7) != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED) {
        return false;
    }
    return rpc_wire_type_of(field->type) == PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED
               ? decode_list(self, field, tag, count, array)
               : decode_packed(self, field, count, array);
}

static bool
decode_single(decoder *self, const ProtobufCFieldDescriptor *field, unsigned char *message)
{
    unsigned char *to = message + field->offset;

    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        uint32_t *which = (uint32_t *)(void *)(message + field->quantifier_offset);

        if (*which != 0) {
            return false;
        }
        *which = field->id;
    } else if (field->type == PROTOBUF_C_TYPE_MESSAGE && *(void **)(void *)to != NULL) {
        return false;
    }
    return decode_value(self, field, to);
}

static bool
decode_field(decoder *self, const ProtobufCFieldDescriptor *field, uint64_t tag,
             unsigned char *message)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        return decode_repeated(self, field, tag, message);
    }
    return field->label == PROTOBUF_C_LABEL_NONE && (tag & 7) == rpc_wire_type_of(field->type) &&
           decode_single(self, field, message);
}

/* Fields mostly come in the order of their numbers: the one behind the last one is looked at first. */
static const ProtobufCFieldDescriptor *
find_field(const ProtobufCMessageDescriptor *type, unsigned *next, uint64_t number)
{
    const ProtobufCFieldDescriptor *field;

    if (*next < type->n_fields && type->fields[*next].id == number) {
        return &type->fields[(*next)++];
    }
    field = number > UINT32_MAX >> 3
                ? NULL
                : protobuf_c_message_descriptor_get_field(type, (unsigned)number);
    *next = field == NULL ? *next : (unsigned)(field - type->fields) + 1;
    return field;
}

static bool
decode_message(decoder *self, const ProtobufCMessageDescriptor *type, unsigned char *to)
{
    unsigned next = 0;
    uint64_t tag;

    if (type->message_init == NULL) {
        return false;
    }
    type->message_init((ProtobufCMessage *)(void *)to);
    while (self->at < self->end) {
        const ProtobufCFieldDescriptor *field;

        if (!read_head(self, &tag)) {
            return false;
        }
        field = find_field(type, &next, tag >> 3);
        if (field == NULL || !decode_field(self, field, tag, to)) {
            return false;
        }
    }
    return true;
}

ProtobufCMessage *
rpc_decode(const ProtobufCMessageDescriptor *type, tutti_bytes wire, bool strict, rpc_arena *arena)
{
    const unsigned char *bytes = wire.size == 0 ? (const unsigned char *)"" : wire.data;
    decoder self = {
        .at = bytes, .end = bytes + wire.size, .arena = arena, .strict = strict, .depth = 1};
    unsigned char *to = rpc_arena_take(arena, type->sizeof_message);

    return to != NULL && decode_message(&self, type, to) ? (ProtobufCMessage *)(void *)to : NULL;
}
