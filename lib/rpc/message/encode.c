/*
 * Backwards: `at` is where the last byte was written, `begin` is where the room ends. Fields are written from the last one to
 * the first one. The formats are those of the protobuf encoding specification; which fields are written, is as protobuf-c has it: members of
 * a oneof by its case, others if they are not zero.
 */
#include "rpc/message/encode.h"

#include <protobuf-c/protobuf-c.h>
#include <stdint.h>
#include <string.h>

#include "rpc/message/wire_type.h"

typedef struct encoder {
    unsigned char *at;
    unsigned char *begin;
} encoder;

static bool encode_message(encoder *self, const ProtobufCMessage *message);

static bool
encode_bytes(encoder *self, const void *data, size_t size)
{
    if (size > (size_t)(self->at - self->begin)) {
        return false;
    }
    self->at -= size;
    if (size > 0) {
        memcpy(self->at, data, size);
    }
    return true;
}

static size_t
varint_bytes(uint64_t number)
{
    return number == 0 ? 1 : ((size_t)(63 - __builtin_clzll(number)) / 7) + 1;
}

static bool
encode_varint(encoder *self, uint64_t number)
{
    const size_t size = varint_bytes(number);
    size_t i;

    if (size > (size_t)(self->at - self->begin)) {
        return false;
    }
    self->at -= size;
    for (i = 0; i + 1 < size; i++) {
        self->at[i] = (unsigned char)(number | 0x80);
        number >>= 7;
    }
    self->at[i] = (unsigned char)number;
    return true;
}

static bool
encode_tag(encoder *self, const ProtobufCFieldDescriptor *field, unsigned wire)
{
    return encode_varint(self, (uint64_t)field->id << 3 | wire);
}

static bool
encode_sized(encoder *self, const ProtobufCFieldDescriptor *field, const void *data, size_t size)
{
    return encode_bytes(self, data, size) && encode_varint(self, size) &&
           encode_tag(self, field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
}

static bool
encode_part(encoder *self, const ProtobufCFieldDescriptor *field, const ProtobufCMessage *part)
{
    const unsigned char *end = self->at;

    return (part == NULL || encode_message(self, part)) &&
           encode_varint(self, (uint64_t)(end - self->at)) &&
           encode_tag(self, field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
}

/* ------------------------------------------------------------------------------ numbers */

static uint64_t
to_zigzag(int64_t number)
{
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

/* The number of a varint's type, as it is on the wire. */
static uint64_t
read_number(ProtobufCType type, const void *from)
{
    switch (type) {
    case PROTOBUF_C_TYPE_BOOL:
        return *(const protobuf_c_boolean *)from != 0;
    case PROTOBUF_C_TYPE_UINT32:
        return *(const uint32_t *)from;
    case PROTOBUF_C_TYPE_SINT32:
        return (uint32_t)to_zigzag(*(const int32_t *)from);
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_ENUM:
        return (uint64_t)(int64_t) * (const int32_t *)from; /* ten bytes, if it is negative */
    case PROTOBUF_C_TYPE_SINT64:
        return to_zigzag(*(const int64_t *)from);
    default:
        return *(const uint64_t *)from;
    }
}

static bool
encode_number(encoder *self, ProtobufCType type, const void *from)
{
    switch (rpc_wire_type_of(type)) {
    case PROTOBUF_C_WIRE_TYPE_32BIT:
        return encode_bytes(self, from, sizeof(uint32_t));
    case PROTOBUF_C_WIRE_TYPE_64BIT:
        return encode_bytes(self, from, sizeof(uint64_t));
    default:
        return encode_varint(self, read_number(type, from));
    }
}

static bool
is_zero(ProtobufCType type, const void *from)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FLOAT:
        return *(const float *)from == 0; /* also -0, as protobuf-c has it */
    case PROTOBUF_C_TYPE_DOUBLE:
        return *(const double *)from == 0;
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FIXED32:
        return *(const uint32_t *)from == 0;
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_FIXED64:
        return *(const uint64_t *)from == 0;
    case PROTOBUF_C_TYPE_STRING:
        return *(const char *const *)from == NULL || **(const char *const *)from == '\0';
    case PROTOBUF_C_TYPE_BYTES:
        return ((const ProtobufCBinaryData *)from)->len == 0;
    case PROTOBUF_C_TYPE_MESSAGE:
        return *(const ProtobufCMessage *const *)from == NULL;
    default:
        return read_number(type, from) == 0;
    }
}

/* ------------------------------------------------------------------------------ fields */

/* With its tag. */
static bool
encode_value(encoder *self, const ProtobufCFieldDescriptor *field, const void *from)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(const char *const *)from;

        return encode_sized(self, field, text, text == NULL ? 0 : strlen(text));
    }
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *bytes = from;

        return encode_sized(self, field, bytes->data, bytes->len);
    }
    case PROTOBUF_C_TYPE_MESSAGE:
        return encode_part(self, field, *(const ProtobufCMessage *const *)from);
    default:
        return encode_number(self, field->type, from) &&
               encode_tag(self, field, rpc_wire_type_of(field->type));
    }
}

