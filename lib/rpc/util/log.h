/* gRPC's own log, as lines of ours. */
#ifndef TUTTI_RPC_UTIL_LOG_H
#define TUTTI_RPC_UTIL_LOG_H

#include <stdbool.h>

/* Takes gRPC's log over; see log.c. */
void rpc_log_init(void);

/* What gRPC complains of on this thread goes to DEBUG, as long as the caller says it better. */
void rpc_log_quiet(bool hushed);

#endif
