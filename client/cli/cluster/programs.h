/* The programs of `tutti run`: started together, ended together. */
#ifndef TUTTI_CLIENT_CLI_CLUSTER_PROGRAMS_H
#define TUTTI_CLIENT_CLI_CLUSTER_PROGRAMS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "client/cli/util/relay.h"
#include "tutti/error.h"

/* One program. It leads a process group, so that what it starts can be ended with it. */
typedef struct program {
    pid_t pid;      /* 0 = was never started */
    int descriptor; /* readable once it has ended; -1 = that was seen */
    int status;     /* as waitpid's, then */
    uint64_t elapsed_ms;
    relay out;
    relay err;
} program;

typedef struct programs {
    program *all;
    uint32_t count;
    FILE *out; /* borrowed: where their lines go */
    FILE *err;
    bool prefix;          /* [rank] in front of each */
    uint32_t rank_start;  /* the rank of the first */
    uint32_t limit_ms;    /* of all of it; 0 = none */
    uint32_t patience_ms; /* between a polite end and the other one; 0 = 5 s */
    uint64_t began_ms;
    uint64_t kill_ms; /* when patience ends; 0 = they may go on */
    int64_t failed;   /* the first that failed: its index; -1 = none */
    int signal;       /* that we were sent last; 0 = none */
    uint64_t told_ms; /* when that came */
    bool late;        /* the limit has passed */
    bool told;        /* programs_end was called */
} programs;

/* SIGINT, SIGTERM and SIGHUP are kept for programs_wait, until programs_release_signals. */
tutti_code programs_catch_signals(tutti_error *err);
void programs_release_signals(void);

/* Has a signal come, or programs_end been called, that programs_wait has not seen yet? */
bool programs_must_end(void);

/* End all of them, as if one had failed: `told` says so. Any thread, between catch and release. */
void programs_end(void);

/* Room for `count` of them. [in] self  out, err, prefix, rank_start and both times are set */
void programs_init(programs *self, uint32_t count);

/* [in] arguments  the first is looked for in PATH; TUTTI_NOT_FOUND, ... with the name */
tutti_code programs_start(programs *self, uint32_t index, char *const *arguments,
                          char *const *environment, tutti_error *err);

/* Until all have ended. When one fails, the time is up or a signal comes, the others are ended. */
void programs_wait(programs *self);

/* What is left of them and of what they have started is killed; then everything is freed. */
void programs_fini(programs *self);

/* As shells see it: the exit code, or 128 and the number of the signal. */
int programs_exit_code(const program *one);

#endif
