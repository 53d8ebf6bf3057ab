/*
 * Answers of uploads and downloads: hooks of transfer.
 */
#ifndef TUTTI_SERVER_AGENT_SERVICE_TRANSFER_H
#define TUTTI_SERVER_AGENT_SERVICE_TRANSFER_H

#include "rpc/message.h"
#include "server/agent/state/types.h"
#include "tensor/tensor.h"

/* Of a part no tensor. */
void agent_answer_upload(agent_access *access, const tutti_tensor *tensor);
void agent_write_download(agent_access *access, const tutti_tensor *tensor,
                          const tutti_rpc_blob *blob);

#endif
