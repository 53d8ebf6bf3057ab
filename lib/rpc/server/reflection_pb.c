/*
 * gRPC reflection, v1 and v1alpha, from the descriptor set that is built into the program.
 * Stateless: each question of the stream is answered from tables that do not change once the
 * server has started, on the loop's thread. An answer is written on the stack and packed before
 * on_message returns.
 */
#include "rpc/server/reflection_pb.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "rpc/loop.h"
#include "rpc/message.h"
#include "rpc/message/descriptors_pb.h"
#include "rpc/message/service.h"
#include "rpc/server.h"
#include "rpc/server/call.h"

/* v1 and v1alpha have the same messages under different names; v1's are used for both. */
typedef Grpc__Reflection__V1__ServerReflectionRequest request_message;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_message;

#define ASKED(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##name
#define ANSWERED(name) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##name
#define SERVICES_MAX 40
#define NAME_SHOWN 200

/* Memory for one answer, on the stack while it is written. */
typedef struct answer {
    response_message message;
    Grpc__Reflection__V1__ErrorResponse error;
    Grpc__Reflection__V1__FileDescriptorResponse files;
    ProtobufCBinaryData file_bytes[TUTTI_RPC_FILES_MAX];
    Grpc__Reflection__V1__ListServiceResponse list;
    Grpc__Reflection__V1__ServiceResponse services[SERVICES_MAX];
    Grpc__Reflection__V1__ServiceResponse *service_pointers[SERVICES_MAX];
    Grpc__Reflection__V1__ExtensionNumberResponse numbers;
    char text[NAME_SHOWN + 64];
} answer;

static void
say_error(answer *to, tutti_code code, const char *what, const char *name)
{
    (void)snprintf(to->text, sizeof(to->text), "%s %.*s", what, NAME_SHOWN, name);
    grpc__reflection__v1__error_response__init(&to->error);
    to->error.error_code = (int32_t)code;
    to->error.error_message = to->text;
    to->message.message_response_case = ANSWERED(ERROR_RESPONSE);
    to->message.error_response = &to->error;
}

static void
say_file(const rpc_reflection *self, answer *to, int file, const char *what, const char *name)
{
    tutti_bytes files[TUTTI_RPC_FILES_MAX];
    size_t i;

    if (file < 0) {
        say_error(to, TUTTI_NOT_FOUND, what, name);
        return;
    }
    grpc__reflection__v1__file_descriptor_response__init(&to->files);
    to->files.n_file_descriptor_proto = rpc_descriptors_closure(self->descriptors, file, files);
    to->files.file_descriptor_proto = to->file_bytes;
    for (i = 0; i < to->files.n_file_descriptor_proto; i++) {
        to->file_bytes[i].data = (uint8_t *)(uintptr_t)files[i].data;
        to->file_bytes[i].len = files[i].size;
    }
    to->message.message_response_case = ANSWERED(FILE_DESCRIPTOR_RESPONSE);
    to->message.file_descriptor_response = &to->files;
}

static void
say_services(const rpc_reflection *self, answer *to)
{
    size_t i;

    grpc__reflection__v1__list_service_response__init(&to->list);
    for (i = 0; i < *self->service_count && i < SERVICES_MAX; i++) {
        grpc__reflection__v1__service_response__init(&to->services[i]);
        to->services[i].name = (char *)(uintptr_t)rpc_service_name(self->services[i].descriptor);
        to->service_pointers[i] = &to->services[i];
    }
    to->list.n_service = i;
    to->list.service = to->service_pointers;
    to->message.message_response_case = ANSWERED(LIST_SERVICES_RESPONSE);
    to->message.list_services_response = &to->list;
}

/* Our messages have no extensions: a type we know has the empty list of them. */
static void
say_numbers(const rpc_reflection *self, answer *to, const char *type)
{
    if (!rpc_descriptors_has_type(self->descriptors, type)) {
        say_error(to, TUTTI_NOT_FOUND, "there is no type", type);
        return;
    }
    grpc__reflection__v1__extension_number_response__init(&to->numbers);
    to->numbers.base_type_name = (char *)(uintptr_t)type;
    to->message.message_response_case = ANSWERED(ALL_EXTENSION_NUMBERS_RESPONSE);
    to->message.all_extension_numbers_response = &to->numbers;
}

