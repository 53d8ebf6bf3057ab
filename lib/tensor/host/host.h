/*
 * Host memory: one sparse memfd as large as the limit, mapped once, so that other processes of this
 * machine can map the same bytes by descriptor and offset. Pages come when they are touched; what
 * is free and beyond `kept_bytes_max` goes back to the kernel at once, the rest by
 * tutti_space_host_trim.
 *
 * A process that maps the descriptor can change bytes, also of tensors it was not told of, but
 * nothing else: where blocks begin and end is kept outside, and the file is sealed, so nobody can
 * shrink it.
 *
 * The limit is a promise of this room, not of the system. When the machine (or the control group)
 * has no page left at the moment one is touched, the process that touches it is killed by the
 * kernel, or gets SIGBUS where vm.overcommit_memory is 2. So keep the limits of all agents of a
 * machine below its memory.
 */
#ifndef TUTTI_TENSOR_HOST_H
#define TUTTI_TENSOR_HOST_H

#include "tensor/tensor.h"

typedef struct tutti_space_host_options {
    uint64_t limit_bytes; /* rounded up to pages; at least one page */
    /* Free memory that stays backed: the next tensor there costs a memset instead of page faults,
     * which are some twenty times slower. 0 = a quarter of the limit. */
    uint64_t kept_bytes_max;
} tutti_space_host_options;

/*
 * TUTTI_RESOURCE_EXHAUSTED  the system refused the memfd or the mapping, or the limit is beyond
 *                           what a process can map; the text says how much
 * others                    the system refused for the reason in the text
 */
tutti_code tutti_space_host_open(const tutti_space_host_options *options, tutti_space **ret_space,
                                 tutti_error *err);

/*
 * Give memory back that has been free since the call before the last one that returned false, at
 * most some `bytes_max` of it. True: there may be more, call again. One thread at a time.
 */
bool tutti_space_host_trim(tutti_space *space, uint64_t bytes_max);

/* The memfd; tensor->offset counts from its beginning. Borrowed for the life of the space. */
int tutti_space_host_descriptor(tutti_space *space);

/* Where it is mapped here, all of it; for the life of the space. */
void *tutti_space_host_memory(tutti_space *space, uint64_t *ret_size);

/* Memory of one tensor alone (tutti_tensor_own): other processes know it by its id. */
typedef struct tutti_space_host_region {
    uint32_t id; /* never 0, and never another's again */
    int fd;      /* borrowed for the tensor's life */
    void *base;
    uint64_t size;
} tutti_space_host_region;

/* The region that holds all of these bytes. False: none. Any thread. */
bool tutti_space_host_find(tutti_space *space, const void *data, uint64_t size,
                           tutti_space_host_region *ret_region);

/* How many there are, each with a descriptor and a mapping. Any thread. */
uint64_t tutti_space_host_owned(tutti_space *space);

/* How many regions have gone so far. Any thread. */
uint64_t tutti_space_host_gone(tutti_space *space);

/* Called when a region has gone, on the thread that lets its tensor go, without locks. NULL = no
 * call. Set it while no tensor is let go. */
void tutti_space_host_on_gone(tutti_space *space, void (*on_gone)(void *arg), void *arg);

#endif
