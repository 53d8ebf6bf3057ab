/* Private to client: a watch of members on the wire. */
#ifndef TUTTI_CLIENT_GROUP_MEMBERS_H
#define TUTTI_CLIENT_GROUP_MEMBERS_H

#include "client/conn/conn_pool.h"
#include "tutti/membership.h"

/* Ask. What the server thinks of it is told by the first read. */
tutti_code client_wire_members_open(tutti_client *client, client_conn *conn, uint64_t after_epoch,
                                    uint64_t job_id, tutti_rpc_stream **ret_stream,
                                    tutti_error *err);

/*
 * The next event; its texts are borrowed from the message.
 * [out, owned] ret_message  NULL at the end of the stream
 */
tutti_code client_wire_members_read(tutti_rpc_stream *stream, tutti_rpc_message **ret_message,
                                    tutti_member_event *ret_event, tutti_error *err);

#endif
