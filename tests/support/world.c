#include "support/world.h"

#include <time.h>

#include "base/data/id.h"
#include "base/os/clock.h"
#include "coll/host/host.h"
#include "coll/select/select.h"
#include "coll/self/self.h"
#include "support/testing.h"

#define JOB 77

typedef struct asker {
    world *world;
    uint32_t rank;
} asker;

static asker askers[WORLD_MAX];

static tutti_coll_backend *(*const device)(void) = DEVICE;

/* Guards engines[] of the world: engines ask for each other while they are stopped one by one. */
static pthread_mutex_t seats = PTHREAD_MUTEX_INITIALIZER;

static void
on_need_peers(void *arg, const uint32_t *ranks, size_t count)
{
    const asker *self = arg;
    tutti_coll_engine *mine;
    size_t i;

    (void)pthread_mutex_lock(&seats);
    mine = self->world->engines[self->rank];
    for (i = 0; i < count && mine != NULL; i++) {
        if (self->world->engines[ranks[i]] != NULL) {
            tutti_coll_set_peer(mine, ranks[i], self->world->incarnations[ranks[i]],
                                tutti_coll_engine_address(self->world->engines[ranks[i]]));
        }
    }
    (void)pthread_mutex_unlock(&seats);
}

static void
stop_engine(world *self, uint32_t rank)
{
    tutti_coll_engine *engine;

    (void)pthread_mutex_lock(&seats);
    engine = self->engines[rank];
    self->engines[rank] = NULL;
    (void)pthread_mutex_unlock(&seats);
    tutti_coll_engine_stop(engine); /* NULL when it was killed before */
}

/* TUTTI_TEST_FORCE, for programs that know nothing of algorithms: as --algorithm takes it. */
static const tutti_selection *
forced_selection(void)
{
    static tutti_selection selection;
    const char *text = getenv("TUTTI_TEST_FORCE");
    tutti_error err;

    if (text == NULL) {
        return NULL;
    }
    tutti_selection_init(&selection);
    assert_ok(tutti_selection_force(&selection, text, &err));
    return &selection;
}

static void
rekey(tutti_coll_engine *engine, uint64_t epoch)
{
    tutti_transport_key key = {.job_id = JOB, .epoch = epoch};

    memset(key.bytes, (int)epoch, sizeof(key.bytes));
    tutti_coll_engine_rekey(engine, &key);
}

void
world_rekey(world *self, uint64_t epoch, uint32_t but)
{
    uint32_t i;

    for (i = 0; i < self->size; i++) {
        if (i != but && self->engines[i] != NULL) {
            rekey(self->engines[i], epoch);
        }
    }
}

static void
tell_selection(world *self, uint32_t rank)
{
    const tutti_selection *selection =
        self->selector[rank] != NULL ? self->selector[rank] : forced_selection();
    tutti_error err;

    if (selection != NULL && self->told[rank] == NULL) {
        assert_ok(tutti_selector_new(selection, true, &self->told[rank], &err));
    }
}

void
world_sit(world *self, uint32_t rank)
{
    tutti_coll_engine_sit(self->engines[rank], JOB, rank, self->incarnations[rank]);
}

static void
open_engine(world *self, uint32_t rank)
{
    tutti_coll_engine_options options = {.backend = &tutti_coll_host,
                                         .self_backend = &tutti_coll_self,
                                         .on_need_peers = on_need_peers};
    tutti_coll_engine *engine = NULL;
    tutti_error err;

    askers[rank] = (asker){self, rank};
    tell_selection(self, rank);
    options.backend_arg = self->told[rank];
    options.arg = &askers[rank];
    self->opening = rank;
    (void)pthread_mutex_lock(&seats);
    self->incarnations[rank] = tutti_id_draw();
    (void)pthread_mutex_unlock(&seats);
    self->wires[rank] = self->transport(self);
    options.transport = self->wires[rank];
    options.devices[0] = device != NULL ? device() : NULL;
    assert_ok(tutti_coll_engine_start(&options, &engine, &err));
    (void)pthread_mutex_lock(&seats);
    self->engines[rank] = engine;
    (void)pthread_mutex_unlock(&seats);
    world_sit(self, rank);
    rekey(engine, 1);
}

tutti_transport *
world_transport_fake(world *self)
{
    if (self->network == NULL) {
        self->network = fake_network_new();
        if (self->per_host == 0 && getenv("TUTTI_TEST_PER_HOST") != NULL) {
            self->per_host = (unsigned)atoi(getenv("TUTTI_TEST_PER_HOST"));
        }
        fake_network_hosts(self->network, self->per_host);
    }
    return fake_transport_new(self->network);
}

