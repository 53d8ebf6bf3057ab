#include "coll/ucx/ucx.h"
#include "support/testing.h"
#include "support/world.h"

tutti_transport *
world_transport_ucx(world *self)
{
    const tutti_transport_ucx_options options = {.transports = "tcp", .devices = "lo"};
    tutti_transport *transport = NULL;
    tutti_error err;

    (void)self;
    assert_ok(tutti_transport_ucx_open(&options, &transport, &err));
    return transport;
}
