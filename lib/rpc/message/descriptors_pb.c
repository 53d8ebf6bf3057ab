/*
 * The descriptor set that is built into the program: unpacked once, read only afterwards. It is
 * trusted. Both forms are kept: the structs, to know which methods stream, and the bytes of each
 * file, which reflection sends unchanged (packing them again would lose fields that protobuf-c
 * does not know).
 */
#include "rpc/message/descriptors_pb.h"

#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "google/protobuf/descriptor.pb-c.h"
#include "rpc/message/scan.h"

#define SET_FILE_TAG 10 /* field 1 of FileDescriptorSet, length-delimited */

typedef Google__Protobuf__FileDescriptorProto file_proto;
typedef Google__Protobuf__DescriptorProto type_proto;
typedef Google__Protobuf__EnumDescriptorProto enum_proto;
typedef Google__Protobuf__ServiceDescriptorProto service_proto;

struct rpc_descriptors {
    Google__Protobuf__FileDescriptorSet *set;
    tutti_bytes files[TUTTI_RPC_FILES_MAX]; /* the same files as bytes */
    size_t count;
};

/* Cut the files out of the set: they are sent as they are, not packed again. */
static bool
cut_files(rpc_descriptors *self, tutti_bytes set)
{
    rpc_cursor cursor;

    rpc_cursor_init(&cursor, &set, set.size);
    while (cursor.left > 0) {
        uint64_t tag = 0;
        uint64_t size = 0;

        if (!rpc_cursor_varint(&cursor, 5, &tag) || tag != SET_FILE_TAG ||
            !rpc_cursor_varint(&cursor, 10, &size) || size > cursor.left ||
            self->count == TUTTI_RPC_FILES_MAX) {
            return false;
        }
        self->files[self->count++] = rpc_cursor_take(&cursor, (size_t)size);
    }
    return true;
}

tutti_code
rpc_descriptors_open(tutti_bytes set, rpc_descriptors **ret_descriptors, tutti_error *err)
{
    rpc_descriptors *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no memory for descriptors");
    }
    /* The set is part of this program, so its depth and size need no guard. */
    self->set = google__protobuf__file_descriptor_set__unpack(NULL, set.size, set.data);
    if (self->set == NULL || !cut_files(self, set) || self->count != self->set->n_file) {
        rpc_descriptors_close(self);
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "MALFORMED_MESSAGE",
            "descriptor set of %zu bytes is not readable, or has more than %d files", set.size,
            TUTTI_RPC_FILES_MAX);
    }
    *ret_descriptors = self;
    return TUTTI_OK;
}

void
rpc_descriptors_close(rpc_descriptors *descriptors)
{
    if (descriptors != NULL) {
        google__protobuf__file_descriptor_set__free_unpacked(descriptors->set, NULL);
        free(descriptors);
    }
}

/* What is left of `symbol` behind "scope." or "scope"; NULL when it is not inside that scope. */
static const char *
is_inside_descriptor(const char *symbol, const char *scope)
{
    const size_t size = scope == NULL ? 0 : strlen(scope);

    if (size == 0) {
        return symbol;
    }
    if (strncmp(symbol, scope, size) != 0 || (symbol[size] != '.' && symbol[size] != '\0')) {
        return NULL;
    }
    return symbol + size + (symbol[size] == '.' ? 1 : 0);
}

/* Does "Method" or "" name something in a service of that name? */
static const service_proto *
find_service(const file_proto *file, const char *symbol, const char **ret_rest)
{
    const char *rest = is_inside_descriptor(symbol, file->package);
    size_t i;

    for (i = 0; rest != NULL && i < file->n_service; i++) {
        *ret_rest = is_inside_descriptor(rest, file->service[i]->name);
        if (*ret_rest != NULL && *ret_rest != rest) {
            return file->service[i];
        }
    }
    return NULL;
}

static const Google__Protobuf__MethodDescriptorProto *
find_method(const service_proto *service, const char *name)
{
    size_t i;

    for (i = 0; i < service->n_method; i++) {
        if (strcmp(service->method[i]->name, name) == 0) {
            return service->method[i];
        }
    }
    return NULL;
}

