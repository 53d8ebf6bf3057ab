/*
 * Core: gRPC's C core, for one process that holds many. lib/rpc is linked unchanged and calls this
 * in the place of libgrpc (whose slices and byte buffers it keeps): completion queues, channels,
 * calls, servers, and a network whose connections take time, are cut, and break.
 *
 * What is promised to lib/rpc is what grpc.h says and 1.51 does: frames of a connection arrive in
 * order; a write has ended when the window has room for it; a status comes behind the messages, or
 * at once when the call is cut; calls fail at once while a connection cannot be made, unless they
 * wait for one; connections that say nothing break by keepalive; a server that shuts down lets
 * calls end. Not simulated: TLS, HTTP/2's own limits but for that of calls, several addresses of a
 * name.
 *
 * Everything belongs to the process (kernel.h) whose task has made it.
 */
#ifndef TUTTI_TESTS_SIM_CORE_H
#define TUTTI_TESTS_SIM_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void core_open(void);
/* All tasks have ended. Fails if calls, channels or servers are left. */
void core_close(void);

/* Its process is dead: connections to it break soon, or, if it is silent, as keepalive finds. */
void core_kill(int process, bool silent);

/* What one process sends another waits until the time. */
void core_cut(int from, int to, uint64_t until_ns);

/* Each frame takes this long at most, drawn. */
void core_slow(uint64_t most_ns);

#endif
