/* Server processes, and what all files of bench_rpc share. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/os/process.h"
#include "bench_rpc.h"

unsigned char bench_source[BENCH_CHUNK_BYTES_MAX];
unsigned char bench_sink[BENCH_CHUNK_BYTES_MAX];

void
bench_die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_rpc: %s: %s\n", what, why);
    exit(1);
}

static void
run_child(bench_serve_fn serve, int report, int stop, const char *folder)
{
    FILE *file = fdopen(report, "w");

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    tutti_process_tune_malloc();
    if (file == NULL) {
        bench_die("could not report an address", "no memory");
    }
    serve(file, stop, folder);
    exit(0);
}

static void
read_addresses(bench_child *child, int report)
{
    FILE *file = fdopen(report, "r");
    size_t i;

    for (i = 0; i < 2 && file != NULL; i++) {
        if (fgets(child->address[i], sizeof(child->address[i]), file) != NULL) {
            child->address[i][strcspn(child->address[i], "\n")] = '\0';
        }
    }
    if (file == NULL || child->address[0][0] == '\0') {
        bench_die("could not start a server", "it said no address");
    }
    (void)fclose(file);
}

void
bench_child_start(bench_child *child, bench_serve_fn serve, const char *folder)
{
    int report[2];
    int stop[2];

    *child = (bench_child){.pid = -1};
    if (pipe(report) == 0 && pipe(stop) == 0) {
        child->pid = fork();
    }
    if (child->pid < 0) {
        bench_die("could not start a server", "no process or pipe");
    }
    if (child->pid == 0) {
        (void)close(report[0]);
        (void)close(stop[1]);
        run_child(serve, report[1], stop[0], folder);
    }
    (void)close(report[1]);
    (void)close(stop[0]);
    child->stop = stop[1];
    read_addresses(child, report[0]);
}

void
bench_child_end(bench_child *child)
{
    int status = 0;

    (void)!write(child->stop, "", 1); /* closing it says nothing: later children have it as well */
    (void)close(child->stop);
    if (waitpid(child->pid, &status, 0) != child->pid || status != 0) {
        bench_die("a server", "did not end well");
    }
}
