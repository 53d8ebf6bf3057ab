/*
 * The programs of `tutti run` in one loop of poll(): their ends, their outputs, our signals and
 * the time. When one fails, all others are asked to end, and after some patience killed.
 *
 * Each program leads a process group, and signals go to the group, so what a program has started
 * ends with it. Dead programs are reaped at the very end: until then their number, and so their
 * group's, cannot become somebody else's.
 */
#include "client/cli/cluster/programs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/util/output.h"
#include "client/cli/util/process.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/relay.h"

#define PATIENCE_MS 5000 /* between a polite end and the other one */
#define AT_ONCE_MS 100   /* between two signals that are one */

/* ------------------------------------------------------------------------------ signals */

static const int caught[] = {SIGINT, SIGTERM, SIGHUP};
#define CAUGHT_COUNT (sizeof(caught) / sizeof(caught[0]))

static struct sigaction before[CAUGHT_COUNT];
static int signal_pipe[2] = {-1, -1};

/* Any thread may be the one that gets it: the loop reads it from the pipe. */
static void
on_signal(int number)
{
    const unsigned char byte = (unsigned char)number;
    const int kept = errno;

    if (write(signal_pipe[1], &byte, 1) != 1) {
        /* It is full of signals already. */
    }
    errno = kept;
}

/*
 * The handler writes the signal into a pipe, which the loop reads. That is all that a handler may
 * do safely.
 */
tutti_code
programs_catch_signals(tutti_error *err)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    size_t i;

    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
        return cli_fail_errno(err, errno, "could not make a pipe");
    }
    for (i = 0; i < CAUGHT_COUNT; i++) {
        (void)sigaction(caught[i], &action, &before[i]);
    }
    return TUTTI_OK;
}

void
programs_release_signals(void)
{
    size_t i;

    for (i = 0; i < CAUGHT_COUNT; i++) {
        (void)sigaction(caught[i], &before[i], NULL);
    }
    (void)close(signal_pipe[0]);
    (void)close(signal_pipe[1]);
}

/* What is in the pipe stays there, for programs_wait. */
bool
programs_must_end(void)
{
    struct pollfd input = {.fd = signal_pipe[0], .events = POLLIN};

    return poll(&input, 1, 0) > 0;
}

void
programs_end(void)
{
    on_signal(0);
}

/* ------------------------------------------------------------------------------ starting */

void
programs_init(programs *self, uint32_t count)
{
    uint32_t i;

    self->all = calloc(count, sizeof(*self->all));
    if (self->all == NULL) {
        abort();
    }
    self->count = count;
    self->failed = -1;
    self->patience_ms = self->patience_ms != 0 ? self->patience_ms : PATIENCE_MS;
    self->began_ms = cli_now_ms();
    for (i = 0; i < count; i++) {
        self->all[i] =
            (program){.descriptor = -1, .out = {.descriptor = -1}, .err = {.descriptor = -1}};
    }
}

/* The first rank here reads what is piped to us. A terminal stays ours: theirs is another group. */
static int
input_of(uint32_t index)
{
    return index == 0 && isatty(STDIN_FILENO) == 0 ? STDIN_FILENO : -1;
}

/*
 * The pipes' far ends are closed here after the start: only then does reading end when the
 * program does.
 */
tutti_code
programs_start(programs *self, uint32_t index, char *const *arguments, char *const *environment,
               tutti_error *err)
{
    const uint32_t rank = self->rank_start + index;
    program *one = &self->all[index];
    process_plan plan = {.arguments = arguments,
                         .environment = environment,
                         .input = input_of(index),
                         .output = -1,
                         .error = -1,
                         .bound = true};
    char prefix[16];
    tutti_code code;

    (void)snprintf(prefix, sizeof(prefix), "[%" PRIu32 "] ", rank);
    if (!relay_open(&one->out, self->out, self->prefix ? prefix : "", &plan.output)) {
        return cli_fail_errno(err, errno, "could not make a pipe for rank %" PRIu32, rank);
    }
    if (!relay_open(&one->err, self->err, self->prefix ? prefix : "", &plan.error)) {
        (void)close(plan.output);
        return cli_fail_errno(err, errno, "could not make a pipe for rank %" PRIu32, rank);
    }
    code = process_start(&plan, &one->pid, err);
    (void)close(plan.output);
    (void)close(plan.error);
    if (code != TUTTI_OK) {
        one->pid = 0;
        return code;
    }
    one->descriptor = (int)syscall(SYS_pidfd_open, one->pid, 0);
    return one->descriptor >= 0
               ? TUTTI_OK
               : cli_fail_errno(err, errno, "could not watch the program of rank %" PRIu32, rank);
}

/* ------------------------------------------------------------------------------ ending */

/* To each group. The dead leaders are not reaped before the end: their numbers stay theirs. */
static void
signal_all(const programs *self, int number)
{
    uint32_t i;

    for (i = 0; i < self->count; i++) {
        if (self->all[i].pid > 0) {
            (void)kill(-self->all[i].pid, number);
        }
    }
}

/* Patience starts with the first signal. */
static void
end_all(programs *self, int number)
{
    if (self->kill_ms == 0) {
        self->kill_ms = cli_now_ms() + self->patience_ms;
    }
    signal_all(self, number);
}

