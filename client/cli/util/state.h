/*
 * What is known of a local cluster: a folder with its state, logs and sockets, owned by one user.
 *
 * The folder is $XDG_RUNTIME_DIR/tutti/NAME, else $TMPDIR/tutti-UID/NAME, else
 * /tmp/tutti-UID/NAME, mode 0700; variables that hold no absolute path do not count. A process is
 * known by its number and the time it started: a number that was given to another process is not
 * ours.
 */
#ifndef TUTTI_CLIENT_CLI_UTIL_STATE_H
#define TUTTI_CLIENT_CLI_UTIL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "tutti/error.h"

#define STATE_PATH_MAX 256
#define STATE_NAME_MAX 64
#define STATE_RANKS_MAX 1024

typedef struct state_process {
    pid_t pid;                    /* 0 = was never started */
    uint64_t started;             /* in clock ticks since the machine booted */
    char address[STATE_PATH_MAX]; /* for people: its port if it has one, else its socket */
    char socket[STATE_PATH_MAX];  /* as an address: "unix:/..." */
    char log[STATE_PATH_MAX];
    char device[STATE_NAME_MAX]; /* of an agent: what it was given as --device; "" = nothing */
} state_process;

typedef struct state {
    char name[STATE_NAME_MAX + 1];
    char folder[STATE_PATH_MAX];
    char job[128];
    bool ready;     /* all of it serves */
    bool tcp;       /* it has ports of loopback besides its sockets */
    char **options; /* that every agent was started with; ends with NULL; NULL = none */
    state_process coordinator;
    uint32_t rank_count;
    state_process *ranks;
    int lock; /* descriptor; -1 = not held */
} state;

/*
 * Find the folder of a name, and make the one above it.
 *
 * TUTTI_INVALID_ARGUMENT   not 1 to 64 of letters, digits and . _ -; a path too long for sockets
 * TUTTI_PERMISSION_DENIED  the folder above belongs to somebody else, or others may look into it
 */
tutti_code state_init(state *self, const char *name, tutti_error *err);
void state_fini(state *self); /* gives the lock back */

/* Nobody else starts or stops this cluster meanwhile. TUTTI_FAILED_PRECONDITION  somebody does */
tutti_code state_lock(state *self, tutti_error *err);

/* The names of all clusters of this user, sorted. [out, owned] ret_names  state_names_free it */
tutti_code state_names(char ***ret_names, size_t *ret_count, tutti_error *err);
void state_names_free(char **names, size_t count);

/* TUTTI_NOT_FOUND  there is no such cluster, the text names those that there are;
 * TUTTI_DATA_LOSS  the file makes no sense */
tutti_code state_read(state *self, tutti_error *err);
tutti_code state_write(const state *self, tutti_error *err);

/* Make the folder, empty; what was known of a former cluster is forgotten. */
tutti_code state_make(state *self, uint32_t rank_count, tutti_error *err);

/* Remember what agents are started with. Copied. */
void state_set_options(state *self, char *const *options, size_t count);

/* Remove the folder, what is in it, and the lock, which the caller holds. */
void state_remove(const state *self);

/* A path inside the folder; `format` with `rank`. */
void state_path(const state *self, const char *format, uint32_t rank, char ret[STATE_PATH_MAX]);

#endif
