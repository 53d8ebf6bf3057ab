/* Processes of a cluster: started so that they outlive us, ended so that nobody else is hit. */
#ifndef TUTTI_CLIENT_CLI_UTIL_PROCESS_H
#define TUTTI_CLIENT_CLI_UTIL_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tutti/error.h"

#define PROCESS_PATH_MAX 4096

/*
 * Where a program of ours is: beside this one, in ../libexec/tutti or ../libexec, or in PATH.
 * TUTTI_NOT_FOUND  the text says where it was looked for
 */
tutti_code process_find(const char *name, char ret_path[PROCESS_PATH_MAX], tutti_error *err);

/* How a program is started. */
typedef struct process_plan {
    char *const *arguments; /* the first is the program, looked for in PATH when it has no slash */
    char *const *environment;
    int input; /* descriptors; -1 = /dev/null */
    int output;
    int error;
    bool session; /* detached from the terminal and our group; else a group of its own */
    bool bound;   /* it gets SIGTERM when the thread that started it, or all of us, is gone */
} process_plan;

/* TUTTI_NOT_FOUND, TUTTI_PERMISSION_DENIED, ...  it could not be run: the text names it */
tutti_code process_start(const process_plan *plan, pid_t *ret_pid, tutti_error *err);

/* When it started, in clock ticks since boot; 0 = there is no such process (a zombie is none). */
uint64_t process_started(pid_t pid);

/* A process that is known by number and start. */
typedef struct process_ref {
    pid_t pid;
    uint64_t started;
    int descriptor; /* -1 = it is gone */
} process_ref;

/* Hold on to it; *descriptor is -1 when it is gone, or its number is another's by now. */
void process_hold(process_ref *ref);
void process_let_go(process_ref *ref);
void process_signal(const process_ref *ref, int number);

/* Wait until all that are held are gone, at most that long. False: some are there. */
bool process_wait_all(process_ref *refs, size_t count, uint32_t timeout_ms);

/*
 * Our environment with changes: "NAME=value" is set, "NAME" unset, "PREFIX*" unsets all that begin
 * so. [out, owned] free the array, and its strings with process_environment_free.
 */
char **process_environment(const char *const *changes, size_t count);
void process_environment_free(char **environment);

/* Before keys are read or made: no core dump of us, and nobody but root reads our memory. */
void process_hide_memory(void);

#endif
