/*
 * Host memory: one sparse memfd as large as the limit, mapped once, so that other processes of this
 * machine can map the same bytes by descriptor and offset. Pages come when they are touched and go
 * back to the kernel when large blocks are freed.
 */
#ifndef TUTTI_TENSOR_HOST_H
#define TUTTI_TENSOR_HOST_H

#include "tensor/tensor.h"

typedef struct tutti_space_host_options {
    uint64_t limit_bytes; /* rounded up to pages; at least one page */
} tutti_space_host_options;

/*
 * TUTTI_RESOURCE_EXHAUSTED, ...  the system refused the memfd or the mapping; the text says how
 * much
 */
tutti_code tutti_space_host_open(const tutti_space_host_options *options, tutti_space **ret_space,
                                 tutti_error *err);

/* The memfd. Borrowed for the life of the space. */
int tutti_space_host_descriptor(tutti_space *space);

#endif
