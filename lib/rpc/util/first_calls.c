/*
 * Changes gRPC's table of HTTP/2 settings. gRPC 1.51 keeps to a limit of calls only once the client
 * has acknowledged it, and takes the default of HTTP/2, no limit, before that; so a client that
 * acknowledges nothing has none. Channel arguments do not reach this default: every transport
 * copies it from a constant table, which gRPC exports by name only.
 *
 * The table's form belongs to one version of gRPC. In any other one it is left alone.
 */
#include <dlfcn.h>
#include <grpc/grpc.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/os/log.h"
#include "rpc/loop.h"

#define VERSION "29." /* gRPC 1.51 and its core */
#define NAME "MAX_CONCURRENT_STREAMS"
#define PLACE 2 /* of it in the table */

/* As gRPC 1.51 has it. */
typedef struct grpc_setting {
    const char *name;
    uint32_t fallback;
    uint32_t least;
    uint32_t most;
    int invalid_behavior;
    uint32_t invalid_error;
} grpc_setting;

/* NULL: this gRPC is another one. */
static grpc_setting *
find_setting(void)
{
    grpc_setting *table;

    if (strncmp(grpc_version_string(), VERSION, strlen(VERSION)) != 0) {
        return NULL;
    }
    table = dlsym(RTLD_DEFAULT, "grpc_chttp2_settings_parameters");
    return table != NULL && strcmp(table[PLACE].name, NAME) == 0 ? &table[PLACE] : NULL;
}

/* The page is one that the linker made read-only when it had filled it in. */
static bool
open_page(const void *at, size_t size, int protection)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)at / page * page;

    return mprotect((void *)begin, (uintptr_t)at + size - begin, protection) == 0;
}

void
tutti_rpc_limit_first_calls(uint64_t calls)
{
    grpc_setting *setting = find_setting();

    if (setting == NULL || !open_page(setting, sizeof(*setting), PROT_READ | PROT_WRITE)) {
        TUTTI_LOG("rpc", WARN,
                  "calls of a connection are counted once its client has acknowledged "
                  "their limit: this gRPC (%s) is not the known one",
                  grpc_version_string());
        return;
    }
    /* Not the limit itself: gRPC tells clients only what is not the default. */
    setting->fallback = (uint32_t)calls + 1;
    (void)open_page(setting, sizeof(*setting), PROT_READ);
}
