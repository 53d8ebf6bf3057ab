/*
 * Which of an agent's addresses to take: on the agent's own host its Unix socket, elsewhere
 * never. "Own host" means equal host ids (lib/base/os/local.h), not equal names, because
 * containers of one machine may have equal names and different files.
 */
#include "client/conn/address_pick.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/local.h"

bool
client_is_unix(const char *address)
{
    return strncmp(address, "unix:", 5) == 0;
}

static bool
is_own_host(const char *host_id)
{
    char own[TUTTI_LOCAL_HOST_MAX + 1];

    tutti_local_host_id(getenv("TUTTI_HOST_ID"), own);
    return host_id[0] != '\0' && strcmp(host_id, own) == 0;
}

/* Another mount namespace may have another file there, or none. */
static bool
is_our_socket(const char *address)
{
    struct stat about;

    return client_is_unix(address) && stat(address + 5, &about) == 0 && S_ISSOCK(about.st_mode) &&
           access(address + 5, R_OK | W_OK) == 0;
}

const char *
client_pick_address_near(char *const *addresses, size_t count, bool near)
{
    size_t i;

    for (i = 0; i < count && near; i++) {
        if (is_our_socket(addresses[i])) {
            return addresses[i];
        }
    }
    for (i = 0; i < count; i++) {
        if (!client_is_unix(addresses[i])) {
            return addresses[i];
        }
    }
    return count > 0 ? addresses[0] : ""; /* a socket we cannot reach: its name explains most */
}

const char *
client_pick_address(char *const *addresses, size_t count, const char *host_id)
{
    return client_pick_address_near(addresses, count, is_own_host(host_id));
}
