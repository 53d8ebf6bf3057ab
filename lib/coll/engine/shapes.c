/*
 * Lists whose tensors have shapes of their own: each rank tells who will get its tensors what they
 * are. The data types are agreed already.
 */
#include <stdlib.h>

#include "base/fail.h"
#include "coll/engine/announce.h"
#include "coll/infer/infer.h"

static const tutti_spec *
spec_for(const tutti_coll_args *args, uint32_t rank, uint32_t k)
{
    if (args->kind == TUTTI_COLL_ALL_TO_ALL) {
        return &args->list[rank].spec;
    }
    return args->coalesced ? &args->list[k].spec : &args->spec;
}

static bool
gets_anything(const tutti_coll_op *op, uint32_t rank)
{
    return !tutti_coll_is_to_root(op->args.kind) || rank == op->args.root;
}

static size_t
write_specs(const tutti_coll_op *op, uint32_t rank, unsigned char *bytes)
{
    const uint32_t count = tutti_coll_parts(&op->args);
    size_t size = 0;
    uint32_t k;

    for (k = 0; k < count; k++) {
        size += tutti_packet_write_spec(spec_for(&op->args, rank, k), bytes + size);
    }
    return size;
}

tutti_code
tutti_coll_send_shapes(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    const uint32_t count = tutti_coll_parts(&op->args);
    const size_t room = (size_t)count * TUTTI_PACKET_SPEC_BYTES;
    tutti_code code = tutti_coll_told_new(op, room * group->size, err);
    uint32_t i;
    uint32_t k;

    op->shapes = calloc((size_t)count * group->size, sizeof(*op->shapes));
    if (code != TUTTI_OK || op->shapes == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the shapes of a list");
    }
    for (i = 0; i < group->size; i++) {
        unsigned char *bytes = op->told->bytes + room * i;

        if (i == group->rank) {
            for (k = 0; k < count; k++) {
                op->shapes[k * group->size + i] = *spec_for(&op->args, i, k);
            }
            continue;
        }
        if (gets_anything(op, i)) {
            tutti_coll_post_packet(op, TUTTI_PACKET_DATA, STEP_ANNOUNCE, group->ranks[i], bytes,
                                   write_specs(op, i, bytes), 0);
        }
        if (gets_anything(op, group->rank)) {
            tutti_coll_expect(op, STEP_ANNOUNCE, group->ranks[i], NULL, 0, true, NULL);
        }
    }
    return TUTTI_OK;
}

tutti_code
tutti_coll_hear_shapes(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size,
                       tutti_error *err)
{
    const uint32_t count = tutti_coll_parts(&op->args);
    const unsigned char *at = bytes;
    uint32_t k;

    for (k = 0; k < count; k++) {
        tutti_spec *spec = &op->shapes[k * op->group->size + from];
        const size_t used = tutti_packet_read_spec(at, size, spec);

        if (used == 0) {
            break;
        }
        at += used;
        size -= used;
    }
    if (k < count || size > 0) {
        return TUTTI_FAIL(err, TUTTI_INTERNAL, "shapes from another rank are malformed");
    }
    return TUTTI_OK;
}
