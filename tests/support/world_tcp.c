#include "coll/tcp/coll_tcp.h"
#include "support/testing.h"
#include "support/world.h"

tutti_wire *
world_wire_tcp(world *self)
{
    const tutti_wire_tcp_options options = {.devices = "lo"};
    tutti_wire *wire = NULL;
    tutti_error err;

    (void)self;
    assert_ok(tutti_wire_tcp_open(&options, &wire, &err));
    return wire;
}
