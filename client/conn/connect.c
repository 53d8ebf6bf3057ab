/*
 * Connecting, and closing. tutti_connect_with returns a client whose agent has joined its job: it
 * asks DescribeAgent again and again (ASK_AGAIN) within timeout_ms. If the agent offers a Unix
 * socket that is reachable from here, the client goes on by that.
 *
 * One thread until it returns. On any failure the half-made client is closed, and the error says
 * what to do: no agent there, a coordinator at that address, ranks that are missing.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "client/conn/address_pick.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/command_stream.h"
#include "client/conn/conn_pool.h"
#include "client/conn/coordinator.h"
#include "client/conn/diagnostics.h"
#include "client/conn/init.h"
#include "client/conn/options.h"
#include "client/conn/stall_timer.h"
#include "tutti/client.h"

/*
 * Go on by another address of the same agent. The incarnation tells that the socket's agent is
 * the same process; a stale socket of another agent is refused. False: everything is as it was.
 */
static bool
move_to(tutti_client *client, char *address)
{
    char *before = client->settings.agent;
    client_description said;
    tutti_code code;

    if (client->conns[CLIENT_CONTROL] != NULL) {
        client_conn_break(client, client->conns[CLIENT_CONTROL]);
    }
    client->settings.agent = address;
    code = client_wire_describe(client, client_deadline(client, 0), &said, NULL);
    if (code == TUTTI_OK && said.incarnation == client->agent.incarnation) {
        client->agent = said;
        free(before);
        return true;
    }
    if (client->conns[CLIENT_CONTROL] != NULL) {
        client_conn_break(client, client->conns[CLIENT_CONTROL]);
    }
    client->settings.agent = before;
    return false;
}

/* Just connected: go on by the Unix socket, when that is the one to take and the same agent. */
static void
use_local_socket(tutti_client *client)
{
    char *address;

    if (!client_is_unix(client->agent.picked) || client_is_unix(client->settings.agent)) {
        return;
    }
    address = strdup(client->agent.picked);
    if (address != NULL && !move_to(client, address)) {
        free(address);
    }
}

#define ASK_AGAIN_MS_MIN 10
#define ASK_AGAIN_MS_MAX 500
#define EXPLAIN_MS 1000 /* to find out who is missing */
#define STATES_MAX 1024

/* ------------------------------------------------------------------------------ waiting */

static void
add_missing(const tutti_rank_state *states, size_t count, tutti_text *text)
{
    uint32_t missing[STATES_MAX];
    size_t missing_count = 0;
    size_t i;

    for (i = 0; i < count; i++) {
        if (states[i] == TUTTI_RANK_FREE || states[i] == TUTTI_RANK_LOST) {
            missing[missing_count++] = (uint32_t)i;
        }
    }
    if (missing_count == 0) {
        tutti_text_add(
            text,
            "no rank is missing, the coordinator may have refused this agent: look at its log");
        return;
    }
    tutti_text_add(text, "rank%s ", missing_count == 1 ? "" : "s");
    tutti_text_add_ranks(text, missing, missing_count, 8);
    tutti_text_add(text, " of %s%zu %s missing", count == STATES_MAX ? "the first " : "", count,
                   missing_count == 1 ? "is" : "are");
}

/* The agent is there and has no seat: its coordinator knows why. */
static tutti_code
fail_not_joined(tutti_client *self, tutti_error *err)
{
    const uint64_t deadline_ns = tutti_clock_add(tutti_clock_ns(), EXPLAIN_MS * TUTTI_NS_PER_MS);
    tutti_rank_state states[STATES_MAX];
    size_t count = 0;
    char why[512];
    tutti_text text = tutti_text_in(why, sizeof(why));
    tutti_error inner;

    if (client_wire_rank_states(self, deadline_ns, states, &count, &inner) == TUTTI_OK) {
        add_missing(states, count, &text);
    } else {
        tutti_text_add(&text, "its coordinator says: %s", inner.text);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_DEADLINE_EXCEEDED, "NOT_JOINED",
                          "the agent at %s has not joined job %s in %" PRIu32 " ms: %s",
                          self->settings.agent, self->agent.job, self->settings.timeout_ms, why);
}

