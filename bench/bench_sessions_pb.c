/*
 * How does one coordinator carry a large job? A client with a connection and a session for each
 * rank joins, beats, and loses some of its ranks at once, while another connection calls
 * StoreService.Set.
 *
 *     bench_sessions COORDINATOR [--ranks N] [--deaths N] [--within MS]
 *
 * COORDINATOR is the program; it is started and ended. --at-once: joins that are under way at the
 * same time. Both sides share the machine, so its times are upper bounds.
 */
#include <errno.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/data/spans.h"
#include "base/os/clock.h"
#include "base/os/process.h"
#include "rpc/channel.h"
#include "tutti/types.h"
#include "tutti/v1/coordinator_service.pb-c.h"
#include "tutti/v1/store_service.pb-c.h"

#define RANKS_DEFAULT 10000
#define DEATHS_DEFAULT 100
#define PACE_US 200 /* as agents: for each rank */
#define STEP_NS (5 * TUTTI_NS_PER_MS)
#define IDLE_S 5
#define PHASE_S 120 /* at most */
#define PROBE_US 3000
#define PORT_WAITS 1000 /* of 10 ms */
#define HOST "bench"

#define COORDINATOR(method)                                                                        \
    {                                                                                              \
        &tutti__v1__coordinator_service__descriptor, method                                        \
    }

static const tutti_rpc_stub stub_join = COORDINATOR("Join");
static const tutti_rpc_stub stub_session = COORDINATOR("Session");
static const tutti_rpc_stub stub_group = COORDINATOR("CreateGroup");
static const tutti_rpc_stub stub_set = {&tutti__v1__store_service__descriptor, "Set"};

/* A rank. On the loop's thread. */
typedef struct member {
    tutti_rpc_channel *channel;
    tutti_rpc_flow *session;
    tutti_timer beat;
    uint64_t interval_ns;
    uint32_t rank;
    uint32_t told; /* of lost ranks */
    bool dead;     /* on purpose */
} member;

typedef struct bench {
    const char *program;
    uint32_t ranks;
    uint32_t deaths;
    uint64_t within_ns;
    pid_t pid;
    char folder[64];
    char port_file[96];
    char target[128];
    tutti_rpc_loop *loop;
    tutti_rpc_task task;
    tutti_timer step; /* when the next ranks join */
    uint64_t began_ns;
    sem_t over; /* a phase is */
    /* on the loop's thread, read in between */
    member *members;
    uint32_t begun;
    uint32_t joined;
    uint32_t accepted;
    uint32_t told; /* all that is to be told */
    uint32_t grouped;
    uint32_t lost; /* not on purpose */
    uint64_t messages;
    atomic_ullong beats;
    atomic_bool ending;
    pid_t probe;
    atomic_ullong *slowest_ns; /* store call of the probe, in memory of both */
} bench;

static bench self;

static void
end_child(pid_t pid)
{
    if (pid > 0) {
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
    }
}

static void
stop_children(void)
{
    end_child(self.probe);
    if (self.pid > 0) {
        end_child(self.pid);
        (void)unlink(self.port_file);
        (void)rmdir(self.folder);
    }
}

static void
die(const char *what, const char *why)
{
    (void)fprintf(stderr, "bench_sessions: %s: %s\n", what, why);
    stop_children();
    _exit(1);
}

static void
check(const char *what, tutti_code code, const tutti_error *err)
{
    if (code != TUTTI_OK) {
        die(what, err->text);
    }
}

/* ------------------------------------------------------------------------------ the coordinator */

static void
read_port(void)
{
    FILE *file = fopen(self.port_file, "r");

    if (file != NULL) {
        if (fgets(self.target, sizeof(self.target), file) != NULL) {
            self.target[strcspn(self.target, "\n")] = '\0';
        }
        (void)fclose(file);
    }
}

