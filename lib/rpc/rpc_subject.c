/* Whom a message speaks for, read through its descriptor: the fields `job`, `member` and `rank`. */
#include <protobuf-c/protobuf-c.h>
#include <string.h>

#include "rpc/rpc_call.h"

/* A field that is not repeated, and set if it is one of several; NULL = it is not there. */
static const void *
value_of(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const char *base = (const char *)message;

    if (field == NULL || field->label == PROTOBUF_C_LABEL_REPEATED) {
        return NULL;
    }
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
        *(const uint32_t *)(const void *)(base + field->quantifier_offset) != field->id) {
        return NULL;
    }
    return base + field->offset;
}

static const ProtobufCFieldDescriptor *
find_field(const ProtobufCMessage *message, const char *name, ProtobufCType type)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);

    return field != NULL && field->type == type ? field : NULL;
}

static const ProtobufCMessage *
message_in(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const void *value = value_of(message, field);

    return value == NULL ? NULL : *(const ProtobufCMessage *const *)value;
}

static bool
read_job(const ProtobufCMessage *message, const char **ret_job)
{
    const void *value = value_of(message, find_field(message, "job", PROTOBUF_C_TYPE_STRING));

    if (value != NULL) {
        *ret_job = *(const char *const *)value;
    }
    return value != NULL;
}

static bool
read_rank(const ProtobufCMessage *message, uint32_t *ret_rank)
{
    const void *value = value_of(message, find_field(message, "rank", PROTOBUF_C_TYPE_UINT32));

    if (value != NULL) {
        *ret_rank = *(const uint32_t *)value;
    }
    return value != NULL;
}

/* In the message, or in one that is in it: the first thing a session says is such a one. */
static const ProtobufCMessage *
find_member(const ProtobufCMessage *message, unsigned deeper)
{
    const ProtobufCMessage *member =
        message_in(message, find_field(message, "member", PROTOBUF_C_TYPE_MESSAGE));
    unsigned i;

    for (i = 0; i < message->descriptor->n_fields && member == NULL && deeper > 0; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const ProtobufCMessage *inner =
            field->type == PROTOBUF_C_TYPE_MESSAGE ? message_in(message, field) : NULL;

        member = inner == NULL ? NULL : find_member(inner, deeper - 1);
    }
    return member;
}

tutti_rpc_subject
rpc_subject_of(const ProtobufCMessage *message)
{
    tutti_rpc_subject subject = {.has_job = false};
    const ProtobufCMessage *member = find_member(message, 1);

    subject.has_job = read_job(message, &subject.job);
    subject.has_seat = read_rank(message, &subject.seat);
    if (member != NULL) {
        subject.has_job = read_job(member, &subject.job) || subject.has_job;
        subject.has_rank = read_rank(member, &subject.rank);
    }
    return subject;
}
