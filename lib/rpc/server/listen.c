/*
 * Which addresses a server may take, how they are bound, and what to say when one cannot be.
 *
 * Runs on the thread that makes and frees the server, never beside itself. A listener owns its
 * TLS state and, for a Unix socket, the lock file; rpc_listen_close lets both go, whatever was
 * reached before an error.
 *
 * gRPC only says that a port could not be bound, not why. So on a failure the same bind is tried
 * here with system calls, to find the reason; gRPC's own log lines are kept quiet meanwhile.
 */
#include "rpc/server/listen.h"

#include <errno.h>
#include <grpc/grpc_security.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "base/os/process.h"
#include "rpc/server.h"
#include "rpc/server/lock.h"
#include "rpc/server/tls.h"
#include "rpc/util/log.h"

static bool
is_unix(const tutti_address *address)
{
    return address->path[0] != '\0';
}

static tutti_code
check_tls_options(const tutti_rpc_server_options *options, tutti_error *err)
{
    if ((options->tls_cert[0] == '\0') != (options->tls_key[0] == '\0')) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "--tls-cert and --tls-key belong together, only %s is given",
                              options->tls_cert[0] == '\0' ? "--tls-key" : "--tls-cert");
    }
    if (options->tls_client_ca[0] != '\0' && options->tls_cert[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "--tls-client-ca needs --tls-cert and --tls-key");
    }
    return TUTTI_OK;
}

/*
 * Plaintext on an address that other machines reach is refused before anything is bound. With a
 * token file and --insecure it is allowed, but tokens that come that way are refused call by call
 * (authorize.c), so the log says so once.
 */
static tutti_code
check_address(const tutti_address *address, const tutti_rpc_server_options *options,
              tutti_error *err)
{
    if (options->tls_cert[0] != '\0' || tutti_address_is_local(address)) {
        return TUTTI_OK;
    }
    if (!options->insecure) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "PLAINTEXT_REFUSED",
                              "address %s can be reached from other machines and would speak "
                              "plaintext: give --tls-cert and --tls-key, or --insecure when "
                              "everybody who can reach it is trusted",
                              address->text);
    }
    if (options->token_file[0] != '\0') {
        TUTTI_LOG("rpc/server", WARN,
                  "%s speaks plaintext: tokens from other machines are refused there",
                  address->text);
    }
    return TUTTI_OK;
}

tutti_code
rpc_listen_check(const tutti_rpc_server_options *options,
                 rpc_listener ret_listeners[TUTTI_ADDRESSES_MAX], size_t *ret_count,
                 tutti_error *err)
{
    tutti_address addresses[TUTTI_ADDRESSES_MAX];
    size_t count = 0;
    size_t i;
    tutti_code code = tutti_address_parse_list(options->listen, addresses, &count, err);

    if (code == TUTTI_OK) {
        code = check_tls_options(options, err);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = check_address(&addresses[i], options, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    for (i = 0; i < count; i++) {
        ret_listeners[i] = (rpc_listener){.address = addresses[i], .lock = -1};
    }
    *ret_count = count;
    return TUTTI_OK;
}

tutti_code
rpc_listen_check_open(const rpc_listener *listeners, size_t count,
                      const tutti_rpc_server_options *options, bool asks, tutti_error *err)
{
    size_t i;

    if (asks || options->insecure || options->tls_client_ca[0] != '\0') {
        return TUTTI_OK;
    }
    for (i = 0; i < count; i++) {
        if (!tutti_address_is_local(&listeners[i].address)) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "OPEN_REFUSED",
                                  "address %s can be reached from other machines and would serve "
                                  "anybody: give --tls-client-ca, --token-keys or --token-file, or "
                                  "--insecure when everybody who can reach it is trusted",
                                  listeners[i].address.text);
        }
    }
    return TUTTI_OK;
}

/*
 * Bind and listen by ourselves, to learn the error that gRPC hides. 0: it works now, so the cause
 * is another one (or is gone meanwhile).
 */
static int
try_bind(const struct addrinfo *info)
{
    const int one = 1;
    const int descriptor =
        socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, info->ai_protocol);
    int number = 0;

    if (descriptor < 0) {
        return errno;
    }
    (void)setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(descriptor, info->ai_addr, info->ai_addrlen) != 0 || listen(descriptor, 1) != 0) {
        number = errno;
    }
    (void)close(descriptor);
    return number;
}

