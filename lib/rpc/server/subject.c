/* Whom a message speaks for, read through its descriptor: the fields `job`, `member`, and `rank` or
 * `group_rank`. */
#include <protobuf-c/protobuf-c.h>
#include <string.h>

#include "rpc/server.h"
#include "rpc/server/call.h"

/* A field that is not repeated, and set if it is one of several; NULL = it is not there. */
static const void *
get_subject_value(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
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
    const void *value = get_subject_value(message, field);

    return value == NULL ? NULL : *(const ProtobufCMessage *const *)value;
}

static bool
read_job(const ProtobufCMessage *message, const char **ret_job)
{
    const void *value =
        get_subject_value(message, find_field(message, "job", PROTOBUF_C_TYPE_STRING));

    if (value != NULL) {
        *ret_job = *(const char *const *)value;
    }
    return value != NULL;
}

static bool
read_subject_number(const ProtobufCMessage *message, const char *name, uint32_t *ret_number)
{
    const void *value =
        get_subject_value(message, find_field(message, name, PROTOBUF_C_TYPE_UINT32));

    if (value != NULL) {
        *ret_number = *(const uint32_t *)value;
    }
    return value != NULL;
}

/*
 * In the message, or in one that is in it: the first thing a session says is such a one. True:
 * there is a place for a member; *ret_member is NULL when it is empty.
 */
static bool
find_member(const ProtobufCMessage *message, unsigned deeper, const ProtobufCMessage **ret_member)
{
    const ProtobufCFieldDescriptor *place = find_field(message, "member", PROTOBUF_C_TYPE_MESSAGE);
    bool found = place != NULL;
    unsigned i;

    *ret_member = message_in(message, place);
    for (i = 0; i < message->descriptor->n_fields && !found && deeper > 0; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const ProtobufCMessage *inner =
            field->type == PROTOBUF_C_TYPE_MESSAGE ? message_in(message, field) : NULL;

        found = inner != NULL && find_member(inner, deeper - 1, ret_member);
    }
    return found;
}

static bool
read_seat(const ProtobufCMessage *message, uint32_t *ret_seat)
{
    return read_subject_number(message, "rank", ret_seat) ||
           read_subject_number(message, "group_rank", ret_seat);
}

tutti_rpc_subject
rpc_subject_of(const ProtobufCMessage *message)
{
    tutti_rpc_subject subject = {.has_job = false};
    const ProtobufCMessage *member = NULL;
    const bool placed = find_member(message, 1, &member);

    subject.has_job = read_job(message, &subject.job);
    subject.has_seat = read_seat(message, &subject.seat);
    if (member != NULL) {
        subject.has_job = read_job(member, &subject.job) || subject.has_job;
        subject.has_rank = read_subject_number(member, "rank", &subject.rank);
    } else if (placed) {
        subject.has_job = true; /* handlers take it for nobody of the job "default" */
        subject.job = "";
    }
    return subject;
}
