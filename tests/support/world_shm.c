#include "coll/shm/coll_shm.h"
#include "support/testing.h"
#include "support/world.h"

/* Shared memory among threads: the inner wire is the fake one, and only carries what must. */
tutti_wire *
world_wire_shm(world *self)
{
    const tutti_wire_shm_options options = {
        .inner = world_wire_fake(self), .host_id = "this host", .memory = -1, .inside = true};
    tutti_wire *wire = NULL;
    tutti_error err;

    assert_ok(tutti_wire_shm_open(&options, &wire, &err));
    return wire;
}
