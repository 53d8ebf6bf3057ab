/*
 * What bench_rpc measures, and on whom: peers that do the same four things their own way.
 *
 * A peer's server is a child process, forked before gRPC is started; its client lives in the
 * parent. One thread. What fails ends the program with words: there is nothing to measure then.
 */
#ifndef TUTTI_BENCH_BENCH_RPC_H
#define TUTTI_BENCH_BENCH_RPC_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define BENCH_SMALL_BYTES 32 /* of a small call, each way */
#define BENCH_CHUNK_BYTES_MAX (4U << 20)
#define BENCH_IN_FLIGHT_MAX 64

/* ------------------------------------------------------------------------------ servers */

typedef struct bench_child {
    pid_t pid;
    int stop; /* a byte ends the child */
    char address[2][128];
} bench_child;

/*
 * Fork, and run `serve` in the child. It writes one or two addresses to `report`, one a line,
 * closes it, and serves until a byte comes from `stop`.
 *
 * [in] folder  where it may put a socket
 */
typedef void (*bench_serve_fn)(FILE *report, int stop, const char *folder);
void bench_child_start(bench_child *child, bench_serve_fn serve, const char *folder);
void bench_child_end(bench_child *child);

/* Pin the client to one CPU and all servers to another one, or to the same. */
void bench_place(const bench_child *servers, size_t count, int apart);

void bench_tutti_serve(FILE *report, int stop, const char *folder); /* TCP, then Unix socket */
void bench_core_serve(FILE *report, int stop, const char *folder);
void bench_raw_serve(FILE *report, int stop, const char *folder);

/* ------------------------------------------------------------------------------ clients */

typedef struct bench_peer {
    const char *name;
    /* `count` small calls, one after the other; how long each one took. */
    void (*call)(void *self, size_t count, uint64_t *ret_ns);
    /* `count` small calls, `in_flight` of them at any time. */
    void (*burst)(void *self, size_t count, size_t in_flight);
    /* One stream of `count` chunks, until the other side has all. */
    void (*upload)(void *self, size_t chunk_bytes, size_t count);
    void (*download)(void *self, size_t chunk_bytes, size_t count);
    void (*close)(void *self);
    void *self;
} bench_peer;

bench_peer bench_tutti_open(const char *name, const char *address);
bench_peer bench_core_open(const char *name, const char *address);
bench_peer bench_raw_open(const char *name, const char *address);

/* ------------------------------------------------------------------------------ words */

/* Bytes to send, and a place for what arrives: BENCH_CHUNK_BYTES_MAX each. */
extern unsigned char bench_source[];
extern unsigned char bench_sink[];

/* Of protobuf-c. */
const char *bench_protobuf_version(void);

/* Say what went wrong and exit 1. */
void bench_die(const char *what, const char *why) __attribute__((noreturn));

/* ------------------------------------------------------------------------------ results */

enum bench_unit {
    BENCH_US, /* less is better */
    BENCH_CALLS,
    BENCH_GBS,
};

#define BENCH_PEERS_MAX 4
#define BENCH_ROWS_MAX 16

typedef struct bench_row {
    char name[48];
    enum bench_unit unit;
    double values[BENCH_PEERS_MAX];
} bench_row;

typedef struct bench_report {
    const char *peers[BENCH_PEERS_MAX]; /* the first is the one that is compared */
    size_t peer_count;
    bench_row rows[BENCH_ROWS_MAX];
    size_t row_count;
    const char *command;
    double seconds; /* that it took */
} bench_report;

/* Machine, versions and command; then a table with the first peer's ratio to each other. */
void bench_report_print(const bench_report *report, FILE *file);
void bench_report_write_json(const bench_report *report, const char *path);

#endif
