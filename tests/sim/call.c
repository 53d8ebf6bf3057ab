/* An op of a rank. */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "job.h"

/* ------------------------------------------------------------------------------ what the engine says */

static void
note_failed(uint32_t number, uint64_t epoch)
{
    standing *all = &our.standings[number];

    if (all->epoch == epoch && all->failed_ns == 0) {
        all->failed_ns = sim_now_ns();
    }
}

/* Of these ends each member hears from others than the one whose op has failed. */
static bool
is_heard_elsewhere(const tutti_error *err)
{
    static const char *const reasons[] = {"NO_GROUP", TUTTI_COLL_ABORTED, "EPOCH_CHANGED",
                                          "RANK_LEAVING"};
    size_t i;

    for (i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        if (strcmp(err->reason, reasons[i]) == 0) {
            return true;
        }
    }
    return false;
}

static void
end_of_client(call *self, bool well)
{
    self->process->under_way--;
    if (self->client != NULL) {
        self->client->under_way--;
        self->client->last_well = well && self->client->epoch == self->epoch &&
                                  self->client->ordinal == self->op.sequence;
    }
}

static void
on_done(tutti_coll_op *op, const tutti_error *err)
{
    call *self = tutti_container_of(op, call, op);

    sim_note("rank %u: op %u (%s) ends: %s", self->process->rank, self->part.number,
             judge_words(self), err == NULL ? "well" : err->text);
    if (self->done) {
        sim_fail("op %u on rank %u ended twice", self->part.number, self->process->rank);
    }
    self->done = true;
    self->done_ns = sim_now_ns();
    self->stopped_at_done_ns = judge_stopped_holders(self->process);
    self->code = err == NULL ? TUTTI_OK : err->code;
    end_of_client(self, err == NULL);
    our.counts.calls++;
    our.counts.failed += err == NULL ? 0 : 1;
    if (self->process->dead) {
        return; /* nobody sees it */
    }
    judge_done(self, err);
    if (err != NULL && op->follows && self->process->groups[self->group].state == MEMBER_OPEN) {
        tutti_coll_group_resync(self->process->groups[self->group].coll);
    }
    if (self->part.what != NULL && err != NULL && !is_heard_elsewhere(err)) {
        note_failed(self->part.number, self->epoch);
    }
}

/* Nobody has any business with it behind the release: a word that is not what this has written there
 * is one that somebody did not leave alone. */
static void
spoil(int64_t *values, int64_t count)
{
    int64_t i;

    for (i = 0; i < count && values != NULL; i++) {
        values[i] = SPOILT;
    }
}

static void
on_released(tutti_coll_op *op)
{
    call *self = tutti_container_of(op, call, op);

    if (!self->done || self->released) {
        sim_fail("op %u on rank %u was released %s", self->part.number, self->process->rank,
                 self->done ? "twice" : "before it ended");
    }
    self->released = true;
    judge_released(self);
    spoil(self->input, self->input_count);
    spoil(self->output, self->output_count);
}

static tutti_code
refuse_shape(tutti_error *err)
{
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "TEST", "the shape is another");
}

static tutti_code
on_spec(tutti_coll_op *op, const tutti_spec *spec, tutti_error *err)
{
    call *self = tutti_container_of(op, call, op);

    if (tutti_spec_bytes(spec) != (uint64_t)self->output_count * sizeof(int64_t)) {
        return refuse_shape(err);
    }
    op->output = self->output;
    return TUTTI_OK;
}

/* One behind the other. */
static tutti_code
place_list(call *self, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    int64_t at = 0;
    uint32_t i;

    for (i = 0; i < count && i < LIST_MAX; i++) {
        self->out[i] = (tutti_coll_tensor){.spec = specs[i], .data = self->output + at};
        at += (int64_t)tutti_spec_count(&specs[i]);
        if (at > self->output_count) {
            return refuse_shape(err);
        }
    }
    if (at != self->output_count) {
        return refuse_shape(err);
    }
    self->op.outputs = self->out;
    return TUTTI_OK;
}

static tutti_code
on_list(tutti_coll_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    return place_list(tutti_container_of(op, call, op), specs, count, err);
}

/* ------------------------------------------------------------------------------ memory */

static tutti_spec
spec_of(int64_t count)
{
    return (tutti_spec){.dtype = TUTTI_DTYPE_INT64, .dim_count = 1, .dims = {count}};
}

int64_t *
call_values(int64_t count)
{
    int64_t *values = sim_new((size_t)count + 1, sizeof(*values));
    const uint64_t guard = GUARD;

    memcpy(values + count, &guard, sizeof(guard));
    return values;
}

