/*
 * The nccl backend: tensors in the memory of a CUDA device, moved by NCCL between agents.
 *
 * It belongs to one engine and one device, and has one stream: what the engine's ops ask for is
 * launched there in an order that all agents have alike (order.h), and looked after with
 * events. Nothing here waits for the device. Communicators are made when a group is first used, and
 * thrown away when an op on them fails; the next op makes another.
 *
 * All on the engine's thread, but opening.
 */
#ifndef TUTTI_COLL_NCCL_NCCL_H
#define TUTTI_COLL_NCCL_NCCL_H

#include "coll/backend.h"
#include "tensor/tensor.h"

#define TUTTI_NCCL_SYMBOL "tutti_nccl_module_v1"

typedef struct tutti_coll_nccl_options {
    int device;
    /*
     * Where tensors live: before each launch, `follow` makes the stream (cudaStream_t) come behind
     * the taking of all their memory. NULL: it is there when an op is posted.
     */
    tutti_code (*follow)(tutti_space *space, void *stream, tutti_error *err);
    /* tutti_cuda_module.occupy and vacate, around what is launched; NULL: nobody asks. */
    bool (*occupy)(tutti_space *space);
    void (*vacate)(tutti_space *space);
    tutti_space *space;
    /* The device gets this long for passing an event whose client is gone, before new ops are
     * refused; 0 = 10 s. */
    uint64_t deserted_ns;
} tutti_coll_nccl_options;

/*
 * [out, owned] ret_backend  for tutti_coll_engine_options.devices, or closed by its own `close`
 *
 * TUTTI_INTERNAL            DEVICE_FAILED: no such device, or it does not answer
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_coll_nccl_open(const tutti_coll_nccl_options *options,
                                tutti_coll_backend **ret_backend, tutti_error *err);

/* What the module tutti-nccl.so gives. */
typedef struct tutti_nccl_module {
    size_t size;
    tutti_code (*open)(const tutti_coll_nccl_options *options, tutti_coll_backend **ret_backend,
                       tutti_error *err);
    uint64_t (*layout)(void); /* tutti_coll_layout of its own */
    int (*version)(void);     /* NCCL_VERSION_CODE of the library that was loaded; 0 = unknown */
} tutti_nccl_module;

/*
 * The module: the one function here that programs link.
 *
 * TUTTI_FAILED_PRECONDITION  NO_MODULE, as tutti_module_load
 */
tutti_code tutti_coll_nccl_load(const tutti_nccl_module **ret_module, tutti_error *err);

#endif
