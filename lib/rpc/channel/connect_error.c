/*
 * gRPC's own errors in words that a person understands: which server, what is wrong with it, what
 * to do. They are known by fragments of gRPC's text, so a new gRPC may bring new ones: those are
 * passed on as they are. No state; any thread.
 *
 * `nobody` decides what clients do next: if no server is there at all, another one may be tried
 * or the wait goes on; if one was reached, it may have begun the work.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/loop/loop_private.h"
#include "rpc/message/peek.h"
#include "rpc/message/status_pb.h"

#define ASK_NS (200 * TUTTI_NS_PER_MS)
#define PEEK_NS TUTTI_NS_PER_S
#define OTHER_NAME "its certificate is for another name"

typedef struct phrase {
    const char *grpc;
    const char *ours;
    bool nobody; /* its host or a proxy answered, or its name is not known: no server is there */
} phrase;

/* While connecting. The first that fits. */
static const phrase while_connecting[] = {
    {"Connection refused", "connection refused, nothing listens there", true},
    {"No such file or directory", "there is no such socket, the server is not running", true},
    {"Permission denied", "permission denied, the socket belongs to another user", false},
    {"Domain name not found", "there is no host of that name", true},
    {"DNS resolution failed", "the host's name could not be resolved", true},
    {"No route to host", "no route to host", false},
    {"Network is unreachable", "the network is unreachable", false},
    {"Connection timed out", "no answer to the attempt to connect", false},
    {"connect() timed out", "no answer to the attempt to connect", false},
    {"wrong version number", "the server does not speak TLS", false},
    {"certificate verify failed",
     "its certificate is not signed by the given authority, or has expired", false},
    {"is not in peer certificate", OTHER_NAME, false},
    {"Hostname Verification Check failed", OTHER_NAME, false},
    {"certificate required", "it wants a client certificate", false},
    {"Connection reset by peer",
     "it closed the connection, perhaps it wants TLS or a client certificate", true},
    {"Socket closed", "it closed the connection, perhaps it wants TLS or a client certificate",
     true},
};

/* During a call. */
static const phrase while_calling[] = {
    {"keepalive watchdog timeout", "it does not answer pings", false},
    {"Socket closed", "it closed the connection", false},
    {"Connection reset by peer", "connection reset by peer", false},
    {"Broken pipe", "it closed the connection", false},
    {"Too many pings", "it took our pings for an attack, ping less often", false},
    {"GOAWAY", "it closes its connections", false},
    {"Cancelling all calls", "it shut down", false},
};

static const char *
find_phrase(const phrase *phrases, size_t count, const char *text)
{
    size_t i;

    for (i = 0; i < count; i++) {
        if (strstr(text, phrases[i].grpc) != NULL) {
            return phrases[i].ours;
        }
    }
    return NULL;
}

static void
rewrite_connect_error(tutti_error *err, const char *reason, const char *what, const char *target,
                      const char *why)
{
    tutti_error copy = *err;
    tutti_text text = tutti_text_in(copy.text, sizeof(copy.text));

    tutti_text_add(&text, "%s %s: %s", what, target, why);
    (void)snprintf(copy.reason, sizeof(copy.reason), "%s", reason);
    copy.scope = TUTTI_SCOPE_AGENT;
    *err = copy;
}

static void
explain_unavailable(const char *target, tutti_error *err)
{
    const bool connecting = strstr(err->text, "failed to connect to all addresses") != NULL ||
                            strstr(err->text, "DNS resolution failed") != NULL;
    const char *last = strstr(err->text, "last error: ");
    const char *ours;

    if (connecting) {
        ours = find_phrase(while_connecting, sizeof(while_connecting) / sizeof(while_connecting[0]),
                           err->text);
        rewrite_connect_error(
            err, "UNREACHABLE", "could not reach", target,
            ours != NULL ? ours : (last != NULL ? last + strlen("last error: ") : err->text));
        return;
    }
    ours = find_phrase(while_calling, sizeof(while_calling) / sizeof(while_calling[0]), err->text);
    if (ours != NULL) {
        rewrite_connect_error(err, "CONNECTION_LOST", "lost the connection to", target, ours);
    }
}

static void
explain_deadline(tutti_rpc_channel *channel, const rpc_known *known, tutti_error *err)
{
    const char *target = channel->address->text;

    if (strcmp(err->text, "Deadline Exceeded") != 0) {
        return;
    }
    if (rpc_channel_state(channel) == GRPC_CHANNEL_READY) {
        (void)snprintf(err->text, sizeof(err->text), "%s did not answer %s in time", target,
                       known->path);
        (void)strcpy(err->reason, "NO_ANSWER");
        return;
    }
    rewrite_connect_error(err, "UNREACHABLE", "could not reach", target,
                          "no connection within the time given");
}

