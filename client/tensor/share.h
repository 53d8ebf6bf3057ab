/* Private to client: tensors mapped into this process. */
#ifndef TUTTI_CLIENT_TENSOR_SHARE_H
#define TUTTI_CLIENT_TENSOR_SHARE_H

#include "share/share.h"
#include "tutti/tensor.h"

/* What an agent says of a tensor's memory, checked. */
typedef struct client_share_offer {
    tutti_handle handle; /* known */
    uint64_t bytes;
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    char socket[TUTTI_SHARE_NAME_MAX + 1];
} client_share_offer;

/* share_pb.c. TUTTI_DATA_LOSS  it makes no sense; and what tutti_tensor_map says */
tutti_code client_wire_share(tutti_client *client, const char *handle, bool writable,
                             const char *host_id, client_share_offer *ret_offer, tutti_error *err);

#endif
