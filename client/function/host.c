/*
 * A host of functions: one thread reads the stream, `calls_max` run functions, and whoever has
 * something to say writes.
 *
 * The order of its end: a stop lets the calls that have come end, then says that nothing more will
 * be written, and the agent ends the stream; if it does not within CLOSE_NS, the stream is
 * cancelled. The reader sees the end, whoever caused it, and cancels what still runs. The threads
 * are joined, and only then, when nobody can write any more, the stream is finished.
 */
#include "client/function/host_pb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/thread.h"
#include "client/conn/client.h"
#include "client/conn/options.h"

#define CALLS_MAX_DEFAULT 4
#define CLOSE_NS (2 * TUTTI_NS_PER_S) /* for the agent to end the stream */

/* ------------------------------------------------------------------------------ calls */

void
host_call_free(host_call *call)
{
    if (call != NULL) {
        host_close_tensors(call);
        tutti_rpc_message_free(call->message);
        tutti_rpc_message_free(call->done);
        free(call);
    }
}

/* What comes behind a stop has no answer: the end of the stream, which follows soon, is one. */
void
host_queue_call(tutti_host *host, host_call *call)
{
    (void)pthread_mutex_lock(&host->lock);
    if (!host->stopping) {
        tutti_list_add(&host->queued, &call->link);
        call = NULL;
        (void)pthread_cond_broadcast(&host->changed);
    }
    (void)pthread_mutex_unlock(&host->lock);
    host_call_free(call);
}

/* With the lock. */
static host_call *
find_host_call(tutti_list_node *list, uint64_t number)
{
    tutti_list_node *link;

    for (link = list->next; link != list; link = link->next) {
        host_call *call = tutti_container_of(link, host_call, link);

        if (call->said->call == number) {
            return call;
        }
    }
    return NULL;
}

void
host_cancel_call(tutti_host *host, uint64_t number)
{
    host_call *call;

    (void)pthread_mutex_lock(&host->lock);
    call = find_host_call(&host->running, number);
    call = call == NULL ? find_host_call(&host->queued, number) : call;
    if (call != NULL) {
        call->cancelled = 1;
        (void)pthread_cond_broadcast(&host->changed);
    }
    (void)pthread_mutex_unlock(&host->lock);
}

void
host_take_done(tutti_host *host, uint64_t number, uint64_t request, tutti_rpc_message *message)
{
    host_call *call;

    (void)pthread_mutex_lock(&host->lock);
    call = find_host_call(&host->running, number);
    if (call != NULL && call->request == request && call->done == NULL) {
        call->done = message;
        message = NULL;
        (void)pthread_cond_broadcast(&host->changed);
    }
    (void)pthread_mutex_unlock(&host->lock);
    tutti_rpc_message_free(message);
}

tutti_rpc_message *
host_wait_done(host_call *call)
{
    tutti_host *host = call->host;
    tutti_rpc_message *done;

    (void)pthread_mutex_lock(&host->lock);
    while (call->done == NULL && call->cancelled == 0) {
        (void)pthread_cond_wait(&host->changed, &host->lock);
    }
    done = call->done;
    call->done = NULL;
    (void)pthread_mutex_unlock(&host->lock);
    return done;
}

/* ------------------------------------------------------------------------------ threads */

/* With the lock. NULL: the host is over. */
static host_call *
take_host_call(tutti_host *host)
{
    tutti_list_node *link = NULL;
    host_call *call;

    while ((link = tutti_list_pop(&host->queued)) == NULL && !host->over) {
        (void)pthread_cond_wait(&host->changed, &host->lock);
    }
    if (link == NULL) {
        return NULL;
    }
    call = tutti_container_of(link, host_call, link);
    tutti_list_add(&host->running, &call->link);
    return call;
}

static void
run_host_call(host_call *call)
{
    tutti_any ret = tutti_any_null();
    int status = -1;

    if (call->cancelled == 0 && host_open_args(call, &call->failure) == TUTTI_OK) {
        host_fill_env(call);
        status =
            call->function->function(&call->env, call->args, (int32_t)call->said->n_args, &ret);
    }
    host_answer_call(call, status, &ret);
}

static void *
run_host_worker(void *arg)
{
    tutti_host *host = arg;
    host_call *call;

    (void)pthread_mutex_lock(&host->lock);
    while ((call = take_host_call(host)) != NULL) {
        (void)pthread_mutex_unlock(&host->lock);
        run_host_call(call);
        (void)pthread_mutex_lock(&host->lock);
        tutti_list_remove(&call->link);
        (void)pthread_cond_broadcast(&host->changed);
        (void)pthread_mutex_unlock(&host->lock);
        host_call_free(call);
        (void)pthread_mutex_lock(&host->lock);
    }
    (void)pthread_mutex_unlock(&host->lock);
    return NULL;
}

