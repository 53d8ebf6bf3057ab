/*
 * Processes of this machine: finding programs, starting them, and knowing them again later. A
 * process is known by its number and the time when it was started; the kernel may give the number
 * alone to another one.
 */
#include "client/cli/util/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"

extern char **environ;

/* ------------------------------------------------------------------------------ finding */

static bool
try_path(const char *folder, const char *between, const char *name, char ret_path[PROCESS_PATH_MAX])
{
    const int size = snprintf(ret_path, PROCESS_PATH_MAX, "%s%s%s", folder, between, name);

    return size > 0 && size < PROCESS_PATH_MAX && access(ret_path, X_OK) == 0;
}

static bool
try_search_path(const char *name, char ret_path[PROCESS_PATH_MAX])
{
    const char *at = getenv("PATH");

    while (at != NULL && *at != '\0') {
        const size_t size = strcspn(at, ":");
        char folder[PROCESS_PATH_MAX];

        if (size > 0 && size < sizeof(folder)) {
            memcpy(folder, at, size);
            folder[size] = '\0';
            if (try_path(folder, "/", name, ret_path)) {
                return true;
            }
        }
        at += size;
        at += *at == ':' ? 1 : 0;
    }
    return false;
}

/*
 * Programs of the same installation come first, so that a tutti from a build folder does not
 * start the agents that are installed.
 */
tutti_code
process_find(const char *name, char ret_path[PROCESS_PATH_MAX], tutti_error *err)
{
    static const char *const places[] = {"/", "/../libexec/tutti/", "/../libexec/"};
    char own[PROCESS_PATH_MAX];
    const ssize_t size = readlink("/proc/self/exe", own, sizeof(own) - 1);
    size_t i;

    own[size > 0 ? size : 0] = '\0';
    if (strrchr(own, '/') != NULL) {
        *strrchr(own, '/') = '\0';
    }
    for (i = 0; size > 0 && i < sizeof(places) / sizeof(places[0]); i++) {
        if (try_path(own, places[i], name, ret_path)) {
            return TUTTI_OK;
        }
    }
    if (try_search_path(name, ret_path)) {
        return TUTTI_OK;
    }
    return cli_fail(err, TUTTI_NOT_FOUND,
                    "there is no %s beside this program (%.800s), in ../libexec or in PATH", name,
                    own);
}

/* ------------------------------------------------------------------------------ starting */

/* [in] given  -1 = /dev/null */
static int
add_descriptor(posix_spawn_file_actions_t *actions, int given, int wanted)
{
    if (given >= 0) {
        return posix_spawn_file_actions_adddup2(actions, given, wanted);
    }
    return posix_spawn_file_actions_addopen(actions, wanted, "/dev/null",
                                            wanted == STDIN_FILENO ? O_RDONLY : O_WRONLY, 0);
}

/*
 * The new process gets usual signals again, and a group or a session of its own: what ends us by
 * Ctrl-C must not end it at the same moment.
 */
static int
spawn_process(const process_plan *plan, pid_t *ret_pid)
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
        &attributes, (short)(POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                             (plan->session ? POSIX_SPAWN_SETSID : POSIX_SPAWN_SETPGROUP)));
    failed = failed != 0 ? failed : add_descriptor(&actions, plan->input, STDIN_FILENO);
    failed = failed != 0 ? failed : add_descriptor(&actions, plan->output, STDOUT_FILENO);
    failed = failed != 0 ? failed : add_descriptor(&actions, plan->error, STDERR_FILENO);
    if (failed == 0) {
        failed = posix_spawnp(ret_pid, plan->arguments[0], &actions, &attributes, plan->arguments,
                              plan->environment);
    }
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* What the child does between fork and exec: calls that POSIX allows there. Returns errno. */
static int
become_program(const process_plan *plan, pid_t parent)
{
    const int given[] = {plan->input, plan->output, plan->error};
    sigset_t none;
    int number;
    int i;

    for (number = 1; number < SIGRTMIN; number++) {
        (void)signal(number, SIG_DFL); /* SIGKILL and SIGSTOP refuse */
    }
    (void)(plan->session ? setsid() : setpgid(0, 0));
    for (i = 0; i < 3; i++) {
        const int from = given[i] >= 0 ? given[i] : open("/dev/null", i == 0 ? O_RDONLY : O_WRONLY);

        if (from < 0 || dup2(from, i) < 0) {
            return errno;
        }
        if (given[i] < 0 && from > 2) {
            (void)close(from);
        }
    }
    (void)prctl(PR_SET_PDEATHSIG, (unsigned long)SIGTERM);
    if (getppid() != parent) {
        _exit(1); /* it died before we were bound to it */
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)execvpe(plan->arguments[0], plan->arguments, plan->environment);
    return errno;
}

/*
 * posix_spawn cannot bind a process to its parent. Signals are blocked until the child has its own
 * handlers: ours would write into our pipe. Why exec failed comes through a pipe that exec closes.
 */