int
programs_exit_code(const program *one)
{
    return WIFSIGNALED(one->status) ? 128 + WTERMSIG(one->status) : WEXITSTATUS(one->status);
}

/* It has ended: how? What others do after that is our doing. */
static void
note_end(programs *self, uint32_t index)
{
    program *one = &self->all[index];
    siginfo_t info = {0};

    (void)waitid(P_PID, (id_t)one->pid, &info, WEXITED | WNOWAIT);
    one->status = info.si_code == CLD_EXITED ? info.si_status << 8 : info.si_status;
    one->elapsed_ms = cli_now_ms() - self->began_ms;
    (void)close(one->descriptor);
    one->descriptor = -1;
    relay_move(&one->out);
    relay_move(&one->err);
    if (one->status != 0 && self->kill_ms == 0) {
        self->failed = index;
        end_all(self, SIGTERM);
    }
}

/* ------------------------------------------------------------------------------ the loop */

#define POLLS 3 /* of each program: its end, its two outputs */

static nfds_t
fill_polls(const programs *self, struct pollfd *polls, bool *ret_alive)
{
    uint32_t i;

    *ret_alive = false;
    polls[0] = (struct pollfd){.fd = signal_pipe[0], .events = POLLIN};
    for (i = 0; i < self->count; i++) {
        const program *one = &self->all[i];
        struct pollfd *mine = &polls[1 + POLLS * i];

        mine[0] = (struct pollfd){.fd = one->descriptor, .events = POLLIN};
        mine[1] = (struct pollfd){.fd = one->out.descriptor, .events = POLLIN};
        mine[2] = (struct pollfd){.fd = one->err.descriptor, .events = POLLIN};
        *ret_alive = *ret_alive || one->descriptor >= 0;
    }
    return 1 + POLLS * (nfds_t)self->count;
}

/*
 * A second Ctrl-C is not patient. One that comes at once is the first one: a wrapper around us has passed
 * on what the terminal has sent to both.
 */
static void
note_signal(programs *self, int number)
{
    const uint64_t now = cli_now_ms();

    if (number == SIGINT && self->signal == SIGINT && now - self->told_ms >= AT_ONCE_MS) {
        self->kill_ms = now;
    }
    self->signal = number;
    self->told_ms = now;
}

/* What we are told is told to all programs, with the same signal. */
static void
take_signal(programs *self)
{
    unsigned char number;

    while (read(signal_pipe[0], &number, 1) == 1) {
        self->told = self->told || number == 0;
        if (number != 0) {
            note_signal(self, number);
        }
        end_all(self, number != 0 ? number : SIGTERM);
    }
}

/* How long until something has to be done; -1 = for ever. */
static int
wait_ms(const programs *self, uint64_t now)
{
    const uint64_t until = self->kill_ms != 0    ? self->kill_ms
                           : self->limit_ms != 0 ? self->began_ms + self->limit_ms
                                                 : 0;

    if (until == 0) {
        return -1;
    }
    return until > now ? (int)(until - now < INT32_MAX ? until - now : INT32_MAX) : 0;
}

/*
 * After SIGKILL it looks again after the same time, in case a program has started another
 * meanwhile.
 */
static void
look_at_clock(programs *self, uint64_t now)
{
    if (self->kill_ms != 0 && now >= self->kill_ms) {
        self->kill_ms = now + self->patience_ms;
        signal_all(self, SIGKILL);
    } else if (self->kill_ms == 0 && self->limit_ms != 0 &&
               now - self->began_ms >= self->limit_ms) {
        self->late = true;
        end_all(self, SIGTERM);
    }
}

/*
 * Outputs come before the end, so that the last lines of a program are shown before it is called
 * failed.
 */
static void
look_at_programs(programs *self, const struct pollfd *polls)
{
    uint32_t i;

    for (i = 0; i < self->count; i++) {
        const struct pollfd *mine = &polls[1 + POLLS * i];

        if (mine[1].revents != 0) {
            relay_move(&self->all[i].out);
        }
        if (mine[2].revents != 0) {
            relay_move(&self->all[i].err);
        }
        if (mine[0].revents != 0) {
            note_end(self, i);
        }
    }
}

void
programs_wait(programs *self)
{
    struct pollfd *polls = calloc(1 + POLLS * (size_t)self->count, sizeof(*polls));
    bool alive = false;
    nfds_t count;

    if (polls == NULL) {
        abort();
    }
    count = fill_polls(self, polls, &alive);
    while (alive) {
        if (poll(polls, count, wait_ms(self, cli_now_ms())) > 0) {
            if (polls[0].revents != 0) {
                take_signal(self);
            }
            look_at_programs(self, polls);
        }
        look_at_clock(self, cli_now_ms());
        count = fill_polls(self, polls, &alive);
    }
    free(polls);
}

/* SIGKILL goes to all groups once more: a program may have ended and left children behind. */
void
programs_fini(programs *self)
{
    uint32_t i;

    signal_all(self, SIGKILL);
    for (i = 0; i < self->count; i++) {
        program *one = &self->all[i];

        if (one->pid > 0) {
            (void)waitpid(one->pid, NULL, 0);
        }
        if (one->descriptor >= 0) {
            (void)close(one->descriptor);
        }
        relay_close(&one->out);
        relay_close(&one->err);
    }
    free(self->all);
    self->all = NULL;
    self->count = 0;
}
