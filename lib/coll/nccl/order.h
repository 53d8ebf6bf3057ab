/*
 * Private to coll/nccl: the order in which ops of several groups reach the devices.
 *
 * Collectives on a device wait for each other's kernels on other devices. Two ops that two agents
 * launch in different orders can wait for each other for ever. So all agents launch in one order,
 * by tickets (D. Skeen's total order, as in Birman, Joseph 1987): each member of an op's group
 * proposes its clock plus one, the largest proposal is the op's ticket, and clocks follow it. An op
 * is launched when no other here has, or can still get, a smaller ticket. Proposals are made when
 * all members have called the op, so that nothing but messages under way holds the line.
 *
 * Pure: no messages, no device.
 */
#ifndef TUTTI_COLL_NCCL_ORDER_H
#define TUTTI_COLL_NCCL_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/data/list.h"

/* An op in the line. Embedded. */
typedef struct nccl_place {
    tutti_list_node link;
    uint64_t ticket; /* proposed, or final */
    uint64_t group;  /* equal tickets: by group, then by number */
    uint64_t sequence;
    bool final;
} nccl_place;

typedef struct nccl_line {
    uint64_t clock;
    tutti_list_node places;
} nccl_line;

void tutti_nccl_line_init(nccl_line *line);

/* Join the line: place->ticket is our proposal. group and sequence are filled in. */
void tutti_nccl_line_propose(nccl_line *line, nccl_place *place);

/* The largest proposal of all members. */
void tutti_nccl_line_settle(nccl_line *line, nccl_place *place, uint64_t ticket);

/* Whose turn it is; NULL: nobody's yet. */
nccl_place *tutti_nccl_line_head(const nccl_line *line);

/* Launched, or failed. Not in the line is fine. */
void tutti_nccl_line_leave(nccl_place *place);

#endif
