/* etcd of the system, started by a test and gone with it. */
#ifndef TUTTI_TESTS_ETCD_PROCESS_H
#define TUTTI_TESTS_ETCD_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

typedef struct etcd_process {
    pid_t pid;
    unsigned short port; /* where clients find it, at 127.0.0.1 */
    char folder[64];
} etcd_process;

/* Is there an etcd at all? */
bool etcd_process_exists(void);

/* [in] quota  bytes it may store; 0 = its default. Waits until it listens. Fails the test's program
 * when it cannot be started. */
void etcd_process_start(etcd_process *process, unsigned long quota);
void etcd_process_stop(etcd_process *process);

#endif
