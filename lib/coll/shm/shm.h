/*
 * The transport between agents of one host, around another transport for all others.
 *
 * Engines whose addresses name the same host meet over an abstract Unix socket and hand each other
 * descriptors: of a ring for packets, of the memory in which tensors lie, and of a doorbell. From
 * then on packets go by the ring, large data is copied once, straight from the sender's memory, and
 * memory can be exposed (transport.h), so that a peer reduces from it and writes into it in place.
 *
 * Where that does not work (another network namespace, other users, shared memory switched off at
 * one of the two) the inner transport does all; data that lies outside the shared memory goes by
 * the inner transport too.
 *
 * These may come in: processes of the same user (SO_PEERCRED) that know the secret of our address,
 * which is drawn at the opening and told to the members of the job alone, and that prove to the
 * inner transport, if that asks for it (transport.h), that they are members now. They can write
 * into the memory, and are trusted with no more than that. A revoked one is hung up.
 *
 * A peer's death shows on its socket, at once.
 */
#ifndef TUTTI_COLL_SHM_SHM_H
#define TUTTI_COLL_SHM_SHM_H

#include "coll/transport.h"

#define TUTTI_TRANSPORT_SHM_HOST_MAX 256

/* Memory beside `memory` that can be exposed, with a descriptor of its own. */
typedef struct tutti_transport_shm_region {
    uint32_t id; /* never 0, and never another's again */
    int fd;      /* borrowed, while its memory is exposed */
    void *base;
    uint64_t size;
} tutti_transport_shm_region;

typedef struct tutti_transport_shm_options {
    tutti_transport *inner; /* moved, also on failure */
    bool off;               /* all goes by the inner transport */
    const char *host_id;    /* agents with the same one may share memory; copied */
    int memory;             /* descriptor of the memory that can be exposed; borrowed; -1 = none */
    void *base;             /* where it is mapped here */
    uint64_t size;
    /* The region that holds all of these bytes; false: none. NULL = there are none. */
    bool (*find_region)(void *arg, const void *data, uint64_t size,
                        tutti_transport_shm_region *ret);
    /* How many have gone so far: when it changes, peers are told which. */
    uint64_t (*regions_gone)(void *arg);
    void *arg;
    /* All engines are threads of this process, and any memory can be exposed: for tests. */
    bool inside;
} tutti_transport_shm_options;

/*
 * When there are no descriptors or no memory for it, it says so in the log and goes by the inner
 * transport alone.
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory for the transport itself; the inner one is closed
 */
tutti_code tutti_transport_shm_open(const tutti_transport_shm_options *options,
                                    tutti_transport **ret_transport, tutti_error *err);

/* ------------------------------------------------------------------------------ fault */

/* * Private to coll/shm: delays where the other side could come between. With TUTTI_CHAOS=N in the
 * environment, about one in N passes sleeps a moment or gives up the processor; else nothing. */

void tutti_shm_fault_init(void); /* reads the environment; any thread */
void tutti_shm_fault(void);

#endif
