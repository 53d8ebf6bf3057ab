#include "server/agent/autograd/tape_rig.h"
#include "support/testing.h"
#include "tensor/host/host.h"

const tutti_spec tape_rig_spec = {.dtype = TUTTI_DTYPE_FP64, .dim_count = 1, .dims = {2}};

void
tape_rig_start(tape_rig *self, uint32_t items_max)
{
    const tutti_space_host_options options = {.limit_bytes = 1U << 20};
    tutti_error err;

    *self = (tape_rig){0};
    assert_ok(tutti_space_host_open(&options, &self->space, &err));
    assert_ok(tutti_tapes_new(4, items_max, &self->tapes, &err));
    assert_ok(tutti_tape_new(self->tapes, "t", &self->tape, &err));
}

void
tape_rig_stop(tape_rig *self)
{
    tutti_space_stats stats;

    tutti_tapes_free(self->tapes);
    tutti_space_stat(self->space, &stats);
    assert_int_equal(stats.tensor_count, 0);
    tutti_space_close(self->space);
}

void
tape_rig_attach(tape_rig *self, uint64_t tensor)
{
    tutti_error err;

    assert_ok(tutti_tape_attach(self->tape, tensor, &tape_rig_spec, self->space, &err));
}

tutti_tape_record *
tape_rig_begin(tape_rig *self, uint64_t in, uint64_t out)
{
    const tutti_coll_args args = {.kind = TUTTI_COLL_ALL_REDUCE,
                                  .reduce = TUTTI_REDUCE_SUM,
                                  .has_spec = true,
                                  .spec = tape_rig_spec};
    const tutti_tape_entry entry = {.number = ++self->number,
                                    .group = "world",
                                    .size = 2,
                                    .args = &args,
                                    .result = tape_rig_spec,
                                    .in_tensor = in,
                                    .out_tensor = out,
                                    .out_spec = tape_rig_spec};
    tutti_tape_record *record = NULL;
    tutti_error err;

    assert_ok(tutti_tape_record_new(self->tape, &entry, &record, &err));
    return record;
}

tutti_tape_record *
tape_rig_record(tape_rig *self, uint64_t in, uint64_t out)
{
    tutti_tape_record *record = tape_rig_begin(self, in, out);

    tutti_tape_record_end(record, self->number, &tape_rig_spec);
    return record;
}

tutti_tensor *
tape_rig_tensor(tape_rig *self, double first, double second)
{
    tutti_tensor *tensor = NULL;
    tutti_error err;

    assert_ok(tutti_tensor_new(self->space, &tape_rig_spec, false, &tensor, &err));
    ((double *)tensor->data)[0] = first;
    ((double *)tensor->data)[1] = second;
    return tensor;
}
