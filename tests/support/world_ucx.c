#include "coll/ucx/coll_ucx.h"
#include "support/testing.h"
#include "support/world.h"

tutti_wire *
world_wire_ucx(world *self)
{
    const tutti_wire_ucx_options options = {.transports = "tcp", .devices = "lo"};
    tutti_wire *wire = NULL;
    tutti_error err;

    (void)self;
    assert_ok(tutti_wire_ucx_open(&options, &wire, &err));
    return wire;
}
