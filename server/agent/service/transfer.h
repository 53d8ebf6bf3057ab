/*
 * Answers of uploads and downloads: hooks of the room transfer (state/hooks.h). Bulk loop.
 */
#ifndef TUTTI_SERVER_AGENT_SERVICE_TRANSFER_H
#define TUTTI_SERVER_AGENT_SERVICE_TRANSFER_H

#include "rpc/message.h"
#include "server/agent/state/types.h"
#include "tensor/tensor.h"

/*
 * Answer the call of an upload whose bytes are here. [in] tensor  NULL for a part that follows.
 * Bulk loop
 */
void agent_answer_upload(agent_access *access, const tutti_tensor *tensor);
/* Write one message of a download, at access->offset. [in] blob  moved; NULL = no bytes */
void agent_write_download(agent_access *access, const tutti_tensor *tensor,
                          const tutti_rpc_blob *blob);

#endif
