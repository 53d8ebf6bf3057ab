/*
 * Launch: our servers, started by a program and gone with it. A server that is launched tells its
 * address through a pipe (--port-file fd:3), so no file is left wherever a process dies.
 */
#ifndef TUTTI_BASE_OS_LAUNCH_H
#define TUTTI_BASE_OS_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tutti/error.h"

#define TUTTI_LAUNCH_PATH_MAX 4096

/* A process that was launched. `pid` 0 = none. */
typedef struct tutti_launched_process {
    pid_t pid;
    int descriptor; /* readable when it has ended */
} tutti_launched_process;

/*
 * Where a program of ours is: in `folder`, in $TUTTI_PROGRAMS, in the folder of the file `own` (a
 * program or a library), in ../bin or ../libexec/tutti beside that, or in PATH.
 *
 * [in] folder  only there; NULL or "" = the other places
 * [in] own     NULL = this program
 *
 * TUTTI_FAILED_PRECONDITION  NO_PROGRAM: the text says where it was looked for
 */
tutti_code tutti_launch_find(const char *name, const char *folder, const char *own,
                             char ret_path[TUTTI_LAUNCH_PATH_MAX], tutti_error *err);

/*
 * Start a server and wait until it listens. Its stdin and stdout are /dev/null, its stderr is ours;
 * it has a process group of its own, so a Ctrl-C at our terminal is not for it. Any thread.
 *
 * [in]  arguments    ended by NULL, the first is the path of the program; --port-file fd:3 is added
 * [out] ret_process  tutti_launch_stop it
 * [out] ret_address  the first address that it listens on
 *
 * TUTTI_UNAVAILABLE         NOT_STARTED: it could not be run, has ended before it listened, or did
 *                           not listen in time and was killed
 * TUTTI_RESOURCE_EXHAUSTED  no memory, descriptors or processes
 */
tutti_code tutti_launch_start(const char *const *arguments, uint32_t timeout_ms,
                              tutti_launched_process *ret_process, char *ret_address, size_t size,
                              tutti_error *err);

/* Ask it to end, kill it after the patience, and forget it. A process of pid 0 is fine. */
void tutti_launch_stop(tutti_launched_process *process, uint32_t patience_ms);

/*
 * From now on this process gets SIGTERM when another one has ended; a second one half a second
 * later; and another second later it ends without a word. For servers that are launched: the
 * signals are handled, and blocked in all threads.
 *
 * [in] may_end  looked at 20 ms by 20 ms, for a second at most, before the first signal; NULL = at
 *               once. On a thread of its own
 *
 * TUTTI_FAILED_PRECONDITION  NO_PROCESS: there is no such process
 * TUTTI_RESOURCE_EXHAUSTED   no thread
 */
tutti_code tutti_launch_follow(pid_t parent, bool (*may_end)(void *arg), void *arg,
                               tutti_error *err);

#endif
