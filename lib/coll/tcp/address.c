/*
 * Where a process can be reached, and which of its addresses is the likeliest to reach it by. Pure
 * functions, but tutti_tcp_find_own, which asks the kernel for the interfaces once.
 *
 * Addresses come from other agents through the coordinator: tutti_tcp_address_read checks each
 * length and accepts nothing behind the end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "coll/tcp/tcp_private.h"

/* magic, token, count; of each family, prefix, port, address */
static const unsigned char magic[8] = {'t', 'u', 't', 't', 'i', 't', 'c', 'p'};

enum {
    IN_OUR_NETWORK,
    ROUTED,
    PERHAPS_OURSELVES,
    LOOPBACK
};

/* ------------------------------------------------------------------------------ socket addresses
 */

static const unsigned char *
get_tcp_address_bytes(const struct sockaddr_storage *address, size_t *ret_size)
{
    if (address->ss_family == AF_INET) {
        *ret_size = 4;
        return (const unsigned char *)&((const struct sockaddr_in *)address)->sin_addr;
    }
    *ret_size = 16;
    return ((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr;
}

uint16_t
tutti_tcp_port(const struct sockaddr_storage *address)
{
    return ntohs(address->ss_family == AF_INET ? ((const struct sockaddr_in *)address)->sin_port
                                               : ((const struct sockaddr_in6 *)address)->sin6_port);
}

void
tutti_tcp_set_port(struct sockaddr_storage *address, uint16_t port)
{
    if (address->ss_family == AF_INET) {
        ((struct sockaddr_in *)address)->sin_port = htons(port);
    } else {
        ((struct sockaddr_in6 *)address)->sin6_port = htons(port);
    }
}

socklen_t
tutti_tcp_address_size(const struct sockaddr_storage *address)
{
    return address->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
}

void
tutti_tcp_address_text(const struct sockaddr_storage *address, char *ret_text, size_t size)
{
    char number[INET6_ADDRSTRLEN] = "?";
    size_t ignored;

    (void)inet_ntop(address->ss_family, get_tcp_address_bytes(address, &ignored), number,
                    sizeof(number));
    (void)snprintf(ret_text, size, address->ss_family == AF_INET ? "%s:%u" : "[%s]:%u", number,
                   (unsigned)tutti_tcp_port(address));
}

static bool
is_loopback(const struct sockaddr_storage *address)
{
    size_t size;
    const unsigned char *bytes = get_tcp_address_bytes(address, &size);

    return size == 4 ? bytes[0] == 127 : IN6_IS_ADDR_LOOPBACK((const struct in6_addr *)bytes);
}

/* The first `bits` of two of one family. */
static bool
is_same_address(const struct sockaddr_storage *left, const struct sockaddr_storage *right,
                unsigned bits)
{
    size_t size;
    const unsigned char *a = get_tcp_address_bytes(left, &size);
    const unsigned char *b = get_tcp_address_bytes(right, &size);
    const unsigned char mask = (unsigned char)(0xff00U >> (bits % 8));

    return left->ss_family == right->ss_family && memcmp(a, b, bits / 8) == 0 &&
           (bits % 8 == 0 || (a[bits / 8] & mask) == (b[bits / 8] & mask));
}

/* ------------------------------------------------------------------------------ interfaces */

/* The names of "eth0,lo" that `name` is among. */
static bool
is_named(const char *devices, const char *name)
{
    const size_t size = strlen(name);
    const char *at = devices;

    while (at != NULL) {
        if (strncmp(at, name, size) == 0 && (at[size] == ',' || at[size] == '\0')) {
            return true;
        }
        at = strchr(at, ',');
        at = at != NULL ? at + 1 : NULL;
    }
    return false;
}

/* Link-local IPv6 addresses are left out: without the interface's number, which differs on each
 * host, they mean nothing. */
static bool
is_usable(const struct ifaddrs *it)
{
    if (it->ifa_addr == NULL || (it->ifa_flags & IFF_UP) == 0) {
        return false;
    }
    if (it->ifa_addr->sa_family == AF_INET6) { /* one of a link means another host on each */
        const struct sockaddr_in6 *address = (const struct sockaddr_in6 *)(void *)it->ifa_addr;

        return !IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr);
    }
    return it->ifa_addr->sa_family == AF_INET;
}

static uint8_t
prefix_of(const struct ifaddrs *it)
{
    struct sockaddr_storage mask = {0};
    const unsigned char *bytes;
    size_t size, i;
    unsigned bits = 0;

    if (it->ifa_netmask == NULL) {
        return it->ifa_addr->sa_family == AF_INET ? 32 : 128;
    }
    memcpy(&mask, it->ifa_netmask,
           it->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                              : sizeof(struct sockaddr_in6));
    mask.ss_family = it->ifa_addr->sa_family;
    bytes = get_tcp_address_bytes(&mask, &size);
    for (i = 0; i < size; i++) {
        bits += (unsigned)__builtin_popcount(bytes[i]);
    }
    return (uint8_t)bits;
}

static void
take_tcp_address(tcp_address *own, const struct ifaddrs *it)
{
    tcp_target *target = &own->targets[own->count++];

    *target = (tcp_target){.prefix = prefix_of(it)};
    memcpy(&target->address, it->ifa_addr,
           it->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                              : sizeof(struct sockaddr_in6));
    tutti_tcp_set_port(&target->address, 0);
}

static void
take_all(tcp_address *own, const struct ifaddrs *first, const char *devices, bool loopback)
{
    const struct ifaddrs *it;

    for (it = first; it != NULL && own->count < TCP_TARGETS_MAX; it = it->ifa_next) {
        const bool named = devices[0] != '\0' ? is_named(devices, it->ifa_name)
                                              : ((it->ifa_flags & IFF_LOOPBACK) != 0) == loopback;

        if (named && is_usable(it)) {
            take_tcp_address(own, it);
        }
    }
}

/* "lo, eth0" */
static void
name_all(const struct ifaddrs *first, tutti_text *text)
{
    const struct ifaddrs *it;

    for (it = first; it != NULL; it = it->ifa_next) {
        if (it->ifa_addr != NULL && it->ifa_addr->sa_family == AF_INET) {
            tutti_text_add(text, "%s%s", text->used > 0 ? ", " : "", it->ifa_name);
        }
    }
}

/* The first of the names that is no interface's; its length is 0 when there is none. */
static tutti_bytes
find_unknown(const struct ifaddrs *first, const char *devices)
{
    const char *at = devices;

    while (*at != '\0') {
        const size_t size = strcspn(at, ",");
        const struct ifaddrs *it = first;

        while (it != NULL &&
               (strlen(it->ifa_name) != size || memcmp(it->ifa_name, at, size) != 0)) {
            it = it->ifa_next;
        }
        if (it == NULL) {
            return (tutti_bytes){at, size};
        }
        at += size + (at[size] == ',');
    }
    return (tutti_bytes){NULL, 0};
}

static tutti_code
refuse_tcp_address(const struct ifaddrs *first, const char *devices, tutti_bytes unknown,
                   tutti_error *err)
{
    char buffer[256];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    name_all(first, &text);
    if (unknown.data != NULL) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_FAILED_PRECONDITION, "BAD_OPTION",
            "the data plane was told to use the interface %.*s, which this host does "
            "not have; with an IPv4 address it has: %s",
            (int)unknown.size, (const char *)unknown.data, buffer);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_OPTION",
                          "no interface%s%s that is up has an address for the data plane",
                          devices[0] != '\0' ? " of " : "", devices);
}

