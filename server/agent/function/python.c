#include "server/agent/function/python.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "base/os/thread.h"
#include "server/agent/function/functions.h"
#include "server/agent/function/host.h"
#include "server/agent/function/python_environment.h"
#include "server/agent/function/registry.h"
#include "server/agent/state/state.h"

#define MODULES_MAX 64
#define KEY_SIZE 33 /* 32 digits and the NUL */
#define LINE_MAX_BYTES 400
#define KEPT_LINES 6
#define LOOK_MS 100
#define BACKOFF_FIRST_NS (200 * TUTTI_NS_PER_MS)
#define BACKOFF_MOST_NS (10 * TUTTI_NS_PER_S)
#define LONG_LIFE_NS (30 * TUTTI_NS_PER_S) /* who lived as long has not failed to start */
#define KILL_NS (2 * TUTTI_NS_PER_S)       /* from SIGTERM on */

/* Its lock guards what it says, and whether it runs. */
typedef struct agent_python {
    tutti_agent *agent;
    char names[MODULES_MAX][AGENT_FUNCTION_NAME_MAX + 1];
    size_t name_count;
    char address[TUTTI_ADDRESS_MAX];
    char key[KEY_SIZE];
    pthread_t thread;
    bool started;
    tutti_rpc_task ended; /* a process has ended: posted again only when it has run */

    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    bool stopping;
    bool end_posted;
    pid_t pid; /* 0 = none */
    char lines[KEPT_LINES][LINE_MAX_BYTES + 1];
    size_t line_count; /* that there ever were of this process */
} agent_python;

/* ------------------------------------------------------------------------------ what it says */

static void
keep_line(agent_python *self, const char *line)
{
    TUTTI_LOG("agent", INFO, "python: %s", line);
    (void)pthread_mutex_lock(&self->lock);
    (void)snprintf(self->lines[self->line_count++ % KEPT_LINES], LINE_MAX_BYTES + 1, "%s", line);
    (void)pthread_mutex_unlock(&self->lock);
}

/* One line for people: what is no text is replaced. */
static void
clean_line(char *line)
{
    size_t i;

    for (i = 0; line[i] != '\0'; i++) {
        if (iscntrl((unsigned char)line[i])) {
            line[i] = ' ';
        }
    }
    for (i = 0; !agent_is_utf8(line, strlen(line)) && line[i] != '\0'; i++) {
        if ((unsigned char)line[i] >= 0x80) {
            line[i] = '?';
        }
    }
}

/* What a line may be made of, as it comes. */
typedef struct line_reader {
    char line[LINE_MAX_BYTES + 1];
    size_t used;
} line_reader;

static void
take_bytes(agent_python *self, line_reader *reader, const char *bytes, size_t size)
{
    size_t i;

    for (i = 0; i < size; i++) {
        if (bytes[i] != '\n' && reader->used < LINE_MAX_BYTES) {
            reader->line[reader->used++] = bytes[i];
        }
        if (bytes[i] == '\n') {
            reader->line[reader->used] = '\0';
            clean_line(reader->line);
            keep_line(self, reader->line);
            reader->used = 0;
        }
    }
}

/* Has it ended? It stays a zombie until its number is forgotten: nobody else gets that meanwhile. */
static bool
has_ended(pid_t pid, bool wait)
{
    siginfo_t info = {0};
    int status;

    do {
        status = waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | (wait ? 0 : WNOHANG));
    } while (status != 0 && errno == EINTR);
    return status != 0 || info.si_pid == pid;
}

/* Until its output is closed, or it has ended: what it has started may keep its output. */
static void
read_lines(agent_python *self, pid_t pid, int from)
{
    struct pollfd one = {.fd = from, .events = POLLIN};
    line_reader reader = {.used = 0};
    char bytes[4096];
    ssize_t got = 1;

    while (got > 0) {
        if (poll(&one, 1, LOOK_MS) <= 0) {
            got = has_ended(pid, false) ? 0 : 1;
            continue;
        }
        got = read(from, bytes, sizeof(bytes));
        if (got > 0) {
            take_bytes(self, &reader, bytes, (size_t)got);
        }
    }
    (void)close(from);
}