/* With the lock. */
static void
cancel_host_calls(tutti_list_node *list)
{
    tutti_list_node *link;

    for (link = list->next; link != list; link = link->next) {
        tutti_container_of(link, host_call, link)->cancelled = 1;
    }
}

static void *
run_host_reader(void *arg)
{
    tutti_host *host = arg;
    tutti_rpc_message *message = NULL;
    tutti_error err;
    tutti_code code;

    do {
        message = NULL;
        code = tutti_rpc_stream_read(host->stream, &message, &err);
        if (code == TUTTI_OK && message != NULL) {
            code = host_take_message(host, message, &err);
        }
    } while (code == TUTTI_OK && message != NULL);
    if (code != TUTTI_OK) {
        tutti_rpc_stream_cancel(host->stream);
    }
    (void)pthread_mutex_lock(&host->lock);
    host->ended = true;
    host->over = true;
    if (code != TUTTI_OK) {
        host->why = err;
    }
    cancel_host_calls(&host->queued);
    cancel_host_calls(&host->running);
    (void)pthread_cond_broadcast(&host->changed);
    (void)pthread_mutex_unlock(&host->lock);
    return NULL;
}

void
host_send(tutti_host *host, const ProtobufCMessage *message)
{
    (void)pthread_mutex_lock(&host->writing);
    (void)tutti_rpc_stream_write(host->stream, message, NULL, NULL);
    (void)pthread_mutex_unlock(&host->writing);
}

/* ------------------------------------------------------------------------------ opening */

void
tutti_host_options_init(tutti_host_options *options)
{
    *options = (tutti_host_options){.size = sizeof(*options)};
}

static tutti_code
take_host_options(tutti_host *host, const tutti_host_options *given, tutti_error *err)
{
    tutti_host_options own;

    tutti_host_options_init(&own);
    if (given != NULL) {
        TUTTI_TRY(
            client_take_struct(&own, sizeof(own), given, given->size, "tutti_host_options", err));
    }
    if (own.calls_max > TUTTI_HOST_CALLS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "calls_max of a host is %u, at most %d", (unsigned)own.calls_max,
                              TUTTI_HOST_CALLS_MAX);
    }
    host->calls_max = own.calls_max == 0 ? CALLS_MAX_DEFAULT : own.calls_max;
    if (own.name == NULL || own.name[0] == '\0') {
        (void)snprintf(host->name, sizeof(host->name), "C, pid %ld", (long)getpid());
    } else {
        tutti_rpc_text_clean(host->name, sizeof(host->name), own.name);
    }
    return TUTTI_OK;
}

tutti_code
tutti_host_open(tutti_client *client, const tutti_host_options *options, tutti_host **ret_host,
                tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_host, err);

    tutti_host *host = calloc(1, sizeof(*host));
    tutti_code code;

    if (host == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a host");
    }
    code = take_host_options(host, options, err);
    if (code != TUTTI_OK) {
        free(host);
        return code;
    }
    host->client = client;
    (void)pthread_mutex_init(&host->lock, NULL);
    (void)pthread_mutex_init(&host->writing, NULL);
    tutti_cond_init(&host->changed);
    tutti_list_init(&host->queued);
    tutti_list_init(&host->running);
    *ret_host = host;
    return TUTTI_OK;
}

static tutti_code
check_function(const tutti_host *host, const char *name, tutti_host_function function,
               tutti_error *err)
{
    size_t i;

    if (host->started) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "HOST_STARTED",
                              "the host has started: add functions before");
    }
    if (name == NULL || name[0] == '\0' || strlen(name) > TUTTI_NAME_MAX || function == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
                              "a function needs a name of 1 to %d bytes and an address",
                              TUTTI_NAME_MAX);
    }
    for (i = 0; i < host->function_count; i++) {
        if (strcmp(host->functions[i].name, name) == 0) {
            return TUTTI_FAIL_FOR(err, TUTTI_ALREADY_EXISTS, "FUNCTION_TAKEN",
                                  "the host has a function \"%s\" already", name);
        }
    }
    return TUTTI_OK;
}

