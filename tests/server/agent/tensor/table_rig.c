#include "table_rig.h"

#include "support/testing.h"
#include "tensor/host/host.h"

/* ------------------------------------------------------------------------------ the loop */

void
tutti_rpc_loop_post(tutti_rpc_loop *loop, tutti_rpc_task *task)
{
    (void)pthread_mutex_lock(&loop->mutex);
    tutti_list_add(&loop->tasks, &task->link);
    (void)pthread_cond_signal(&loop->posted);
    (void)pthread_mutex_unlock(&loop->mutex);
}

static tutti_list_node *
take(tutti_rpc_loop *loop, bool wait)
{
    tutti_list_node *link;

    (void)pthread_mutex_lock(&loop->mutex);
    while (wait && tutti_list_empty(&loop->tasks) && !loop->stopped) {
        (void)pthread_cond_wait(&loop->posted, &loop->mutex);
    }
    link = tutti_list_pop(&loop->tasks);
    (void)pthread_mutex_unlock(&loop->mutex);
    return link;
}

static unsigned
run_tasks(tutti_rpc_loop *loop, bool wait)
{
    tutti_list_node *link;
    unsigned count = 0;

    while ((link = take(loop, wait)) != NULL) {
        tutti_rpc_task *task = tutti_container_of(link, tutti_rpc_task, link);

        task->on_run(task);
        count++;
    }
    return count;
}

unsigned
rig_run(table_rig *self)
{
    return run_tasks(&self->loop, false);
}

void
rig_serve_loop(tutti_rpc_loop *loop)
{
    (void)run_tasks(loop, true);
}

void
rig_end_loop(tutti_rpc_loop *loop)
{
    (void)pthread_mutex_lock(&loop->mutex);
    loop->stopped = true;
    (void)pthread_cond_signal(&loop->posted);
    (void)pthread_mutex_unlock(&loop->mutex);
}

/* ------------------------------------------------------------------------------ the rig */

void
rig_start(table_rig *self, uint32_t handles_max)
{
    const tutti_space_host_options options = {.limit_bytes = RIG_MEMORY};
    tutti_error err;

    *self = (table_rig){0};
    (void)pthread_mutex_init(&self->loop.mutex, NULL);
    (void)pthread_cond_init(&self->loop.posted, NULL);
    tutti_list_init(&self->loop.tasks);
    assert_ok(tutti_space_host_open(&options, &self->space, &err));
    assert_ok(tutti_table_new(RIG_INCARNATION, handles_max, &self->table, &err));
}

void
rig_stop(table_rig *self)
{
    assert_int_equal(rig_run(self), 0);
    tutti_table_free(self->table);
    assert_int_equal(rig_tensor_count(self), 0);
    tutti_space_close(self->space);
    (void)pthread_cond_destroy(&self->loop.posted);
    (void)pthread_mutex_destroy(&self->loop.mutex);
}

uint64_t
rig_tensor_count(table_rig *self)
{
    tutti_space_stats stats;

    tutti_space_stat(self->space, &stats);
    return stats.tensor_count;
}

void
rig_make(table_rig *self, const char *name, char ret_handle[TUTTI_TABLE_HANDLE_SIZE])
{
    tutti_error err;
    table_call one;

    call_init(&one, self);
    assert_ok(tutti_table_create_locked(self->table, &one.lock_set, name, &err));
    assert_true(call_claim(&one));
    call_fill(&one, 0);
    tutti_table_handle(&one.lock_set.locks[0], ret_handle);
    call_release(&one);
}

void
rig_delete(table_rig *self, const char *handle)
{
    char *handles[] = {(char *)(uintptr_t)handle};
    tutti_error err;

    assert_ok(tutti_table_delete(self->table, handles, 1, false, &err));
}

/* ------------------------------------------------------------------------------ calls */

static void
on_ready(tutti_lock_set *lock_set)
{
    table_call *self = tutti_container_of(lock_set, table_call, lock_set);

    assert_false(self->ready); /* once, and not when claim() has said so */
    self->ready = true;
    self->turn = ++self->rig->turns;
}

void
call_init(table_call *self, table_rig *rig)
{
    *self = (table_call){.rig = rig};
    self->lock_set.loop = &rig->loop;
    self->lock_set.on_ready = on_ready;
}

void
call_want(table_call *self, const char *handle, bool exclusive)
{
    tutti_error err;

    assert_ok(tutti_table_lock_range(self->rig->table, &self->lock_set, handle, exclusive, &err));
}

bool
call_claim(table_call *self)
{
    self->ready = tutti_table_acquire(self->rig->table, &self->lock_set);
    return self->ready;
}

void
call_release(table_call *self)
{
    tutti_table_release(self->rig->table, &self->lock_set);
    assert_int_equal(self->lock_set.count, 0);
}

static void
call_use(table_call *self, table_rig *rig, const char *handle, bool exclusive)
{
    call_init(self, rig);
    call_want(self, handle, exclusive);
    (void)call_claim(self);
}

void
call_read(table_call *self, table_rig *rig, const char *handle)
{
    call_use(self, rig, handle, false);
}

void
call_write(table_call *self, table_rig *rig, const char *handle)
{
    call_use(self, rig, handle, true);
}

void
call_fill(table_call *self, uint32_t lock)
{
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {RIG_TENSOR_BYTES}};
    tutti_tensor *tensor = NULL;
    tutti_error err;

    assert_ok(tutti_tensor_new(self->rig->space, &spec, true, &tensor, &err));
    tutti_table_fill(self->rig->table, &self->lock_set.locks[lock], tensor);
}
