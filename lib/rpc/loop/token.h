/*
 * Token: the bearer token in a file: to show it, or to compare with it so that the time taken says
 * nothing about it.
 * Any thread.
 */
#ifndef TUTTI_RPC_LOOP_TOKEN_H
#define TUTTI_RPC_LOOP_TOKEN_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/error.h"

#define TUTTI_RPC_TOKEN_MAX 8000 /* bytes of a token: gRPC takes 8 KiB of metadata */

typedef struct rpc_token rpc_token;

/*
 * Read the file: one token, white space around it does not count.
 *
 * [in] path  borrowed until free
 *
 * TUTTI_INVALID_ARGUMENT    empty, longer than TUTTI_RPC_TOKEN_MAX, or not of printable ASCII
 * TUTTI_NOT_FOUND, ...      from the system, with the path
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code rpc_token_open(const char *path, rpc_token **ret_token, tutti_error *err);

void rpc_token_close(rpc_token *token); /* NULL is fine */

/*
 * Is it the token? Once a second the file is looked at, and read again when it has changed; a file
 * that cannot be used is logged, and the last good token stays.
 */
bool rpc_token_matches(rpc_token *token, const char *presented, uint64_t now_ns);

/*
 * Look at the file, as above when it is time, and copy the token when it is another one than what
 * ret_text holds. True: it was, and has been copied.
 *
 * [in, out] ret_text  zeros at first
 */
bool rpc_token_renew(rpc_token *token, uint64_t now_ns, char ret_text[TUTTI_RPC_TOKEN_MAX + 1]);

#endif