static int
fork_process(const process_plan *plan, pid_t *ret_pid)
{
    const pid_t parent = getpid();
    sigset_t all;
    sigset_t before;
    int channel[2];
    int failed = 0;

    if (pipe2(channel, O_CLOEXEC) != 0) {
        return errno;
    }
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    *ret_pid = fork();
    if (*ret_pid == 0) {
        failed = become_program(plan, parent);
        _exit(write(channel[1], &failed, sizeof(failed)) == sizeof(failed) ? 127 : 126);
    }
    failed = *ret_pid < 0 ? errno : 0;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)close(channel[1]);
    if (*ret_pid > 0 && read(channel[0], &failed, sizeof(failed)) == sizeof(failed)) {
        (void)waitpid(*ret_pid, NULL, 0);
    }
    (void)close(channel[0]);
    return failed;
}

tutti_code
process_start(const process_plan *plan, pid_t *ret_pid, tutti_error *err)
{
    const int failed = plan->bound ? fork_process(plan, ret_pid) : spawn_process(plan, ret_pid);

    return failed == 0 ? TUTTI_OK
                       : cli_fail_errno(err, failed, "could not run %.500s", plan->arguments[0]);
}

/* ------------------------------------------------------------------------------ knowing */

/*
 * Field 22 of /proc/PID/stat, counted from behind the name, which may hold anything; field 3 is the
 * state.
 */
uint64_t
process_started(pid_t pid)
{
    char path[64];
    char line[1024];
    const char *at;
    uint64_t started = 0;
    size_t size;
    FILE *file;
    int field;

    (void)snprintf(path, sizeof(path), "/proc/%ld/stat", (long)pid);
    file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    size = fread(line, 1, sizeof(line) - 1, file);
    (void)fclose(file);
    line[size] = '\0';
    at = strrchr(line, ')');
    if (at == NULL || at[1] == '\0' || at[2] == 'Z' || at[2] == 'X') {
        return 0;
    }
    at += 2;
    for (field = 3; field < 22 && at != NULL; field++) {
        at = strchr(at, ' ');
        at = at == NULL ? NULL : at + 1;
    }
    return at != NULL && sscanf(at, "%" SCNu64, &started) == 1 ? started : 0;
}

void
process_hold(process_ref *ref)
{
    ref->descriptor = -1;
    if (ref->pid <= 1) {
        return;
    }
    ref->descriptor = (int)syscall(SYS_pidfd_open, ref->pid, 0);
    /* Looked at when it cannot become another's any more. */
    if (ref->descriptor >= 0 && process_started(ref->pid) != ref->started) {
        process_let_go(ref);
    }
}

void
process_let_go(process_ref *ref)
{
    if (ref->descriptor >= 0) {
        (void)close(ref->descriptor);
        ref->descriptor = -1;
    }
}

/* By the descriptor and not by the number: if the process has ended, nobody gets the signal. */
void
process_signal(const process_ref *ref, int number)
{
    if (ref->descriptor >= 0) {
        (void)syscall(SYS_pidfd_send_signal, ref->descriptor, number, NULL, 0);
    }
}

/*
 * One limit for all together. Those that have ended are let go, so the caller may call this again
 * for the rest.
 */
bool
process_wait_all(process_ref *refs, size_t count, uint32_t timeout_ms)
{
    const uint64_t until = cli_now_ms() + timeout_ms;
    size_t i;

    for (i = 0; i < count; i++) {
        struct pollfd gone = {.fd = refs[i].descriptor, .events = POLLIN};

        while (refs[i].descriptor >= 0) {
            const uint64_t now = cli_now_ms();

            if (poll(&gone, 1, now < until ? (int)(until - now) : 0) > 0) {
                process_let_go(&refs[i]);
            } else if (now >= until) {
                return false;
            }
        }
    }
    return true;
}

/* ------------------------------------------------------------------------------ environment */

/* Does a change speak of this "NAME=value"? */
static bool
speaks_of(const char *change, const char *variable)
{
    const size_t size = strcspn(change, "=");

    if (size > 0 && change[size - 1] == '*') {
        return strncmp(variable, change, size - 1) == 0;
    }
    return strncmp(variable, change, size) == 0 && variable[size] == '=';
}

static bool
is_changed(const char *variable, const char *const *changes, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (speaks_of(changes[i], variable)) {
            return true;
        }
    }
    return false;
}

/*
 * [in] changes  "NAME=value" sets, "NAME" or "NAME*" takes away
 *
 * Returns our environment with these changes; process_environment_free it.
 */
char **
process_environment(const char *const *changes, size_t count)
{
    size_t room = count + 1;
    size_t used = 0;
    char **result;
    size_t i;

    for (i = 0; environ[i] != NULL; i++) {
        room++;
    }
    result = calloc(room, sizeof(*result));
    if (result == NULL) {
        abort();
    }
    for (i = 0; environ[i] != NULL; i++) {
        if (!is_changed(environ[i], changes, count)) {
            result[used++] = strdup(environ[i]);
        }
    }
    for (i = 0; i < count; i++) {
        if (strchr(changes[i], '=') != NULL) {
            result[used++] = strdup(changes[i]);
        }
    }
    return result;
}

void
process_environment_free(char **environment)
{
    size_t i;

    for (i = 0; environment != NULL && environment[i] != NULL; i++) {
        free(environment[i]);
    }
    free(environment);
}

void
process_hide_memory(void)
{
    (void)prctl(PR_SET_DUMPABLE, 0L, 0L, 0L, 0L);
}
