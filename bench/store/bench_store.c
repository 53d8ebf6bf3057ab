/*
 * How many calls a second does a store answer, and how long does each take?
 *
 *     bench_store tutti|etcd ADDRESS set|get|add CLIENTS SECONDS
 *
 * Each client is a thread with a connection and keys of its own, and makes one call at a time. It prints
 * calls a second, and the p50 and p99 of one call.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "bench/bench_number.h"
#include "bench/store/peer.h"
#include "rpc/loop.h"

#define CLIENTS_MAX 1024
#define TIMES_MAX (1 << 20) /* of one client; later ones are not kept */

typedef struct caller {
    pthread_t thread;
    const peer *peer;
    peer_op op;
    void *client;
    double *times; /* us */
    size_t count;
} caller;

static caller callers[CLIENTS_MAX];
static atomic_bool ending;

static void
check_code(const char *what, tutti_code code, const tutti_error *err)
{
    if (code != TUTTI_OK) {
        (void)fprintf(stderr, "bench_store: %s: %s\n", what, err->text);
        exit(1);
    }
}

static void *
run_caller(void *arg)
{
    caller *self = arg;
    tutti_error err = {0};
    uint64_t begun;

    while (!atomic_load(&ending)) {
        begun = tutti_clock_ns();
        check_code("call", self->peer->call(self->client, self->op, &err), &err);
        if (self->count < TIMES_MAX) {
            self->times[self->count++] = (double)(tutti_clock_ns() - begun) / 1e3;
        }
    }
    return NULL;
}

static void
start_caller(caller *self, size_t number, const char *address)
{
    tutti_error err = {0};
    char key[32];

    (void)snprintf(key, sizeof(key), "bench/%zu", number);
    self->times = malloc(TIMES_MAX * sizeof(*self->times));
    check_code("connect", self->peer->open(address, key, &self->client, &err), &err);
}

static void
print_calls(size_t clients, const char *op, double seconds)
{
    size_t total = 0;
    double *all;
    size_t i;

    for (i = 0; i < clients; i++) {
        total += callers[i].count;
    }
    all = malloc((total + 1) * sizeof(*all));
    total = 0;
    for (i = 0; i < clients; i++) {
        memcpy(all + total, callers[i].times, callers[i].count * sizeof(*all));
        total += callers[i].count;
    }
    qsort(all, total, sizeof(*all), bench_compare_numbers);
    (void)printf("%zu clients: %.0f %ss/s, one takes %.0f us (p50), %.0f us (p99)\n", clients,
                 (double)total / seconds, op, total == 0 ? 0 : all[total / 2],
                 total == 0 ? 0 : all[total * 99 / 100]);
    free(all);
}

/* False: there is no such peer or op. */
static bool
read_words(char **argv, const peer **ret_peer, peer_op *ret_op)
{
    static const char *const ops[] = {"set", "get", "add"};
    static const peer *const peers[] = {&peer_tutti, &peer_etcd};
    size_t i;

    for (i = 0; i < 2; i++) {
        *ret_peer = strcmp(argv[1], peers[i]->name) == 0 ? peers[i] : *ret_peer;
    }
    for (i = 0; i < 3; i++) {
        if (strcmp(argv[3], ops[i]) == 0) {
            *ret_op = (peer_op)i;
            return *ret_peer != NULL;
        }
    }
    return false;
}

static double
run_all(size_t clients, double seconds)
{
    uint64_t begun = tutti_clock_ns();
    size_t i;

    for (i = 0; i < clients; i++) {
        if (pthread_create(&callers[i].thread, NULL, run_caller, &callers[i]) != 0) {
            exit(1);
        }
    }
    (void)usleep((useconds_t)(seconds * 1e6));
    atomic_store(&ending, true);
    for (i = 0; i < clients; i++) {
        (void)pthread_join(callers[i].thread, NULL);
    }
    return (double)(tutti_clock_ns() - begun) / 1e9;
}

int
main(int argc, char **argv)
{
    const size_t clients = argc > 4 ? strtoul(argv[4], NULL, 10) : 0;
    const double seconds = argc > 5 ? strtod(argv[5], NULL) : 0;
    const peer *found = NULL;
    peer_op op = PEER_SET;
    double took;
    size_t i;

    if (clients == 0 || clients > CLIENTS_MAX || seconds <= 0 || !read_words(argv, &found, &op)) {
        (void)fprintf(
            stderr,
            "usage: bench_store tutti|etcd ADDRESS set|get|add CLIENTS SECONDS, at most %d "
            "clients\n",
            CLIENTS_MAX);
        return 2;
    }
    tutti_rpc_init();
    srand((unsigned)tutti_clock_ns()); /* other counters than in the run before */
    for (i = 0; i < clients; i++) {
        callers[i].peer = found;
        callers[i].op = op;
        start_caller(&callers[i], i, argv[2]);
    }
    took = run_all(clients, seconds);
    print_calls(clients, argv[3], took);
    for (i = 0; i < clients; i++) {
        callers[i].peer->close(callers[i].client);
        free(callers[i].times);
    }
    tutti_rpc_fini();
    return 0;
}
