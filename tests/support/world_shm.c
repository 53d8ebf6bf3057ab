#include "coll/shm/shm.h"
#include "support/testing.h"
#include "support/world.h"

/* Shared memory among threads: the inner transport is the fake one, and only carries what must. */
tutti_transport *
world_transport_shm(world *self)
{
    const tutti_transport_shm_options options = {
        .inner = world_transport_fake(self), .host_id = "this host", .memory = -1, .inside = true};
    tutti_transport *transport = NULL;
    tutti_error err;

    assert_ok(tutti_transport_shm_open(&options, &transport, &err));
    return transport;
}