bool
rpc_descriptors_method(const rpc_descriptors *descriptors, const char *service, const char *method,
                       bool *ret_client_streams, bool *ret_server_streams)
{
    size_t i;

    for (i = 0; i < descriptors->count; i++) {
        const char *rest = NULL;
        const service_proto *found = find_service(descriptors->set->file[i], service, &rest);
        const Google__Protobuf__MethodDescriptorProto *one =
            found == NULL || rest[0] != '\0' ? NULL : find_method(found, method);

        if (one != NULL) {
            *ret_client_streams = one->has_client_streaming && one->client_streaming;
            *ret_server_streams = one->has_server_streaming && one->server_streaming;
            return true;
        }
    }
    return false;
}

int
rpc_descriptors_file(const rpc_descriptors *descriptors, const char *name)
{
    size_t i;

    for (i = 0; i < descriptors->count; i++) {
        if (strcmp(descriptors->set->file[i]->name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static bool
has_enum(enum_proto *const *enums, size_t count, const char *name)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (strcmp(enums[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool
has_field(const type_proto *type, const char *name)
{
    size_t i;

    for (i = 0; i < type->n_field; i++) {
        if (strcmp(type->field[i]->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Is `name` one of these types, or, unless only types count, something inside one of them? */
static bool
has_type(type_proto *const *types, size_t count, const char *name, bool only_types)
{
    size_t i;

    for (i = 0; i < count; i++) {
        const type_proto *type = types[i];
        const char *rest = is_inside_descriptor(name, type->name);

        if (rest == NULL || rest == name) {
            continue;
        }
        if (rest[0] == '\0' || has_type(type->nested_type, type->n_nested_type, rest, only_types) ||
            (!only_types &&
             (has_enum(type->enum_type, type->n_enum_type, rest) || has_field(type, rest)))) {
            return true;
        }
    }
    return false;
}

static bool
descriptor_declares(const file_proto *file, const char *symbol)
{
    const char *rest = is_inside_descriptor(symbol, file->package);
    const char *method = NULL;
    const service_proto *service = find_service(file, symbol, &method);

    if (rest == NULL || rest[0] == '\0') {
        return false; /* a package is no symbol */
    }
    return (service != NULL && (method[0] == '\0' || find_method(service, method) != NULL)) ||
           has_type(file->message_type, file->n_message_type, rest, false) ||
           has_enum(file->enum_type, file->n_enum_type, rest);
}

int
rpc_descriptors_symbol(const rpc_descriptors *descriptors, const char *symbol)
{
    size_t i;

    for (i = 0; i < descriptors->count; i++) {
        if (descriptor_declares(descriptors->set->file[i], symbol)) {
            return (int)i;
        }
    }
    return -1;
}

bool
rpc_descriptors_has_type(const rpc_descriptors *descriptors, const char *type)
{
    size_t i;

    for (i = 0; i < descriptors->count; i++) {
        const file_proto *file = descriptors->set->file[i];
        const char *rest = is_inside_descriptor(type, file->package);

        if (rest != NULL && has_type(file->message_type, file->n_message_type, rest, true)) {
            return true;
        }
    }
    return false;
}

static void
mark_descriptor(const rpc_descriptors *self, int file, bool *marks)
{
    const file_proto *one = self->set->file[file];
    size_t i;

    /* Files may import each other's imports: each once. */
    if (marks[file]) {
        return;
    }
    marks[file] = true;
    for (i = 0; i < one->n_dependency; i++) {
        const int next = rpc_descriptors_file(self, one->dependency[i]);

        if (next >= 0) {
            mark_descriptor(self, next, marks);
        }
    }
}

size_t
rpc_descriptors_closure(const rpc_descriptors *descriptors, int file,
                        tutti_bytes ret_files[TUTTI_RPC_FILES_MAX])
{
    bool marks[TUTTI_RPC_FILES_MAX] = {false};
    size_t count = 0;
    size_t i;

    mark_descriptor(descriptors, file, marks);
    ret_files[count++] = descriptors->files[file]; /* what was asked for comes first */
    for (i = 0; i < descriptors->count; i++) {
        if (marks[i] && (int)i != file) {
            ret_files[count++] = descriptors->files[i];
        }
    }
    return count;
}
