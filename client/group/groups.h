/* Private to client: groups made, split and deleted at the coordinator. */
#ifndef TUTTI_CLIENT_GROUP_GROUPS_H
#define TUTTI_CLIENT_GROUP_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "client/conn/client.h"
#include "tutti/code.h"
#include "tutti/error.h"
#include "tutti/group.h"

/* `options` is taken and complete; the ranks are in order. */
tutti_code client_wire_group_create(tutti_client *client, const tutti_group_options *options,
                                    const uint32_t *ranks, size_t count, tutti_group_info *ret_info,
                                    tutti_error *err);
/* [in] id  0 = whichever has the name */
tutti_code client_wire_group_delete(tutti_client *client, const char *name, uint64_t id,
                                    bool missing_is_fine, tutti_error *err);

tutti_code client_wire_group_abort(tutti_client *client, const char *name, uint64_t id,
                                   const char *reason, tutti_error *err);

tutti_code client_wire_group_shrink(tutti_client *client, const char *name, uint32_t timeout_ms,
                                    tutti_group_info *ret_info, tutti_error *err);

/* `options` and `split` are taken and complete. */
tutti_code client_wire_group_split(tutti_client *client, const tutti_group_options *options,
                                   const tutti_split *split, tutti_group_info *ret_info,
                                   tutti_rank_lists *ret_lists, tutti_error *err);

#endif
