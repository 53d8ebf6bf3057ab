#include "rpc/door/door.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>

#include "base/os/clock.h"
#include "rpc/loop.h"
#include "rpc/message.h"
#include "tutti-rpc/message.h"

static_assert((int)TUTTIRPC_UNAUTHENTICATED == (int)TUTTI_UNAUTHENTICATED &&
                  (int)TUTTIRPC_DATA_LOSS == (int)TUTTI_DATA_LOSS,
              "codes carry gRPC's numbers");
static_assert(TUTTIRPC_REASON_MAX == TUTTI_ERROR_REASON_MAX &&
                  TUTTIRPC_TEXT_MAX == TUTTI_ERROR_TEXT_MAX,
              "no text is cut on its way");

void
rpc_door_begin(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, tutti_rpc_init);
}

tuttirpc_code
rpc_door_status(tutti_code code, const tutti_error *err, tuttirpc_status *ret_status)
{
    if (code != TUTTI_OK && ret_status != NULL) {
        ret_status->code = (tuttirpc_code)code;
        (void)snprintf(ret_status->reason, sizeof(ret_status->reason), "%s", err->reason);
        (void)snprintf(ret_status->text, sizeof(ret_status->text), "%s", err->text);
    }
    return (tuttirpc_code)code;
}

uint64_t
rpc_door_ns(uint64_t ms)
{
    return ms > UINT64_MAX / TUTTI_NS_PER_MS ? UINT64_MAX : ms * TUTTI_NS_PER_MS;
}

const char *
tuttirpc_code_name(tuttirpc_code code)
{
    return tutti_code_name((tutti_code)code);
}

/* ------------------------------------------------------------------------------ messages */

const void *
tuttirpc_message_get(const tuttirpc_message *message)
{
    return tutti_rpc_message_get(message);
}

size_t
tuttirpc_message_payload_bytes(const tuttirpc_message *message)
{
    return tutti_rpc_message_payload_bytes(message);
}

size_t
tuttirpc_message_read_payload(tuttirpc_message *message, void *ret_bytes, size_t size)
{
    const size_t left = tutti_rpc_message_payload_bytes(message);
    const size_t taken = size < left ? size : left;

    if (taken > 0) {
        tutti_rpc_message_read(message, ret_bytes, taken);
    }
    return taken;
}

void
tuttirpc_message_free(tuttirpc_message *message)
{
    tutti_rpc_message_free(message);
}