static bool
encode_repeated(encoder *self, const ProtobufCFieldDescriptor *field, const unsigned char *message)
{
    const size_t size = rpc_value_bytes(field->type);
    const unsigned char *array = *(const unsigned char *const *)(message + field->offset);
    const bool packed = (field->flags & PROTOBUF_C_FIELD_FLAG_PACKED) != 0;
    size_t count = *(const size_t *)(message + field->quantifier_offset);
    const unsigned char *end = self->at;

    if (count == 0) {
        return true;
    }
    while (count > 0) {
        const void *from = array + --count * size;

        if (!(packed ? encode_number(self, field->type, from) : encode_value(self, field, from))) {
            return false;
        }
    }
    return !packed || (encode_varint(self, (uint64_t)(end - self->at)) &&
                       encode_tag(self, field, PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED));
}

static bool
is_written(const ProtobufCFieldDescriptor *field, const unsigned char *message)
{
    const void *from = message + field->offset;
    const bool pointer =
        field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE;

    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) == 0) {
        return !is_zero(field->type, from);
    }
    if (*(const uint32_t *)(const void *)(message + field->quantifier_offset) != field->id) {
        return false;
    }
    return !pointer || (*(const void *const *)from != NULL &&
                        *(const void *const *)from != field->default_value);
}

static bool
encode_field(encoder *self, const ProtobufCFieldDescriptor *field, const unsigned char *message)
{
    if (field->label == PROTOBUF_C_LABEL_REPEATED) {
        return encode_repeated(self, field, message);
    }
    if (field->label != PROTOBUF_C_LABEL_NONE) {
        return false;
    }
    return !is_written(field, message) || encode_value(self, field, message + field->offset);
}

/*
 * A request may be one of forty in a oneof, whose members stand together: those that are not meant are stepped over
 * here. `i` is the number behind the last member; returns that of the member that is meant, or of the first one.
 */
static unsigned
find_member(const ProtobufCFieldDescriptor *fields, unsigned i, const unsigned char *message)
{
    const unsigned which = fields[--i].quantifier_offset;
    const uint32_t meant = *(const uint32_t *)(const void *)(message + which);

    while (fields[i].id != meant && i > 0 && fields[i - 1].quantifier_offset == which &&
           (fields[i - 1].flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        i--;
    }
    return i;
}

static bool
encode_message(encoder *self, const ProtobufCMessage *message)
{
    const ProtobufCFieldDescriptor *fields = message->descriptor->fields;
    const unsigned char *bytes = (const unsigned char *)message;
    unsigned i = message->descriptor->n_fields;

    if (message->n_unknown_fields > 0) {
        return false;
    }
    while (i > 0) {
        i = (fields[i - 1].flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 ? find_member(fields, i, bytes)
                                                                     : i - 1;
        if (!encode_field(self, &fields[i], bytes)) {
            return false;
        }
    }
    return true;
}

unsigned char *
rpc_encode(const ProtobufCMessage *message, unsigned char *room, size_t size)
{
    encoder self = {.at = room + size, .begin = room};

    return encode_message(&self, message) ? self.at : NULL;
}
