/* Private to client: groups and lists of ranks, from the wire. */
#ifndef TUTTI_CLIENT_GROUP_GROUPS_PB_H
#define TUTTI_CLIENT_GROUP_GROUPS_PB_H

#include <stddef.h>

#include "tutti/error.h"
#include "tutti/group.h"
#include "tutti/v1/coordinator_service.pb-c.h"

/* [out, owned] ret  tutti_group_info_free it. TUTTI_DATA_LOSS: no group */
tutti_code client_read_group(const Tutti__V1__Group *message, tutti_group_info *ret,
                             tutti_error *err);

/* [out, owned] ret  tutti_rank_lists_free it */
tutti_code client_read_lists(Tutti__V1__RankList *const *messages, size_t count,
                             tutti_rank_lists *ret, tutti_error *err);

#endif
