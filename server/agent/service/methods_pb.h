/* Private to server/agent: handlers of methods (rpc/server.h) that have files of their own, for the
 * tables of their services. They run on the loop of their service; `self` is the tutti_agent. */
#ifndef TUTTI_SERVER_AGENT_SERVICE_METHODS_PB_H
#define TUTTI_SERVER_AGENT_SERVICE_METHODS_PB_H

#include "rpc/server.h"

/* infer_pb.c: of CollectivesService */
void agent_on_infer(tutti_rpc_call *call, void *self);

/* works_pb.c: of CollectivesService */
void agent_on_wait(tutti_rpc_call *call, void *self);
void agent_on_test(tutti_rpc_call *call, void *self);
void agent_on_cancel(tutti_rpc_call *call, void *self);
void agent_on_sync(tutti_rpc_call *call, void *self);

/* copy_pb.c, tensors_info_pb.c: of TensorsService */
void agent_on_copy(tutti_rpc_call *call, void *self);
void agent_on_list(tutti_rpc_call *call, void *self);
void agent_on_stat(tutti_rpc_call *call, void *self);

/* lease_pb.c: of TensorsService */
extern const tutti_rpc_stream_ops agent_lease_ops;
void agent_on_close_lease(tutti_rpc_call *call, void *self);

/* serve_pb.c: of FunctionsService */
extern const tutti_rpc_stream_ops agent_serve_ops;

/* share_events_pb.c: of TensorsService */
extern const tutti_rpc_stream_ops agent_share_events_ops;

/* share_pb.c: of TensorsService */
void agent_on_share(tutti_rpc_call *call, void *self);

/* lanes_pb.c: of CommandsService */
void agent_on_open_lane(tutti_rpc_call *call, void *self);

#endif
