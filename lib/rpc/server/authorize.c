/*
 * Who calls, and may the call be made? Decided for each call, and for each message of a stream
 * that names a job or a rank. gRPC's own hook (the auth metadata processor) is not used: it
 * writes what it finds to the connection, where the next call would meet it.
 *
 * Runs on the loop's thread, so on several at once; the state is read only once the server has
 * started, except the token file, which has its own lock. The call keeps the grant that the guard
 * gave, and releases it with the call's struct.
 *
 * Order for a call: one well-formed "authorization" header; not in plaintext from another
 * machine; the guard or `authorize`; the token file, if they did not let the caller in. Methods
 * that are `open` (health) need none of it. Everything is refused that is not allowed by one of
 * these.
 */
#include <protobuf-c/protobuf-c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "rpc/loop/token.h"
#include "rpc/message.h"
#include "rpc/server.h"
#include "rpc/server/call.h"
#include "rpc/server/server_private.h"
#include "rpc/server/tls.h"

#define IDENTITY_BYTES_MAX 256
#define TOKEN_BYTES_MAX 8192 /* gRPC takes no more metadata than that */

/*
 * The token of "authorization: Bearer ...", "" = none.
 *
 * TUTTI_UNAUTHENTICATED  several of them, another scheme, or no text
 */
static tutti_code
find_token(const tutti_rpc_call *call, char *ret_token, size_t size, tutti_error *err)
{
    static const char scheme[] = "bearer ";
    const size_t head = sizeof(scheme) - 1;
    size_t found = 0;
    size_t i;

    ret_token[0] = '\0';
    for (i = 0; i < call->metadata.count; i++) {
        const grpc_metadata *one = &call->metadata.metadata[i];
        const char *value = (const char *)GRPC_SLICE_START_PTR(one->value);
        const size_t bytes = GRPC_SLICE_LENGTH(one->value);

        if (grpc_slice_str_cmp(one->key, "authorization") != 0) {
            continue;
        }
        if (++found > 1 || bytes <= head || bytes - head >= size ||
            strncasecmp(value, scheme, head) != 0 || memchr(value, '\0', bytes) != NULL) {
            return TUTTI_FAIL_FOR(
                err, TUTTI_UNAUTHENTICATED, "BAD_TOKEN",
                "the call's metadata need exactly one entry \"authorization: Bearer <token>\"");
        }
        memcpy(ret_token, value + head, bytes - head);
        ret_token[bytes - head] = '\0';
    }
    return TUTTI_OK;
}

/*
 * gRPC's text of the peer: "ipv4:127.0.0.1:55012", "ipv6:%5B::1%5D:55012", "unix:/path"; the
 * brackets are percent-encoded in some versions. An IPv4 client of a socket for both families
 * comes as ::ffff:127.x.
 */
static bool
is_this_machine(const char *peer)
{
    static const char v6_mapped[] = "ipv6:%5B::ffff:127.";

    return strncmp(peer, "unix:", 5) == 0 || strncmp(peer, "ipv4:127.", 9) == 0 ||
           strncmp(peer, "ipv6:%5B::1%5D:", 15) == 0 || strncmp(peer, "ipv6:[::1]:", 11) == 0 ||
           strncmp(peer, v6_mapped, sizeof(v6_mapped) - 1) == 0 ||
           strncmp(peer, "ipv6:[::ffff:127.", 17) == 0;
}

/*
 * A token that came in plaintext from another machine is refused even if it is the right one:
 * whoever could read it on the way has it too. The look at the peer's text is saved where no
 * listener lets that happen.
 */
static tutti_code
check_way(const tutti_rpc_call *call, const char *token, tutti_error *err)
{
    if (token[0] == '\0' || !call->server_loop->server->strangers ||
        is_this_machine(tutti_rpc_call_peer(call))) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_UNAUTHENTICATED, "TOKEN_IN_PLAINTEXT",
                          "a token came in plaintext from %s and is not accepted: everybody on the "
                          "way could read it; serve with --tls-cert, and draw a new token",
                          tutti_rpc_call_peer(call));
}

static tutti_code
check_token_file(const tutti_rpc_server *server, const char *token, tutti_error *err)
{
    if (rpc_token_matches(server->token, token, tutti_clock_ns())) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(
        err, TUTTI_UNAUTHENTICATED, token[0] == '\0' ? "NO_TOKEN" : "BAD_TOKEN", "%s",
        token[0] == '\0' ? "this server wants a bearer token"
                         : "the bearer token is not the one of this server (--token-file)");
}

