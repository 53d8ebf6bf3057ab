/*
 * The socket of the metrics. It is bound here and not by the HTTP library: so port 0 can be asked
 * for, and the errors are worded like those of the other options.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "metrics/metrics_private.h"

#define BACKLOG                                                                                    \
    1024 /* a crowd that comes at once costs who comes with it no repeated SYN, a second */

/*
 * Metrics ask for no credentials, so an address that others can reach must be allowed in so many
 * words.
 */
static tutti_code
check_address(const tutti_metrics_options *options, tutti_address *ret, tutti_error *err)
{
    TUTTI_TRY(tutti_address_parse(options->listen, ret, err));

    if (ret->path[0] != '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "option --metrics: \"%s\" is a Unix socket, need host:port",
                              options->listen);
    }
    if (!options->open && !tutti_address_is_local(ret)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "option --metrics: others can reach %s, and metrics ask for no "
                              "credentials: listen on 127.0.0.1, or say --metrics-open",
                              options->listen);
    }
    return TUTTI_OK;
}

static tutti_code
look_up_topic(const tutti_address *address, struct addrinfo **ret, tutti_error *err)
{
    const struct addrinfo wish = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
                                  .ai_socktype = SOCK_STREAM};
    char port[8];
    int failed;

    (void)snprintf(port, sizeof(port), "%u", (unsigned)address->port);
    failed = getaddrinfo(address->host, port, &wish, ret);
    if (failed != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "option --metrics: host \"%s\": %s", address->host,
                              gai_strerror(failed));
    }
    return TUTTI_OK;
}

/*
 * A port that is taken is a state of this machine that may pass. Every other failure means that
 * the option is wrong.
 */
static tutti_code
fail_bind(const tutti_address *address, tutti_error *err)
{
    const int cause = errno;
    const tutti_code code =
        cause == EADDRINUSE ? TUTTI_FAILED_PRECONDITION : TUTTI_INVALID_ARGUMENT;

    (void)TUTTI_FAIL_FOR(err, code, cause == EADDRINUSE ? "ADDRESS_IN_USE" : "BAD_ADDRESS",
                         "option --metrics: cannot listen on %s: %s", address->text,
                         strerror(cause));
    tutti_error_set_cause(err, "errno", cause);
    return code;
}

/* Port 0 becomes the real one. */
static void
read_port(int descriptor, tutti_address *address)
{
    union {
        struct sockaddr_storage any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } bound = {.any.ss_family = AF_UNSPEC};
    socklen_t size = sizeof(bound);

    if (getsockname(descriptor, (struct sockaddr *)&bound, &size) == 0) {
        tutti_address_set_port(
            address,
            ntohs(bound.any.ss_family == AF_INET6 ? bound.six.sin6_port : bound.four.sin_port));
    }
}

static tutti_code
bind_to(const struct addrinfo *where, tutti_address *address, int *ret_socket, tutti_error *err)
{
    const int on = 1;
    const int descriptor = socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (descriptor < 0) {
        return fail_bind(address, err);
    }
    (void)setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(descriptor, where->ai_addr, where->ai_addrlen) != 0 ||
        listen(descriptor, BACKLOG) != 0) {
        const tutti_code code = fail_bind(address, err);

        (void)close(descriptor);
        return code;
    }
    read_port(descriptor, address);
    *ret_socket = descriptor;
    return TUTTI_OK;
}

tutti_code
metrics_listen(const tutti_metrics_options *options, int *ret_socket, tutti_address *ret_address,
               tutti_error *err)
{
    struct addrinfo *found = NULL;
    tutti_code code = check_address(options, ret_address, err);

    if (code == TUTTI_OK) {
        code = look_up_topic(ret_address, &found, err);
    }
    if (code == TUTTI_OK) {
        code = bind_to(found, ret_address, ret_socket, err);
        freeaddrinfo(found);
    }
    return code;
}
