/*
 * Servers of ours as children of a program. pidfds and not SIGCHLD or PR_SET_PDEATHSIG: the program
 * is not ours, so its signal handlers are not, and the death signal comes when the thread that
 * forked ends, which need not be the process.
 */
#include "base/os/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/thread.h"

extern char **environ;

#define PORT_DESCRIPTOR 3
#define PORT_OPTION "fd:3"
#define ARGUMENTS_MAX 256
#define ADDRESSES_TEXT_MAX 4096
#define LOOK_AGAIN_MS 20
#define LONELY_MS 1000 /* until a server whose parent is gone ends, though others use it */
#define POLITE_MS 500
#define LAST_MS 1000

/* ------------------------------------------------------------------------------ finding */

static bool
try_folder(const char *folder, size_t size, const char *between, const char *name, char *ret_path)
{
    const int length =
        snprintf(ret_path, TUTTI_LAUNCH_PATH_MAX, "%.*s%s%s", (int)size, folder, between, name);

    return length > 0 && length < TUTTI_LAUNCH_PATH_MAX && access(ret_path, X_OK) == 0;
}

static bool
try_each_of(const char *list, const char *name, char *ret_path)
{
    while (list != NULL && *list != '\0') {
        const size_t size = strcspn(list, ":");

        if (size > 0 && size < TUTTI_LAUNCH_PATH_MAX &&
            try_folder(list, size, "/", name, ret_path)) {
            return true;
        }
        list += size;
        list += *list == ':' ? 1 : 0;
    }
    return false;
}

static bool
try_beside(const char *own, const char *name, char *ret_path)
{
    static const char *const places[] = {"/", "/../bin/", "/../../bin/", "/../libexec/tutti/"};
    const char *slash = strrchr(own, '/');
    size_t i;

    for (i = 0; slash != NULL && i < sizeof(places) / sizeof(places[0]); i++) {
        if (try_folder(own, (size_t)(slash - own), places[i], name, ret_path)) {
            return true;
        }
    }
    return false;
}

/* A folder that was named, and does not have it, is an error: another program would be another
 * version. */
tutti_code
tutti_launch_find(const char *name, const char *folder, const char *own,
                  char ret_path[TUTTI_LAUNCH_PATH_MAX], tutti_error *err)
{
    const char *named = folder != NULL && folder[0] != '\0' ? folder : getenv("TUTTI_PROGRAMS");
    char self[TUTTI_LAUNCH_PATH_MAX] = "";

    if (named != NULL && named[0] != '\0') {
        if (try_folder(named, strlen(named), "/", name, ret_path)) {
            return TUTTI_OK;
        }
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_PROGRAM",
                              "there is no program %s in %.800s (%s)", name, named,
                              named == folder ? "programs" : "$TUTTI_PROGRAMS");
    }
    if (own == NULL && readlink("/proc/self/exe", self, sizeof(self) - 1) > 0) {
        own = self;
    }
    if ((own != NULL && try_beside(own, name, ret_path)) ||
        try_each_of(getenv("PATH"), name, ret_path)) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_PROGRAM",
                          "there is no program %s beside %.700s, in ../bin or in PATH: install it, "
                          "or set TUTTI_PROGRAMS to its folder",
                          name, own == NULL ? "this program" : own);
}

/* ------------------------------------------------------------------------------ starting */

static int
open_pidfd(pid_t pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* dup2 of a descriptor to itself leaves it close-on-exec in old C libraries, so the pipe is never
 * at that number: it is moved up. */
static tutti_code
make_port_pipe(int pipe_ends[2], tutti_error *err)
{
    int i;

    if (pipe2(pipe_ends, O_CLOEXEC) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "could not make a pipe: %s", strerror(errno));
    }
    for (i = 0; i < 2; i++) {
        const int moved = fcntl(pipe_ends[i], F_DUPFD_CLOEXEC, PORT_DESCRIPTOR + 1);

        (void)close(pipe_ends[i]);
        pipe_ends[i] = moved;
    }
    if (pipe_ends[0] >= 0 && pipe_ends[1] >= 0) {
        return TUTTI_OK;
    }
    (void)close(pipe_ends[0]);
    (void)close(pipe_ends[1]);
    return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                          "no descriptor for a pipe");
}

