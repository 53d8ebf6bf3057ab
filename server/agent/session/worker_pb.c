/* The two streams to a worker: its lease, and its commands. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/session/local.h"
#include "server/agent/session/session.h"
#include "server/agent/state/state.h"
#include "tutti/v1/commands_service.pb-c.h"
#include "tutti/v1/session_service.pb-c.h"
#include "tutti/v1/tensors_service.pb-c.h"

/* The id of the call that opens a stream of commands; those of commands are smaller. */
#define HELLO_ID UINT32_MAX
#define PAGE_SIZE 1000 /* tensors of one List */

/* ------------------------------------------------------------------------------ commands */

/* A register that holds nothing is a value, too. */
static bool
is_null_value(const agent_drive *command, const Tutti__V1__RunResponse *response)
{
    return command->method == TUTTI__V1__DRIVE_REQUEST__COMMAND_GET &&
           strcmp(response->error->reason, "NO_VALUE") == 0;
}

static void
read_error(const Tutti__V1__Error *message, tutti_error *ret_err)
{
    const bool known = message->code > TUTTI_OK && message->code <= TUTTI_UNAUTHENTICATED;

    *ret_err = (tutti_error){.code = known ? (tutti_code)message->code : TUTTI_UNKNOWN,
                             .sequence = message->sequence,
                             .rank = message->rank};
    ret_err->scope = strcmp(message->scope, "group") == 0   ? TUTTI_SCOPE_GROUP
                     : strcmp(message->scope, "agent") == 0 ? TUTTI_SCOPE_AGENT
                                                            : TUTTI_SCOPE_CALL;
    tutti_rpc_text_clean(ret_err->reason, sizeof(ret_err->reason), message->reason);
    tutti_rpc_text_clean(ret_err->text, sizeof(ret_err->text), message->text);
    tutti_rpc_text_clean(ret_err->group, sizeof(ret_err->group), message->group);
}

/* Returns whether the message was kept. */
static bool
take_run_answer(agent_worker *self, agent_part *part, tutti_rpc_message *message)
{
    const Tutti__V1__RunResponse *response = tutti_rpc_message_get(message);
    agent_drive *command = part->command;
    bool kept = false;
    tutti_error err;

    if (response->result_case == TUTTI__V1__RUN_RESPONSE__RESULT_ERROR &&
        !is_null_value(command, response)) {
        read_error(response->error, &err);
        agent_drive_fail(command, self, &err);
    } else if (command->kept != NULL) {
        command->kept[self->number] = message;
        kept = true;
    }
    agent_part_end(part);
    return kept;
}

static void ask_registers(agent_worker *self, const char *page);

/* Of a resume: what this worker's registers hold, a page at a time. */
static void
read_registers(agent_worker *self, const Tutti__V1__RunResponse *response)
{
    const Tutti__V1__ListResponse *page =
        response->result_case == TUTTI__V1__RUN_RESPONSE__RESULT_LIST ? response->list : NULL;
    size_t i;

    for (i = 0; page != NULL && i < page->n_tensors; i++) {
        agent_session_find(self->session, page->tensors[i]->name);
    }
    if (page != NULL && page->next_page_token[0] != '\0') {
        ask_registers(self, page->next_page_token);
        return;
    }
    self->ready = true;
    agent_session_step(self->session);
}

bool
agent_worker_answered(agent_worker *worker, tutti_rpc_message *message)
{
    agent_session *session = worker->session;
    const Tutti__V1__RunResponse *response = tutti_rpc_message_get(message);

    if (worker->lost || session->state == AGENT_SESSION_CLOSING) {
        return false;
    }
    if (response->id == HELLO_ID && !worker->ready) {
        read_registers(worker, response);
        return false;
    }
    return response->id < session->agent->options->commands_max &&
           worker->by_slot[response->id].called &&
           take_run_answer(worker, &worker->by_slot[response->id], message);
}