tutti_code
tutti_host_add(tutti_host *host, const char *name, tutti_host_function function, void *context,
               const char *signature, tutti_error *err)
{
    TUTTI_NEED(host, err);

    host_function *grown;
    host_function *added;

    TUTTI_TRY(check_function(host, name, function, err));
    grown = realloc(host->functions, (host->function_count + 1) * sizeof(*grown));
    if (grown == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a function");
    }
    host->functions = grown;
    added = &grown[host->function_count++];
    *added = (host_function){.function = function, .context = context};
    memcpy(added->name, name, strlen(name));
    tutti_rpc_text_clean(added->signature, sizeof(added->signature),
                         signature == NULL ? "" : signature);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ its life */

static tutti_code
start_host_threads(tutti_host *host, tutti_error *err)
{
    host->workers = calloc(host->calls_max, sizeof(*host->workers));
    while (host->workers != NULL && host->worker_count < host->calls_max &&
           tutti_thread_start(&host->workers[host->worker_count], run_host_worker, host) == 0) {
        host->worker_count++;
    }
    if (host->worker_count < host->calls_max ||
        tutti_thread_start(&host->reader, run_host_reader, host) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no thread for functions");
    }
    return TUTTI_OK;
}

static void
join_host_workers(tutti_host *host)
{
    (void)pthread_mutex_lock(&host->lock);
    host->over = true;
    (void)pthread_cond_broadcast(&host->changed);
    (void)pthread_mutex_unlock(&host->lock);
    while (host->worker_count > 0) {
        (void)pthread_join(host->workers[--host->worker_count], NULL);
    }
}

tutti_code
tutti_host_start(tutti_host *host, tutti_error *err)
{
    TUTTI_NEED(host, err);

    tutti_code code;

    if (host->started) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "HOST_STARTED",
                              "the host has started already");
    }
    TUTTI_TRY(client_conn_take(host->client, CLIENT_CONTROL, &host->conn, err));
    code = host_open_stream(host, err);
    if (code == TUTTI_OK) {
        code = start_host_threads(host, err);
        if (code != TUTTI_OK) {
            join_host_workers(host);
            tutti_rpc_stream_cancel(host->stream);
            (void)host_end_stream(host, NULL);
        }
    }
    if (code != TUTTI_OK) {
        client_conn_give(host->client, host->conn);
        host->conn = NULL;
        return code;
    }
    host->started = true;
    return TUTTI_OK;
}

/* Until the stream has ended, or the host was stopped and has nothing more to do. */
static void
wait_host_end(tutti_host *host)
{
    (void)pthread_mutex_lock(&host->lock);
    while (!host->ended && !(host->stopping && tutti_list_empty(&host->queued) &&
                             tutti_list_empty(&host->running))) {
        (void)pthread_cond_wait(&host->changed, &host->lock);
    }
    (void)pthread_mutex_unlock(&host->lock);
}

/* Behind a stop: the agent ends the stream. */
static void
close_host_stream(tutti_host *host)
{
    const uint64_t until_ns = tutti_clock_add(tutti_clock_ns(), CLOSE_NS);
    bool ended;

    (void)pthread_mutex_lock(&host->writing);
    (void)tutti_rpc_stream_writes_done(host->stream, NULL);
    (void)pthread_mutex_unlock(&host->writing);
    (void)pthread_mutex_lock(&host->lock);
    while (!host->ended && tutti_cond_wait_until(&host->changed, &host->lock, until_ns)) {
    }
    ended = host->ended;
    (void)pthread_mutex_unlock(&host->lock);
    if (!ended) {
        tutti_rpc_stream_cancel(host->stream);
    }
}

/* Why the host is over although nobody stopped it. */
static tutti_code
say_host_end(const tutti_host *host, tutti_code code, const tutti_error *said, tutti_error *err)
{
    if (host->why.code != TUTTI_OK) {
        return tutti_error_pass(err, &host->why);
    }
    if (code != TUTTI_OK) {
        return tutti_error_pass(err, said);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING",
                          "the agent has ended the stream of functions: it stops");
}

tutti_code
tutti_host_wait(tutti_host *host, tutti_error *err)
{
    TUTTI_NEED(host, err);

    tutti_error said;
    tutti_code code;
    bool stopped;

    if (host->conn == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "HOST_NOT_STARTED",
                              "the host was not started, or is over");
    }
    wait_host_end(host);
    (void)pthread_mutex_lock(&host->lock);
    stopped = !host->ended;
    (void)pthread_mutex_unlock(&host->lock);
    if (stopped) {
        close_host_stream(host);
    }
    (void)pthread_join(host->reader, NULL);
    join_host_workers(host);
    code = host_end_stream(host, &said);
    client_conn_give(host->client, host->conn);
    host->conn = NULL;
    return stopped ? TUTTI_OK : say_host_end(host, code, &said, err);
}

void
tutti_host_stop(tutti_host *host)
{
    (void)pthread_mutex_lock(&host->lock);
    host->stopping = true;
    (void)pthread_cond_broadcast(&host->changed);
    (void)pthread_mutex_unlock(&host->lock);
}

void
tutti_host_close(tutti_host *host)
{
    if (host == NULL) {
        return;
    }
    if (host->conn != NULL) {
        tutti_host_stop(host);
        (void)tutti_host_wait(host, NULL);
    }
    (void)pthread_cond_destroy(&host->changed);
    (void)pthread_mutex_destroy(&host->writing);
    (void)pthread_mutex_destroy(&host->lock);
    free(host->workers);
    free(host->functions);
    free(host);
}
