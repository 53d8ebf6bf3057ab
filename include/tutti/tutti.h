/*
 * All of libtutti in one include: collectives on tensors in agents, from C11 and C++11.
 *
 *     #include <stdio.h>
 *     #include <tutti/tutti.h>
 *
 *     int main(void)
 *     {
 *         float x[3] = {1, 2, 3};
 *         const tutti_spec spec = {TUTTI_DTYPE_FP32, 1, {3}};
 *         tutti_client *client;
 *         tutti_error err;
 *
 *         if (tutti_connect(NULL, &client, &err) != TUTTI_OK ||
 *             tutti_all_reduce_data(client, NULL, &spec, x, x, &err) != TUTTI_OK) {
 *             fprintf(stderr, "%s\n", err.text);
 *             return 1;
 *         }
 *         printf("%g %g %g\n", x[0], x[1], x[2]);   // the sum over all ranks
 *         tutti_close(client);
 *         return 0;
 *     }
 *
 * Build it with `cc program.c $(pkg-config --cflags --libs tutti)`, or with find_package(tutti) of
 * CMake; run it with `tutti run -n 2 -- ./program`, which starts an agent for each of two ranks and
 * the program beside it.
 *
 * A program that uses a part of libtutti may include that part alone: each header includes what it
 * needs, and each says what its functions take, give and fail with. client.h says what holds for
 * all of them: threads, ownership, times, and the statuses common to all calls. Read it first.
 *
 *   code.h, error.h      how a call ended: for programs, and in words
 *   types.h              dtypes, reduce ops, specs, limits
 *   version.h            the version that a program was compiled with
 *   client.h             connecting to an agent; what it is; whether a server is healthy
 *   init.h               connecting by an init address, as init_method of PyTorch
 *   tensor.h             tensors in an agent: create, put, write, read, copy, delete, list
 *   share.h              a tensor's memory mapped into this process
 *   op.h                 collectives, send and receive on tensors in agents
 *   op_data.h            the same on memory of the caller
 *   list.h               several tensors in one op
 *   object.h             bytes of any length between ranks
 *   work.h               waiting for async ops
 *   pipeline.h           many calls through one stream
 *   queue.h              ops that end later: completions for a poller, an event loop or a callback
 *   tracer.h             gradients of collectives
 *   value.h, function.h  functions beside the tensors, called by name; and offered
 *   session.h            one program that drives all agents of a group
 *   job.h                the job and its ranks
 *   group.h, mesh.h      ordered lists of ranks; ranks in an array of named dimensions
 *   membership.h         hearing of ranks that come and go
 *   store.h              the job's key-value store: keys, queues, meeting
 *   backup.h             a copy of all that the coordinator has
 *   metadata.h           small values between the members of a group
 *   diagnose.h           which ops wait for whom; flight recorder; what may be wrong
 *   algorithms.h         which algorithm an op takes, and telling agents which to take
 *
 * Names: functions are tutti_<thing>_<verb>, constants TUTTI_...; nothing else is exported. What
 * this library does with the wire is in proto/tutti/v1, which other languages use directly.
 */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include "tutti/algorithms.h"
#include "tutti/client.h"
#include "tutti/code.h"
#include "tutti/diagnose.h"
#include "tutti/error.h"
#include "tutti/function.h"
#include "tutti/generic.h"
#include "tutti/group.h"
#include "tutti/init.h"
#include "tutti/job.h"
#include "tutti/launch.h"
#include "tutti/list.h"
#include "tutti/membership.h"
#include "tutti/mesh.h"
#include "tutti/metadata.h"
#include "tutti/object.h"
#include "tutti/op.h"
#include "tutti/op_data.h"
#include "tutti/pipeline.h"
#include "tutti/queue.h"
#include "tutti/session.h"
#include "tutti/share.h"
#include "tutti/store.h"
#include "tutti/tensor.h"
#include "tutti/tracer.h"
#include "tutti/types.h"
#include "tutti/value.h"
#include "tutti/version.h"
#include "tutti/work.h"

#endif