call *
call_new(process *caller, uint32_t group, uint32_t group_rank, uint32_t number)
{
    call *self = sim_new(1, sizeof(*self));

    self->process = caller;
    self->group = group;
    self->part.number = number;
    self->part.size = our.plan.groups[group].size;
    self->part.group_rank = group_rank;
    self->stopped_ns = judge_stopped(caller);
    self->op.on_done = on_done;
    self->op.on_released = on_released;
    self->op.on_spec = on_spec;
    return self;
}

static void
fill_memory(call *self)
{
    model_tensors given;
    model_tensors got;
    int64_t i;

    model_given(&self->part, &given);
    model_got(&self->part, &got);
    self->input_count = model_sum(&given);
    self->output_count = model_sum(&got);
    self->input = call_values(self->input_count);
    self->output = self->part.what->in_place && self->part.what->shape == SHAPE_PLAIN &&
                           self->input_count == self->output_count
                       ? self->input
                       : call_values(self->output_count);
    for (i = 0; i < self->input_count; i++) {
        self->input[i] = model_value(self->part.number, self->part.group_rank, i);
    }
    self->op.input = given.count > 0 ? self->input : NULL;
    self->op.output = got.count > 0 ? self->output : NULL;
}

/* ------------------------------------------------------------------------------ arguments */

static void
fill_list(call *self, const model_tensors *given)
{
    int64_t at = 0;
    uint32_t i;

    for (i = 0; i < given->count; i++) {
        self->in[i] =
            (tutti_coll_tensor){.spec = spec_of(given->lengths[i]), .data = self->input + at};
        at += given->lengths[i];
    }
    self->op.args.list = given->count > 0 ? self->in : NULL;
    self->op.args.list_count = given->count;
}

static void
fill_splits(call *self)
{
    tutti_coll_args *args = &self->op.args;
    uint32_t i;

    for (i = 0; i < self->part.size; i++) {
        self->send_splits[i] = model_rows(&self->part, self->part.group_rank, i);
        self->recv_splits[i] = model_rows(&self->part, i, self->part.group_rank);
    }
    if (args->kind == TUTTI_COLL_ALL_TO_ALL) {
        args->has_splits = true;
        args->send_splits = self->send_splits;
        args->recv_splits = self->recv_splits;
        args->split_count = self->part.size;
    } else if (self->part.group_rank == args->root) {
        args->root_splits = self->send_splits;
        args->split_count = self->part.size;
    }
}

static void
fill_meta(call *self)
{
    const uint64_t size = model_meta_size(self->part.number);
    uint64_t i;

    if (self->part.group_rank != self->part.what->root) {
        return;
    }
    self->meta = sim_new(1, size);
    for (i = 0; i < size; i++) {
        self->meta[i] = model_meta(self->part.number, i);
    }
    self->op.args.meta = (tutti_bytes){self->meta, size};
}

static void
fill_shape(call *self, const model_tensors *given)
{
    tutti_coll_args *args = &self->op.args;

    switch (self->part.what->shape) {
    case SHAPE_LIST:
        args->form = TUTTI_FORM_LIST;
        if (args->kind != TUTTI_COLL_ALL_GATHER && args->kind != TUTTI_COLL_GATHER) {
            fill_list(self, given);
        }
        self->op.on_list = on_list;
        break;
    case SHAPE_COALESCED:
        args->coalesced = true;
        fill_list(self, given);
        self->op.on_list = on_list;
        break;
    case SHAPE_SPLITS:
        fill_splits(self);
        break;
    case SHAPE_META:
        fill_meta(self);
        break;
    default:
        break;
    }
}

/* Of a coalesced op, all but receivers from a root know what comes of it. */
static void
place_known(call *self)
{
    const bool learns = tutti_coll_is_from_root(self->op.args.kind) && !self->op.args.has_spec;
    tutti_spec *specs = NULL;
    uint32_t count = 0;
    tutti_error err;

    if (self->part.what->shape == SHAPE_COALESCED && !learns &&
        (tutti_coll_infer_list(&self->op.args, self->part.size, self->part.group_rank, &specs,
                               &count, &err) != TUTTI_OK ||
         place_list(self, specs, count, &err) != TUTTI_OK)) {
        sim_fail("op %u (%s): %s", self->part.number, judge_words(self), err.text);
    }
    free(specs);
}

static void
fill_kind(call *self)
{
    tutti_coll_args *args = &self->op.args;
    const plan_op *what = self->part.what;
    uint32_t i;

    args->kind = what->kind;
    args->reduce = tutti_coll_is_reduction(what->kind) ? what->reduce : TUTTI_REDUCE_NONE;
    args->root = what->root;
    args->step = our.plan.steps && what->kind != TUTTI_COLL_SEND ? 1 + self->part.number : 0;
    if (what->kind == TUTTI_COLL_SEND) {
        args->kind = self->part.group_rank == what->root ? TUTTI_COLL_SEND : TUTTI_COLL_RECV;
        args->peer = self->part.group_rank == what->root ? what->peer
                     : what->any_source                  ? TUTTI_COLL_ANY_SOURCE
                                                         : what->root;
        args->tag = self->part.number; /* so that a failed one takes nobody else's message */
    }
    if (what->kind == TUTTI_COLL_PERMUTE) {
        for (i = 0; i < self->part.size; i++) {
            self->to[i] = (i + 1) % self->part.size;
        }
        args->to = self->to;
        args->to_count = self->part.size;
    }
}

