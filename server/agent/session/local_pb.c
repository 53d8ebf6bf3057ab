/* Calls of the leader's own worker. See local.h. */
#include "server/agent/session/local.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "coll/group.h"
#include "rpc/nested.h"
#include "server/agent/service/types_pb.h"
#include "server/agent/state/state.h"
#include "tutti/v1/commands_service.pb-c.h"

typedef struct local_call {
    tutti_list_node link; /* in waiting, running or answered */
    agent_local *local;
    tutti_rpc_call *nested; /* NULL: it could not be made */
    uint64_t id;
    uint32_t number;          /* which call of the oneof */
    bool alone;               /* the session has no other command that is not answered */
    tutti_rpc_packed *answer; /* [owned] a RunResponse; NULL: no memory */
} local_call;

struct agent_local {
    agent_worker *worker;
    uint64_t lease;
    tutti_rpc_task launch; /* on the loop of the next call */
    tutti_rpc_task take;   /* answers, on the control loop */

    pthread_mutex_t lock; /* guards all below; nothing is called with it held but posts */
    tutti_list_node waiting;
    tutti_list_node running;
    tutti_list_node answered;
    bool launching; /* a thread begins calls, or the task is posted */
    bool taking;    /* the task is posted */
    bool over;      /* cancelled */
};

static void run_launch(tutti_rpc_task *task);
static void run_take(tutti_rpc_task *task);

tutti_code
agent_local_new(agent_worker *worker, uint64_t lease, agent_local **ret_local, tutti_error *err)
{
    agent_local *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a worker");
    }
    self->worker = worker;
    self->lease = lease;
    self->launch.on_run = run_launch;
    self->take.on_run = run_take;
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_list_init(&self->waiting);
    tutti_list_init(&self->running);
    tutti_list_init(&self->answered);
    *ret_local = self;
    return TUTTI_OK;
}

bool
agent_local_is_idle(agent_local *local)
{
    bool idle;

    if (local == NULL) {
        return true;
    }
    (void)pthread_mutex_lock(&local->lock);
    idle = tutti_list_empty(&local->waiting) && tutti_list_empty(&local->running) &&
           tutti_list_empty(&local->answered) && !local->launching && !local->taking;
    (void)pthread_mutex_unlock(&local->lock);
    return idle;
}

void
agent_local_free(agent_local *local)
{
    if (local != NULL) {
        (void)pthread_mutex_destroy(&local->lock);
        free(local);
    }
}

static void
end_local_call(local_call *call, bool delivered)
{
    if (call->nested != NULL) {
        tutti_rpc_nested_end(call->nested, delivered);
    }
    tutti_rpc_packed_free(call->answer);
    free(call);
}

/* ------------------------------------------------------------------------------ answers */

static void
pack_result(local_call *call, const ProtobufCMessage *response, const tutti_error *err)
{
    Tutti__V1__RunResponse message = TUTTI__V1__RUN_RESPONSE__INIT;
    Tutti__V1__Error error;

    message.id = call->id;
    if (err != NULL) {
        agent_write_error(err, &error);
        message.result_case = TUTTI__V1__RUN_RESPONSE__RESULT_ERROR;
        message.error = &error;
    } else { /* a call and its response have one number, and all of the oneof one place */
        message.result_case = (Tutti__V1__RunResponse__ResultCase)call->number;
        message.all_reduce = (void *)(uintptr_t)response;
    }
    (void)tutti_rpc_pack(&message.base, NULL, &call->answer, NULL);
}

/* Any thread. */
static void
note_answer(local_call *call)
{
    agent_local *self = call->local;
    bool post;

    (void)pthread_mutex_lock(&self->lock);
    tutti_list_remove(&call->link);
    tutti_list_add(&self->answered, &call->link);
    post = !self->taking;
    self->taking = true;
    (void)pthread_mutex_unlock(&self->lock);
    if (post) {
        tutti_rpc_loop_post(self->worker->session->agent->control, &self->take);
    }
}

/* Commands have no payload, so what comes with a response is not wanted. */
static void
on_nested_answer(void *arg, const ProtobufCMessage *response, const tutti_rpc_blob *payload,
                 const tutti_error *err)
{
    local_call *call = arg;

    if (payload != NULL && payload->on_release != NULL) {
        payload->on_release(payload->arg);
    }
    pack_result(call, response, err);
    note_answer(call);
}

static void
take_local_result(agent_worker *worker, local_call *call)
{
    tutti_rpc_message *message = NULL;
    tutti_error err;

    if (call->answer == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for an answer");
        agent_worker_lose(worker, &err);
        return;
    }
    if (tutti_rpc_packed_read(&tutti__v1__run_response__descriptor, call->answer, &message, &err) !=
        TUTTI_OK) {
        agent_worker_lose(worker, &err);
    } else if (!agent_worker_answered(worker, message)) {
        tutti_rpc_message_free(message);
    }
    call->answer = NULL;
}