/* [out, owned] ret_grant  the guard's; NULL = no limits */
static tutti_code
ask_guard(const tutti_rpc_call *call, const char *method, const char *token, void **ret_grant,
          char *ret_identity, tutti_error *err)
{
    const tutti_rpc_server *server = call->server_loop->server;
    char certificate[IDENTITY_BYTES_MAX] = "";
    const tutti_rpc_visit visit = {.method = method, .token = token, .certificate = certificate};
    const char *identity = NULL;

    if (server->options->tls_client_ca[0] != '\0') {
        rpc_tls_uri(call->call, certificate, sizeof(certificate));
    }
    TUTTI_TRY(server->guard->admit(server->guard_arg, &visit, ret_grant, &identity, err));
    if (identity != NULL) {
        (void)snprintf(ret_identity, IDENTITY_BYTES_MAX, "%s", identity);
    }
    return TUTTI_OK;
}

/*
 * How guard, `authorize` and token file go together. `asked` says that the first two were really
 * given something to judge. Their OK is final then; so is every refusal but UNAUTHENTICATED,
 * which may mean "not one of my tokens": the token may still be the token file's. A guard that
 * lets everybody in without a token (not `guard_asks`) does not open a server that has a token
 * file.
 */
static tutti_code
decide_call(const tutti_rpc_call *call, const char *method, const char *token, void **ret_grant,
            char *ret_identity, tutti_error *err)
{
    const tutti_rpc_server *server = call->server_loop->server;
    const bool asked = server->authorize != NULL || (server->guard_asks && token[0] != '\0');
    tutti_code code = TUTTI_OK;

    if (server->guard != NULL) {
        code = ask_guard(call, method, token, ret_grant, ret_identity, err);
    } else if (server->authorize != NULL) {
        code = server->authorize(server->authorize_arg, method, token, ret_identity,
                                 IDENTITY_BYTES_MAX, err);
    }
    if (server->token == NULL || (asked && code != TUTTI_UNAUTHENTICATED) ||
        (code != TUTTI_OK && code != TUTTI_UNAUTHENTICATED)) {
        return code;
    }
    return check_token_file(server, token, err);
}

/* Does this server ask for credentials at all? */
static bool
wants_credentials(const tutti_rpc_server *server)
{
    return server->authorize != NULL || server->guard != NULL || server->token != NULL;
}

tutti_code
rpc_call_authorize(tutti_rpc_call *call, tutti_error *err)
{
    const tutti_rpc_server *server = call->server_loop->server;
    char token[TOKEN_BYTES_MAX];
    char identity[IDENTITY_BYTES_MAX] = "";
    tutti_code code = TUTTI_OK;

    if (!call->route->method->open && wants_credentials(server)) {
        code = find_token(call, token, sizeof(token), err);
        code = code == TUTTI_OK ? check_way(call, token, err) : code;
        code = code == TUTTI_OK
                   ? decide_call(call, call->route->path, token, &call->grant, identity, err)
                   : code;
    }
    /* A certificate names the caller only if no token did. */
    if (code == TUTTI_OK && identity[0] == '\0' && server->options->tls_client_ca[0] != '\0') {
        rpc_tls_identity(call->call, identity, sizeof(identity));
    }
    if (code == TUTTI_OK && identity[0] != '\0') {
        call->identity = strdup(identity);
        if (call->identity == NULL) {
            code = TUTTI_FAIL_MEMORY(err, "no memory for a call");
        }
    }
    return code;
}

/* Does a message keep to the grant? */
static tutti_code
check_message(const tutti_rpc_server *server, const void *grant, const char *method,
              const struct ProtobufCMessage *message, tutti_error *err)
{
    tutti_rpc_subject subject;

    if (grant == NULL) {
        return TUTTI_OK;
    }
    subject = rpc_subject_of(message);
    return server->guard->check(grant, method, &subject, err);
}

tutti_code
rpc_call_authorize_nested(const tutti_rpc_call *stream, const rpc_route *route,
                          const struct ProtobufCMessage *request, tutti_error *err)
{
    const tutti_rpc_server *server = stream->server_loop->server;
    char token[TOKEN_BYTES_MAX];
    char identity[IDENTITY_BYTES_MAX] = "";
    void *grant = NULL;
    tutti_code code;

    if ((server->authorize == NULL && stream->grant == NULL) || route->method->open) {
        return TUTTI_OK; /* no limits: the stream was let in for everything */
    }
    code = find_token(stream, token, sizeof(token), err);
    code = code == TUTTI_OK ? decide_call(stream, route->path, token, &grant, identity, err) : code;
    code = code == TUTTI_OK ? check_message(server, grant, route->path, request, err) : code;
    if (grant != NULL) {
        server->guard->release(grant);
    }
    return code;
}