void
agent_python_words(const tutti_agent *agent, char ret_words[AGENT_PYTHON_WORDS_MAX])
{
    agent_python *self = agent->functions->python;
    tutti_text text = tutti_text_in(ret_words, AGENT_PYTHON_WORDS_MAX);
    size_t i;

    if (self == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&self->lock);
    for (i = self->line_count > KEPT_LINES ? self->line_count - KEPT_LINES : 0;
         i < self->line_count; i++) {
        tutti_text_add(&text, "%s%s", text.used == 0 ? "" : " | ", self->lines[i % KEPT_LINES]);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

/* ------------------------------------------------------------------------------ starting it */

static void
write_words(const agent_python *self, const char *words[MODULES_MAX + 6])
{
    size_t count = 0;
    size_t i;

    words[count++] = "python3";
    words[count++] = "-m";
    words[count++] = "tutti.host";
    words[count++] = "--agent";
    words[count++] = self->address;
    for (i = 0; i < self->name_count; i++) {
        words[count++] = self->names[i];
    }
    words[count] = NULL;
}

/* Signals as a program expects them, output to `out`, and an input that ends with this process. */
static int
spawn_python(const agent_python *self, int in, int out, pid_t *ret_pid)
{
    const char *words[MODULES_MAX + 6];
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    char **environment = agent_python_environment(self->agent, self->key, self->address);
    sigset_t none;
    sigset_t pipe;
    int number = ENOMEM;

    if (environment == NULL) {
        return number;
    }
    write_words(self, words);
    (void)sigemptyset(&none);
    (void)sigemptyset(&pipe);
    (void)sigaddset(&pipe, SIGPIPE); /* which the agent ignores */
    (void)posix_spawn_file_actions_init(&files);
    (void)posix_spawnattr_init(&how);
    (void)posix_spawn_file_actions_adddup2(&files, in, STDIN_FILENO);
    (void)posix_spawn_file_actions_adddup2(&files, out, STDOUT_FILENO);
    (void)posix_spawn_file_actions_adddup2(&files, out, STDERR_FILENO);
    (void)posix_spawnattr_setsigmask(&how, &none);
    (void)posix_spawnattr_setsigdefault(&how, &pipe);
    (void)posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                             POSIX_SPAWN_SETPGROUP);
    number = posix_spawnp(ret_pid, "python3", &files, &how, (char *const *)(uintptr_t)words,
                          environment);
    (void)posix_spawnattr_destroy(&how);
    (void)posix_spawn_file_actions_destroy(&files);
    agent_python_environment_free(environment);
    return number;
}

/* [out] ret_in  to be kept open as long as it shall live; ret_out  what it says */
static int
start_python(agent_python *self, pid_t *ret_pid, int *ret_in, int *ret_out)
{
    int in[2];
    int out[2];
    int number;

    if (pipe2(in, O_CLOEXEC) != 0) {
        return errno;
    }
    if (pipe2(out, O_CLOEXEC) != 0) {
        number = errno;
        (void)close(in[0]);
        (void)close(in[1]);
        return number;
    }
    number = spawn_python(self, in[0], out[1], ret_pid);
    (void)close(in[0]);
    (void)close(out[1]);
    if (number != 0) {
        (void)close(in[1]);
        (void)close(out[0]);
        return number;
    }
    *ret_in = in[1];
    *ret_out = out[0];
    return 0;
}

/* ------------------------------------------------------------------------------ one life */

static void
run_ended(tutti_rpc_task *task)
{
    agent_python *self = tutti_container_of(task, agent_python, ended);

    (void)pthread_mutex_lock(&self->lock);
    self->end_posted = false;
    (void)pthread_mutex_unlock(&self->lock);
    agent_hosts_tell(self->agent);
}

static void
say_end(const agent_python *self, pid_t pid, int status)
{
    const bool stopping = self->stopping;

    if (stopping && ((WIFEXITED(status) && WEXITSTATUS(status) == 0) || WIFSIGNALED(status))) {
        TUTTI_LOG("agent", INFO, "the host of --python has ended");
    } else if (WIFSIGNALED(status)) {
        TUTTI_LOG("agent", WARN, "the host of --python (pid %d) was ended by signal %d", (int)pid,
                  WTERMSIG(status));
    } else {
        TUTTI_LOG("agent", WARN, "the host of --python (pid %d) has ended with code %d", (int)pid,
                  WEXITSTATUS(status));
    }
}

static void
set_pid(agent_python *self, pid_t pid)
{
    (void)pthread_mutex_lock(&self->lock);
    self->pid = pid;
    if (pid != 0) {
        self->line_count = 0;
        if (self->stopping) { /* it came to be when nobody could tell it */
            (void)kill(pid, SIGTERM);
        }
    } else if (!self->stopping && !self->end_posted) {
        self->end_posted = true;
        tutti_rpc_loop_post(self->agent->control, &self->ended);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

/* Start it, and wait until it has ended. */
static void
live_python(agent_python *self)
{
    pid_t pid = 0;
    int in = -1;
    int out = -1;
    int status = 0;
    const int number = start_python(self, &pid, &in, &out);

    if (number != 0) {
        TUTTI_LOG("agent", ERROR, "cannot start python3 for --python: %s", strerror(number));
        return;
    }
    TUTTI_LOG("agent", INFO, "started python3 -m tutti.host (pid %d) for --python %s", (int)pid,
              self->agent->options->python);
    set_pid(self, pid);
    read_lines(self, pid, out);
    (void)has_ended(pid, true);
    (void)kill(-pid, SIGKILL); /* what it has started */
    set_pid(self, 0);
    (void)waitpid(pid, &status, 0);
    (void)close(in);
    say_end(self, pid, status);
}

/* Returns false: it is not to be started again. */
static bool
wait_to_start(agent_python *self, uint64_t ns)
{
    const uint64_t until = tutti_clock_add(tutti_clock_ns(), ns);
    bool again;

    (void)pthread_mutex_lock(&self->lock);
    while (!self->stopping && tutti_cond_wait_until(&self->changed, &self->lock, until)) {
    }
    again = !self->stopping;
    (void)pthread_mutex_unlock(&self->lock);
    return again;
}

static void *
keep_python(void *arg)
{
    agent_python *self = arg;
    uint64_t backoff_ns = BACKOFF_FIRST_NS;
    uint64_t began_ns;

    (void)pthread_setname_np(pthread_self(), "tutti-python");
    do {
        began_ns = tutti_clock_ns();
        live_python(self);
        if (tutti_clock_ns() - began_ns > LONG_LIFE_NS) {
            backoff_ns = BACKOFF_FIRST_NS;
        }
        if (!wait_to_start(self, backoff_ns)) {
            return NULL;
        }
        backoff_ns = backoff_ns * 2 > BACKOFF_MOST_NS ? BACKOFF_MOST_NS : backoff_ns * 2;
    } while (true);
}

/* ------------------------------------------------------------------------------ its doors */

static tutti_code
read_modules(agent_python *self, const char *rest, tutti_error *err)
{
    while (rest[0] != '\0') {
        const size_t size = strcspn(rest, ",");
        char *name = self->names[self->name_count < MODULES_MAX ? self->name_count : 0];

        if (self->name_count >= MODULES_MAX) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                                  "more than %d modules in --python", MODULES_MAX);
        }
        (void)snprintf(name, AGENT_FUNCTION_NAME_MAX + 1, "%.*s", (int)size, rest);
        if (!agent_function_is_name(name, AGENT_FUNCTION_NAME_MAX) || name[0] == '-') {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                                  "--python: \"%.100s\" is no name of a module", name);
        }
        self->name_count++;
        rest += size + (rest[size] == ',' ? 1 : 0);
    }
    return TUTTI_OK;
}

