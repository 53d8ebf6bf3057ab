#include "lane_guest.h"

#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

void
lane_guest_open(const rig *self, const char *identity, unsigned char first, lane_guest *ret)
{
    unsigned char name[TUTTI_RPC_LANE_NAME_BYTES] = {first};
    tutti_error err;
    int memory = -1;
    int bell = -1;
    size_t i;

    assert_ok(tutti_rpc_lane_new(self->server.lanes, identity, &memory, &bell, &ret->offer, &err));
    tutti_rpc_lane_name(ret->offer, name);
    for (i = 0; i < sizeof(name); i++) {
        (void)snprintf(ret->name + 2 * i, 3, "%02x", name[i]);
    }
    ret->data = mmap(NULL, tutti_lane_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    assert_true(ret->data != MAP_FAILED);
    assert_ok(tutti_lane_attach(&ret->rings, ret->data, tutti_lane_bytes(), dup(bell), &err));
    assert_int_equal(close(memory), 0);
    ret->end = (tutti_rpc_lane_end){.lane = &ret->rings, .name = ret->name, .lease = -1};
}

void
lane_guest_close(lane_guest *self)
{
    tutti_rpc_lane_drop(self->offer);
    tutti_lane_close(&self->rings);
    assert_int_equal(munmap(self->data, tutti_lane_bytes()), 0);
}