/* Instead of what the others call. */
static void
fill_odd(call *self)
{
    tutti_coll_args *args = &self->op.args;

    *args = (tutti_coll_args){.kind = TUTTI_COLL_BARRIER, .step = args->step};
    if (self->part.what->kind == TUTTI_COLL_BARRIER) {
        args->kind = TUTTI_COLL_ALL_REDUCE;
        args->reduce = TUTTI_REDUCE_SUM;
        args->has_spec = true;
        args->spec = spec_of(0);
    }
}

void
call_fill(call *self, const plan_op *what)
{
    tutti_coll_args *args = &self->op.args;
    model_tensors given;

    self->part.what = what;
    fill_memory(self);
    fill_kind(self);
    model_given(&self->part, &given);
    args->has_spec = given.count > 0;
    args->spec = spec_of(given.count > 0 ? given.lengths[0] : 0);
    fill_shape(self, &given);
    if (what->shape == SHAPE_PLAIN && what->states && !args->has_spec &&
        (what->kind == TUTTI_COLL_BROADCAST || args->kind == TUTTI_COLL_RECV)) {
        args->has_spec = true;
        args->count_only = what->in_place;
        args->spec = spec_of(self->output_count);
    }
    if (what->odd == self->part.group_rank && what->kind != TUTTI_COLL_SEND) {
        fill_odd(self);
    } else {
        place_known(self);
    }
}

/* ------------------------------------------------------------------------------ calling */

static void
note_call(uint32_t number, uint64_t epoch, uint32_t rank)
{
    standing *all = &our.standings[number];
    job_group *group = &our.groups[our.plan.ops[number].group];

    if (all->epoch < epoch) {
        *all = (standing){.epoch = epoch};
    }
    if (all->epoch == epoch) {
        all->calls++;
        all->callers |= 1U << rank;
        all->call_ns[rank] = sim_now_ns();
        all->last_call_ns = sim_now_ns();
    }
    if (group->called < number + 1) {
        group->called = number + 1;
    }
}

void
call_note_refused(uint32_t number, uint64_t epoch, uint32_t rank)
{
    note_call(number, epoch, rank);
    note_failed(number, epoch);
}

void
call_post(call *self, uint64_t timeout_ns)
{
    process *caller = self->process;
    tutti_error err;
    uint32_t i;

    for (i = 0; i < self->part.size; i++) {
        self->members[i] = our.seats[our.plan.groups[self->group].ranks[i]]->number;
    }
    self->deadline_ns = sim_now_ns() + timeout_ns;
    self->op.deadline_ns = sim_clock((int)caller->number) + timeout_ns;
    self->op.caller_ns = caller->caller_ns;
    self->epoch = caller->groups[self->group].epoch;
    sim_note("rank %u calls op %u (%s)%s", caller->rank, self->part.number, judge_words(self),
             judge_is_odd(self) && self->part.what->odd == self->part.group_rank
                 ? ", but as another"
                 : "");
    self->called_ns = sim_now_ns();
    if (self->part.what != NULL) {
        note_call(self->part.number, self->epoch, caller->rank);
        play_see(SEEN_OPS + (uint32_t)self->part.what->kind * SHAPE_COUNT +
                 (uint32_t)self->part.what->shape);
    }
    caller->under_way++;
    if (self->client != NULL) {
        self->client->under_way++;
    }
    tutti_list_add(&caller->calls, &self->link);
    if (tutti_coll_post(caller->groups[self->group].coll, &self->op, 0, &err) != TUTTI_OK) {
        sim_fail("op %u on rank %u cannot be posted: %s", self->part.number, caller->rank,
                 err.text);
    }
}

bool
call_holds(uint32_t number, const void *data, uint64_t size)
{
    process *self = &our.processes[number];
    tutti_list_node *at;

    for (at = self->calls.next; at != &self->calls; at = at->next) {
        const call *one = tutti_container_of(at, call, link);
        const char *bytes = data;
        const bool in_input = (const char *)one->input <= bytes &&
                              bytes + size <= (const char *)(one->input + one->input_count);
        const bool in_output = (const char *)one->output <= bytes &&
                               bytes + size <= (const char *)(one->output + one->output_count);

        if (one->part.what != NULL && !one->released && (in_input || in_output)) {
            return (one->part.what->apart >> self->rank & 1) == 0;
        }
    }
    return false;
}

void
call_free(call *self)
{
    free(self->input);
    if (self->output != self->input) {
        free(self->output);
    }
    free(self->meta);
    free(self);
}
