/*
 * What signatures do not hold: how many rows, or which shapes, each rank will send, and what the
 * root has to say besides its shape. It travels in one round between the agreement and the data; a
 * second agreement (PHASE_CONFIRM) makes sure that every rank could use it. Signatures stay small
 * and of one size that way (docs/decisions/0010-lists-and-what-a-root-tells.md).
 *
 * Engine's thread. Memory is the op's: sent messages are read by the transport until their ticket
 * comes back, so they are freed only with the op. A failure at any point fails the op; what was
 * made by then is freed at its release.
 */
#include "coll/engine/announce.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/engine/group.h"
#include "coll/engine/op.h"
#include "coll/engine/p2p.h"
#include "coll/infer/infer.h"
#include "coll/infer/signature.h"
#include "coll/net/io.h"
#include "coll/packet/packet.h"
#include "coll/state/lookup.h"

/* ------------------------------ what the root says */

tutti_code
tutti_coll_announced_new(tutti_coll_op *op, size_t bytes, tutti_error *err)
{
    op->announced = calloc(1, sizeof(*op->announced));
    if (op->announced != NULL) {
        op->announced->bytes = malloc(bytes > 0 ? bytes : 1);
    }
    if (op->announced == NULL || op->announced->bytes == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the root's message about shapes");
    }
    return TUTTI_OK;
}

static size_t
root_info_bytes_max(const tutti_coll_args *args)
{
    return 8 + args->meta.size + (size_t)args->split_count * 8 +
           (size_t)args->list_count * (4 + TUTTI_PACKET_SPEC_BYTES);
}

/* |u32 count of tensors, for each: u32 axis, spec |u32 count of splits, each u64 |the rest: the
 * meta bytes of the caller */
static size_t
write_root_info(const tutti_coll_args *args, unsigned char *bytes)
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

