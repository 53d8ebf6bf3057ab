/* Uploads: bytes that go where they belong, in order. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "server/agent/staged.h"

void
agent_upload_commit(agent_access *access)
{
    agent_access_written(access, access->claim.count - 1);
    access->over = true;
    agent_answer_upload(access, agent_access_last(access));
}

static void
finish_upload(agent_access *self)
{
    tutti_error err;

    if (self->offset != self->end_offset) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                             "the upload ended after %" PRIu64 " bytes, %s has %" PRIu64,
                             self->offset - self->begin_offset,
                             self->parted ? "its part" : "the tensor",
                             self->end_offset - self->begin_offset);
        agent_stream_finish(self, &err);
    } else if (!self->parted || agent_parts_arrived(self)) {
        agent_upload_commit(self);
    }
}

/* Bytes that came before the turn go where they belong. */
static void
write_early(agent_access *self)
{
    tutti_tensor *tensor = agent_access_last(self);

    if (self->early != NULL) {
        memcpy((char *)tensor->data + self->offset, self->early, self->early_size);
        self->offset += self->early_size;
        free(self->early);
        self->early = NULL;
    }
}

void
agent_upload_turn(agent_access *access)
{
    tutti_tensor *tensor = agent_access_last(access);

    agent_parts_turn(access);
    if (access->early != NULL && !tutti_tensor_is_host(tensor)) {
        agent_staged_early(access, tensor); /* and reads on */
        return;
    }
    write_early(access);
    if (access->half_closed) {
        finish_upload(access);
    } else {
        tutti_rpc_call_read(access->call);
    }
}

static tutti_code
check_chunk(const agent_access *self, uint64_t offset, size_t size, tutti_error *err)
{
    if (size > TUTTI_CHUNK_BYTES_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "CHUNK_LIMIT",
                              "a chunk of %zu bytes, at most %u", size, TUTTI_CHUNK_BYTES_MAX);
    }
    if (size > 0 && offset != self->offset) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OFFSET",
                              "a chunk for offset %" PRIu64 ", %" PRIu64
                              " comes next: chunks come in order, without gaps",
                              offset, self->offset);
    }
    if (size > self->end_offset - self->offset) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SIZE_MISMATCH",
                              "%" PRIu64 " bytes are too many: %s has %" PRIu64,
                              self->offset - self->begin_offset + size,
                              self->parted ? "its part" : "the tensor",
                              self->end_offset - self->begin_offset);
    }
    return TUTTI_OK;
}

static tutti_code
keep_early(agent_access *self, tutti_rpc_message *message, size_t size, tutti_error *err)
{
    self->early = malloc(size);
    if (self->early == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to keep %zu bytes", size);
    }
    tutti_rpc_message_read(message, self->early, size);
    self->early_size = size;
    return TUTTI_OK;
}

void
agent_upload_chunk(agent_access *access, uint64_t offset, tutti_rpc_message *message)
{
    const size_t size = tutti_rpc_message_payload_bytes(message);
    tutti_error err;
    tutti_code code = check_chunk(access, offset, size, &err);

    if (code == TUTTI_OK && size > 0 && access->granted) {
        tutti_tensor *tensor = agent_access_last(access);

        if (tutti_tensor_is_host(tensor)) {
            tutti_rpc_message_read(message, (char *)tensor->data + access->offset, size);
            access->offset += size;
        } else {
            code = agent_staged_chunk(access, tensor, message, size, &err);
        }
    } else if (code == TUTTI_OK && size > 0) {
        code = keep_early(access, message, size, &err);
    }
    tutti_count(&access->agent->numbers.bytes_in, code == TUTTI_OK ? size : 0);
    if (code != TUTTI_OK) {
        agent_stream_finish(access, &err);
    }
}

void
agent_upload_end(agent_access *access)
{
    access->half_closed = true;
    if (access->granted && !agent_staged_is_busy(access)) {
        finish_upload(access);
    }
}