/* Taken before, as the answer to a command may be the last thing that needs the worker. */
static void
on_run_message(void *arg, tutti_rpc_message *message)
{
    agent_worker *self = arg;

    (void)message; /* taken */
    message = tutti_rpc_flow_take(self->run_flow);
    if (!agent_worker_answered(self, message)) {
        tutti_rpc_message_free(message);
    }
}

static void
on_run_written(void *arg)
{
    agent_worker *self = arg;

    agent_worker_pump(self);
    agent_session_read(self->session);
}

/* Neither stream ends by itself while the session lives. */
static void
note_end(agent_worker *self, const tutti_error *err)
{
    tutti_error ended;

    if (err == NULL) {
        (void)TUTTI_FAIL_FOR(&ended, TUTTI_UNAVAILABLE, "RANK_LOST", "its agent ended the stream");
    }
    agent_worker_lose(self, err == NULL ? &ended : err);
    agent_session_look(self->session);
}

static void
on_run_end(void *arg, const tutti_error *err)
{
    agent_worker *self = arg;

    self->run_flow = NULL;
    note_end(self, err);
}

/* In the queue, as the stream may not have let go of the message before. */
static void
put_opening(agent_worker *self, const Tutti__V1__RunRequest *request)
{
    tutti_rpc_packed *packed = NULL;
    tutti_error err;

    if (tutti_rpc_pack(&request->base, NULL, &packed, &err) != TUTTI_OK) {
        agent_worker_lose(self, &err);
        return;
    }
    agent_worker_put(self, packed);
    agent_worker_pump(self);
}

/* A name that nothing has is deleted: the answer says that the stream is there and allowed. */
static void
greet_worker(agent_worker *self)
{
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__DeleteRequest nothing = TUTTI__V1__DELETE_REQUEST__INIT;
    char name[AGENT_SESSION_NAME_SIZE];
    char *names[1] = {name};

    agent_session_register(self->session, 0, name);
    nothing.handles = names;
    nothing.n_handles = 1;
    nothing.missing_ok = true;
    request.id = HELLO_ID;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_DELETE;
    request.delete_ = &nothing;
    put_opening(self, &request);
}

/* In place of a hello, for who resumes the session. */
static void
set_about(agent_worker *self)
{
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__SetValueRequest set = TUTTI__V1__SET_VALUE_REQUEST__INIT;
    Tutti__V1__Value value = TUTTI__V1__VALUE__INIT;
    char name[AGENT_SESSION_NAME_SIZE];

    agent_session_register(self->session, 0, name);
    value.kind_case = TUTTI__V1__VALUE__KIND_TEXT;
    value.text = self->session->about;
    set.name = name;
    set.value = &value;
    request.id = HELLO_ID;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_SET_VALUE;
    request.set_value = &set;
    put_opening(self, &request);
}

/* In place of a hello. */
static void
ask_registers(agent_worker *self, const char *page)
{
    Tutti__V1__RunRequest request = TUTTI__V1__RUN_REQUEST__INIT;
    Tutti__V1__ListRequest list = TUTTI__V1__LIST_REQUEST__INIT;

    list.page_size = PAGE_SIZE;
    list.page_token = (char *)(uintptr_t)page; /* packed at once, never written */
    request.id = HELLO_ID;
    request.command_case = TUTTI__V1__RUN_REQUEST__COMMAND_LIST;
    request.list = &list;
    put_opening(self, &request);
}

static tutti_code
open_run(agent_worker *worker, uint64_t lease, tutti_error *err)
{
    static const tutti_rpc_stub stub = {&tutti__v1__commands_service__descriptor, "Run"};
    static const tutti_rpc_flow_ops ops = {
        .on_message = on_run_message, .on_written = on_run_written, .on_end = on_run_end};
    const tutti_rpc_call_options options = {.lease = lease};

    return tutti_rpc_flow_start(worker->channel, worker->session->agent->control, &stub, NULL,
                                false, &options, &ops, worker, &worker->run_flow, err);
}