tutti_code
tutti_tcp_find_own(const char *devices, tcp_address *ret_own, tutti_error *err)
{
    struct ifaddrs *first = NULL;
    tutti_code code = TUTTI_OK;
    tutti_bytes unknown;

    if (getifaddrs(&first) != 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not list the interfaces of this host");
    }
    ret_own->count = 0;
    unknown = find_unknown(first, devices);
    if (unknown.data == NULL) {
        take_all(ret_own, first, devices, false);
        if (ret_own->count == 0 && devices[0] == '\0') {
            take_all(ret_own, first, devices, true);
        }
    }
    if (ret_own->count == 0) {
        code = refuse_tcp_address(first, devices, unknown, err);
    }
    freeifaddrs(first);
    return code;
}

/* ------------------------------------------------------------------------------ as bytes */

size_t
tutti_tcp_address_write(const tcp_address *address, unsigned char ret_bytes[TCP_ADDRESS_MAX])
{
    unsigned char *at = ret_bytes;
    size_t i;

    memcpy(at, magic, sizeof(magic));
    memcpy(at + sizeof(magic), address->token, TCP_TOKEN_BYTES);
    at += sizeof(magic) + TCP_TOKEN_BYTES;
    *at++ = (unsigned char)address->count;
    for (i = 0; i < address->count; i++) {
        const tcp_target *target = &address->targets[i];
        const uint16_t port = tutti_tcp_port(&target->address);
        size_t size;
        const unsigned char *bytes = get_tcp_address_bytes(&target->address, &size);

        *at++ = size == 4 ? 4 : 6;
        *at++ = target->prefix;
        *at++ = (unsigned char)(port >> 8);
        *at++ = (unsigned char)port;
        memcpy(at, bytes, size);
        at += size;
    }
    return (size_t)(at - ret_bytes);
}