static local_call *
next_answered(agent_local *self)
{
    tutti_list_node *link;

    (void)pthread_mutex_lock(&self->lock);
    link = tutti_list_pop(&self->answered);
    self->taking = link != NULL;
    (void)pthread_mutex_unlock(&self->lock);
    return link == NULL ? NULL : tutti_container_of(link, local_call, link);
}

static void
run_take(tutti_rpc_task *task)
{
    agent_local *self = tutti_container_of(task, agent_local, take);
    agent_session *session = self->worker->session;
    local_call *call;

    while ((call = next_answered(self)) != NULL) {
        take_local_result(self->worker, call);
        end_local_call(call, session->state != AGENT_SESSION_CLOSING);
    }
    agent_session_read(session);
    agent_session_look(session);
}

/* ------------------------------------------------------------------------------ beginning */

/* With the lock: the session may wait for this thread alone. */
static void
look_when_over(agent_local *self)
{
    if (self->over && !self->taking) {
        self->taking = true;
        tutti_rpc_loop_post(self->worker->session->agent->control, &self->take);
    }
}

/* The next call that begins on this thread; NULL: none, or it begins elsewhere. */
static local_call *
next_waiting(agent_local *self)
{
    local_call *call = NULL;
    tutti_rpc_loop *loop = NULL;

    (void)pthread_mutex_lock(&self->lock);
    if (tutti_list_empty(&self->waiting)) {
        self->launching = false;
        look_when_over(self);
    } else {
        call = tutti_container_of(self->waiting.next, local_call, link);
        loop = tutti_rpc_nested_loop(call->nested);
        if (tutti_rpc_loop_is_current(loop)) {
            tutti_list_remove(&call->link);
            tutti_list_add(&self->running, &call->link);
        } else {
            tutti_rpc_loop_post(loop, &self->launch);
            call = NULL;
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
    return call;
}

static void
launch_calls(agent_local *self)
{
    local_call *call;

    while ((call = next_waiting(self)) != NULL) {
        tutti_coll_hurry(!call->alone);
        tutti_rpc_nested_start(call->nested);
        tutti_coll_hurry(false);
    }
}

static void
run_launch(tutti_rpc_task *task)
{
    launch_calls(tutti_container_of(task, agent_local, launch));
}

/* [in, moved] request  inside of `message` */
static tutti_code
nest_call(local_call *call, tutti_rpc_message *message, tutti_error *err)
{
    const Tutti__V1__RunRequest *request = tutti_rpc_message_get(message);
    const tutti_rpc_nested nested = {
        .stream = call->local->worker->session->call,
        .message = message,
        .request = (const ProtobufCMessage *)request->all_reduce, /* whichever it is */
        .on_answer = on_nested_answer,
        .arg = call,
        .lease = call->local->lease};

    call->id = request->id;
    call->number = (uint32_t)request->command_case;
    return tutti_rpc_nested_new(&nested, &call->nested, err);
}

/* Begin it behind those that wait; one that could not be made is answered. */
static void
queue_call(agent_local *self, local_call *call)
{
    bool launch;

    (void)pthread_mutex_lock(&self->lock);
    tutti_list_add(&self->waiting, &call->link);
    launch = !self->launching;
    self->launching = true;
    (void)pthread_mutex_unlock(&self->lock);
    if (launch) {
        launch_calls(self);
    }
}

/* NULL: no memory, the worker is lost. [in, moved] packed */
static local_call *
new_call(agent_local *self, tutti_rpc_packed *packed, tutti_rpc_message **ret_message)
{
    local_call *call = calloc(1, sizeof(*call));
    tutti_error err;

    if (call == NULL) {
        tutti_rpc_packed_free(packed);
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a call");
    } else if (tutti_rpc_packed_read(&tutti__v1__run_request__descriptor, packed, ret_message,
                                     &err) == TUTTI_OK) {
        call->local = self;
        call->alone = agent_session_is_calm(self->worker->session);
        tutti_list_init(&call->link);
        return call;
    }
    free(call);
    agent_worker_lose(self->worker, &err);
    return NULL;
}

void
agent_local_put(agent_local *local, tutti_rpc_packed *packed)
{
    tutti_rpc_message *message = NULL;
    local_call *call = new_call(local, packed, &message);
    tutti_error err;

    if (call == NULL) {
        return;
    }
    if (nest_call(call, message, &err) == TUTTI_OK) {
        queue_call(local, call);
    } else {
        pack_result(call, NULL, &err);
        note_answer(call);
    }
}

/* ------------------------------------------------------------------------------ the end */

void
agent_local_cancel(agent_local *local)
{
    tutti_list_node waiting;
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_init(&waiting);
    (void)pthread_mutex_lock(&local->lock);
    tutti_list_splice(&waiting, &local->waiting);
    tutti_list_each(link, spare, &local->running)
    {
        if (local->over) {
            break; /* all have been told */
        }
        tutti_rpc_nested_cancel(tutti_container_of(link, local_call, link)->nested, true);
    }
    local->over = true;
    (void)pthread_mutex_unlock(&local->lock);
    while ((link = tutti_list_pop(&waiting)) != NULL) {
        end_local_call(tutti_container_of(link, local_call, link), false);
    }
}
