/*
 * Init addresses: one text that says where a job meets, and as which rank of how many, as
 * init_method of PyTorch does. What PyTorch calls the master is Tutti's coordinator.
 *
 *     env://                                RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT
 *     tcp://host:port?rank=0&world_size=4   the coordinator's address
 *     file:///path?rank=0&world_size=4      a file that holds it: tutti-coordinator --port-file
 *
 * A program connects by giving it instead of an agent's address:
 *
 *     tutti_client *client;
 *     tutti_error err;
 *     tutti_code code = tutti_connect("env://", &client, &err);
 *
 * tutti_connect then waits for the file and for the rank, asks the coordinator for the address of
 * that rank's agent, connects to it, and compares the world sizes. It waits the client's timeout_ms
 * for the rank (then DEADLINE_EXCEEDED NOT_JOINED), and as long again for the agent.
 *
 * `rank` and `world_size` in the address win over the environment, and only env:// looks there.
 * Other parameters are not looked at. In file://, %20 and the like stand for a byte.
 *
 * Threads and errors are those of tutti/client.h. tutti_init_parse needs no client.
 *
 * Caveats
 *
 * - The address starts no agent. The trap: with env:// programs of PyTorch make the store
 *   themselves. How it looks: NOT_JOINED after the timeout. What to do: start a coordinator and an
 *   agent for each rank (`tutti run` does both).
 * - file:// names a file that the coordinator writes. A file of an earlier coordinator that is
 *   still there leads to an address where nobody answers. What to do: remove it before the start.
 */
#ifndef TUTTI_INIT_H
#define TUTTI_INIT_H

#include <stdint.h>

#include "tutti/code.h"
#include "tutti/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an init address says. Plain data. */
typedef struct tutti_init_info {
    /* "env", "tcp" or "file". */
    char scheme[8];
    /* 0 to world_size - 1. */
    uint32_t rank;
    /* 1 to TUTTI_RANKS_MAX. */
    uint32_t world_size;
    /* The coordinator's address, "host:port". "" = its file is not there yet, or still empty. */
    char coordinator[256];
    /* The path of that file, decoded. "" = the scheme is not file. */
    char path[1024];
} tutti_init_info;

/*
 * Read an init address without connecting: the environment for env://, the first line of the file
 * for file://.
 *
 * [in]  url       the address, at most 2047 bytes; not NULL
 * [out] ret_info
 *
 * TUTTI_INVALID_ARGUMENT   BAD_URL: an unknown scheme; no host, port, path, rank or world size; a
 *                          rank that is not below the world size; a parameter given twice; a
 *                          variable that env:// needs is not set; a file that holds no address.
 *                          The text says which. Correct the address or the environment
 * TUTTI_PERMISSION_DENIED, ...
 *                          the file is there and could not be read; `cause` is the errno. A file
 *                          that is not there yet is no error: `coordinator` is "" then
 */
TUTTI_API tutti_code tutti_init_parse(const char *url, tutti_init_info *ret_info, tutti_error *err);

#ifdef __cplusplus
}
#endif

#endif