static void
start_coordinator(void)
{
    unsigned i;

    (void)snprintf(self.folder, sizeof(self.folder), "/tmp/bench-sessions-XXXXXX");
    if (mkdtemp(self.folder) == NULL) {
        die("a folder", strerror(errno));
    }
    (void)snprintf(self.port_file, sizeof(self.port_file), "%s/port", self.folder);
    self.pid = fork(); /* before gRPC begins */
    if (self.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
            _exit(127);
        }
        (void)execl(self.program, self.program, "--listen", "127.0.0.1:0", "--port-file",
                    self.port_file, "--log", "error", (char *)NULL);
        _exit(127);
    }
    for (i = 0; i < PORT_WAITS && self.target[0] == '\0'; i++) {
        (void)usleep(10000);
        read_port();
    }
    if (self.target[0] == '\0') {
        die(self.program, "did not start");
    }
}

/* Seconds that the coordinator has computed. */
static double
coordinator_cpu(void)
{
    char path[64];
    unsigned long user = 0;
    unsigned long kernel = 0;
    FILE *file;

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)self.pid);
    file = fopen(path, "r");
    if (file == NULL ||
        fscanf(file, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
               &kernel) != 2) {
        die(path, "cannot be read");
    }
    (void)fclose(file);
    return (double)(user + kernel) / (double)sysconf(_SC_CLK_TCK);
}

/* ------------------------------------------------------------------------------ a rank */

static void
fill_member(const member *one, Tutti__V1__Member *ret)
{
    static char job[] = "";

    tutti__v1__member__init(ret);
    ret->job = job;
    ret->rank = one->rank;
    ret->incarnation = one->rank + 1;
}

static void
on_beat(tutti_timer *timer)
{
    member *one = tutti_container_of(timer, member, beat);
    Tutti__V1__SessionRequest request = TUTTI__V1__SESSION_REQUEST__INIT;
    Tutti__V1__Heartbeat heartbeat = TUTTI__V1__HEARTBEAT__INIT;

    if (one->session == NULL || one->dead) {
        return;
    }
    request.kind_case = TUTTI__V1__SESSION_REQUEST__KIND_HEARTBEAT;
    request.heartbeat = &heartbeat;
    if (tutti_rpc_flow_writable(one->session)) {
        tutti_rpc_flow_write(one->session, &request.base);
        (void)atomic_fetch_add(&self.beats, 1);
    }
    tutti_rpc_loop_timer_start(self.loop, timer, tutti_clock_ns() + one->interval_ns);
}

static void
count_lost(member *one, const Tutti__V1__SessionChanges *changes)
{
    const uint32_t before = one->told;
    size_t i;

    self.messages++;
    for (i = 0; i < changes->n_changes; i++) {
        one->told +=
            changes->changes[i]->what_case == TUTTI__V1__SESSION_CHANGE__WHAT_RANK_LOST ? 1 : 0;
    }
    if (!one->dead && before < self.deaths && one->told >= self.deaths &&
        ++self.told == self.ranks - self.deaths) {
        (void)sem_post(&self.over);
    }
}

static void
on_session_message(void *arg, tutti_rpc_message *message)
{
    const Tutti__V1__SessionResponse *response = tutti_rpc_message_get(message);
    member *one = arg;

    if (response->event_case == TUTTI__V1__SESSION_RESPONSE__EVENT_CHANGES) {
        count_lost(one, response->changes);
    } else if (response->event_case == TUTTI__V1__SESSION_RESPONSE__EVENT_ACCEPTED) {
        if (++self.accepted == self.ranks) {
            (void)sem_post(&self.over);
        }
    }
}

static void
on_session_end(void *arg, const tutti_error *err)
{
    member *one = arg;

    one->session = NULL;
    if (one->dead || self.ending) {
        return;
    }
    if (self.lost++ == 0) {
        (void)fprintf(stderr, "rank %u: %s\n", (unsigned)one->rank,
                      err == NULL ? "the session ended" : err->text);
    }
}

