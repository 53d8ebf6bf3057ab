#include "coll/tcp/tcp.h"
#include "support/testing.h"
#include "support/world.h"

tutti_transport *
world_transport_tcp(world *self)
{
    const tutti_transport_tcp_options options = {.devices = "lo"};
    tutti_transport *transport = NULL;
    tutti_error err;

    (void)self;
    assert_ok(tutti_transport_tcp_open(&options, &transport, &err));
    return transport;
}