/* The child inherits nothing but the three usual descriptors and the pipe: it lives as long as we
 * do, and would hold sockets and files of the program open. */
static int
spawn_server(char *const *arguments, int port, pid_t *ret_pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigset_t all;
    int failed = posix_spawn_file_actions_init(&actions);

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setpgroup(&attributes, 0);
    (void)posix_spawnattr_setflags(
        &attributes,
        (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP));
    failed = failed != 0 ? failed
                         : posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null",
                                                            O_RDONLY, 0);
    failed = failed != 0 ? failed
                         : posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null",
                                                            O_WRONLY, 0);
    failed =
        failed != 0 ? failed : posix_spawn_file_actions_adddup2(&actions, port, PORT_DESCRIPTOR);
    failed = failed != 0 ? failed
                         : posix_spawn_file_actions_addclosefrom_np(&actions, PORT_DESCRIPTOR + 1);
    failed = failed != 0
                 ? failed
                 : posix_spawn(ret_pid, arguments[0], &actions, &attributes, arguments, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* What it writes until it closes the pipe, or has ended. False: the time is up. */
static bool
read_port(int port, uint32_t timeout_ms, char *ret_text, size_t size)
{
    const uint64_t until = tutti_clock_add(tutti_clock_ns(), timeout_ms * TUTTI_NS_PER_MS);
    size_t used = 0;

    for (;;) {
        const uint64_t now = tutti_clock_ns();
        struct pollfd input = {.fd = port, .events = POLLIN};
        const int wait_ms = now >= until ? 0 : (int)((until - now) / TUTTI_NS_PER_MS) + 1;
        const int ready = poll(&input, 1, wait_ms);
        ssize_t got;

        if (ready == 0 && now >= until) {
            ret_text[used] = '\0';
            return false;
        }
        if (ready <= 0) {
            continue;
        }
        got = read(port, ret_text + used, size - 1 - used);
        if (got > 0) {
            used += (size_t)got;
        } else if (got == 0 || errno != EINTR) {
            ret_text[used] = '\0';
            return true;
        }
    }
}

static tutti_code
take_address(const char *program, bool in_time, char *text, uint32_t timeout_ms, char *ret_address,
             size_t size, tutti_error *err)
{
    char *end = strchr(text, '\n');

    if (!in_time) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "NOT_STARTED",
                              "%.800s did not listen within %u ms", program, (unsigned)timeout_ms);
    }
    if (end == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "NOT_STARTED",
                              "%.800s ended before it listened: what it wrote on standard error "
                              "says why",
                              program);
    }
    *end = '\0';
    (void)snprintf(ret_address, size, "%s", text);
    return TUTTI_OK;
}

static tutti_code
copy_arguments(const char *const *given, char **ret_copy, tutti_error *err)
{
    size_t count = 0;

    while (given[count] != NULL && count < ARGUMENTS_MAX - 3) {
        ret_copy[count] = (char *)(uintptr_t)given[count]; /* posix_spawn does not write to them */
        count++;
    }
    if (given[count] != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ARGS",
                              "%s has more than %d arguments", given[0], ARGUMENTS_MAX - 3);
    }
    ret_copy[count++] = (char *)(uintptr_t) "--port-file";
    ret_copy[count++] = (char *)(uintptr_t)PORT_OPTION;
    ret_copy[count] = NULL;
    return TUTTI_OK;
}

