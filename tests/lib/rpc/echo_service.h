/* The methods of the echo service, for echo_server.c. What they do is written in echo_server.h. */
#ifndef TUTTI_TESTS_RPC_ECHO_SERVICE_H
#define TUTTI_TESTS_RPC_ECHO_SERVICE_H

#include "echo_pb.h"
#include "echo_server.h"

/* echo_unary.c */
void echo_on_unary(tutti_rpc_call *call, void *arg);
void echo_on_park(tutti_rpc_call *call, void *arg);

/* echo_streams.c */
extern const tutti_rpc_stream_ops echo_upload_ops;
extern const tutti_rpc_stream_ops echo_download_ops;
extern const tutti_rpc_stream_ops echo_chat_ops;

/* echo_nested.c: the message of a chat as a nested call; what was written is its answer. */
typedef struct echo_nest echo_nest;
echo_nest *echo_nest_begin(tutti_rpc_call *stream);
void echo_nest_end(echo_nest *self, bool delivered); /* NULL is fine */

/* Answer all parked calls; let slow uploads go on. Loop's thread. */
void echo_release_parked(echo_server *self);
void echo_release_slow(echo_server *self);

/* What both kinds use. */
void echo_reply(tutti_rpc_call *call, const echo_fields *fields);
void echo_fail_fully(tutti_rpc_call *call, int32_t code);
void echo_answer_elsewhere(tutti_rpc_call *call, void *(*answer)(void *arg));
tutti_rpc_blob echo_make_payload(echo_server *self, size_t size);
uint64_t echo_sum_payload(tutti_rpc_message *message);
/* A value that the client sent, as a text; returns its bytes. */
size_t echo_read_metadata(const tutti_rpc_call *call, const char *key, char ret_text[256]);

#endif
