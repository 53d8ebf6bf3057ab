/*
 * Agents of one process, without gRPC and without a coordinator: tests begin ops through the doors
 * that the services use, and look at what the callers are told.
 *
 * All agents share one loop, which is the test's thread. Their engines have threads of their own,
 * and exchange packets through queues (support/transport_fake.h).
 */
#ifndef TUTTI_TESTS_AGENT_RIG_H
#define TUTTI_TESTS_AGENT_RIG_H

#include "base/os/clock.h"
#include "server/agent/autograd/backward.h"
#include "server/agent/op/coordinator_fake.h"
#include "server/agent/op/op.h"
#include "server/agent/op/rpc_fake.h"
#include "server/agent/op/sync.h"
#include "server/agent/op/works.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"
#include "support/transport_fake.h"

#define RIG_AGENTS_MAX 4
#define RIG_ANSWERS_MAX 16 /* of a list, in one answer */
#define RIG_JOB 77
#define RIG_HANDLE_SIZE TUTTI_TABLE_HANDLE_SIZE

/* A call, and what its caller was told. All but the first two parts: once it has ended. */
typedef struct rig_call {
    tutti_rpc_call call; /* first: answers find the rest by it */
    tutti_list_node link;
    tutti_rpc_message payload;
    agent_op_result result;
    agent_output outputs[RIG_ANSWERS_MAX]; /* result.outputs */
    unsigned char meta[256];               /* result.meta */
    size_t status_count;                   /* of Wait and Test */
    agent_work_status statuses[RIG_ANSWERS_MAX];
    agent_sync_result sync;
    size_t gradient_count;
    agent_gradient gradients[RIG_ANSWERS_MAX];
    char work[AGENT_WORK_SIZE]; /* of a Backward; that of an op is in its result */
} rig_call;

typedef struct agent_rig {
    uint32_t size;
    tutti_agent_options options; /* of all agents; a test may change them */
    struct agent_hooks hooks;    /* likewise */
    tutti_rpc_loop loop;
    fake_coordinator coordinator; /* knows "world" */
    fake_network *network;
    tutti_transport *transports[RIG_AGENTS_MAX];
    tutti_agent *agents[RIG_AGENTS_MAX];
    tutti_list_node calls; /* [owned] */
    unsigned ops_over;     /* that the hook was told of */
    tutti_error closed;    /* code not OK: no op may begin, for this reason */
} agent_rig;

/* ------------------------------------------------------------------------------ agents */

/* Options as those of the program, but small limits; then agents that have joined. */
void agent_rig_init(agent_rig *self, uint32_t size);
void agent_rig_open(agent_rig *self);
void agent_rig_start(agent_rig *self, uint32_t size); /* both */

/* Stops the engines, ends what is left, and checks that nothing was forgotten: each call has its
 * answer, no op is alive, no memory of tensors is used but that of tables. */
void agent_rig_stop(agent_rig *self);

/* The same as fixtures: *state is a rig of so many agents. */
int agent_rig_setup_1(void **state);
int agent_rig_setup_2(void **state);
int agent_rig_setup_3(void **state);
int agent_rig_teardown(void **state);

/* Run what is posted, due or answered by the coordinator now. Returns how much it was. */
unsigned agent_rig_run(agent_rig *self);
/* The same after so much time. */
void agent_rig_step(agent_rig *self, uint64_t ns);
/* Run until no op is alive. */
void agent_rig_settle(agent_rig *self);

/* ------------------------------------------------------------------------------ tensors */

tutti_spec rig_vector(int64_t count); /* FP64[count] */
tutti_spec rig_matrix(int64_t rows, int64_t columns);

/* A tensor with these bytes that nobody uses. */
void agent_rig_put_spec(agent_rig *self, uint32_t rank, const tutti_spec *spec, const void *data,
                        char ret_handle[RIG_HANDLE_SIZE]);
void agent_rig_put(agent_rig *self, uint32_t rank, const double *values, int64_t count,
                   char ret_handle[RIG_HANDLE_SIZE]);

/* On each rank its own part of `values`, which has `count` for each. */
void agent_rig_put_all(agent_rig *self, const double *values, int64_t count,
                       char ret_handles[][RIG_HANDLE_SIZE]);

/* When its turn has come, a reader finds these bytes, or this error. */
void agent_rig_check_bytes(agent_rig *self, uint32_t rank, const char *handle, const void *data,
                           size_t size);
void agent_rig_check(agent_rig *self, uint32_t rank, const char *handle, const double *values,
                     int64_t count);
void agent_rig_check_all(agent_rig *self, char handles[][RIG_HANDLE_SIZE], const double *values,
                         int64_t count); /* as agent_rig_put_all */
void agent_rig_check_failed(agent_rig *self, uint32_t rank, const char *handle, tutti_code code);

bool agent_rig_has(agent_rig *self, uint32_t rank, const char *handle);
void agent_rig_delete(agent_rig *self, uint32_t rank, const char *handle);

/* A call that reads or writes the tensor: writers that come after it wait, and readers for writers.
 */
typedef struct rig_lock {
    tutti_lock_set lock_set;
    agent_rig *rig;
    tutti_table *table;
    bool ready;
} rig_lock;

void agent_rig_read(agent_rig *self, uint32_t rank, const char *handle, rig_lock *ret_lock);
void agent_rig_write(agent_rig *self, uint32_t rank, const char *handle, rig_lock *ret_lock);
void rig_lock_wait(rig_lock *self); /* for its turn */
void rig_lock_end(rig_lock *self);

/* ------------------------------------------------------------------------------ calls */

/* "world", a new output, and the input (NULL = none). */
agent_request rig_request(tutti_coll_kind kind, const char *input);
agent_request rig_all_reduce(const char *input);

/* A call that was not made yet: for who sets its deadline or its identity. */
rig_call *agent_rig_call(agent_rig *self, uint32_t rank);
void agent_rig_make(agent_rig *self, uint32_t rank, rig_call *call, const agent_request *request);

rig_call *agent_rig_begin(agent_rig *self, uint32_t rank, const agent_request *request);
/* The tensor is in the message: args.spec, and so many bytes. */
rig_call *agent_rig_begin_inline(agent_rig *self, uint32_t rank, const agent_request *request,
                                 const void *data, size_t size);
rig_call *agent_rig_wait(agent_rig *self, uint32_t rank, char *const *works, size_t count,
                         uint32_t timeout_ms);
rig_call *agent_rig_test(agent_rig *self, uint32_t rank, char *const *works, size_t count);
rig_call *agent_rig_sync(agent_rig *self, uint32_t rank, const char *group, uint32_t timeout_ms);

/* Run until it has ended. Returns how. */
tutti_code agent_rig_end(agent_rig *self, rig_call *call);
/* The same while time goes by, in steps of a tenth of a second: engines wait for something that
 * does not come. */
void agent_rig_end_in_time(agent_rig *self, rig_call *call);

/* End, and check that it went well, or how it failed. */
void agent_rig_end_well(agent_rig *self, rig_call *call);
void agent_rig_end_failed(agent_rig *self, rig_call *call, tutti_code code, const char *reason);

/* On all ranks, each its own request: all end well, and nothing of them is left to do.
 * [out] ret_handles  of the results; NULL = not wanted */
void agent_rig_run_all(agent_rig *self, agent_request *requests,
                       char ret_handles[][RIG_HANDLE_SIZE]);

#endif
