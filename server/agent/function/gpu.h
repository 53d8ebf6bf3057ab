/*
 * Tensors on a GPU in calls of functions: a stream for those that run in the agent, and memory that
 * other processes can open for those in hosts. A thread of the pool.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_GPU_H
#define TUTTI_SERVER_AGENT_FUNCTION_GPU_H

#include "server/agent/function/call.h"

/*
 * Before the function runs: if one of its tensors is on a GPU, or the agent's first --device is one,
 * env->stream is a stream of that GPU, and the thread's calls of CUDA go there.
 *
 * TUTTI_INTERNAL  DEVICE_FAILED
 */
tutti_code agent_gpu_begin(agent_function_call *call, tutti_error *err);

/* Wait for what is on env->stream: before an op, and at the end. Does nothing without a stream. */
tutti_code agent_gpu_wait(agent_function_call *call, tutti_error *err);

/*
 * A tensor was made in this space: what is put on env->stream from now on comes after its taking. A
 * call that had no stream gets one, if the tensor is on a GPU.
 */
tutti_code agent_gpu_follow(agent_function_call *call, tutti_space *space, tutti_error *err);

/* Nothing is on the stream: it was waited for. Twice is fine. */
void agent_gpu_end(agent_function_call *call);

/*
 * Give a tensor memory that a host can open. Blocks while its bytes move.
 *
 * [out] ret_handle  of TUTTI_CUDA_IPC_SIZE bytes
 * [out] ret_uuid    of the GPU; borrowed from the agent
 *
 * Errors as tutti_cuda_module.own
 */
tutti_code agent_gpu_share(tutti_agent *agent, tutti_tensor *tensor, unsigned char *ret_handle,
                           const char **ret_uuid, tutti_error *err);

#endif