/* Ask again while that may help: it has not joined, or is not there and we shall wait for it. */
static bool
may_help(const tutti_client *self, tutti_code code, const tutti_error *err)
{
    if (code == TUTTI_OK) {
        return !self->agent.joined;
    }
    return self->settings.wait &&
           (code == TUTTI_UNAVAILABLE || strcmp(err->reason, "UNREACHABLE") == 0);
}

/*
 * Ask until the agent has joined, or asking has no point. If the last question only ran out of
 * time, what the one before found is the better answer.
 */
static tutti_code
ask_until(tutti_client *self, uint64_t deadline_ns, tutti_error *err)
{
    uint64_t again_ns = ASK_AGAIN_MS_MIN * TUTTI_NS_PER_MS;
    tutti_code before = TUTTI_DEADLINE_EXCEEDED;
    tutti_error inner;
    tutti_code code;

    for (;;) {
        code = client_wire_describe(self, deadline_ns, &self->agent, &inner);
        if (code == TUTTI_DEADLINE_EXCEEDED && before != TUTTI_DEADLINE_EXCEEDED) {
            return before;
        }
        before = code == TUTTI_OK ? TUTTI_OK : tutti_error_pass(err, &inner);
        if (!may_help(self, code, &inner) ||
            tutti_clock_add(tutti_clock_ns(), again_ns) >= deadline_ns) {
            return code;
        }
        client_pause_ns(again_ns);
        again_ns *= 2;
        if (again_ns > ASK_AGAIN_MS_MAX * TUTTI_NS_PER_MS) {
            again_ns = ASK_AGAIN_MS_MAX * TUTTI_NS_PER_MS;
        }
    }
}

/* Something answers there and is no agent: most often the address of a coordinator was given. */
static tutti_code
fail_other_server(tutti_client *self, tutti_error *err)
{
    const uint64_t deadline_ns = tutti_clock_add(tutti_clock_ns(), EXPLAIN_MS * TUTTI_NS_PER_MS);
    bool coordinator = false;

    if (client_wire_health(self, "tutti.v1.CoordinatorService", deadline_ns, &coordinator, NULL) !=
            TUTTI_OK ||
        !coordinator) {
        return TUTTI_UNIMPLEMENTED; /* as it was found */
    }
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_AN_AGENT",
                          "%s is a coordinator, not an agent: give the address of an agent, which "
                          "tutti --coordinator %s status shows",
                          self->settings.agent, self->settings.agent);
}

static tutti_code
wait_until_joined(tutti_client *self, tutti_error *err)
{
    const tutti_code code = ask_until(self, client_deadline(self, 0), err);

    if (code == TUTTI_UNIMPLEMENTED) {
        return fail_other_server(self, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    return self->agent.joined ? TUTTI_OK : fail_not_joined(self, err);
}

/* ------------------------------------------------------------------------------ life */

static void
free_client(tutti_client *self)
{
    client_settings_fini(&self->settings);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}

/* Nobody is asked yet. */
static tutti_code
new_client(const tutti_client_options *options, tutti_client **ret_client, tutti_error *err)
{
    tutti_client *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a client");
    }
    self->owner = getpid();
    (void)pthread_mutex_init(&self->lock, NULL);
    code = client_settings_read(options, &self->settings, err);
    if (code == TUTTI_OK) {
        code = client_library_enter(err);
    }
    if (code != TUTTI_OK) {
        free_client(self);
        return code;
    }
    client_shuttles_init(self);
    client_stall_timer_init(&self->watch);
    *ret_client = self;
    return TUTTI_OK;
}

static void
fill_client_info(tutti_client *self)
{
    const client_description *agent = &self->agent;

    self->info = (tutti_agent_info){
        .job = agent->job,
        .rank = agent->rank,
        .world_size = agent->world_size,
        .incarnation = agent->incarnation,
        .epoch = agent->epoch,
        .coordinator =
            self->settings.coordinator[0] != '\0' ? self->settings.coordinator : agent->coordinator,
        .host = agent->host,
        .device = agent->device,
        .version = agent->version,
        .pid = agent->pid,
    };
}

/* Without an agent all is left to later, but what can be wrong at once. */
static tutti_code
check_coordinator(tutti_client *self, const tutti_client_options *options, tutti_error *err)
{
    client_conn *conn = NULL;

    if (options == NULL || options->agent == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "NO_AGENT",
                              "no agent: give its address, or set TUTTI_AGENT");
    }
    TUTTI_TRY(tutti_check_name(self->settings.job, "job", err));
    TUTTI_TRY(client_conn_take(self, CLIENT_COORDINATOR, &conn, err));
    client_conn_give(self, conn);
    return TUTTI_OK;
}