/* The leader reaches itself without a socket. */
tutti_code
agent_wire_run(agent_worker *worker, uint64_t lease, tutti_error *err)
{
    const bool own = worker->number == worker->session->leader;

    TUTTI_TRY(own ? agent_local_new(worker, lease, &worker->local, err)
                  : open_run(worker, lease, err));

    if (worker->session->resumes) {
        ask_registers(worker, "");
    } else if (worker->session->linger) {
        set_about(worker);
    } else {
        greet_worker(worker);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the lease */

static void
on_lease_message(void *arg, tutti_rpc_message *message)
{
    agent_worker *self = arg;
    const Tutti__V1__LeaseResponse *response = tutti_rpc_message_get(message);
    tutti_error err;

    if (self->unlingering) {
        self->unlingering = false;
        agent_session_step(self->session);
        return;
    }
    if (self->run_flow != NULL || self->local != NULL || self->lost ||
        self->session->state == AGENT_SESSION_CLOSING) {
        return;
    }
    if (agent_wire_run(self, response->lease, &err) != TUTTI_OK) {
        agent_worker_lose(self, &err);
    }
}

/* Somebody who knows the secret goes on with the session elsewhere, or by another stream. */
static void
end_taken(agent_session *session)
{
    tutti_error err;

    (void)TUTTI_FAIL_FOR(&err, TUTTI_ABORTED, "SESSION_TAKEN",
                         "session %s was resumed by another stream", session->id);
    agent_session_close(session, &err);
}

/* A worker that does not know the secret: the session is over, or was never this one. */
static void
end_unknown(agent_session *session)
{
    tutti_error err;

    (void)agent_session_fail_unknown(session, &err);
    agent_session_close(session, &err);
}

static void
on_lease_end(void *arg, const tutti_error *err)
{
    agent_worker *self = arg;

    self->lease_flow = NULL;
    if (err != NULL && strcmp(err->reason, "LEASE_TAKEN") == 0) {
        end_taken(self->session);
    } else if (err != NULL && strcmp(err->reason, "NO_LEASE") == 0) {
        end_unknown(self->session);
    }
    note_end(self, err);
}

/* It was the first stream of a resume, and the lease has moved to the next one. */
static void
on_first_end(void *arg, const tutti_error *err)
{
    agent_worker *self = arg;

    if (self->first_flow == NULL) {
        on_lease_end(arg, err);
        return;
    }
    self->first_flow = NULL;
    agent_session_look(self->session);
}

/* A lease that lingers has a secret, and a resume shows it. */
static void
fill_lease(const agent_session *session, bool lingers, Tutti__V1__LeaseRequest *request)
{
    request->resume = session->resumes;
    if (lingers) {
        request->linger_ms =
            session->linger_ms != 0
                ? session->linger_ms
                : (uint32_t)(session->agent->options->session_linger_ns / TUTTI_NS_PER_MS);
    }
    if (lingers || session->resumes) {
        request->secret.data = (uint8_t *)(uintptr_t)session->secret; /* packed at once */
        request->secret.len = sizeof(session->secret);
    }
}

tutti_code
agent_wire_lease(agent_worker *worker, bool first, tutti_error *err)
{
    static const tutti_rpc_stub stub = {&tutti__v1__tensors_service__descriptor, "Lease"};
    static const tutti_rpc_flow_ops ops = {.on_message = on_lease_message, .on_end = on_lease_end};
    static const tutti_rpc_flow_ops first_ops = {.on_message = on_lease_message,
                                                 .on_end = on_first_end};
    Tutti__V1__LeaseRequest request = TUTTI__V1__LEASE_REQUEST__INIT;

    fill_lease(worker->session, first || worker->session->linger, &request);
    return tutti_rpc_flow_start(worker->channel, worker->session->agent->control, &stub,
                                &request.base, true, NULL, first ? &first_ops : &ops, worker,
                                &worker->lease_flow, err);
}