tutti_code
agent_python_open(tutti_agent *agent, tutti_error *err)
{
    agent_python *self;

    if (agent->options->python[0] == '\0') {
        return TUTTI_OK;
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for --python");
    }
    agent->functions->python = self;
    self->agent = agent;
    self->ended.on_run = run_ended;
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
    (void)snprintf(self->key, sizeof(self->key), "%016llx%016llx",
                   (unsigned long long)tutti_id_draw(), (unsigned long long)tutti_id_draw());
    return read_modules(self, agent->options->python, err);
}

/* A Unix socket, or else the first address, as this machine reaches it. */
static void
choose_address(agent_python *self)
{
    size_t count = 0;
    const tutti_address *addresses = tutti_rpc_server_addresses(self->agent->server, &count);
    const tutti_address *chosen = count == 0 ? NULL : &addresses[0];
    size_t i;

    for (i = 0; i < count; i++) {
        if (strncmp(addresses[i].text, "unix:", 5) == 0) {
            chosen = &addresses[i];
        }
    }
    if (chosen == NULL) {
        return;
    }
    if (strcmp(chosen->host, "0.0.0.0") != 0 && strcmp(chosen->host, "::") != 0) {
        memcpy(self->address, chosen->text, sizeof(self->address));
    } else if (self->agent->server_options->tls_cert[0] != '\0' &&
               self->agent->advertised_count > 0) { /* a name that is in the certificate */
        memcpy(self->address, self->agent->advertised[0], sizeof(self->address));
    } else {
        (void)snprintf(self->address, sizeof(self->address), "127.0.0.1:%u",
                       (unsigned)chosen->port);
    }
}