tutti_code
tutti_connect_with(const tutti_client_options *options, tutti_client **ret_client, tutti_error *err)
{
    TUTTI_NEED(ret_client, err);

    tutti_client *self = NULL;
    uint32_t world_size = 0;
    tutti_code code;

    TUTTI_TRY(new_client(options, &self, err));
    code = client_init_find(self, &world_size, err);
    if (code == TUTTI_OK && self->settings.agent[0] == '\0') {
        code = check_coordinator(self, options, err);
    } else if (code == TUTTI_OK) {
        code = wait_until_joined(self, err);
        if (code == TUTTI_OK) {
            use_local_socket(self);
        }
    }
    if (code == TUTTI_OK && world_size != 0) {
        code = client_init_check(self, world_size, err);
    }
    if (code != TUTTI_OK) {
        tutti_close(self);
        return code;
    }
    fill_client_info(self);
    *ret_client = self;
    return TUTTI_OK;
}

tutti_code
tutti_connect(const char *agent, tutti_client **ret_client, tutti_error *err)
{
    TUTTI_NEED(ret_client, err);

    tutti_client_options options;

    tutti_client_options_init(&options);
    options.agent = agent;
    return tutti_connect_with(&options, ret_client, err);
}

void
tutti_close(tutti_client *client)
{
    size_t i;

    if (client == NULL) {
        return;
    }
    if (client->owner != getpid()) { /* a forked child: what belongs to gRPC stays untouched */
        if (client->arena != NULL) {
            client->arena->forget(client->arena);
        }
        client_settings_fini(&client->settings);
        free(client);
        return;
    }
    /*
     * The order: no transfer runs any more, so the timer's thread ends; then the idle streams,
     * which have a use of a connection; then the connections; gRPC last. The arena's end makes
     * calls, so it comes before all.
     */
    if (client->arena != NULL) {
        client->arena->close(client, client->arena);
    }
    client_stall_timer_fini(&client->watch);
    client_shuttles_close(client);
    for (i = 0; i < CLIENT_CONN_KINDS; i++) {
        if (client->conns[i] != NULL) {
            client_conn_break(client, client->conns[i]);
        }
    }
    free_client(client);
    client_library_leave();
}

tutti_code
tutti_health_check(const tutti_client_options *options, const char *service, bool *ret_serving,
                   tutti_error *err)
{
    TUTTI_NEED(ret_serving, err);

    tutti_client *self = NULL;
    tutti_code code;

    TUTTI_TRY(new_client(options, &self, err));
    code = client_wire_health(self, service, client_deadline(self, 0), ret_serving, err);
    tutti_close(self);
    return code;
}

tutti_code
tutti_leader_check(const tutti_client_options *options, tutti_leader_info *ret_info,
                   tutti_error *err)
{
    TUTTI_NEED(ret_info, err);

    tutti_client *self = NULL;
    tutti_code code;

    TUTTI_TRY(new_client(options, &self, err));
    code = client_wire_leads(self, client_deadline(self, 0), ret_info, err);
    tutti_close(self);
    return code;
}
