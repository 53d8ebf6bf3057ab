/*
 * Errors of CUDA and NCCL as ours, with what a person can try: their own words rarely say that two
 * agents have one GPU, or that another rank's failure came first. Engine's thread, since
 * ncclGetLastError is asked.
 */
#include "coll/nccl/fail.h"

#include <inttypes.h>

#include "base/error/fail.h"
#include "base/error/text.h"

#define PEERS_SHOWN 8

tutti_code
tutti_nccl_fail_cuda(tutti_error *err, const char *call, cudaError_t said)
{
    const tutti_code code =
        said == cudaErrorMemoryAllocation
            ? TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "DEVICE_MEMORY",
                             "%s: %s: the device has no memory for what an op works in; delete "
                             "tensors or lower the agent's memory limit",
                             call, cudaGetErrorString(said))
            : TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "DEVICE_FAILED",
                             "%s: %s (%s); the agent has to be started anew, and the kernel's log "
                             "(dmesg, Xid) says whether the device has a fault",
                             call, cudaGetErrorString(said), cudaGetErrorName(said));

    tutti_error_set_cause(err, "cuda", (int)said);
    (void)cudaGetLastError(); /* else the next launch of a kernel would report it */
    return code;
}

static const char *
remedy_for(ncclResult_t said)
{
    switch (said) {
    case ncclUnhandledCudaError:
        return "a CUDA call inside of NCCL failed: nvidia-smi and dmesg (Xid) show a device with a "
               "fault or without memory";
    case ncclSystemError:
        return "a call of the system failed: start the agents with NCCL_DEBUG=WARN, and look at "
               "the size of /dev/shm, at ulimit -l and at NCCL_SOCKET_IFNAME";
    case ncclInvalidArgument:
    case ncclInvalidUsage:
        return "most often two agents have one GPU: give each its own --device cuda:N (for tests "
               "on one GPU: its own NCCL_HOSTID for each agent, and from NCCL 2.30 on "
               "NCCL_MULTI_RANK_GPU_ENABLE=1)";
    case ncclRemoteError:
        return "another agent or the network to it is gone: look at the logs of the others first";
    case ncclInternalError:
        return "start the agents with NCCL_DEBUG=INFO; all must load the same version of NCCL";
    default:
        return "start the agents with NCCL_DEBUG=WARN to hear more";
    }
}

/* "rank 1, with ranks 0, 2-3" */
static void
describe_members(const tutti_coll_op *op, tutti_text *text)
{
    const uint32_t *ranks = tutti_coll_group_ranks(op->group);
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    uint32_t shown = 0;
    uint32_t i;

    tutti_text_add(text, "rank %" PRIu32, ranks[me]);
    for (i = 0; i < size && shown < PEERS_SHOWN; i++) {
        if (i != me) {
            tutti_text_add(text, "%s%" PRIu32, shown++ == 0 ? " with " : ", ", ranks[i]);
        }
    }
    tutti_text_add(text, size > shown + 1 ? ", ..." : "");
}

tutti_code
tutti_nccl_fail(tutti_error *err, const tutti_coll_op *op, ncclComm_t comm, const char *call,
                ncclResult_t said)
{
    const char *last = ncclGetLastError(comm);
    const tutti_code code = said == ncclRemoteError ? TUTTI_UNAVAILABLE : TUTTI_INTERNAL;
    char words[512];
    tutti_text text = tutti_text_in(words, sizeof(words));

    tutti_coll_describe(&op->args, &text);
    tutti_text_add(&text, " at ");
    describe_members(op, &text);
    (void)TUTTI_FAIL_FOR(err, code, "NCCL_FAILED", "group %s op %" PRIu64 ": %s: %s: %s%s%s%s; %s",
                         tutti_coll_group_name(op->group), op->sequence, words, call,
                         ncclGetErrorString(said), last != NULL && last[0] != '\0' ? " (" : "",
                         last != NULL ? last : "", last != NULL && last[0] != '\0' ? ")" : "",
                         remedy_for(said));
    tutti_error_set_cause(err, "nccl", (int)said);
    tutti_error_set_op(err, tutti_coll_group_name(op->group), op->sequence, TUTTI_ERROR_RANK_NONE);
    return code;
}
