#include "coll/tcp/tcp.h"
#include "coll/transport_auth/transport_auth.h"
#include "support/testing.h"
#include "support/world.h"

tutti_transport *
world_transport_auth(world *self)
{
    const tutti_transport_tcp_options options = {.devices = "lo"};
    tutti_transport *transport = NULL;
    tutti_error err;

    assert_ok(tutti_transport_tcp_open(&options, &transport, &err));
    assert_ok(
        tutti_transport_auth_open(transport, self->incarnations[self->opening], &transport, &err));
    return transport;
}