static void
open_session(member *one)
{
    static const tutti_rpc_flow_ops ops = {.on_message = on_session_message,
                                           .on_end = on_session_end};
    static const tutti_rpc_call_options options = {0};
    Tutti__V1__SessionRequest request = TUTTI__V1__SESSION_REQUEST__INIT;
    Tutti__V1__SessionOpen open = TUTTI__V1__SESSION_OPEN__INIT;
    Tutti__V1__Member who;
    tutti_error err;

    fill_member(one, &who);
    open.member = &who;
    request.kind_case = TUTTI__V1__SESSION_REQUEST__KIND_OPEN;
    request.open = &open;
    check("session",
          tutti_rpc_flow_start(one->channel, self.loop, &stub_session, &request.base, false,
                               &options, &ops, one, &one->session, &err),
          &err);
    one->beat.on_expiry = on_beat;
    tutti_rpc_loop_timer_start(self.loop, &one->beat, tutti_clock_ns() + one->interval_ns);
}

static void
on_join_message(void *arg, tutti_rpc_message *message)
{
    const Tutti__V1__JoinResponse *response = tutti_rpc_message_get(message);
    member *one = arg;

    if (response->answer_case == TUTTI__V1__JOIN_RESPONSE__ANSWER_JOINED) {
        self.joined++;
        one->interval_ns = response->joined->heartbeat_interval_ms * TUTTI_NS_PER_MS;
        open_session(one);
    }
}

static void
on_join_end(void *arg, const tutti_error *err)
{
    (void)arg;
    if (err != NULL) {
        die("join", err->text);
    }
}

static void
begin_join(member *one)
{
    static const tutti_rpc_flow_ops ops = {.on_message = on_join_message, .on_end = on_join_end};
    static const tutti_rpc_channel_options channel = {.bulk = true};
    static const tutti_rpc_call_options options = {.wait_for_ready = true};
    static char host[] = HOST;
    static char address[] = "127.0.0.1:1";
    char *addresses[] = {address};
    Tutti__V1__JoinRequest request = TUTTI__V1__JOIN_REQUEST__INIT;
    Tutti__V1__AgentInfo info = TUTTI__V1__AGENT_INFO__INIT;
    tutti_rpc_flow *flow;
    tutti_error err;

    info.host = host;
    info.host_id = host;
    info.addresses = addresses;
    info.n_addresses = 1;
    request.world_size = self.ranks;
    request.opt_rank_case = TUTTI__V1__JOIN_REQUEST__OPT_RANK_RANK;
    request.rank = one->rank;
    request.incarnation = one->rank + 1;
    request.agent = &info;
    check("channel", tutti_rpc_channel_open(self.target, &channel, &one->channel, &err), &err);
    check("join",
          tutti_rpc_flow_start(one->channel, self.loop, &stub_join, &request.base, true, &options,
                               &ops, one, &flow, &err),
          &err);
}

/* Those that are due. */
static void
on_step(tutti_timer *timer)
{
    const uint64_t passed_ns = tutti_clock_ns() - self.began_ns;

    while (self.begun < self.ranks && self.begun * self.within_ns <= passed_ns * self.ranks) {
        member *one = &self.members[self.begun];

        one->rank = self.begun++;
        begin_join(one);
    }
    if (self.begun < self.ranks) {
        tutti_rpc_loop_timer_start(self.loop, timer, tutti_clock_ns() + STEP_NS);
    }
}

/* ------------------------------------------------------------------------------ phases */

static void
run_joins(tutti_rpc_task *task)
{
    (void)task;
    self.began_ns = tutti_clock_ns();
    self.step.on_expiry = on_step;
    on_step(&self.step);
}

/* Their sessions end without a word, as when the processes die. */
static void
run_deaths(tutti_rpc_task *task)
{
    uint32_t i;

    (void)task;
    self.messages = 0;
    for (i = 0; i < self.deaths; i++) {
        member *one = &self.members[self.ranks - 1 - i];

        one->dead = true;
        if (one->session != NULL) {
            tutti_rpc_flow_cancel(one->session);
        }
    }
}

