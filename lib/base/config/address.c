/*
 * Addresses as people write them, in one form afterwards: what `text` holds can be given to gRPC,
 * written to a file, and compared.
 */
#include "base/config/address.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "base/error/fail.h"
#include "base/error/text.h"

/*
 * gRPC knows unix:/path and unix:///path, which mean the same here. unix://name/path has a host
 * in it, which no socket has, so it is refused.
 */
static tutti_code
parse_unix(const char *text, tutti_address *address, tutti_error *err)
{
    const char *path = text + strlen("unix:");

    if (strncmp(path, "//", 2) == 0) {
        path += 2;
    }
    if (strncmp(path, "//", 2) == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS",
                              "address \"%s\", write unix:/path", text);
    }
    if (path[0] == '\0' || strlen(path) >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS",
                              "address \"%s\": a socket path of %zu bytes, need 1 to %zu", text,
                              strlen(path), sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    }
    (void)snprintf(address->path, sizeof(address->path), "%s", path);
    (void)snprintf(address->text, sizeof(address->text), "unix:%s", path);
    return TUTTI_OK;
}

/*
 * Split at the last colon. Brackets are for IPv6 alone: written back without them, "[unix]:80"
 * would be the path of a socket.
 */
static bool
split_host(const char *text, tutti_address *address, const char **ret_port)
{
    const char *colon = strrchr(text, ':');
    const bool bracketed = text[0] == '[';
    size_t size;

    if (colon == NULL || colon == text) {
        return false;
    }
    size = (size_t)(colon - text);
    if (bracketed && (size < 3 || colon[-1] != ']')) {
        return false;
    }
    (void)snprintf(address->host, sizeof(address->host), "%.*s", (int)(bracketed ? size - 2 : size),
                   bracketed ? text + 1 : text);
    *ret_port = colon + 1;
    return strpbrk(address->host, "[]") == NULL &&
           (strchr(address->host, ':') != NULL) == bracketed;
}

/*
 * An IPv6 address gets its brackets back, since its last colon would otherwise look like that of
 * the port.
 */
static void
write_tcp(tutti_address *address)
{
    const bool v6 = strchr(address->host, ':') != NULL;

    (void)snprintf(address->text, sizeof(address->text), v6 ? "[%.240s]:%u" : "%.240s:%u",
                   address->host, (unsigned)address->port);
}

/* The result is written only when all of the text is good. */
tutti_code
tutti_address_parse(const char *text, tutti_address *ret_address, tutti_error *err)
{
    tutti_address address = {0};
    const char *port_text = NULL;
    uint64_t port = 0;
    tutti_code code;

    if (strlen(text) >= TUTTI_ADDRESS_MAX - 16) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS",
                              "address of %zu bytes, at most %d", strlen(text),
                              TUTTI_ADDRESS_MAX - 17);
    }
    if (strncmp(text, "unix:", 5) == 0) {
        code = parse_unix(text, &address, err);
    } else if (!split_host(text, &address, &port_text) ||
               tutti_parse_uint(port_text, UINT16_MAX, &port, NULL) != TUTTI_OK) {
        code = TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS",
                              "address \"%s\", write host:port, [v6]:port or unix:/path", text);
    } else {
        address.port = (uint16_t)port;
        write_tcp(&address);
        code = TUTTI_OK;
    }
    if (code == TUTTI_OK) {
        *ret_address = address;
    }
    return code;
}

tutti_code
tutti_address_parse_list(const char *text, tutti_address *ret_addresses, size_t *ret_count,
                         tutti_error *err)
{
    char copy[TUTTI_ADDRESSES_MAX * TUTTI_ADDRESS_MAX];
    char *rest = copy;
    char *item;
    size_t count = 0;
    tutti_code code = TUTTI_OK;

    if (snprintf(copy, sizeof(copy), "%s", text) >= (int)sizeof(copy)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS",
                              "list of addresses is too long");
    }
    while (code == TUTTI_OK && (item = strsep(&rest, ",")) != NULL) {
        if (count == TUTTI_ADDRESSES_MAX) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_ADDRESS",
                                  "more than %d addresses", TUTTI_ADDRESSES_MAX);
        }
        code = tutti_address_parse(item, &ret_addresses[count++], err);
    }
    if (code == TUTTI_OK) {
        *ret_count = count;
    }
    return code;
}

/*
 * The whole of 127.0.0.0/8 is this machine. Other names are not looked up: an answer from DNS
 * must not decide what is safe.
 */
bool
tutti_address_is_local(const tutti_address *address)
{
    struct in_addr v4;

    if (address->path[0] != '\0' || strcmp(address->host, "localhost") == 0 ||
        strcmp(address->host, "::1") == 0) {
        return true;
    }
    return inet_pton(AF_INET, address->host, &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

void
tutti_address_set_port(tutti_address *address, uint16_t port)
{
    address->port = port;
    write_tcp(address);
}
