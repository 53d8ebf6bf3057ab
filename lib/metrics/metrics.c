/*
 * The HTTP side of the metrics. libmicrohttpd has a thread for each connection. That thread puts
 * a question to the server's loop and waits for the answer (ask.c); it never reads the server's
 * state itself.
 *
 * Who connects is not known and may be hostile, so everything is bounded: connections, memory and
 * stack for each, the time without a request, and the wait for the loop.
 */
#include "metrics/metrics.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/file.h"
#include "base/os/log.h"
#include "base/os/thread.h"
#include "metrics/metrics_private.h"

#define AT(member) offsetof(tutti_metrics_options, member)
#define TIMEOUT_S 10u
#define CONNECTION_BYTES ((size_t)16 << 10)
#define STACK_BYTES ((size_t)128 << 10)
/* With those being hung up on, whose threads have not noticed yet. Beyond it HTTP resets newcomers.
 */
#define HTTP_CONNECTIONS_MAX (8u * TUTTI_METRICS_CONNECTIONS_MAX)
#define PLAIN "text/plain; charset=utf-8"
#define NUMBERS "text/plain; version=0.0.4; charset=utf-8"
#define HTML "text/html; charset=utf-8"
#define JSON "application/json; charset=utf-8"
#define EVENTS "text/event-stream"
#define EVENT_NS TUTTI_NS_PER_S /* between two events */
#define EVENT_BLOCK ((size_t)64 << 10)
/* The page holds all that it needs, and what it shows is text of others: nothing else is loaded or run. */
#define POLICY                                                                                     \
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "      \
    "'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

struct tutti_metrics {
    tutti_metrics_source source;
    bool open;
    struct MHD_Daemon *daemon;
    metrics_visitors visitors;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t written;
    bool writing; /* a page of numbers */
    pthread_cond_t ended;
    bool ending;
};

/* A stream of events. On the thread of its connection. */
typedef struct event_stream {
    tutti_metrics *owner;
    metrics_request request;
    tutti_page page; /* the event that is being sent */
    size_t sent;     /* bytes of it */
    bool begun;
} event_stream;

static const tutti_option table[] = {
    {"metrics", TUTTI_OPTION_ADDRESS, AT(listen), "", 0, 0, NULL,
     "serve /metrics, /healthz and /readyz over HTTP here: host:port, port 0 = any; empty = not"},
    {"metrics-port-file", TUTTI_OPTION_FILE, AT(port_file), "", 0, 0, NULL,
     "file into which the address of the metrics with its real port is written once the server "
     "listens"},
    {"metrics-open", TUTTI_OPTION_BOOL, AT(open), "false", 0, 0, NULL,
     "let others than this machine read the metrics, in plaintext and without credentials"},
    {"metrics-page", TUTTI_OPTION_BOOL, AT(page), "true", 0, 0, NULL,
     "serve a page for people, with ranks, hosts and groups, beside the metrics; of coordinators"},
};

tutti_option_set
tutti_metrics_option_set(tutti_metrics_options *target)
{
    return (tutti_option_set){"metrics", table, sizeof(table) / sizeof(table[0]), target};
}

/* ------------------------------------------------------------------------------ HTTP */

/* The page's bytes are copied; MHD frees its copy. */
static enum MHD_Result
queue_response(struct MHD_Connection *connection, unsigned status, struct MHD_Response *response,
               const char *kind)
{
    enum MHD_Result result;

    if (response == NULL) {
        return MHD_NO; /* closes the connection */
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, kind);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    if (strcmp(kind, HTML) == 0) {
        (void)MHD_add_response_header(response, "Content-Security-Policy", POLICY);
        (void)MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    }
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED) {
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result
reply_http(struct MHD_Connection *connection, unsigned status, const tutti_page *page,
           const char *kind)
{
    return queue_response(connection, status,
                          MHD_create_response_from_buffer(
                              page->buf.size,
                              page->buf.data == NULL ? (void *)(uintptr_t) "" : page->buf.data,
                              MHD_RESPMEM_MUST_COPY),
                          kind);
}

/* Answers without asking the loop, so it costs the server's work nothing. */
static enum MHD_Result
refuse_http(struct MHD_Connection *connection, unsigned status, const char *words)
{
    tutti_page page;
    enum MHD_Result result;

    tutti_page_init(&page);
    (void)tutti_buf_add(&page.buf, words, strlen(words), NULL);
    result = reply_http(connection, status, &page, PLAIN);
    tutti_page_fini(&page);
    return result;
}

static bool
find_topic(const tutti_metrics *self, const char *path, metrics_topic *ret)
{
    static const char *const paths[] = {"/metrics", "/healthz", "/readyz", "/",
                                        "/state",   "/ranks",   "/events"};
    const size_t count =
        self->source.html == NULL ? METRICS_HTML : sizeof(paths) / sizeof(paths[0]);
    size_t i;

    for (i = 0; i < count; i++) {
        if (strcmp(path, paths[i]) == 0) {
            *ret = (metrics_topic)i;
            return true;
        }
    }
    return false;
}

/* What is too long for a job's name names none. */
static void
read_query(struct MHD_Connection *connection, metrics_request *request)
{
    const char *job = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "job");
    const char *first = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "first");

    if (job != NULL) {
        (void)snprintf(request->job, sizeof(request->job), "%s",
                       strlen(job) < sizeof(request->job) ? job : "?");
    }
    if (first != NULL) {
        request->first = (uint32_t)strtoul(first, NULL, 10);
    }
}

