/*
 * All of libtutti in one include: collectives on tensors in agents, from C11 and C++11.
 *
 *     #include <tutti/tutti.h>
 *
 * A program that uses a part of it may include that part alone; each header includes what it needs.
 *
 *   code.h, error.h      how a call ended: for programs, and in words
 *   types.h              dtypes, reduce ops, specs, limits
 *   version.h            the version that a program was compiled with
 *   client.h             connecting to an agent; what it is; whether a server is healthy
 *   init.h               connecting by an init address, as PyTorch's init_method
 *   tensor.h             tensors in an agent: create, put, write, read, copy, delete, list
 *   share.h              a tensor's memory mapped into this process
 *   op.h                 collectives, send and receive on tensors in agents
 *   op_data.h            the same on memory of the caller's
 *   list.h               several tensors in one op
 *   object.h             bytes of any length between ranks
 *   work.h               waiting for async ops
 *   pipeline.h           many calls through one stream
 *   tracer.h             gradients of collectives
 *   job.h                the job and its ranks
 *   group.h, mesh.h      ordered lists of ranks; ranks in an array of named dimensions
 *   membership.h         hearing of ranks that come and go
 *   store.h              the job's key-value store: keys, queues, meeting
 *   diagnose.h           which ops wait for whom; flight recorder; what may be wrong
 *   algorithms.h         which algorithm an op takes, and telling agents which to take
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include "tutti/algorithms.h"
#include "tutti/client.h"
#include "tutti/code.h"
#include "tutti/diagnose.h"
#include "tutti/error.h"
#include "tutti/group.h"
#include "tutti/init.h"
#include "tutti/job.h"
#include "tutti/list.h"
#include "tutti/membership.h"
#include "tutti/mesh.h"
#include "tutti/object.h"
#include "tutti/op.h"
#include "tutti/op_data.h"
#include "tutti/pipeline.h"
#include "tutti/share.h"
#include "tutti/store.h"
#include "tutti/tensor.h"
#include "tutti/tracer.h"
#include "tutti/types.h"
#include "tutti/version.h"
#include "tutti/work.h"

#endif