void
world_open(world *self, world_transport_fn transport, uint32_t size)
{
    *self = (world){0};
    world_open_with(self, transport, size);
}

void
world_open_with(world *self, world_transport_fn transport, uint32_t size)
{
    uint32_t ranks[WORLD_MAX];
    uint32_t i;

    self->transport = transport;
    self->size = size;
    self->next_group = 2;
    for (i = 0; i < size; i++) {
        open_engine(self, i);
        ranks[i] = i;
    }
    for (i = 0; i < size; i++) {
        tutti_error err;

        assert_ok(tutti_coll_group_open(self->engines[i], 1, "world", 1, ranks, size,
                                        &self->groups[i], &err));
    }
}

void
world_close(world *self)
{
    uint32_t i;

    for (i = 0; i < self->size; i++) {
        stop_engine(self, i);
        tutti_selector_free(self->told[i]);
    }
    if (self->network != NULL) {
        fake_network_free(self->network);
    }
}

void
world_kill(world *self, uint32_t rank)
{
    fake_transport_kill(self->wires[rank]);
    stop_engine(self, rank);
}

void
world_revive(world *self, uint32_t rank)
{
    open_engine(self, rank);
}

void
world_group(world *self, const char *name, const uint32_t *ranks, uint32_t count,
            tutti_coll_group **ret_groups)
{
    const uint64_t id = self->next_group++;
    tutti_error err;
    uint32_t i;

    for (i = 0; i < count; i++) {
        assert_ok(tutti_coll_group_open(self->engines[ranks[i]], id, name, 1, ranks, count,
                                        &ret_groups[i], &err));
    }
}

/* ------------------------------------------------------------------------------ runs */

static tutti_code
on_spec(tutti_coll_op *op, const tutti_spec *spec, tutti_error *err)
{
    run *self = tutti_container_of(op, run, op);

    self->spec = *spec;
    if (self->refuse != TUTTI_OK) {
        return TUTTI_FAIL_FOR(err, self->refuse, "TEST", "this test refuses the shape");
    }
    if (op->output == NULL) {
        self->made = calloc(1, (size_t)tutti_spec_bytes(spec) + 1);
        op->output = self->made;
    }
    return TUTTI_OK;
}

static void
on_done(tutti_coll_op *op, const tutti_error *err)
{
    run *self = tutti_container_of(op, run, op);

    (void)pthread_mutex_lock(&self->lock);
    self->done = true;
    self->code = err == NULL ? TUTTI_OK : err->code;
    if (err != NULL) {
        self->err = *err;
    }
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

static void
on_released(tutti_coll_op *op)
{
    run *self = tutti_container_of(op, run, op);

    (void)pthread_mutex_lock(&self->lock);
    self->released = true;
    (void)pthread_cond_broadcast(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

run *
run_new(tutti_coll_kind kind)
{
    run *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->changed, NULL);
    self->op.args.kind = kind;
    self->op.on_done = on_done;
    self->op.on_released = on_released;
    if (tutti_coll_is_from_root(kind) || kind == TUTTI_COLL_RECV) {
        self->op.on_spec = on_spec;
    }
    if (kind == TUTTI_COLL_ALL_REDUCE) {
        self->op.args.reduce = TUTTI_REDUCE_SUM;
    }
    return self;
}

void
run_give(run *self, tutti_dtype dtype, int64_t count, const void *input, void *output)
{
    self->op.args.has_spec = true;
    self->op.args.spec = (tutti_spec){.dtype = dtype, .dim_count = 1, .dims = {count}};
    self->op.input = input;
    self->op.output = output;
}

void
run_post(run *self, tutti_coll_group *group, uint64_t timeout_ms)
{
    tutti_error err;

    self->op.args.on_device = device != NULL && self->op.args.kind != TUTTI_COLL_BARRIER;
    self->op.deadline_ns = tutti_clock_ns() + timeout_ms * TUTTI_NS_PER_MS;
    assert_ok(tutti_coll_post(group, &self->op, 0, &err));
}

bool
run_is_done(run *self)
{
    bool done;

    (void)pthread_mutex_lock(&self->lock);
    done = self->done;
    (void)pthread_mutex_unlock(&self->lock);
    return done;
}

tutti_code
run_wait(run *self)
{
    struct timespec until;
    int late = 0;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    (void)pthread_mutex_lock(&self->lock);
    while (!self->released && late == 0) {
        late = pthread_cond_timedwait(&self->changed, &self->lock, &until);
    }
    (void)pthread_mutex_unlock(&self->lock);
    if (late != 0) {
        fail_msg("an op hangs (%s)", self->done ? "done, never released" : "never done");
    }
    return self->code;
}

void
run_free(run *self)
{
    free(self->made);
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}
