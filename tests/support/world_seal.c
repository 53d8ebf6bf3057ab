#include "coll/seal/coll_seal.h"
#include "coll/ucx/coll_ucx.h"
#include "support/testing.h"
#include "support/world.h"

tutti_wire *
world_wire_ucx(world *self)
{
    const tutti_wire_ucx_options options = {.transports = "tcp", .devices = "lo"};
    tutti_wire *wire = NULL;
    tutti_error err;

    assert_ok(tutti_wire_ucx_open(&options, &wire, &err));
    assert_ok(tutti_wire_seal_open(wire, self->incarnations[self->opening], &wire, &err));
    return wire;
}
