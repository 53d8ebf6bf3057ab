/* Who sweeps up behind `tutti run` when that is killed: a process of its own, which does nothing else. */
#ifndef TUTTI_CLIENT_CLI_CLUSTER_GUARD_H
#define TUTTI_CLIENT_CLI_CLUSTER_GUARD_H

#include <sys/types.h>

#include "tutti/error.h"

typedef struct guard {
    pid_t pid; /* 0 = there is none */
    int pipe;  /* to it; its end of file says that we are gone */
} guard;

/*
 * Fork it, before any thread is started and any file is opened that it must not hold. When this
 * process ends without guard_end, it ends the groups that it was told of, and the private cluster
 * `name`: politely, and after the patience not.
 *
 * [in] name  of the cluster, which need not be there yet; NULL = it is not ended
 *
 * TUTTI_RESOURCE_EXHAUSTED, ...  what the system says
 */
tutti_code guard_start(guard *self, const char *name, tutti_error *err);

/* A process group that it is to end, too. */
void guard_tell(const guard *self, pid_t group);

/* All is swept up: it goes. */
void guard_end(guard *self);

#endif
