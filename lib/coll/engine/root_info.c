/*
 * What the root of a broadcast or scatter tells besides its shape: the tensors of a coalesced op,
 * how many rows each rank gets, and bytes of the caller's that travel with the tensor.
 *
 *     u32 tensors, { u32 axis, spec } each; u32 splits, i64 each; the rest: the caller's bytes
 */
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "coll/engine/announce.h"

tutti_code
tutti_coll_told_new(tutti_coll_op *op, size_t bytes, tutti_error *err)
{
    op->told = calloc(1, sizeof(*op->told));
    if (op->told != NULL) {
        op->told->bytes = malloc(bytes > 0 ? bytes : 1);
    }
    if (op->told == NULL || op->told->bytes == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for what a root tells");
    }
    return TUTTI_OK;
}

static size_t
head_bytes_max(const tutti_coll_args *args)
{
    return 8 + args->meta.size + (size_t)args->split_count * 8 +
           (size_t)args->list_count * (4 + TUTTI_PACKET_SPEC_BYTES);
}

static size_t
write_head(const tutti_coll_args *args, unsigned char *bytes)
{
    const uint32_t tensors = args->coalesced ? args->list_count : 0;
    const uint32_t splits = args->root_splits != NULL ? args->split_count : 0;
    size_t at = 4;
    uint32_t i;

    tutti_packet_put_u32(bytes, tensors);
    for (i = 0; i < tensors; i++) {
        tutti_packet_put_u32(bytes + at, args->list[i].axis);
        at += 4 + tutti_packet_write_spec(&args->list[i].spec, bytes + at + 4);
    }
    tutti_packet_put_u32(bytes + at, splits);
    at += 4;
    for (i = 0; i < splits; i++, at += 8) {
        tutti_packet_put_u64(bytes + at, (uint64_t)args->root_splits[i]);
    }
    if (args->meta.size > 0) {
        memcpy(bytes + at, args->meta.data, args->meta.size);
    }
    return at + args->meta.size;
}

tutti_code
tutti_coll_send_head(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    size_t size;
    uint32_t i;

    if (group->rank != op->args.root) {
        tutti_coll_expect(op, STEP_ANNOUNCE, group->ranks[op->args.root], NULL, 0, true, NULL);
        return TUTTI_OK;
    }
    if (tutti_coll_told_new(op, head_bytes_max(&op->args), err) != TUTTI_OK) {
        return err->code;
    }
    size = write_head(&op->args, op->told->bytes);
    for (i = 0; i < group->size; i++) {
        if (i != group->rank) {
            tutti_coll_post_packet(op, TUTTI_PACKET_DATA, STEP_ANNOUNCE, group->ranks[i],
                                   op->told->bytes, size, 0);
        }
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ hearing */

typedef struct reader {
    const unsigned char *at;
    size_t left;
    bool broken;
} reader;

static uint32_t
read_u32(reader *self)
{
    uint32_t number = 0;

    if (self->left < 4) {
        self->broken = true;
        return 0;
    }
    number = tutti_packet_get_u32(self->at);
    self->at += 4;
    self->left -= 4;
    return number;
}

static void
read_tensors(reader *self, uint32_t count, tutti_coll_tensor *tensors)
{
    uint32_t i;

    for (i = 0; i < count && !self->broken; i++) {
        size_t used;

        tensors[i].axis = read_u32(self);
        used = tutti_packet_read_spec(self->at, self->left, &tensors[i].spec);
        self->broken = self->broken || used == 0;
        self->at += used;
        self->left -= used;
    }
}

static tutti_code
read_head(tutti_coll_op *op, reader *self, tutti_error *err)
{
    tutti_coll_told *told = op->told;
    const uint32_t tensors = read_u32(self);
    uint32_t splits;
    uint32_t i;

    self->broken = self->broken || tensors > TUTTI_COLL_LIST_MAX;
    told->list = calloc(self->broken ? 1 : tensors + 1, sizeof(*told->list));
    if (told->list == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a list of tensors");
    }
    read_tensors(self, tensors, told->list);
    splits = read_u32(self);
    self->broken = self->broken || (size_t)splits * 8 > self->left;
    told->splits = calloc(self->broken ? 1 : splits + 1, sizeof(*told->splits));
    if (told->splits == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for splits");
    }
    for (i = 0; i < splits && !self->broken; i++) {
        const uint64_t low = read_u32(self);

        told->splits[i] = (int64_t)(low | (uint64_t)read_u32(self) << 32);
    }
    op->args.list = tensors > 0 ? told->list : NULL;
    op->args.list_count = tensors;
    op->args.root_splits = splits > 0 ? told->splits : NULL;
    op->args.split_count = splits;
    return TUTTI_OK;
}

tutti_code
tutti_coll_hear_head(tutti_coll_op *op, const void *bytes, size_t size, tutti_error *err)
{
    reader in = {.at = bytes, .left = size};
    tutti_code code = tutti_coll_told_new(op, size, err);

    if (code == TUTTI_OK) {
        code = read_head(op, &in, err);
    }
    if (code == TUTTI_OK && (in.broken || in.left > TUTTI_COLL_META_MAX ||
                             (op->args.list == NULL) == op->args.coalesced)) {
        op->args.list_count = 0;
        op->args.coalesced = false;
        code = TUTTI_FAIL(err, TUTTI_INTERNAL, "what the root told is malformed");
    }
    if (code == TUTTI_OK) {
        memcpy(op->told->bytes, in.at, in.left);
        op->meta = (tutti_bytes){op->told->bytes, in.left};
    }
    return code;
}
