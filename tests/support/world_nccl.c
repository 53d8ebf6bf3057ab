/* Worlds whose tensors are a device's, on the stand-ins for CUDA and NCCL. */
#include <stdlib.h>

#include "coll/nccl/nccl.h"
#include "support/testing.h"
#include "support/world.h"

/* Before the stand-in reads it. */
__attribute__((constructor)) static void
let_devices_reach_all(void)
{
    (void)setenv("TUTTI_STANDIN_CUDA", "unified", 0);
}

uint64_t world_nccl_deserted_ns;

tutti_coll_backend *
world_device_nccl(void)
{
    const tutti_coll_nccl_options options = {.device = 0, .deserted_ns = world_nccl_deserted_ns};
    tutti_coll_backend *backend = NULL;
    tutti_error err;

    assert_ok(tutti_coll_nccl_open(&options, &backend, &err));
    return backend;
}