bool
tutti_rpc_nobody_there(const tutti_error *err)
{
    const size_t count = sizeof(while_connecting) / sizeof(while_connecting[0]);
    bool nobody = false;
    size_t i;

    for (i = 0; i < count && strcmp(err->reason, "UNREACHABLE") == 0 && !nobody; i++) {
        nobody = while_connecting[i].nobody && strstr(err->text, while_connecting[i].ours) != NULL;
    }
    return nobody;
}

/* Something answered, but it speaks no gRPC: a proxy, a web server. */
static bool
explain_http(const char *target, tutti_error *err)
{
    static const char head[] = "Received http2 header with status: ";
    char status[8];

    if (strncmp(err->text, head, sizeof(head) - 1) != 0) {
        return false;
    }
    (void)snprintf(status, sizeof(status), "%.7s", err->text + sizeof(head) - 1);
    (void)snprintf(err->text, sizeof(err->text), "%s is no gRPC server: it answered HTTP %s",
                   target, status);
    (void)strcpy(err->reason, "NOT_GRPC");
    err->scope = TUTTI_SCOPE_AGENT;
    return true;
}

/* gRPC's own limit, here or at the server: its text has both numbers. */
static void
explain_size(tutti_error *err)
{
    tutti_error copy = *err;
    tutti_text text = tutti_text_in(copy.text, sizeof(copy.text));

    if (strstr(err->text, "message larger than max") != NULL) {
        tutti_text_add(&text, "%s: send tensors with Upload, long lists in several calls",
                       err->text);
        (void)strcpy(copy.reason, "MESSAGE_LIMIT");
        *err = copy;
    }
}

void
rpc_connect_error_explain(tutti_rpc_channel *channel, const rpc_known *known, tutti_error *err)
{
    if (explain_http(channel->address->text, err)) {
        return;
    }
    if (err->code == TUTTI_RESOURCE_EXHAUSTED) {
        explain_size(err);
    }
    if (err->code == TUTTI_UNAVAILABLE) {
        explain_unavailable(channel->address->text, err);
    } else if (err->code == TUTTI_DEADLINE_EXCEEDED) {
        explain_deadline(channel, known, err);
    } else if (err->code == TUTTI_CANCELLED && strcasecmp(err->text, "cancelled") == 0) {
        (void)snprintf(err->text, sizeof(err->text), "%s to %s was cancelled by this program",
                       known->path, channel->address->text);
        (void)strcpy(err->reason, "GIVEN_UP");
    }
}

/*
 * Who waits for the server to come up hears nothing about why it does not: so ask once more,
 * without waiting. While the last attempt counts as failed that is answered at once.
 */
void
rpc_connect_error_ask(tutti_rpc_channel *channel, grpc_completion_queue *queue, tutti_error *err)
{
    static const char path[] = "/grpc.health.v1.Health/Check";
    tutti_error found;
    rpc_outcome outcome;
    bool from_peer = false;
    grpc_call *call;
    grpc_op ops[2] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};

    if (strcmp(err->reason, "UNREACHABLE") != 0 || err->code != TUTTI_DEADLINE_EXCEEDED ||
        rpc_channel_state(channel) != GRPC_CHANNEL_TRANSIENT_FAILURE) {
        return;
    }
    rpc_outcome_init(&outcome, channel);
    call = rpc_connection_call(channel, 0, path, queue, tutti_clock_add(tutti_clock_ns(), ASK_NS));
    ops[1] = rpc_outcome_status_op(&outcome);
    rpc_batch_start(call, ops, 2, &outcome);
    (void)rpc_channel_pluck(queue, &outcome);
    if (rpc_status_decode(
            outcome.status,
            (tutti_bytes){GRPC_SLICE_START_PTR(outcome.text), GRPC_SLICE_LENGTH(outcome.text)},
            (tutti_bytes){NULL, 0}, &from_peer, &found) == TUTTI_UNAVAILABLE) {
        explain_unavailable(channel->address->text, &found);
        (void)snprintf(err->text, sizeof(err->text), "%s", found.text);
    }
    rpc_outcome_fini(&outcome);
    grpc_call_unref(call);
}

void
tutti_rpc_channel_name_certificate(const tutti_rpc_channel *channel, tutti_error *err)
{
    const char *wanted = rpc_is_given(channel->options.tls_name) ? channel->options.tls_name
                                                                 : channel->address->host;
    char why[640];
    char names[400];
    tutti_text text = tutti_text_in(why, sizeof(why));

    if (strcmp(err->reason, "UNREACHABLE") != 0 || strstr(err->text, OTHER_NAME) == NULL) {
        return;
    }
    if (!rpc_peek_names(channel->address, tutti_clock_add(tutti_clock_ns(), PEEK_NS), names,
                        sizeof(names))) {
        (void)snprintf(names, sizeof(names), "another name");
    }
    tutti_text_add(&text, "its certificate is for %s, not for %.80s", names, wanted);
    rewrite_connect_error(err, "UNREACHABLE", "could not reach", channel->address->text, why);
}
