/* Private to server/agent: methods in files of their own, for the files of their services. */
#ifndef TUTTI_SERVER_AGENT_SERVICE_METHODS_PB_H
#define TUTTI_SERVER_AGENT_SERVICE_METHODS_PB_H

#include "rpc/server.h"

/* collectives_pb.c, parts_pb.c: of CollectivesService */
void agent_on_all_reduce(tutti_rpc_call *call, void *self);
void agent_on_broadcast(tutti_rpc_call *call, void *self);
void agent_on_all_gather(tutti_rpc_call *call, void *self);
void agent_on_reduce(tutti_rpc_call *call, void *self);
void agent_on_reduce_scatter(tutti_rpc_call *call, void *self);
void agent_on_gather(tutti_rpc_call *call, void *self);
void agent_on_scatter(tutti_rpc_call *call, void *self);
void agent_on_all_to_all(tutti_rpc_call *call, void *self);
void agent_on_permute(tutti_rpc_call *call, void *self);

/* infer_pb.c: of CollectivesService */
void agent_on_infer(tutti_rpc_call *call, void *self);

/* works_pb.c: of CollectivesService */
void agent_on_wait(tutti_rpc_call *call, void *self);
void agent_on_test(tutti_rpc_call *call, void *self);
void agent_on_sync(tutti_rpc_call *call, void *self);

/* copy_pb.c, tensors_info_pb.c: of TensorsService */
void agent_on_copy(tutti_rpc_call *call, void *self);
void agent_on_list(tutti_rpc_call *call, void *self);
void agent_on_stat(tutti_rpc_call *call, void *self);

/* lease_pb.c: of TensorsService */
extern const tutti_rpc_stream_ops agent_lease_ops;

/* share_pb.c: of TensorsService */
void agent_on_share(tutti_rpc_call *call, void *self);

#endif
