/*
 * How many Adds a second does the coordinator answer, and how long does each take?
 *
 *     bench_store ADDRESS CLIENTS SECONDS
 *
 * ADDRESS is the coordinator's. Each client is a thread with a connection of its own, and adds to a
 * key of its own, one call at a time. It prints adds a second, and the p50 and p99 of one Add.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "bench_number.h"
#include "tutti/tutti.h"

#define CLIENTS_MAX 1024
#define TIMES_MAX (1 << 20) /* of one client; later ones are not kept */

typedef struct adder {
    pthread_t thread;
    tutti_client *client;
    char key[32];
    double *times; /* us */
    size_t count;
} adder;

static adder adders[CLIENTS_MAX];
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
run_adder(void *arg)
{
    adder *self = arg;
    tutti_error err;
    uint64_t begun;

    while (!atomic_load(&ending)) {
        begun = tutti_clock_ns();
        check_code("add", tutti_kv_add(self->client, self->key, strlen(self->key), 1, NULL, &err),
                   &err);
        if (self->count < TIMES_MAX) {
            self->times[self->count++] = (double)(tutti_clock_ns() - begun) / 1e3;
        }
    }
    return NULL;
}

static void
start_adder(adder *self, size_t number, const char *address)
{
    tutti_client_options options;
    tutti_error err;

    tutti_client_options_init(&options);
    options.agent = "";
    options.coordinator = address;
    check_code("connect", tutti_connect_with(&options, &self->client, &err), &err);
    (void)snprintf(self->key, sizeof(self->key), "bench/%zu", number);
    self->times = malloc(TIMES_MAX * sizeof(*self->times));
    check_code("add", tutti_kv_add(self->client, self->key, strlen(self->key), 0, NULL, &err),
               &err);
}

static void
print_adds(size_t clients, double seconds)
{
    size_t total = 0;
    double *all;
    size_t i;

    for (i = 0; i < clients; i++) {
        total += adders[i].count;
    }
    all = malloc((total + 1) * sizeof(*all));
    total = 0;
    for (i = 0; i < clients; i++) {
        memcpy(all + total, adders[i].times, adders[i].count * sizeof(*all));
        total += adders[i].count;
    }
    qsort(all, total, sizeof(*all), bench_compare_numbers);
    (void)printf("%zu clients: %.0f adds/s, one takes %.0f us (p50), %.0f us (p99)\n", clients,
                 (double)total / seconds, total == 0 ? 0 : all[total / 2],
                 total == 0 ? 0 : all[total * 99 / 100]);
    free(all);
}

int
main(int argc, char **argv)
{
    const size_t clients = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    const double seconds = argc > 3 ? strtod(argv[3], NULL) : 0;
    uint64_t begun;
    size_t i;

    if (clients == 0 || clients > CLIENTS_MAX || seconds <= 0) {
        (void)fprintf(stderr, "usage: bench_store ADDRESS CLIENTS SECONDS, at most %d clients\n",
                      CLIENTS_MAX);
        return 2;
    }
    for (i = 0; i < clients; i++) {
        start_adder(&adders[i], i, argv[1]);
    }
    begun = tutti_clock_ns();
    for (i = 0; i < clients; i++) {
        if (pthread_create(&adders[i].thread, NULL, run_adder, &adders[i]) != 0) {
            return 1;
        }
    }
    (void)usleep((useconds_t)(seconds * 1e6));
    atomic_store(&ending, true);
    for (i = 0; i < clients; i++) {
        (void)pthread_join(adders[i].thread, NULL);
    }
    print_adds(clients, (double)(tutti_clock_ns() - begun) / 1e9);
    for (i = 0; i < clients; i++) {
        tutti_close(adders[i].client);
        free(adders[i].times);
    }
    return 0;
}