tutti_code
tutti_launch_start(const char *const *arguments, uint32_t timeout_ms,
                   tutti_launched_process *ret_process, char *ret_address, size_t size,
                   tutti_error *err)
{
    tutti_launched_process process = {.descriptor = -1};
    char *copy[ARGUMENTS_MAX];
    char text[ADDRESSES_TEXT_MAX];
    int port[2];
    int failed;
    bool in_time;
    tutti_code code;

    TUTTI_TRY(copy_arguments(arguments, copy, err));
    TUTTI_TRY(make_port_pipe(port, err));
    failed = spawn_server(copy, port[1], &process.pid);
    (void)close(port[1]);
    if (failed != 0) {
        (void)close(port[0]);
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "NOT_STARTED", "could not run %.800s: %s",
                              arguments[0], strerror(failed));
    }
    process.descriptor = open_pidfd(process.pid);
    in_time = read_port(port[0], timeout_ms, text, sizeof(text));
    (void)close(port[0]);
    code = take_address(arguments[0], in_time, text, timeout_ms, ret_address, size, err);
    if (code == TUTTI_OK) {
        *ret_process = process;
    } else {
        tutti_launch_stop(&process, 0);
    }
    return code;
}

/* ------------------------------------------------------------------------------ ending */

/* Has it ended within the time? By the pidfd, as the program may have reaped it. */
static bool
has_ended(const tutti_launched_process *process, uint32_t wait_ms)
{
    const uint64_t until = tutti_clock_add(tutti_clock_ns(), wait_ms * TUTTI_NS_PER_MS);
    struct pollfd input = {.fd = process->descriptor, .events = POLLIN};
    int ready = -1;

    while (ready < 0) {
        const uint64_t now = tutti_clock_ns();

        ready = poll(&input, 1, now >= until ? 0 : (int)((until - now) / TUTTI_NS_PER_MS) + 1);
    }
    return ready > 0;
}

static void
send_signal(const tutti_launched_process *process, int number)
{
    (void)syscall(SYS_pidfd_send_signal, process->descriptor, number, NULL, 0);
}

void
tutti_launch_stop(tutti_launched_process *process, uint32_t patience_ms)
{
    if (process->pid == 0) {
        return;
    }
    if (process->descriptor >= 0) {
        send_signal(process, SIGTERM);
        if (!has_ended(process, patience_ms)) {
            send_signal(process, SIGKILL);
        }
        (void)close(process->descriptor);
    } else {
        (void)kill(process->pid, SIGKILL);
    }
    while (waitpid(process->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    *process = (tutti_launched_process){.descriptor = -1};
}

/* ------------------------------------------------------------------------------ following */

typedef struct follower {
    int descriptor;
    bool (*may_end)(void *arg);
    void *arg;
} follower;

static void *
follow_parent(void *arg)
{
    follower *self = arg;
    struct pollfd input = {.fd = self->descriptor, .events = POLLIN};
    uint32_t waited_ms;

    while (poll(&input, 1, -1) <= 0) {
    }
    for (waited_ms = 0; self->may_end != NULL && waited_ms < LONELY_MS && !self->may_end(self->arg);
         waited_ms += LOOK_AGAIN_MS) {
        (void)poll(NULL, 0, LOOK_AGAIN_MS);
    }
    (void)kill(getpid(), SIGTERM);
    (void)poll(NULL, 0, POLITE_MS);
    (void)kill(getpid(), SIGTERM);
    (void)poll(NULL, 0, LAST_MS);
    _exit(0);
}

/* The thread, and its struct, live as long as the process. */
tutti_code
tutti_launch_follow(pid_t parent, bool (*may_end)(void *arg), void *arg, tutti_error *err)
{
    follower *self = malloc(sizeof(*self));
    pthread_t thread;
    int failed;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to watch process %ld", (long)parent);
    }
    *self = (follower){.descriptor = open_pidfd(parent), .may_end = may_end, .arg = arg};
    if (self->descriptor < 0) {
        free(self);
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_PROCESS",
                              "option --parent-pid: process %ld: %s", (long)parent,
                              strerror(errno));
    }
    failed = tutti_thread_start(&thread, follow_parent, self);
    if (failed != 0) {
        (void)close(self->descriptor);
        free(self);
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no thread to watch process %ld: %s", (long)parent, strerror(failed));
    }
    (void)pthread_detach(thread);
    return TUTTI_OK;
}
