#include "coll/seal/coll_seal.h"
#include "coll/tcp/coll_tcp.h"
#include "support/testing.h"
#include "support/world.h"

tutti_wire *
world_wire_seal(world *self)
{
    const tutti_wire_tcp_options options = {.devices = "lo"};
    tutti_wire *wire = NULL;
    tutti_error err;

    assert_ok(tutti_wire_tcp_open(&options, &wire, &err));
    assert_ok(tutti_wire_seal_open(wire, self->incarnations[self->opening], &wire, &err));
    return wire;
}