tutti_code
rpc_call_check(const tutti_rpc_call *call, const tutti_rpc_message *message, tutti_error *err)
{
    return check_message(call->server_loop->server, call->grant, call->route->path,
                         tutti_rpc_message_get(message), err);
}

bool
tutti_rpc_call_may(const tutti_rpc_call *call, const char *method)
{
    return call->grant == NULL || call->server_loop->server->guard->may(call->grant, method);
}

tutti_code
tutti_rpc_call_check_rank(const tutti_rpc_call *call, uint32_t rank, tutti_error *err)
{
    return call->grant == NULL
               ? TUTTI_OK
               : call->server_loop->server->guard->check_rank(call->grant, rank, err);
}

/* ------------------------------------------------------------------------------ subject */

/*
 * The place of a field's value in a message; NULL if the message has no such field, the field is
 * repeated, or it is a member of a oneof that holds another one.
 */
static const void *
get_subject_value(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const char *base = (const char *)message;

    if (field == NULL || field->label == PROTOBUF_C_LABEL_REPEATED) {
        return NULL;
    }
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0 &&
        *(const uint32_t *)(const void *)(base + field->quantifier_offset) != field->id) {
        return NULL;
    }
    return base + field->offset;
}

static const ProtobufCFieldDescriptor *
find_field(const ProtobufCMessage *message, const char *name, ProtobufCType type)
{
    const ProtobufCFieldDescriptor *field =
        protobuf_c_message_descriptor_get_field_by_name(message->descriptor, name);

    return field != NULL && field->type == type ? field : NULL;
}

static const ProtobufCMessage *
message_in(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const void *value = get_subject_value(message, field);

    return value == NULL ? NULL : *(const ProtobufCMessage *const *)value;
}

static bool
read_job(const ProtobufCMessage *message, const char **ret_job)
{
    const void *value =
        get_subject_value(message, find_field(message, "job", PROTOBUF_C_TYPE_STRING));

    if (value != NULL) {
        *ret_job = *(const char *const *)value;
    }
    return value != NULL;
}

static bool
read_subject_number(const ProtobufCMessage *message, const char *name, uint32_t *ret_number)
{
    const void *value =
        get_subject_value(message, find_field(message, name, PROTOBUF_C_TYPE_UINT32));

    if (value != NULL) {
        *ret_number = *(const uint32_t *)value;
    }
    return value != NULL;
}

/*
 * Find `member` in the message, or one level deeper: the first message of a session is a oneof
 * with the member in it. True: there is a place for a member; *ret_member is NULL when the place
 * is empty. Deeper levels hold no member in our protos; if one did, its check would be missing,
 * so new messages keep to the two levels.
 */
static bool
find_member(const ProtobufCMessage *message, unsigned deeper, const ProtobufCMessage **ret_member)
{
    const ProtobufCFieldDescriptor *place = find_field(message, "member", PROTOBUF_C_TYPE_MESSAGE);
    bool found = place != NULL;
    unsigned i;

    *ret_member = message_in(message, place);
    for (i = 0; i < message->descriptor->n_fields && !found && deeper > 0; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const ProtobufCMessage *inner =
            field->type == PROTOBUF_C_TYPE_MESSAGE ? message_in(message, field) : NULL;

        found = inner != NULL && find_member(inner, deeper - 1, ret_member);
    }
    return found;
}

static bool
read_seat(const ProtobufCMessage *message, uint32_t *ret_seat)
{
    return read_subject_number(message, "rank", ret_seat) ||
           read_subject_number(message, "group_rank", ret_seat);
}

tutti_rpc_subject
rpc_subject_of(const ProtobufCMessage *message)
{
    tutti_rpc_subject subject = {.has_job = false};
    const ProtobufCMessage *member = NULL;
    const bool placed = find_member(message, 1, &member);

    subject.has_job = read_job(message, &subject.job);
    subject.has_seat = read_seat(message, &subject.seat);
    if (member != NULL) {
        subject.has_job = read_job(member, &subject.job) || subject.has_job;
        subject.has_rank = read_subject_number(member, "rank", &subject.rank);
    } else if (placed) {
        subject.has_job = true; /* as handlers read it: no member, job "default" */
        subject.job = "";
    }
    return subject;
}
