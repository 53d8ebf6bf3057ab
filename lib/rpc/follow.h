/* Follow: channels with the option `follow`, whose target is several servers of which one leads. */
#ifndef TUTTI_RPC_FOLLOW_H
#define TUTTI_RPC_FOLLOW_H

#include "rpc/channel.h"

/* Does it follow, and knows several servers? Any thread. */
bool tutti_rpc_channel_has_others(const tutti_rpc_channel *channel);

/*
 * With `follow`: the server that is called has said that there are others, which the channel's one address stands for. It has
 * others from now on. Any thread.
 *
 * [in] leader  the address by which the others tell that server; copied
 */
void tutti_rpc_channel_expect_others(tutti_rpc_channel *channel, const char *leader);

/*
 * With `follow`: the server is silent though a stream to it is open: go on to the next. For some seconds the channel does
 * not go back to it, whoever tells it as the leader: the others may not know better yet. Any thread.
 */
void tutti_rpc_channel_move_on(tutti_rpc_channel *channel);

/* With `follow`: the next call waits for an attempt to connect of its own, however many have failed. Any thread. */
void tutti_rpc_channel_try_now(tutti_rpc_channel *channel);

/*
 * Has a call failed so that it did nothing and another server may answer it? By the error of a
 * channel that follows: NOT_LEADER, or no connection.
 */
bool tutti_rpc_was_elsewhere(const tutti_error *err);

#endif
