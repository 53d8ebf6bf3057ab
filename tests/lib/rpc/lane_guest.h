/* The client's end of a lane of the echo server, as a client of an agent has it. */
#ifndef TUTTI_TESTS_RPC_LANE_GUEST_H
#define TUTTI_TESTS_RPC_LANE_GUEST_H

#include "lane/lane.h"
#include "rig.h"
#include "rpc/lane.h"

typedef struct lane_guest {
    tutti_rpc_lane *offer;
    tutti_lane rings;
    void *data;
    char name[TUTTI_RPC_LANE_NAME_SIZE];
    tutti_rpc_lane_end end;
} lane_guest;

/* [in] identity  of who may use it; [in] first  byte of its name, which is zeros else */
void lane_guest_open(const rig *self, const char *identity, unsigned char first, lane_guest *ret);
void lane_guest_close(lane_guest *self);

#endif
