/*
 * One rank of one of the sides that `./run bench peers` puts beside each other: reads commands from
 * a pipe, runs a burst of ops, says how long one took. While it waits it sleeps, so it does not
 * disturb the side whose turn it is.
 */
#ifndef TUTTI_BENCH_PEERS_WORKER_H
#define TUTTI_BENCH_PEERS_WORKER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A command: "all_reduce 1048576 100" */
typedef struct peers_burst {
    char op[32];
    size_t bytes; /* of the whole tensor: what all_reduce has in and out, all_gather makes ... */
    unsigned times;
} peers_burst;

typedef struct peers_side {
    /* Everything that is not measured: memory, and one op to warm up. False: not an op of ours. */
    bool (*prepare)(void *self, const peers_burst *burst);
    void (*barrier)(void *self);
    bool (*once)(void *self, const peers_burst *burst);
} peers_side;

/* Serve commands from folder/in.RANK to folder/out.RANK until the pipe ends. The exit code. */
int peers_serve(const char *folder, unsigned rank, const peers_side *side, void *self);

#endif
