/*
 * Launch: a coordinator and an agent for a program that has none. They are quiet, and gone with the
 * program, however it ends.
 *
 *     tutti_launch_options options;
 *     tutti_launched *launched;
 *     tutti_client_options how;
 *
 *     tutti_launch_options_init(&options);
 *     options.world_size = 2;
 *     options.rank = rank;
 *     options.coordinator = rank == 0 ? NULL : address_from_rank_0;   // NULL = launch one
 *     code = tutti_launch(&options, &launched, &err);
 *     // rank 0 tells tutti_launched_coordinator(launched) to the others, by its own means
 *     tutti_client_options_init(&how);
 *     how.agent = tutti_launched_agent(launched);
 *     how.coordinator = tutti_launched_coordinator(launched);
 *     code = tutti_connect_with(&how, &client, &err);
 *     ...
 *     tutti_close(client);
 *     tutti_launched_stop(launched);
 *
 * The programs tutti-coordinator and tutti-agent are looked for in tutti_launch_options.programs,
 * in $TUTTI_PROGRAMS, beside libtutti and in ../bin from there, and in PATH. A folder that is named
 * must have them, as programs from elsewhere might be of another version.
 *
 * How they end. tutti_launched_stop ends them, the agent first. If the program ends without it, by
 * SIGKILL too, they notice it by themselves: the agent is gone within two seconds; the coordinator
 * when the agents of all ranks have gone, one second later at most, with those of other ranks cut
 * off. So the program of rank 0 should be the last to end. They leave no files.
 *
 * Threads: any thread may call these functions; two threads may launch at once. A launched thing is
 * for one thread at a time.
 */
#ifndef TUTTI_LAUNCH_H
#define TUTTI_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An agent, and perhaps a coordinator, that this process has launched. */
typedef struct tutti_launched tutti_launched;

/* What is launched. Begin with tutti_launch_options_init. Texts are borrowed for the call. */
typedef struct tutti_launch_options {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /* The coordinator that the agent joins. NULL = launch one. Default: NULL. */
    const char *coordinator;
    /* How many ranks the job has: 1 to TUTTI_RANKS_MAX. Default: 1. */
    uint32_t world_size;
    /* The rank of the agent; -1 = the coordinator assigns one. Default: -1. */
    int32_t rank;
    /* The name of the job. NULL = "default". */
    const char *job;
    /*
     * Where agent and coordinator listen: "127.0.0.1:0" is a free port that this machine alone
     * reaches; for ranks on several machines "0.0.0.0:0", with what docs/security.md says of that
     * in both lists of options. Default: NULL = "127.0.0.1:0".
     */
    const char *listen;
    /* The folder of the programs; NULL = looked for. */
    const char *programs;
    /* What they log on standard error. Default: NULL = "error". */
    const char *log;
    /* More options of tutti-agent, "--memory-limit", "8GiB", ended by NULL. NULL = none. */
    const char *const *agent_options;
    /* More options of tutti-coordinator, ended by NULL. NULL = none. */
    const char *const *coordinator_options;
    /* How long each of them may take until it listens. Default: 30000. */
    uint32_t timeout_ms;
} tutti_launch_options;

/* [out] options  a world of one rank on this machine */
TUTTI_API void tutti_launch_options_init(tutti_launch_options *options);

/*
 * Launch an agent, and a coordinator if the options name none, and wait until they listen. The
 * agent joins the job meanwhile; tutti_connect waits for that, which needs the agents of all ranks.
 *
 * [in]         options       NULL = as init
 * [out, owned] ret_launched  tutti_launched_stop it
 *
 * TUTTI_FAILED_PRECONDITION  NO_PROGRAM: a program was not found: the text says where it was looked
 *                            for
 * TUTTI_UNAVAILABLE          NOT_STARTED: it has ended before it listened: standard error says why;
 *                            or it did not listen in time
 * TUTTI_INVALID_ARGUMENT     RANK_RANGE: world_size or rank; BAD_STRUCT: options that were not
 *                            initialised
 * TUTTI_RESOURCE_EXHAUSTED   no memory, descriptors or processes
 */
TUTTI_API tutti_code tutti_launch(const tutti_launch_options *options,
                                  tutti_launched **ret_launched, tutti_error *err);

/* The address of the agent: tutti_client_options.agent. Borrowed. */
TUTTI_API const char *tutti_launched_agent(const tutti_launched *launched);

/* The address of its coordinator, for the other ranks. Borrowed. */
TUTTI_API const char *tutti_launched_coordinator(const tutti_launched *launched);

/*
 * End what was launched, the agent first, and free it. Ops of other ranks that need this one end
 * with RANK_LEAVING. A coordinator waits up to a second for agents of other ranks to leave. Call it
 * in the process that has launched, when its clients are closed; not behind a fork.
 *
 * [in] launched  NULL is fine
 */
TUTTI_API void tutti_launched_stop(tutti_launched *launched);

#ifdef __cplusplus
}
#endif

#endif
