/*
 * Goal: an error that a hostile server sends does no harm and can be shown; names that a hostile
 * client asks reflection for are looked up without harm.
 * Method: the input as details of a status, as its text, and as a name.
 */
#include <grpc/grpc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "echo_pb.h"
#include "rpc/loop.h"
#include "rpc/message/check.h"
#include "rpc/message/descriptors_pb.h"
#include "rpc/message/status_pb.h"

static rpc_descriptors *descriptors;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    tutti_rpc_init();
    return rpc_descriptors_open(echo_descriptor_set(), &descriptors, NULL) == TUTTI_OK ? 0 : 1;
}

static void
check_text(const char *text)
{
    if (!rpc_check_text(tutti_bytes_of(text))) {
        abort();
    }
}

static void
look_up(const uint8_t *data, size_t size)
{
    char *name = malloc(size + 1);

    if (name == NULL) {
        return;
    }
    memcpy(name, data, size);
    name[size] = '\0';
    (void)rpc_descriptors_file(descriptors, name);
    (void)rpc_descriptors_symbol(descriptors, name);
    (void)rpc_descriptors_has_type(descriptors, name);
    free(name);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tutti_bytes bytes = {data, size};
    rpc_status status;
    tutti_error err;
    bool from_peer = false;

    if (rpc_status_decode(GRPC_STATUS_FAILED_PRECONDITION, bytes, bytes, &from_peer, &err) !=
        TUTTI_FAILED_PRECONDITION) {
        abort();
    }
    check_text(err.text);
    check_text(err.reason);
    check_text(err.group);
    rpc_status_init(&status, &err); /* it may be passed on */
    rpc_status_fini(&status);
    look_up(data, size);
    return 0;
}
