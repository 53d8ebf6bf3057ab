/* A table with memory for its tensors, and calls that lock them. */
#ifndef TUTTI_TESTS_TABLE_RIG_H
#define TUTTI_TESTS_TABLE_RIG_H

#include <pthread.h>

#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

#define RIG_INCARNATION 0x0123456789abcdefU
#define RIG_MEMORY (16U << 20)
#define RIG_TENSOR_BYTES 64U

/* In the place of lib/rpc's loop, which is gRPC's: tasks in order, run when a test says so. */
struct tutti_rpc_loop {
    pthread_mutex_t mutex;
    pthread_cond_t posted;
    tutti_list_node tasks;
    bool stopped;
};

typedef struct table_rig {
    tutti_table *table;
    tutti_space *space;
    tutti_rpc_loop loop;
    unsigned turns; /* of all calls */
} table_rig;

/* A call. `turn`: of all, it was the how manieth to be told that its turn has come; 0 = not yet. */
typedef struct table_call {
    tutti_lock_set lock_set;
    table_rig *rig;
    unsigned turn;
    bool ready; /* granted at once, or told */
} table_call;

void rig_start(table_rig *self, uint32_t handles_max);
void rig_stop(table_rig *self); /* checks that no memory is left */

/* Run what was posted. Returns how many tasks. */
unsigned rig_run(table_rig *self);
/* Run what is posted until rig_end_loop, on this thread. */
void rig_serve_loop(tutti_rpc_loop *loop);
void rig_end_loop(tutti_rpc_loop *loop);

void call_init(table_call *self, table_rig *rig);
void call_want(table_call *self, const char *handle, bool exclusive);
bool call_claim(table_call *self); /* true: ready at once */
void call_release(table_call *self);

/* One wish, claimed. */
void call_read(table_call *self, table_rig *rig, const char *handle);
void call_write(table_call *self, table_rig *rig, const char *handle);

/* Give a new entry memory of RIG_TENSOR_BYTES. */
void call_fill(table_call *self, uint32_t lock);

/* A tensor with bytes that nobody uses; "" = no name. */
void rig_make(table_rig *self, const char *name, char ret_handle[TUTTI_TABLE_HANDLE_SIZE]);

void rig_delete(table_rig *self, const char *handle);
uint64_t rig_tensor_count(table_rig *self); /* that have memory */

#endif
