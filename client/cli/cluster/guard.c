/*
 * The guard reads from a pipe until that ends: numbers of process groups, and at last 0, if all is
 * well. If the end comes without it, `tutti run` was killed, and the guard does what that would have
 * done. A signal of the kernel at the death of a parent (PR_SET_PDEATHSIG) reaches a program, but not
 * what the program has started, nor one that ignores it; and nobody would remove the folder.
 *
 * Signals go to groups by their numbers. Those of a `tutti run` that was killed are nobody else's: the
 * kernel gives a number away again only after all others.
 */
#include "client/cli/cluster/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cluster/cluster.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/state.h"

#define PATIENCE_MS 5000
#define STOP_TIMEOUT_MS 5000
#define LOOK_MS 20
#define GROUPS_MAX STATE_RANKS_MAX

static bool
signal_groups(const pid_t *groups, size_t count, int number)
{
    bool any = false;
    size_t i;

    for (i = 0; i < count; i++) {
        any = kill(-groups[i], number) == 0 || any;
    }
    return any;
}

static void
end_groups(const pid_t *groups, size_t count)
{
    const struct timespec shortly = {.tv_nsec = LOOK_MS * 1000000};
    const uint64_t until_ms = cli_now_ms() + PATIENCE_MS;

    (void)signal_groups(groups, count, SIGTERM);
    while (cli_now_ms() < until_ms && signal_groups(groups, count, 0)) {
        (void)nanosleep(&shortly, NULL);
    }
    (void)signal_groups(groups, count, SIGKILL);
}

/* What cannot be done now, nobody hears of. */
static void
end_cluster(const char *name)
{
    state cluster = {.lock = -1};

    if (state_init(&cluster, name, NULL) == TUTTI_OK && state_lock(&cluster, NULL) == TUTTI_OK &&
        state_read(&cluster, NULL) == TUTTI_OK) {
        (void)cluster_stop(&cluster, STOP_TIMEOUT_MS, NULL);
    }
    state_fini(&cluster);
}

/* Nothing of `tutti run` is held, and no Ctrl-C of its terminal is for us. */
static void
stand_alone(int pipe)
{
    const int nowhere = open("/dev/null", O_RDWR);
    const long most = sysconf(_SC_OPEN_MAX);
    int i;

    (void)setsid();
    (void)signal(SIGHUP, SIG_IGN);
    (void)prctl(PR_SET_NAME, "tutti-run-guard", 0L, 0L, 0L);
    for (i = 0; i < 3 && nowhere >= 0; i++) {
        (void)dup2(nowhere, i);
    }
    for (i = 3; i < (most > 0 && most < 4096 ? most : 4096); i++) {
        if (i != pipe) {
            (void)close(i);
        }
    }
}

static void
guard_run(int pipe, const char *name)
{
    static pid_t groups[GROUPS_MAX];
    size_t count = 0;
    pid_t one = 0;
    ssize_t size;

    stand_alone(pipe);
    do {
        size = read(pipe, &one, sizeof(one));
        if (size == (ssize_t)sizeof(one) && one == 0) {
            return;
        }
        if (size == (ssize_t)sizeof(one) && count < GROUPS_MAX) {
            groups[count++] = one;
        }
    } while (size > 0 || (size < 0 && errno == EINTR));
    end_groups(groups, count);
    if (name != NULL) {
        end_cluster(name);
    }
}

tutti_code
guard_start(guard *self, const char *name, tutti_error *err)
{
    int ends[2];

    *self = (guard){.pipe = -1};
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return cli_fail_errno(err, errno, "could not make a pipe");
    }
    self->pid = fork();
    if (self->pid == 0) {
        (void)close(ends[1]);
        guard_run(ends[0], name);
        _exit(0);
    }
    (void)close(ends[0]);
    if (self->pid < 0) {
        (void)close(ends[1]);
        self->pid = 0;
        return cli_fail_errno(err, errno, "could not start a process");
    }
    self->pipe = ends[1];
    return TUTTI_OK;
}

void
guard_tell(const guard *self, pid_t group)
{
    if (self->pid > 0 && write(self->pipe, &group, sizeof(group)) < 0) {
        /* It was killed: then nobody sweeps up behind us. */
    }
}

void
guard_end(guard *self)
{
    if (self->pid > 0) {
        guard_tell(self, 0);
        (void)close(self->pipe);
        (void)waitpid(self->pid, NULL, 0);
    }
    *self = (guard){.pipe = -1};
}
