/*
 * Devices: where an agent's tensors live, as --device says. Host memory is always among them, for
 * inline values and what clients ask to have there. Fixed for the agent's life; any thread.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_DEVICE_H
#define TUTTI_SERVER_AGENT_STATE_DEVICE_H

#include "coll/coll.h"
#include "tensor/cuda/cuda.h"
#include "tensor/tensor.h"

#define AGENT_DEVICES_MAX TUTTI_COLL_DEVICES_MAX

typedef struct agent_device {
    tutti_space *space;
    tutti_cuda_device cuda; /* of a GPU */
    bool has_backend;       /* the engine has one for it */
} agent_device;

typedef struct agent_devices {
    const tutti_cuda_module *cuda; /* NULL = no GPU was asked for */
    agent_device list[AGENT_DEVICES_MAX];
    size_t count; /* of GPUs */
    tutti_space *home;
} agent_devices;

struct tutti_agent;

/*
 * Open what --device names.
 *
 * TUTTI_INVALID_ARGUMENT     BAD_DEVICE: not of that form, twice the same, or too many
 * TUTTI_FAILED_PRECONDITION  NO_MODULE, NO_DEVICE
 */
tutti_code agent_devices_open(struct tutti_agent *agent, tutti_error *err);
void agent_devices_close(struct tutti_agent *agent);

/*
 * Where tensors of that device live; "" = the first of --device.
 *
 * TUTTI_FAILED_PRECONDITION  NO_DEVICE: none of ours
 */
tutti_code agent_devices_find(struct tutti_agent *agent, const char *device,
                              tutti_space **ret_space, tutti_error *err);

/*
 * The backend that runs ops on each GPU of this agent, for the engine; NULL where there is none, or
 * where tutti-nccl.so cannot be loaded: then the agent holds tensors there, and refuses their ops.
 *
 */
void agent_devices_backends(struct tutti_agent *agent,
                            struct tutti_coll_backend *ret_backends[AGENT_DEVICES_MAX]);

#define AGENT_UUIDS_SIZE (AGENT_DEVICES_MAX * TUTTI_CUDA_UUID_SIZE + 1)

/* UUIDs of our GPUs, with a space between two; "" = none. */
void agent_devices_uuids(const struct tutti_agent *agent, char ret_uuids[AGENT_UUIDS_SIZE]);

#endif