void
agent_python_start(tutti_agent *agent)
{
    agent_python *self = agent->functions->python;
    int number;

    if (self == NULL) {
        return;
    }
    choose_address(self);
    number = tutti_thread_start(&self->thread, keep_python, self);
    self->started = number == 0;
    if (number != 0) {
        TUTTI_LOG("agent", ERROR, "no thread for --python: %s", strerror(number));
    }
}

void
agent_python_stop(tutti_agent *agent)
{
    agent_python *self = agent->functions->python;

    if (self == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&self->lock);
    self->stopping = true;
    if (self->pid != 0) {
        (void)kill(self->pid, SIGTERM);
    }
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

bool
agent_python_runs(const tutti_agent *agent)
{
    agent_python *self = agent->functions->python;
    bool runs = false;

    if (self != NULL) {
        (void)pthread_mutex_lock(&self->lock);
        runs = self->pid != 0;
        (void)pthread_mutex_unlock(&self->lock);
    }
    return runs;
}

bool
agent_python_has_key(const tutti_agent *agent, tutti_bytes key)
{
    const agent_python *self = agent->functions->python;
    const unsigned char *shown = key.data;
    unsigned char differs = 0;
    size_t i;

    if (self == NULL || key.size != KEY_SIZE - 1) {
        return false;
    }
    for (i = 0; i < key.size; i++) {
        differs |= (unsigned char)(shown[i] ^ (unsigned char)self->key[i]);
    }
    return differs == 0;
}

void
agent_python_close(tutti_agent *agent)
{
    agent_python *self = agent->functions->python;
    const uint64_t until = tutti_clock_add(tutti_clock_ns(), KILL_NS);
    const struct timespec pause = {.tv_nsec = (long)(5 * TUTTI_NS_PER_MS)};

    if (self == NULL) {
        return;
    }
    agent_python_stop(agent);
    while (self->started && agent_python_runs(agent) && tutti_clock_ns() < until) {
        (void)nanosleep(&pause, NULL);
    }
    (void)pthread_mutex_lock(&self->lock);
    if (self->pid != 0) {
        (void)kill(-self->pid, SIGKILL);
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (self->started) {
        (void)pthread_join(self->thread, NULL);
    }
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
    agent->functions->python = NULL;
}
