/* Groups and lists of ranks on the wire. For the *_pb.c files of this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_SERVICE_GROUPS_PB_H
#define TUTTI_SERVER_COORDINATOR_SERVICE_GROUPS_PB_H

#include "base/data/spans.h"
#include "rpc/server.h"
#include "server/coordinator/group/groups.h"
#include "tutti/v1/coordinator_service.pb-c.h"

/* TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY, for an answer */
tutti_code coord_fail_answer(tutti_error *err);

/*
 * Borrows from the group and from `spans`; of "world" the ranks are made: free them with
 * coord_group_wire_fini.
 *
 * spans  room for them, where the caller takes them; else NULL
 *
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 */
tutti_code coord_group_to_wire(const tutti_coordinator_group *group, tutti_spans *spans,
                               Tutti__V1__Group *ret_wire, tutti_error *err);
/* Borrows the text. */
/* Who calls, for people; as long as the call. */
const char *coord_caller(const tutti_rpc_call *call);

void coord_abort_to_wire(const tutti_coordinator_abort *abort, Tutti__V1__GroupAbort *ret_wire);
void coord_group_wire_fini(const tutti_coordinator_group *group, Tutti__V1__Group *wire);

/* Lists on their way to the wire. One block of memory; borrows the ranks. */
typedef struct coord_wire_lists {
    Tutti__V1__RankList **pointers;
    size_t count;
} coord_wire_lists;

/*
 * Room for lists; fill each with coord_wire_lists_set.
 * TUTTI_RESOURCE_EXHAUSTED  NO_MEMORY
 */
tutti_code coord_wire_lists_init(coord_wire_lists *lists, size_t count, tutti_error *err);
void coord_wire_lists_set(coord_wire_lists *lists, size_t i, const uint32_t *ranks, size_t count);
void coord_wire_lists_fini(coord_wire_lists *lists);

#endif