/*
 * A page of another site may give its own name the address of this machine, and then read through
 * the browser of a person here what is for this machine alone. Such requests name that site.
 */
static bool
is_own_host(const tutti_metrics *self, struct MHD_Connection *connection)
{
    const char *host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    struct in_addr four;
    char name[64];
    size_t size;

    if (self->open || host == NULL || host[0] == '[') {
        return true;
    }
    size = strcspn(host, ":");
    if (size >= sizeof(name)) {
        return false;
    }
    memcpy(name, host, size);
    name[size] = '\0';
    return strcmp(name, "localhost") == 0 || inet_pton(AF_INET, name, &four) == 1;
}

/* One page at a time, so that a probe finds at most one before it on the server's loop. */
static bool
take_turn(tutti_metrics *self)
{
    const uint64_t until =
        tutti_clock_add(tutti_clock_ns(), TUTTI_METRICS_WAIT_MS * TUTTI_NS_PER_MS);
    bool taken;
    bool early = true;

    (void)pthread_mutex_lock(&self->lock);
    while (self->writing && early) {
        early = tutti_cond_wait_until(&self->written, &self->lock, until);
    }
    taken = !self->writing;
    self->writing = true;
    (void)pthread_mutex_unlock(&self->lock);
    return taken;
}

static void
end_turn(tutti_metrics *self)
{
    (void)pthread_mutex_lock(&self->lock);
    self->writing = false;
    (void)pthread_cond_signal(&self->written);
    (void)pthread_mutex_unlock(&self->lock);
}

static const char *
kind_of(metrics_topic topic, unsigned status)
{
    if (status != MHD_HTTP_OK || topic == METRICS_HEALTH || topic == METRICS_READINESS) {
        return PLAIN;
    }
    return topic == METRICS_NUMBERS ? NUMBERS : JSON;
}

/* /healthz and /readyz take no turn: a probe must not wait behind people who read numbers. */
static enum MHD_Result
answer_http(tutti_metrics *self, struct MHD_Connection *connection, const metrics_request *request)
{
    const bool turn = request->topic != METRICS_HEALTH && request->topic != METRICS_READINESS;
    tutti_page page;
    unsigned status;
    enum MHD_Result result;

    if (turn && !take_turn(self)) {
        return refuse_http(connection, MHD_HTTP_SERVICE_UNAVAILABLE,
                           "others ask for this page, too, and it was not written within 2 s\n");
    }
    tutti_page_init(&page);
    status = metrics_ask(&self->source, request, &page);
    if (turn) {
        end_turn(self);
    }
    result = reply_http(connection, status, &page, kind_of(request->topic, status));
    tutti_page_fini(&page);
    return result;
}

/* ------------------------------------------------------------------------------ events */

/* False: the metrics end. */
static bool
rest_until_event(event_stream *stream)
{
    tutti_metrics *self = stream->owner;
    const uint64_t until = tutti_clock_add(tutti_clock_ns(), stream->begun ? EVENT_NS : 0);
    bool early = true;
    bool ending;

    (void)pthread_mutex_lock(&self->lock);
    while (!self->ending && early) {
        early = tutti_cond_wait_until(&self->ended, &self->lock, until);
    }
    ending = self->ending;
    (void)pthread_mutex_unlock(&self->lock);
    stream->begun = true;
    return !ending;
}

