/* Private to client: calls as commands of a stream. */
#ifndef TUTTI_CLIENT_CONN_COMMAND_STREAM_PB_H
#define TUTTI_CLIENT_CONN_COMMAND_STREAM_PB_H

#include "client/conn/conn_pool.h"
#include "tutti/v1/commands_service.pb-c.h"

/* The number of the command that a request is; 0 = it is none. */
uint32_t client_command_of(const ProtobufCMessage *request);

/* The request becomes the message's command, borrowed. [in] number  of it, not 0 */
void client_set_command(Tutti__V1__RunRequest *message, uint32_t number,
                        const ProtobufCMessage *request);

/* A stream of commands. */
tutti_code client_open_commands(client_conn *conn, const tutti_rpc_call_options *options,
                                tutti_rpc_stream **ret_stream, tutti_error *err);

#endif
