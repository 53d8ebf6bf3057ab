/*
 * Errors: what went wrong in a call, for programs and in words.
 *
 *     tutti_error err;
 *
 *     if (tutti_all_reduce(client, &op, &result, &err) != TUTTI_OK) {
 *         fprintf(stderr, "%s\n", err.text);
 *         if (strcmp(err.reason, "RANK_LOST") == 0) {
 *             make_group_without(err.rank);
 *         }
 *     }
 *
 * Each function that can fail returns a tutti_code and takes `tutti_error *err` as its last
 * argument. If the caller passes NULL, it gets the code alone. The function writes the struct only
 * if the code is not TUTTI_OK, and then it writes all fields. So the struct need not be
 * initialised, and after TUTTI_OK it holds what it held before.
 *
 * Memory: the struct is the caller's, for example on its stack. Nothing in it is allocated, so
 * nothing has to be freed, it can be copied by assignment, and an error can be told when there is
 * no memory left. `domain` and `where` point to static strings.
 *
 * Threads: nothing is thread-local. An error stays as it is when the program goes on to another
 * thread. Two threads that call at the same time need a struct each.
 *
 * Caveats
 *
 * - The struct has more than 1200 bytes. The trap: large arrays of tutti_work_status or
 *   tutti_tensor_info on a thread's stack, for each element holds an error. How it looks: SIGSEGV
 *   at the begin of a function. What to do: allocate such arrays.
 * - For an error that libtutti does not know, of gRPC itself or of a proxy, `reason` is
 *   "GRPC_STATUS", and the code alone says what to do (tutti/code.h). It is "" in a struct that no
 *   failed call has filled.
 */
#ifndef TUTTI_ERROR_H
#define TUTTI_ERROR_H

#include <stdint.h>

#include "tutti/code.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of the texts in a tutti_error: bytes with the final NUL. A longer text is cut there. */
#define TUTTI_ERROR_TEXT_MAX 1024
#define TUTTI_ERROR_REASON_MAX 40
/* As long as a group's name can be (TUTTI_NAME_MAX), so a name is never cut. */
#define TUTTI_ERROR_GROUP_MAX 128

/* tutti_error.rank: no single rank has caused the error, or nobody knows which. */
#define TUTTI_ERROR_RANK_NONE (-1)

/* What is broken, and so what the caller has to replace before it can go on. */
typedef enum tutti_scope {
    /* This call alone: correct the arguments, or call again. Most errors. */
    TUTTI_SCOPE_CALL = 0,
    /*
     * The group: one of its ranks is lost (RANK_LOST) or about to leave (RANK_LEAVING). Ops on
     * other groups go on. Call again after the rank has come back, or go on in a group without it.
     */
    TUTTI_SCOPE_GROUP = 1,
    /*
     * The agent, its GPU, or the connection to it: UNREACHABLE, CONNECTION_LOST, DEVICE_FAILED.
     * The same client can be used again when the agent answers again, unless the agent's process
     * is another one (STALE_HANDLE): then connect anew.
     */
    TUTTI_SCOPE_AGENT = 2,
} tutti_scope;

/* One error. All fields are written together. */
typedef struct tutti_error {
    /* Equal to what the function returned. In a status (tutti_work_status): TUTTI_OK = no error. */
    tutti_code code;
    tutti_scope scope;
    /*
     * The number that the system or a library gave: an errno, or a gRPC status. `domain` says
     * whose number it is. 0 when there is none. Causes inside of a server (of UCX, CUDA, NCCL) do
     * not cross the wire; the text has them.
     */
    int cause;
    /* "errno" or "grpc": static. NULL = there is no cause. */
    const char *domain;
    /*
     * The place in the library's source that has made the error, "client/tensor/tensor.c:56" say:
     * static. It is for reports of defects. For an error that came from a server it is the place
     * that has read it. NULL for an error that is a value of a result (tutti_work_status.error).
     */
    const char *where;
    /* The number of the op in its group, from 1. 0 = the error is not of an op, or of a send. */
    uint64_t sequence;
    /* The rank of the job that has caused the error; TUTTI_ERROR_RANK_NONE = no single one. */
    int32_t rank;
    /*
     * An upper-case word for programs, "SHAPE_MISMATCH": docs/errors.md explains each. "" = there
     * is none, and the code says what to do.
     */
    char reason[TUTTI_ERROR_REASON_MAX];
    /*
     * The group's name. "" = the error is not of a group. Of the reason NOT_LEADER it is the address
     * of the coordinator that leads, as that one has told it; "" = nobody leads now.
     */
    char group[TUTTI_ERROR_GROUP_MAX];
    /*
     * A sentence for people: lower case, with the value, the limit and what to do. It reads well
     * after a colon. It may change with each version: no program should look into it.
     */
    char text[TUTTI_ERROR_TEXT_MAX];
} tutti_error;

#ifdef __cplusplus
}
#endif

#endif