bool
tutti_transport_tcp_is_address(tutti_bytes address)
{
    return address.size > sizeof(magic) + TCP_TOKEN_BYTES &&
           memcmp(address.data, magic, sizeof(magic)) == 0;
}

/* Bytes used; 0 = this is none. */
static size_t
read_target(const unsigned char *at, size_t left, tcp_target *ret)
{
    const size_t size = left >= 4 && at[0] == 4 ? 4 : 16;

    *ret = (tcp_target){0};
    if (left < 4 + size || (at[0] != 4 && at[0] != 6) || at[1] > size * 8) {
        return 0;
    }
    ret->prefix = at[1];
    ret->address.ss_family = at[0] == 4 ? AF_INET : AF_INET6;
    if (size == 4) {
        memcpy(&((struct sockaddr_in *)&ret->address)->sin_addr, at + 4, size);
    } else {
        memcpy(&((struct sockaddr_in6 *)&ret->address)->sin6_addr, at + 4, size);
    }
    tutti_tcp_set_port(&ret->address, (uint16_t)(at[2] << 8 | at[3]));
    return 4 + size;
}

bool
tutti_tcp_address_read(tutti_bytes bytes, tcp_address *ret_address)
{
    const unsigned char *at = bytes.data;
    size_t left = bytes.size, i;

    if (!tutti_transport_tcp_is_address(bytes)) {
        return false;
    }
    memcpy(ret_address->token, at + sizeof(magic), TCP_TOKEN_BYTES);
    at += sizeof(magic) + TCP_TOKEN_BYTES;
    left -= sizeof(magic) + TCP_TOKEN_BYTES + 1;
    ret_address->count = *at++;
    if (ret_address->count == 0 || ret_address->count > TCP_TARGETS_MAX) {
        return false;
    }
    for (i = 0; i < ret_address->count; i++) {
        const size_t used = read_target(at, left, &ret_address->targets[i]);

        if (used == 0) {
            return false;
        }
        at += used;
        left -= used;
    }
    return left == 0;
}

/* An address that is also ours is tried late: it may be a bridge that each host has with the same
 * number, and then a connection would reach ourselves. */
static uint8_t
get_tcp_address_rank(const tcp_target *target, const tcp_address *own)
{
    uint8_t rank = is_loopback(&target->address) ? LOOPBACK : ROUTED;
    size_t i, size;

    (void)get_tcp_address_bytes(&target->address, &size);
    for (i = 0; i < own->count && rank < PERHAPS_OURSELVES; i++) {
        const tcp_target *ours = &own->targets[i];

        if (is_same_address(&target->address, &ours->address, (unsigned)size * 8)) {
            rank = PERHAPS_OURSELVES; /* or a bridge that each host has with the same number */
        } else if (is_same_address(&target->address, &ours->address, ours->prefix)) {
            rank = IN_OUR_NETWORK;
        }
    }
    return rank;
}

static int
by_rank(const void *left, const void *right)
{
    const tcp_target *a = left;
    const tcp_target *b = right;

    return (a->rank > b->rank) - (a->rank < b->rank);
}

void
tutti_tcp_address_sort(tcp_address *address, const tcp_address *own)
{
    size_t i;

    for (i = 0; i < address->count; i++) { /* equals stay in their order */
        address->targets[i].rank =
            (uint8_t)(get_tcp_address_rank(&address->targets[i], own) * TCP_TARGETS_MAX + i);
    }
    qsort(address->targets, address->count, sizeof(address->targets[0]), by_rank);
}
