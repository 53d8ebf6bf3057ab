/* Which address of this host others reach, and whether a coordinator can listen at one. */
#include <arpa/inet.h>
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "client/cli/cluster/nodes.h"
#include "client/cli/util/output.h"

/* "host:port" or "[v6]:port". [out, owned] ret_found  freeaddrinfo it; NULL = no such address */
static const char *
look_up_host(const char *address, int kind, struct addrinfo **ret_found)
{
    const struct addrinfo wanted = {.ai_family = AF_UNSPEC, .ai_socktype = kind};
    const char *colon = strrchr(address, ':');
    const bool bracket = address[0] == '[' && colon != NULL && colon > address && colon[-1] == ']';
    char host[NODES_HOST_MAX];
    int failed;

    *ret_found = NULL;
    if (colon == NULL || colon == address || (size_t)(colon - address) >= sizeof(host)) {
        return "need HOST:PORT";
    }
    (void)snprintf(host, sizeof(host), "%.*s", (int)(colon - address) - (bracket ? 2 : 0),
                   address + (bracket ? 1 : 0));
    failed = getaddrinfo(host, colon + 1, &wanted, ret_found);
    return failed == 0 ? NULL : gai_strerror(failed);
}

/* A datagram socket that is connected has the address packets to there would come from. */
static bool
own_side(const struct addrinfo *to, char ret[NODES_HOST_MAX])
{
    const int descriptor = socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage own;
    socklen_t size = sizeof(own);
    const bool found = descriptor >= 0 && connect(descriptor, to->ai_addr, to->ai_addrlen) == 0 &&
                       getsockname(descriptor, (struct sockaddr *)&own, &size) == 0 &&
                       getnameinfo((struct sockaddr *)&own, size, ret, NODES_HOST_MAX, NULL, 0,
                                   NI_NUMERICHOST) == 0;

    if (descriptor >= 0) {
        (void)close(descriptor);
    }
    return found;
}

tutti_code
nodes_own_address(const char *coordinator, char ret[NODES_HOST_MAX], tutti_error *err)
{
    struct addrinfo *found = NULL;
    const struct addrinfo *one;
    const char *why;
    bool known = false;

    if (strncmp(coordinator, "unix:", 5) == 0) {
        (void)snprintf(ret, NODES_HOST_MAX, "127.0.0.1");
        return TUTTI_OK;
    }
    why = look_up_host(coordinator, SOCK_DGRAM, &found);
    for (one = found; one != NULL && !known; one = one->ai_next) {
        known = own_side(one, ret);
    }
    if (found != NULL) {
        freeaddrinfo(found);
    }
    return known ? TUTTI_OK
                 : cli_fail(err, TUTTI_INVALID_ARGUMENT,
                            "--coordinator \"%.256s\": %s; need HOST:PORT that all nodes reach",
                            coordinator, why != NULL ? why : "no route to it");
}

bool
nodes_are_served(const char *coordinator)
{
    const struct timeval limit = {.tv_sec = 1};
    struct addrinfo *found = NULL;
    const struct addrinfo *one;
    bool served = strncmp(coordinator, "unix:", 5) == 0;

    if (!served) {
        (void)look_up_host(coordinator, SOCK_STREAM, &found);
    }
    for (one = found; one != NULL && !served; one = one->ai_next) {
        const int descriptor = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (descriptor >= 0) {
            (void)setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
            served = connect(descriptor, one->ai_addr, one->ai_addrlen) == 0;
            (void)close(descriptor);
        }
    }
    if (found != NULL) {
        freeaddrinfo(found);
    }
    return served;
}

/* bind() refuses addresses of other hosts, and ports where somebody listens. */
bool
nodes_can_serve(const char *coordinator)
{
    struct addrinfo *found = NULL;
    const int on = 1;
    bool can = false;
    int descriptor = -1;

    if (strncmp(coordinator, "unix:", 5) != 0) {
        (void)look_up_host(coordinator, SOCK_STREAM, &found);
    }
    if (found != NULL) {
        descriptor = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
    if (descriptor >= 0) {
        (void)setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        can =
            bind(descriptor, found->ai_addr, found->ai_addrlen) == 0 && listen(descriptor, 1) == 0;
        (void)close(descriptor);
    }
    if (found != NULL) {
        freeaddrinfo(found);
    }
    return can;
}
