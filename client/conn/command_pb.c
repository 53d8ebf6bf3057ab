/* CommandsService: requests of calls as the commands of a stream. */
#include "client/conn/command_pb.h"

#include "client/conn/conn_pool.h"

static const tutti_rpc_stub stub_run = {&tutti__v1__commands_service__descriptor, "Run"};

/* Every call has a request type of its own, and with it a place in the oneof. */
uint32_t
client_command_of(const ProtobufCMessage *request)
{
    const ProtobufCMessageDescriptor *type = &tutti__v1__run_request__descriptor;
    uint32_t number = 0;
    unsigned i;

    for (i = 0; i < type->n_fields && number == 0; i++) {
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE &&
            type->fields[i].descriptor == request->descriptor) {
            number = type->fields[i].id;
        }
    }
    return number;
}

void
client_set_command(Tutti__V1__RunRequest *message, uint32_t number, const ProtobufCMessage *request)
{
    message->command_case = (Tutti__V1__RunRequest__CommandCase)number;
    message->all_reduce = (void *)(uintptr_t)request; /* all of it share their place */
}

tutti_code
client_open_commands(client_conn *conn, tutti_rpc_stream **ret_stream, tutti_error *err)
{
    return tutti_rpc_stream_open(conn->channel, &stub_run, NULL, ret_stream, err);
}
