#include "bench/peers/peers_worker.h"

#include <stdio.h>
#include <time.h>

static double
now_us(void)
{
    struct timespec time;

    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

/* Microseconds of one op; below 0 when it cannot be done. */
static double
run_burst(const peers_side *side, void *self, const peers_burst *burst)
{
    double began;
    unsigned i;

    if (!side->prepare(self, burst)) {
        return -1;
    }
    side->barrier(self);
    began = now_us();
    for (i = 0; i < burst->times; i++) {
        if (!side->once(self, burst)) {
            return -1;
        }
    }
    return (now_us() - began) / burst->times;
}

int
peers_serve(const char *folder, unsigned rank, const peers_side *side, void *self)
{
    peers_burst burst;
    char path[512];
    FILE *in;
    FILE *out;

    (void)snprintf(path, sizeof(path), "%s/in.%u", folder, rank);
    in = fopen(path, "r");
    (void)snprintf(path, sizeof(path), "%s/out.%u", folder, rank);
    out = in == NULL ? NULL : fopen(path, "w");
    if (out == NULL) {
        perror(path);
        return 1;
    }
    while (fscanf(in, "%31s %zu %u", burst.op, &burst.bytes, &burst.times) == 3) {
        (void)fprintf(out, "%.3f\n", run_burst(side, self, &burst));
        (void)fflush(out);
    }
    (void)fclose(in);
    return fclose(out);
}