/* The state as "data: {...}", or a comment when it cannot be had now: the browser waits on. */
static void
make_event(event_stream *stream)
{
    static const char begin[] = "data: ";
    static const char end[] = "\n"; /* the state ends in a newline of its own */
    static const char nothing[] = ": the state cannot be had now\n\n";
    tutti_page state;
    unsigned status = 0;

    tutti_page_fini(&stream->page);
    tutti_page_init(&stream->page);
    tutti_page_init(&state);
    stream->sent = 0;
    if (take_turn(stream->owner)) {
        status = metrics_ask(&stream->owner->source, &stream->request, &state);
        end_turn(stream->owner);
    }
    if (status != MHD_HTTP_OK ||
        tutti_buf_add(&stream->page.buf, begin, sizeof(begin) - 1, NULL) != TUTTI_OK ||
        tutti_buf_add(&stream->page.buf, state.buf.data, state.buf.size, NULL) != TUTTI_OK ||
        tutti_buf_add(&stream->page.buf, end, sizeof(end) - 1, NULL) != TUTTI_OK) {
        tutti_page_fini(&stream->page);
        tutti_page_init(&stream->page);
        (void)tutti_buf_add(&stream->page.buf, nothing, sizeof(nothing) - 1, NULL);
    }
    tutti_page_fini(&state);
}

static ssize_t
on_read_event(void *arg, uint64_t position, char *buffer, size_t most)
{
    event_stream *stream = arg;
    size_t size = stream->page.buf.size - stream->sent;

    (void)position;
    if (size == 0) {
        if (!rest_until_event(stream)) {
            return MHD_CONTENT_READER_END_OF_STREAM;
        }
        make_event(stream);
        size = stream->page.buf.size;
    }
    size = size < most ? size : most;
    memcpy(buffer, stream->page.buf.data + stream->sent, size);
    stream->sent += size;
    return (ssize_t)size;
}

static void
free_event_stream(void *arg)
{
    event_stream *stream = arg;

    tutti_page_fini(&stream->page);
    free(stream);
}

static enum MHD_Result
answer_events(tutti_metrics *self, struct MHD_Connection *connection,
              const metrics_request *request)
{
    event_stream *stream = calloc(1, sizeof(*stream));

    if (stream == NULL) {
        return refuse_http(connection, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory for events\n");
    }
    stream->owner = self;
    stream->request = *request;
    tutti_page_init(&stream->page);
    return queue_response(connection, MHD_HTTP_OK,
                          MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, EVENT_BLOCK,
                                                            on_read_event, stream,
                                                            free_event_stream),
                          EVENTS);
}

static enum MHD_Result
answer_html(const tutti_metrics *self, struct MHD_Connection *connection)
{
    return queue_response(connection, MHD_HTTP_OK,
                          MHD_create_response_from_buffer(self->source.html_size,
                                                          (void *)(uintptr_t)self->source.html,
                                                          MHD_RESPMEM_PERSISTENT),
                          HTML);
}

/* What is for people: not for the pages of other sites. */
static enum MHD_Result
answer_people(tutti_metrics *self, struct MHD_Connection *connection, metrics_request *request)
{
    if (!is_own_host(self, connection)) {
        return refuse_http(connection, MHD_HTTP_FORBIDDEN,
                           "this page is for this machine: ask for it by an address, as "
                           "127.0.0.1, or by localhost\n");
    }
    read_query(connection, request);
    if (request->topic == METRICS_HTML) {
        return answer_html(self, connection);
    }
    return request->topic == METRICS_EVENTS ? answer_events(self, connection, request)
                                            : answer_http(self, connection, request);
}

static metrics_visitor *
visitor_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info == NULL ? NULL : info->socket_context;
}

/*
 * HTTP calls this with all headers read. A body is never read, since no method that has one is
 * taken.
 */
static enum MHD_Result
on_request(void *arg, struct MHD_Connection *connection, const char *url, const char *method,
           const char *version, const char *upload, size_t *upload_size, void **request)
{
    tutti_metrics *self = arg;
    metrics_request asked = {0};

    (void)version;
    (void)upload;
    (void)upload_size;
    (void)request;
    metrics_visitors_turn(&self->visitors, visitor_of(connection), true);
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0) {
        return refuse_http(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD only\n");
    }
    if (!find_topic(self, url, &asked.topic)) {
        return refuse_http(connection, MHD_HTTP_NOT_FOUND,
                           "there is /metrics, /healthz and /readyz\n");
    }
    return asked.topic >= METRICS_HTML ? answer_people(self, connection, &asked)
                                       : answer_http(self, connection, &asked);
}

static void
on_answered(void *arg, struct MHD_Connection *connection, void **request,
            enum MHD_RequestTerminationCode why)
{
    tutti_metrics *self = arg;

    (void)request;
    (void)why;
    metrics_visitors_turn(&self->visitors, visitor_of(connection), false);
}

