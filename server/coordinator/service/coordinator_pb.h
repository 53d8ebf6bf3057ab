/* What CoordinatorService has in files of its own. For the *_pb.c files of this folder. */
#ifndef TUTTI_SERVER_COORDINATOR_SERVICE_COORDINATOR_PB_H
#define TUTTI_SERVER_COORDINATOR_SERVICE_COORDINATOR_PB_H

#include "rpc/server.h"

extern const tutti_rpc_stream_ops coord_join_stream;    /* join_pb.c */
extern const tutti_rpc_stream_ops coord_session_stream; /* session_pb.c */
extern const tutti_rpc_stream_ops coord_members_stream; /* members_watch_pb.c */
extern const tutti_rpc_stream_ops coord_backup_stream;  /* backup_pb.c */

/* groups_pb.c */
void coord_on_create_group(tutti_rpc_call *call, void *arg);
void coord_on_get_group(tutti_rpc_call *call, void *arg);
void coord_on_list_groups(tutti_rpc_call *call, void *arg);
void coord_on_abort_group(tutti_rpc_call *call, void *arg);
void coord_on_shrink_group(tutti_rpc_call *call, void *arg);
void coord_on_delete_group(tutti_rpc_call *call, void *arg);

/* split_pb.c */
void coord_on_create_subgroups(tutti_rpc_call *call, void *arg);
void coord_on_translate_ranks(tutti_rpc_call *call, void *arg);

/* progress_pb.c */
void coord_on_describe_stall(tutti_rpc_call *call, void *arg);

/* coordinator_pb.c */

/*
 * Entries of a page: those wanted, or the default for 0.
 *
 * TUTTI_INVALID_ARGUMENT  PAGE_LIMIT
 */
tutti_code coord_page_size(uint32_t wanted, size_t *ret_size, tutti_error *err);

#endif