static void
on_group(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    (void)arg;
    (void)response;
    if (err != NULL) {
        die("group", err->text);
    }
    if (++self.grouped == self.ranks - self.deaths) {
        (void)sem_post(&self.over);
    }
}

static void
run_groups(tutti_rpc_task *task)
{
    static const tutti_rpc_call_options options = {0};
    static char name[] = "everyone";
    Tutti__V1__CreateGroupRequest request = TUTTI__V1__CREATE_GROUP_REQUEST__INIT;
    Tutti__V1__Member who;
    tutti_spans spans;
    tutti_error err;
    uint32_t i;

    (void)task;
    tutti_spans_pack(NULL, self.ranks - self.deaths, &spans);
    request.member = &who;
    request.name = name;
    request.spans = spans.numbers;
    request.n_spans = spans.count;
    request.accept_spans = true;
    for (i = 0; i < self.ranks - self.deaths; i++) {
        fill_member(&self.members[i], &who);
        check("group",
              tutti_rpc_request_start(self.members[i].channel, self.loop, &stub_group,
                                      &request.base, &options, on_group, NULL, NULL, &err),
              &err);
    }
}

/* What a phase took. */
typedef struct spent {
    double s;
    double cpu_s;
    double slowest_ms; /* store call */
} spent;

static spent
run_phase(const char *what, void (*on_run)(tutti_rpc_task *task))
{
    const uint64_t began = tutti_clock_ns();
    const double cpu = coordinator_cpu();
    struct timespec until;
    spent took;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PHASE_S;
    atomic_store(self.slowest_ns, 0);
    self.task.on_run = on_run;
    tutti_rpc_loop_post(self.loop, &self.task);
    if (sem_timedwait(&self.over, &until) != 0) {
        char why[160];

        (void)snprintf(why, sizeof(why),
                       "not over after %d s: joined %u, sessions %u, told %u, lost %u", PHASE_S,
                       (unsigned)self.joined, (unsigned)self.accepted, (unsigned)self.told,
                       (unsigned)self.lost);
        die(what, why);
    }
    took.s = (double)(tutti_clock_ns() - began) / (double)TUTTI_NS_PER_S;
    (void)usleep(100000); /* a store call that is under way counts */
    took.cpu_s = coordinator_cpu() - cpu;
    took.slowest_ms = (double)atomic_load(self.slowest_ns) / (double)TUTTI_NS_PER_MS;
    return took;
}

static void
print_phase(const char *what, const spent *took)
{
    (void)printf("%-34s %7.2f s, %5.2f s of CPU; slowest store call %4.0f ms\n", what, took->s,
                 took->cpu_s, took->slowest_ms);
    (void)fflush(stdout);
}

/* ------------------------------------------------------------------------------ the store */

static void
probe_store(void)
{
    Tutti__V1__StoreServiceSetRequest request = TUTTI__V1__STORE_SERVICE_SET_REQUEST__INIT;
    static uint8_t text[] = "probe";
    tutti_rpc_channel *channel = NULL;
    tutti_error err;

    request.key = (ProtobufCBinaryData){.len = sizeof(text), .data = text};
    request.value = request.key;
    check("channel", tutti_rpc_channel_open(self.target, NULL, &channel, &err), &err);
    for (;;) {
        const uint64_t began = tutti_clock_ns();
        uint64_t took;

        check("store", tutti_rpc_invoke(channel, &stub_set, &request.base, NULL, NULL, NULL, &err),
              &err);
        took = tutti_clock_ns() - began;
        if (took > atomic_load(self.slowest_ns)) {
            atomic_store(self.slowest_ns, took);
        }
        (void)usleep(PROBE_US);
    }
}

