/*
 * Events of CUDA that clients and ops share: a client records one in a stream of its own, the op's
 * work waits for it on the GPU; or the other way round. Clients name them by random numbers, so no
 * client can name those of another. Any thread. docs/decisions/0043.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_EVENTS_H
#define TUTTI_SERVER_AGENT_STATE_EVENTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/data/map.h"
#include "tensor/cuda/cuda.h"
#include "tensor/tensor.h"

#define AGENT_EVENTS_MAX 4096     /* of an agent */
#define AGENT_EVENTS_CALL_MAX 256 /* of one call */

struct tutti_agent;

typedef struct agent_events {
    pthread_mutex_t lock; /* guards what follows; nothing is locked inside */
    tutti_map by_id;      /* those whose client is there */
    size_t count;         /* all: those too that ops still use */
} agent_events;

/* `refs` of its client and of ops. The rest is fixed, but `left`. */
typedef struct agent_event {
    tutti_map_node node;
    unsigned char key[8];
    struct tutti_agent *agent;
    uint64_t id; /* not 0 */
    tutti_space *space;
    void *event; /* cudaEvent_t */
    unsigned char handle[TUTTI_CUDA_IPC_SIZE];
    atomic_bool left; /* its client is gone */
    atomic_uint refs;
} agent_event;

void agent_events_init(agent_events *events);
void agent_events_fini(agent_events *events);

/*
 * [in]         space      of a GPU
 * [out, owned] ret_event  agent_event_leave it
 *
 * TUTTI_UNIMPLEMENTED       the GPU has no such events
 * TUTTI_RESOURCE_EXHAUSTED  EVENT_LIMIT, DEVICE_MEMORY
 * TUTTI_INTERNAL            DEVICE_FAILED
 */
tutti_code agent_event_new(struct tutti_agent *agent, tutti_space *space, agent_event **ret_event,
                           tutti_error *err);

/* Its client is gone: nobody finds it any more. [in, moved] */
void agent_event_leave(agent_event *event);

/*
 * [out, owned] ret_event  agent_event_unref it
 *
 * TUTTI_NOT_FOUND  NO_EVENT
 */
tutti_code agent_event_find(struct tutti_agent *agent, uint64_t id, agent_event **ret_event,
                            tutti_error *err);

/* The last one closes it. NULL is fine. */
void agent_event_unref(agent_event *event);

#endif