/*
 * Called when a connection begins and when it ends. What is put into `*visitor` comes back with
 * each request of it.
 */
static void
on_connection(void *arg, struct MHD_Connection *connection, void **visitor,
              enum MHD_ConnectionNotificationCode what)
{
    tutti_metrics *self = arg;
    const union MHD_ConnectionInfo *info;

    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
        metrics_visitors_go(&self->visitors, *visitor);
        *visitor = NULL;
        return;
    }
    info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    *visitor = info == NULL ? NULL : metrics_visitors_come(&self->visitors, info->connect_fd);
}

/* The library's own messages are about visitors' mistakes, so they are for debugging only. */
static void
on_log(void *arg, const char *format, va_list args)
{
    char words[256];
    tutti_text text = tutti_text_in(words, sizeof(words));

    (void)arg;
    tutti_text_add_args(&text, format, args);
    TUTTI_LOG("metrics", DEBUG, "%s", words);
}

/* ------------------------------------------------------------------------------ life */

static tutti_code
start_daemon(tutti_metrics *self, int descriptor, tutti_error *err)
{
    const unsigned flags = MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD |
                           MHD_USE_THREAD_PER_CONNECTION | MHD_USE_ITC | MHD_USE_ERROR_LOG;

    self->daemon = MHD_start_daemon(
        flags, 0, NULL, NULL, on_request, self, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
        MHD_OPTION_LISTEN_SOCKET, descriptor, MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS_MAX,
        MHD_OPTION_CONNECTION_TIMEOUT, TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        CONNECTION_BYTES, MHD_OPTION_THREAD_STACK_SIZE, STACK_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
        on_answered, self, MHD_OPTION_NOTIFY_CONNECTION, on_connection, self, MHD_OPTION_END);
    if (self->daemon == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "SYSTEM_LIMIT",
                              "no thread or memory for the metrics");
    }
    return TUTTI_OK;
}

/*
 * The port file is written when the socket is bound, so who waits for the file can connect at
 * once.
 */
static tutti_code
tell_address(const tutti_metrics_options *options, const tutti_address *address, bool has_page,
             tutti_error *err)
{
    char line[TUTTI_ADDRESS_MAX + 1];
    const int size = snprintf(line, sizeof(line), "%s\n", address->text);

    TUTTI_LOG("metrics", INFO, "metrics on http://%s/metrics%s", address->text,
              has_page ? ", a page for people on /" : "");
    if (options->port_file[0] == '\0') {
        return TUTTI_OK;
    }
    return tutti_file_write(options->port_file, line, (size_t)size, 0644, err);
}

tutti_code
tutti_metrics_start(const tutti_metrics_options *options, const tutti_metrics_source *source,
                    tutti_metrics **ret_metrics, tutti_error *err)
{
    tutti_metrics *self;
    tutti_address address;
    int descriptor = -1;
    tutti_code code;

    *ret_metrics = NULL;
    if (options->listen[0] == '\0') {
        return TUTTI_OK;
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the metrics");
    }
    self->source = *source;
    self->source.html = options->page ? source->html : NULL;
    self->open = options->open;
    metrics_visitors_init(&self->visitors);
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->written);
    tutti_cond_init(&self->ended);
    code = metrics_listen(options, &descriptor, &address, err);
    if (code == TUTTI_OK) {
        code = start_daemon(self, descriptor, err);
        if (code != TUTTI_OK) {
            (void)close(descriptor); /* else it is the daemon's */
        }
    }
    if (code == TUTTI_OK) {
        code = tell_address(options, &address, self->source.html != NULL, err);
    }
    if (code != TUTTI_OK) {
        tutti_metrics_stop(self);
        return code;
    }
    *ret_metrics = self;
    return TUTTI_OK;
}

/*
 * Stopping waits for all threads of HTTP. One of them may wait for the loop, up to
 * TUTTI_METRICS_WAIT_MS; its question is freed by whoever of the two comes last.
 */
void
tutti_metrics_stop(tutti_metrics *metrics)
{
    if (metrics == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&metrics->lock);
    metrics->ending = true;
    (void)pthread_cond_broadcast(&metrics->ended);
    (void)pthread_mutex_unlock(&metrics->lock);
    if (metrics->daemon != NULL) {
        MHD_stop_daemon(metrics->daemon);
    }
    metrics_visitors_fini(&metrics->visitors);
    (void)pthread_cond_destroy(&metrics->written);
    (void)pthread_cond_destroy(&metrics->ended);
    (void)pthread_mutex_destroy(&metrics->lock);
    free(metrics);
}