/* A process of its own: a thread beside 10 000 connections would wait for them in gRPC. */
static void
start_probe(void)
{
    self.slowest_ns = mmap(NULL, sizeof(*self.slowest_ns), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (self.slowest_ns == MAP_FAILED) {
        die("memory", strerror(errno));
    }
    self.probe = fork(); /* before gRPC begins */
    if (self.probe == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        self.pid = 0; /* not ours to end */
        tutti_rpc_init();
        probe_store();
    }
}

/* ------------------------------------------------------------------------------ main */

static void
idle(void)
{
    const double cpu = coordinator_cpu();
    const unsigned long long beats = atomic_load(&self.beats);

    (void)sleep(IDLE_S);
    (void)printf("%-34s %7.0f heartbeats/s, %.1f %% of a core\n", "idle",
                 (double)(atomic_load(&self.beats) - beats) / IDLE_S,
                 100 * (coordinator_cpu() - cpu) / IDLE_S);
    (void)fflush(stdout);
}

static uint32_t
number_of(const char *text)
{
    char *end = NULL;
    const unsigned long number = strtoul(text, &end, 10);

    if (end == text || *end != '\0' || number > TUTTI_RANKS_MAX) {
        die(text, "need a number below 65537");
    }
    return (uint32_t)number;
}

static void
read_words(int argc, char **argv)
{
    int64_t within_ms = -1;
    int i;

    if (argc < 2 || argc % 2 != 0) {
        die("usage", "bench_sessions COORDINATOR [--ranks N] [--deaths N] [--within MS]");
    }
    self.program = argv[1];
    for (i = 2; i < argc; i += 2) {
        if (strcmp(argv[i], "--ranks") == 0) {
            self.ranks = number_of(argv[i + 1]);
        } else if (strcmp(argv[i], "--deaths") == 0) {
            self.deaths = number_of(argv[i + 1]);
        } else if (strcmp(argv[i], "--within") == 0) {
            within_ms = number_of(argv[i + 1]);
        } else {
            die(argv[i], "there is --ranks, --deaths and --within");
        }
    }
    if (self.ranks < 2 || self.deaths == 0 || self.deaths >= self.ranks) {
        die("usage", "need two ranks at least, and one death to all but one");
    }
    self.within_ns = within_ms >= 0 ? (uint64_t)within_ms * TUTTI_NS_PER_MS
                                    : (uint64_t)self.ranks * PACE_US * 1000;
}

static void
measure(void)
{
    char what[64];
    spent took = run_phase("join", run_joins);

    (void)snprintf(what, sizeof(what), "%u join within %.1f s", (unsigned)self.ranks,
                   (double)self.within_ns / (double)TUTTI_NS_PER_S);
    print_phase(what, &took);
    idle();
    took = run_phase("deaths", run_deaths);
    (void)snprintf(what, sizeof(what), "%u deaths, all are told", (unsigned)self.deaths);
    print_phase(what, &took);
    (void)printf("%-34s %7llu messages, %u healthy ranks lost\n", "",
                 (unsigned long long)self.messages, (unsigned)self.lost);
    took = run_phase("group", run_groups);
    print_phase("group of all that live, all call", &took);
}

int
main(int argc, char **argv)
{
    tutti_error err;

    self.ranks = RANKS_DEFAULT;
    self.deaths = DEATHS_DEFAULT;
    read_words(argc, argv);
    check("files", tutti_process_raise_files(self.ranks + 256, &err), &err);
    self.members = calloc(self.ranks, sizeof(*self.members));
    if (self.members == NULL || sem_init(&self.over, 0, 0) != 0) {
        die("memory", "none left");
    }
    start_coordinator();
    start_probe();
    tutti_rpc_init();
    check("loop", tutti_rpc_loop_new("sessions", &self.loop, &err), &err);
    check("loop", tutti_rpc_loop_start(self.loop, &err), &err);
    measure();
    atomic_store(&self.ending, true);
    stop_children();
    _exit(self.lost == 0 ? 0 : 1); /* 10 000 channels end with the process */
}