static void
answer_request(const rpc_reflection *self, const request_message *request, answer *to)
{
    switch (request->message_request_case) {
    case ASKED(FILE_BY_FILENAME):
        say_file(self, to, rpc_descriptors_file(self->descriptors, request->file_by_filename),
                 "there is no file", request->file_by_filename);
        break;
    case ASKED(FILE_CONTAINING_SYMBOL):
        say_file(self, to,
                 rpc_descriptors_symbol(self->descriptors, request->file_containing_symbol),
                 "there is no symbol", request->file_containing_symbol);
        break;
    case ASKED(FILE_CONTAINING_EXTENSION):
        say_error(to, TUTTI_NOT_FOUND, "there are no extensions of",
                  request->file_containing_extension->containing_type);
        break;
    case ASKED(ALL_EXTENSION_NUMBERS_OF_TYPE):
        say_numbers(self, to, request->all_extension_numbers_of_type);
        break;
    case ASKED(LIST_SERVICES):
        say_services(self, to);
        break;
    default:
        say_error(to, TUTTI_INVALID_ARGUMENT, "nothing was asked", "");
        break;
    }
}

static void
on_message(tutti_rpc_call *call, void *arg, tutti_rpc_message *message)
{
    const request_message *request = tutti_rpc_message_get(message);
    answer to;

    grpc__reflection__v1__server_reflection_response__init(&to.message);
    to.message.valid_host = request->host;
    to.message.original_request = (request_message *)(uintptr_t)request;
    answer_request(arg, request, &to);
    tutti_rpc_call_write(call, &to.message.base, NULL);
}

/*
 * One question at a time: the next is read when the answer has left, so a client that does not
 * read its answers stops being read.
 */
static void
read_next(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    tutti_rpc_call_read(call);
}

static void
on_half_close(tutti_rpc_call *call, void *arg)
{
    (void)arg;
    tutti_rpc_call_finish(call, NULL);
}

static void
on_cancel(tutti_rpc_call *call, void *arg)
{
    tutti_error err;

    (void)arg;
    (void)TUTTI_FAIL_FOR(&err, TUTTI_UNAVAILABLE, "DRAINING", "the server is shutting down");
    tutti_rpc_call_finish(call, &err);
}

static tutti_rpc_service
make_service(rpc_reflection *self, const ProtobufCServiceDescriptor *descriptor,
             tutti_rpc_loop *loop)
{
    static const tutti_rpc_stream_ops ops = {.on_open = read_next,
                                             .on_message = on_message,
                                             .on_half_close = on_half_close,
                                             .on_written = read_next,
                                             .on_cancel = on_cancel};
    static const tutti_rpc_method methods[] = {
        {.name = "ServerReflectionInfo", .stream = &ops},
    };

    return (tutti_rpc_service){.descriptor = descriptor,
                               .methods = methods,
                               .method_count = 1,
                               .self = self,
                               .loop = loop};
}

tutti_code
rpc_reflection_init(rpc_reflection *reflection, const rpc_descriptors *descriptors,
                    const tutti_rpc_service *services, const size_t *service_count,
                    tutti_error *err)
{
    ProtobufCServiceDescriptor *older = malloc(sizeof(*older));

    if (older == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for reflection");
    }
    /*
     * v1alpha has the same messages under other names, and names of messages do not travel: a
     * copy of the descriptor under the older name serves it.
     */
    *older = grpc__reflection__v1__server_reflection__descriptor;
    older->name = "grpc.reflection.v1alpha.ServerReflection";
    *reflection = (rpc_reflection){descriptors, services, service_count, older};
    return TUTTI_OK;
}

void
rpc_reflection_fini(rpc_reflection *reflection)
{
    free(reflection->older);
    reflection->older = NULL;
}

tutti_rpc_service
rpc_reflection_service_v1(rpc_reflection *reflection, tutti_rpc_loop *loop)
{
    return make_service(reflection, &grpc__reflection__v1__server_reflection__descriptor, loop);
}

tutti_rpc_service
rpc_reflection_service_v1alpha(rpc_reflection *reflection, tutti_rpc_loop *loop)
{
    return make_service(reflection, reflection->older, loop);
}