/* All members get the same bytes from one buffer: the sends only read it. */
static tutti_code
send_root_info(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    size_t size;
    uint32_t i;

    if (group->rank != op->args.root) {
        tutti_coll_expect(op, STEP_ANNOUNCE, group->ranks[op->args.root], NULL, 0, true, NULL);
        return TUTTI_OK;
    }
    if (tutti_coll_announced_new(op, root_info_bytes_max(&op->args), err) != TUTTI_OK) {
        return err->code;
    }
    size = write_root_info(&op->args, op->announced->bytes);
    for (i = 0; i < group->size; i++) {
        if (i != group->rank) {
            tutti_coll_post_packet(op, TUTTI_PACKET_DATA, STEP_ANNOUNCE, group->ranks[i],
                                   op->announced->bytes, size, 0);
        }
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ hearing */

/* Where a message is read. After `broken` all reads give 0 and nothing moves, so a caller may ask
 * once, at the end. */
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

/* Counts come from another process: they are compared with the limit, or with the bytes that are
 * left, before memory is asked for. The + 1 is for a count of 0, since calloc(0) may give NULL. */
static tutti_code
read_root_info(tutti_coll_op *op, reader *self, tutti_error *err)
{
    tutti_coll_announced *announced = op->announced;
    const uint32_t tensors = read_u32(self);
    uint32_t splits;
    uint32_t i;

    self->broken = self->broken || tensors > TUTTI_COLL_LIST_MAX;
    announced->list = calloc(self->broken ? 1 : tensors + 1, sizeof(*announced->list));
    if (announced->list == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a list of tensors");
    }
    read_tensors(self, tensors, announced->list);
    splits = read_u32(self);
    self->broken = self->broken || (size_t)splits * 8 > self->left;
    announced->splits = calloc(self->broken ? 1 : splits + 1, sizeof(*announced->splits));
    if (announced->splits == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for splits");
    }
    for (i = 0; i < splits && !self->broken; i++) {
        const uint64_t low = read_u32(self);

        announced->splits[i] = (int64_t)(low | (uint64_t)read_u32(self) << 32);
    }
    op->args.list = tensors > 0 ? announced->list : NULL;
    op->args.list_count = tensors;
    op->args.root_splits = splits > 0 ? announced->splits : NULL;
    op->args.split_count = splits;
    return TUTTI_OK;
}

/*
 * A root that says the list form without a list, or the reverse, would make the op's args
 * contradict each other further on, so it is refused here. args are made harmless before the
 * failure: the op is still described in error texts and released by them.
 */
static tutti_code
recv_root_info(tutti_coll_op *op, const void *bytes, size_t size, tutti_error *err)
{
    reader in = {.at = bytes, .left = size};

    TUTTI_TRY(tutti_coll_announced_new(op, size, err));
    TUTTI_TRY(read_root_info(op, &in, err));
    if (in.broken || in.left > TUTTI_COLL_META_MAX ||
        (op->args.list == NULL) == op->args.coalesced) {
        op->args.list_count = 0;
        op->args.coalesced = false;
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "BAD_PACKET",
                              "the root's message about shapes is malformed");
    }
    memcpy(op->announced->bytes, in.at, in.left);
    op->meta = (tutti_bytes){op->announced->bytes, in.left};
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ shapes */

/* The shape that `rank` gets from us as tensor `k`. */
static const tutti_spec *
spec_for(const tutti_coll_args *args, uint32_t rank, uint32_t k)
{
    if (args->kind == TUTTI_COLL_ALL_TO_ALL) {
        return &args->list[rank].spec;
    }
    return args->coalesced ? &args->list[k].spec : &args->spec;
}

/* Of ops to a root only the root receives, so only it is told. */
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

/* op->shapes is [tensor][rank]. Each destination has its part of one buffer, `room` bytes each,
 * since all the messages are in flight together. What this rank gives itself is no message. */
static tutti_code
send_shapes(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    const uint32_t count = tutti_coll_parts(&op->args);
    const size_t room = (size_t)count * TUTTI_PACKET_SPEC_BYTES;
    tutti_code code = tutti_coll_announced_new(op, room * group->size, err);
    uint32_t i;
    uint32_t k;

    op->shapes = calloc((size_t)count * group->size, sizeof(*op->shapes));
    if (code != TUTTI_OK || op->shapes == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the shapes of a list");
    }
    for (i = 0; i < group->size; i++) {
        unsigned char *bytes = op->announced->bytes + room * i;

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

static tutti_code
recv_shapes(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size, tutti_error *err)
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
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "BAD_PACKET",
                              "shapes from another rank are malformed");
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ splits */

#define SHOWN_MAX 16

/* The count of rows is small enough for the header's `extra`: no data, no memory in flight. */
static tutti_code
send_splits(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    uint32_t i;

    op->counts = calloc(group->size, sizeof(*op->counts));
    if (op->counts == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to compare splits");
    }
    for (i = 0; i < group->size; i++) {
        const uint64_t rows = (uint64_t)op->args.send_splits[i];

        if (i == group->rank) {
            op->counts[i] = rows;
            continue;
        }
        tutti_coll_post_packet(op, TUTTI_PACKET_DATA, STEP_ANNOUNCE, group->ranks[i], NULL, 0,
                               rows);
        tutti_coll_expect(op, STEP_ANNOUNCE, group->ranks[i], NULL, 0, false, &op->counts[i]);
    }
    return TUTTI_OK;
}

static void
add_counts(const char *words, const uint64_t *counts, uint32_t size, tutti_text *text)
{
    uint32_t i;

    tutti_text_add(text, "%s [", words);
    for (i = 0; i < size && i < SHOWN_MAX; i++) {
        tutti_text_add(text, "%s%" PRIu64, i == 0 ? "" : ", ", counts[i]);
    }
    tutti_text_add(text, size > SHOWN_MAX ? ", ...]" : "]");
}

/*
 * Each rank compares what others will send it with what it expects: together these are all pairs.
 * The rank that finds a difference tells the others by its abort; the first rank that sends another
 * count is blamed.
 */
static tutti_code
compare_splits(const tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;
    const uint64_t *expected = (const uint64_t *)op->args.recv_splits;
    char words[TUTTI_ERROR_TEXT_MAX];
    tutti_text text = tutti_text_in(words, sizeof(words));
    uint32_t i = 0;

    while (i < group->size && op->counts[i] == expected[i]) {
        i++;
    }
    if (i == group->size) {
        return TUTTI_OK;
    }
    add_counts(" expects", expected, group->size, &text);
    add_counts(", ranks send", op->counts, group->size, &text);
    (void)TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "SPLITS_MISMATCH",
                         "group %s op %" PRIu64 ": splits differ: rank %" PRIu32 "%s", group->name,
                         op->sequence, group->ranks[group->rank], words);
    tutti_error_set_op(err, group->name, op->sequence, (int32_t)group->ranks[i]);
    return err->code;
}

/* ------------------------------ the two rounds */

enum {
    ANNOUNCE_NOTHING,
    ANNOUNCE_SPLITS,
    ANNOUNCE_SHAPES,
    ANNOUNCE_ROOT_INFO
};

void
tutti_coll_tell_what(tutti_coll_op *op, const tutti_coll_args *reference)
{
    op->announces = ANNOUNCE_NOTHING;
    if (op->args.has_splits) {
        op->announces = ANNOUNCE_SPLITS;
    } else if (tutti_signature_is_open(reference)) {
        op->announces = ANNOUNCE_SHAPES;
    } else if (tutti_signature_has_root_info(reference)) {
        op->announces = ANNOUNCE_ROOT_INFO;
    }
}

tutti_code
tutti_coll_announce(tutti_coll_op *op, tutti_error *err)
{
    switch (op->announces) {
    case ANNOUNCE_SPLITS:
        return send_splits(op, err);
    case ANNOUNCE_SHAPES:
        return send_shapes(op, err);
    default:
        return send_root_info(op, err);
    }
}

/* The io that gets here is one that came `whole` with STEP_ANNOUNCE: of a Recv these are the meta
 * bytes, since point-to-point ops have no PHASE_ANNOUNCE. */
tutti_code
coll_announce_recv(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size,
                   tutti_error *err)
{
    if (tutti_coll_op_is_p2p(op)) {
        return tutti_coll_p2p_recv_meta(op, bytes, size, err);
    }
    return op->announces == ANNOUNCE_SHAPES ? recv_shapes(op, from, bytes, size, err)
                                            : recv_root_info(op, bytes, size, err);
}

/* A list from the root: what each tensor of it becomes here. */
static tutti_code
use_list(tutti_coll_op *op, tutti_error *err)
{
    tutti_spec *specs = NULL;
    uint32_t count = 0;
    tutti_code code;

    if (!op->args.coalesced || op->on_list == NULL) {
        return TUTTI_OK;
    }
    code = tutti_coll_infer_list(&op->args, op->group->size, op->group->rank, &specs, &count, err);
    if (code == TUTTI_OK) {
        code = op->on_list(op, specs, count, err);
    }
    free(specs);
    return code;
}

/* Ranks that get nothing (of an op to a root) have no shapes to use. */
tutti_code
tutti_coll_use_announced(tutti_coll_op *op, tutti_error *err)
{
    const tutti_coll_group *group = op->group;

    if (op->announces == ANNOUNCE_SPLITS) {
        return compare_splits(op, err);
    }
    if (op->announces == ANNOUNCE_ROOT_INFO) {
        return use_list(op, err);
    }
    if (tutti_coll_is_to_root(op->args.kind) && group->rank != op->args.root) {
        return TUTTI_OK;
    }
    return op->on_list(op, op->shapes, group->size * tutti_coll_parts(&op->args), err);
}

void
tutti_coll_free_announced(tutti_coll_op *op)
{
    free(op->counts);
    free(op->shapes);
    if (op->announced != NULL) {
        free(op->announced->bytes);
        free(op->announced->list);
        free(op->announced->splits);
        free(op->announced);
    }
    op->counts = NULL;
    op->shapes = NULL;
    op->announced = NULL;
}