static tutti_code
explain_tcp(const tutti_address *address, tutti_error *err)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                   .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    const struct addrinfo *at;
    char holder[128];
    char port[8];
    int number = 0;
    int failed;

    (void)snprintf(port, sizeof(port), "%u", (unsigned)address->port);
    failed = getaddrinfo(address->host, port, &hints, &found);
    if (failed != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS",
                              "could not listen on %s: %s", address->text, gai_strerror(failed));
    }
    for (at = found; at != NULL && number == 0; at = at->ai_next) {
        number = try_bind(at);
    }
    freeaddrinfo(found);
    if (number != EADDRINUSE) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS",
                              "could not listen on %s: %s", address->text,
                              number == 0 ? "gRPC refused it" : strerror(number));
    }
    tutti_process_who_listens(address->port, holder, sizeof(holder));
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "ADDRESS_IN_USE",
                          "could not listen on %s: in use by %s", address->text, holder);
}

static tutti_code
explain_unix(const tutti_address *address, tutti_error *err)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    const struct addrinfo info = {.ai_family = AF_UNIX,
                                  .ai_socktype = SOCK_STREAM,
                                  .ai_addr = (struct sockaddr *)&path,
                                  .ai_addrlen = sizeof(path)};
    int number;

    (void)snprintf(path.sun_path, sizeof(path.sun_path), "%.107s", address->path);
    number = try_bind(&info);
    /* The try has made the socket's file, which nobody serves. */
    if (number == 0) {
        (void)unlink(address->path);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS", "could not listen on %s: %s",
                          address->text,
                          number == EADDRINUSE ? "the path exists and is no socket"
                          : number == 0        ? "gRPC refused it"
                                               : strerror(number));
}

/*
 * Only this user may connect. The mask counts for the moment in which gRPC makes the file. It
 * belongs to the whole process: a file that another thread makes in this moment gets fewer
 * rights.
 */
static int
add_unix_port(const rpc_listener *listener, grpc_server *server)
{
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    const mode_t before = umask(0077);
    const int port = grpc_server_add_http2_port(server, listener->address.text, plain);

    (void)umask(before);
    grpc_server_credentials_release(plain);
    return port;
}

static int
add_tcp_port(rpc_listener *listener, grpc_server *server)
{
    grpc_server_credentials *credentials = listener->tls == NULL
                                               ? grpc_insecure_server_credentials_create()
                                               : rpc_tls_credentials(listener->tls);
    const int port = grpc_server_add_http2_port(server, listener->address.text, credentials);

    grpc_server_credentials_release(credentials);
    return port;
}

static tutti_code
bind_unix(rpc_listener *listener, grpc_server *server, tutti_error *err)
{
    /*
     * The lock first: gRPC removes a socket that is at the path, though a running server may
     * listen on it.
     */
    TUTTI_TRY(rpc_lock_open(listener->address.path, &listener->lock, err));
    if (add_unix_port(listener, server) <= 0) {
        return explain_unix(&listener->address, err);
    }
    listener->bound = true;
    return TUTTI_OK;
}

static tutti_code
bind_tcp(rpc_listener *listener, grpc_server *server, const tutti_rpc_server_options *options,
         tutti_error *err)
{
    int port;

    if (options->tls_cert[0] != '\0') {
        const tutti_code code = rpc_tls_open(options->tls_cert, options->tls_key,
                                             options->tls_client_ca, &listener->tls, err);

        if (code != TUTTI_OK) {
            return code;
        }
    }
    port = add_tcp_port(listener, server);
    if (port <= 0) {
        return explain_tcp(&listener->address, err);
    }
    tutti_address_set_port(&listener->address, (uint16_t)port);
    listener->bound = true;
    return TUTTI_OK;
}

tutti_code
rpc_listen_bind(rpc_listener *listener, grpc_server *server,
                const tutti_rpc_server_options *options, tutti_error *err)
{
    tutti_code code;

    rpc_log_quiet(true);
    code = is_unix(&listener->address) ? bind_unix(listener, server, err)
                                       : bind_tcp(listener, server, options, err);
    rpc_log_quiet(false);
    return code;
}

void
rpc_listen_leave(rpc_listener *listener)
{
    if (listener->lock >= 0) {
        /* Only a path that is ours: without `bound` it may be somebody's file. */
        if (listener->bound) {
            (void)unlink(listener->address.path);
        }
        rpc_lock_close(listener->address.path, listener->lock);
        listener->lock = -1;
    }
    listener->bound = false;
}

void
rpc_listen_close(rpc_listener *listener)
{
    rpc_listen_leave(listener);
    rpc_tls_close(listener->tls);
    listener->tls = NULL;
}
