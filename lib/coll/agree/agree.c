/*
 * The exchange of signatures and its verdict; agree.h says how it works,
 * docs/decisions/0001-agreement.md why. Pure: the engine moves the bytes, on its thread.
 *
 * Why the verdict is alike on all ranks: after the last round every rank has the same signature (or
 * OTHER) for each group rank, unless more than TUTTI_AGREE_KINDS_MAX kinds are about. The tables of
 * kinds may be in different orders, since each rank heard of them in its own, so nothing below
 * depends on that order: comparisons go through group ranks, and camps are sorted.
 *
 * Bytes come from other processes: runs are checked against the size of the group and the end of
 * the message before they are used.
 */
#include "coll/agree/agree.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/agree/agree_private.h"
#include "coll/infer/signature.h"
#include "coll/packet/packet.h"

uint32_t
tutti_agree_rounds(uint32_t size)
{
    uint32_t rounds = 0;

    while (((uint64_t)1 << rounds) < size) {
        rounds++;
    }
    return rounds;
}

uint32_t
tutti_agree_to(uint32_t size, uint32_t group_rank, uint32_t round)
{
    return (uint32_t)(((uint64_t)group_rank + ((uint64_t)1 << round)) % size);
}

uint32_t
tutti_agree_from(uint32_t size, uint32_t group_rank, uint32_t round)
{
    return (uint32_t)(((uint64_t)group_rank + size - ((uint64_t)1 << round)) % size);
}

/* The bound of `out` is what the longest message needs: a run for each rank, and all riders. */
tutti_coll_agree *
tutti_agree_new(uint32_t size, uint32_t group_rank, const tutti_coll_args *own)
{
    tutti_coll_agree *self = calloc(1, sizeof(*self) + size);

    assert(group_rank < size);
    if (self == NULL) {
        return NULL;
    }
    self->size = size;
    self->own = group_rank;
    memset(self->of, UNKNOWN, size);
    self->kinds[0].size = tutti_signature_write(own, self->kinds[0].bytes);
    self->kind_count = 1;
    self->of[group_rank] = 0;
    tutti_buf_init(&self->out,
                   (size_t)size * (RUN_BYTES + TUTTI_SIGNATURE_BYTES) + RUN_BYTES +
                       (size_t)TUTTI_AGREE_RIDING_RANKS_MAX * TUTTI_AGREE_PIGGYBACK_MAX);
    return self;
}

void
tutti_agree_free(tutti_coll_agree *agree)
{
    if (agree != NULL) {
        tutti_buf_fini(&agree->out);
        free(agree->riders);
        free(agree);
    }
}

static tutti_code
write_run(tutti_coll_agree *self, uint32_t first, uint32_t count, uint8_t of, tutti_error *err)
{
    const agree_kind *one = of == OTHER ? NULL : &self->kinds[of];
    unsigned char head[RUN_BYTES];

    tutti_packet_put_u32(head, first);
    tutti_packet_put_u32(head + 4, count);
    head[8] = (unsigned char)(one == NULL ? 0 : one->size);
    head[9] = 0;
    TUTTI_TRY(tutti_buf_add(&self->out, head, sizeof(head), err));
    if (one != NULL) {
        TUTTI_TRY(tutti_buf_add(&self->out, one->bytes, one->size, err));
    }
    return TUTTI_OK;
}

/* Neighbours with the same signature make one run; ranks that we have not heard of are left out. */
tutti_code
tutti_agree_write(tutti_coll_agree *agree, tutti_bytes *ret_bytes, tutti_error *err)
{
    tutti_code code = TUTTI_OK;
    uint32_t first = 0;
    uint32_t end;

    agree->out.size = 0;
    while (first < agree->size && code == TUTTI_OK) {
        for (end = first + 1; end < agree->size && agree->of[end] == agree->of[first]; end++) {
        }
        if (agree->of[first] != UNKNOWN) {
            code = write_run(agree, first, end - first, agree->of[first], err);
        }
        first = end;
    }
    if (code == TUTTI_OK && agree->all_piggyback) {
        code = tutti_agree_write_riders(agree, err);
    }
    *ret_bytes = (tutti_bytes){agree->out.data, agree->out.size};
    return code;
}

/* The index of a signature in our table, put in if there is room. When there is none it is OTHER:
 * the verdict is a mismatch all the same, with fewer words. */
static uint8_t
find_kind(tutti_coll_agree *self, const unsigned char *bytes, size_t size)
{
    uint32_t i;

    for (i = 0; i < self->kind_count; i++) {
        if (self->kinds[i].size == size && memcmp(self->kinds[i].bytes, bytes, size) == 0) {
            return (uint8_t)i;
        }
    }
    if (self->kind_count == TUTTI_AGREE_KINDS_MAX) {
        return OTHER;
    }
    self->kinds[i].size = size;
    memcpy(self->kinds[i].bytes, bytes, size);
    self->kind_count++;
    return (uint8_t)i;
}

/* A run, with its signature. False: malformed. [out] ret_used  its bytes */
static bool
read_run(tutti_coll_agree *self, const unsigned char *at, size_t size, size_t *ret_used)
{
    const uint32_t first = tutti_packet_get_u32(at);
    const uint32_t count = tutti_packet_get_u32(at + 4);
    const size_t bytes = at[8];
    tutti_coll_args args;

    if (bytes > size - RUN_BYTES || bytes > TUTTI_SIGNATURE_BYTES || first >= self->size ||
        count == 0 || count > self->size - first ||
        (bytes > 0 && !tutti_signature_read(at + RUN_BYTES, bytes, &args))) {
        return false;
    }
    memset(self->of + first, bytes > 0 ? find_kind(self, at + RUN_BYTES, bytes) : OTHER, count);
    *ret_used = RUN_BYTES + bytes;
    return true;
}

/*
 * What a rank hears replaces what it knew: both say the same of a rank, since a signature is made
 * once. A run of count 0 is the head of the riders, and the last. all_piggyback becomes false when
 * a message has none, and stays so: then no rank ends with all riders.
 */
tutti_code
tutti_agree_read(tutti_coll_agree *agree, const void *bytes, size_t size, tutti_error *err)
{
    const unsigned char *at = bytes;
    bool good = size > 0;
    bool piggyback = false;
    size_t used = 0;

    while (good && size > 0) {
        good = size >= RUN_BYTES;
        if (good && at != bytes && tutti_packet_get_u32(at + 4) == 0) {
            piggyback = tutti_agree_read_riders(agree, bytes, at, size);
            size = 0;
        } else if (good) {
            good = read_run(agree, at, size, &used);
            at += used;
            size -= used;
        }
    }
    if (!good) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INTERNAL, "BAD_PACKET",
            "the signatures that another rank sent are malformed: let all agents of "
            "the job have the same version");
    }
    agree->all_piggyback = piggyback;
    return TUTTI_OK;
}

/* How many ranks called it this way, and the first of them. */
static uint32_t
count_kind(const tutti_coll_agree *self, uint8_t of, uint32_t *ret_first)
{
    uint32_t count = 0;
    uint32_t i;

    for (i = self->size; i-- > 0;) {
        if (self->of[i] == of) {
            count++;
            *ret_first = i;
        }
    }
    return count;
}

typedef struct camp {
    uint8_t of;
    uint32_t count;
    uint32_t first;
} camp;

/* The few before the many: they are more likely the culprits. */
static int
compare_camps(const void *left, const void *right)
{
    const camp *a = left;
    const camp *b = right;

    if (a->count != b->count) {
        return a->count < b->count ? -1 : 1;
    }
    return a->first < b->first ? -1 : 1;
}

static int
compare_agreement_ranks(const void *left, const void *right)
{
    const uint32_t a = *(const uint32_t *)left;
    const uint32_t b = *(const uint32_t *)right;

    return a < b ? -1 : a > b;
}

/* "rank 3 called all_reduce(sum, FP16[2])": the ranks of a camp are numbers of the job, sorted. */
static void
describe_camp(const tutti_coll_agree *self, const camp *one, const uint32_t *ranks, bool first,
              bool by_step, tutti_text *text)
{
    uint32_t *members = malloc(one->count * sizeof(*members));
    tutti_coll_args args;
    uint32_t count = 0;
    uint32_t i;

    for (i = 0; i < self->size && members != NULL; i++) {
        if (self->of[i] == one->of) {
            members[count++] = ranks[i];
        }
    }
    tutti_text_add(text, "%srank%s ", first ? "" : ", ", one->count == 1 ? "" : "s");
    if (members != NULL) {
        qsort(members, count, sizeof(*members), compare_agreement_ranks);
        tutti_text_add_ranks(text, members, count, 8);
    }
    free(members);
    tutti_text_add(text, first ? " called " : " ");
    if (one->of == OTHER ||
        !tutti_signature_read(self->kinds[one->of].bytes, self->kinds[one->of].size, &args)) {
        tutti_text_add(text, "something else");
    } else {
        tutti_coll_describe(&args, text);
        tutti_text_add(text, "%s", by_step && args.step == 0 ? " without a step" : "");
    }
}

/*
 * The same words on every rank: camps are ordered by size and first rank, not by who heard what
 * first. A single rank against at least two others is named as the culprit; of two ranks neither is
 * more right.
 */
static tutti_code
write_mismatch(const tutti_coll_agree *self, tutti_signature_field field, const char *group,
               uint64_t sequence, const uint32_t *ranks, tutti_error *err)
{
    /* One for each kind, and one for OTHER. */
    camp camps[TUTTI_AGREE_KINDS_MAX + 1];
    char words[TUTTI_ERROR_TEXT_MAX];
    tutti_text text = tutti_text_in(words, sizeof(words));
    size_t camp_count = 0;
    const char *reason;
    tutti_code code;
    size_t i;

    for (i = 0; i <= self->kind_count; i++) {
        camp *one = &camps[camp_count];

        one->of = i == self->kind_count ? OTHER : (uint8_t)i;
        one->count = count_kind(self, one->of, &one->first);
        camp_count += one->count > 0 ? 1 : 0;
    }
    qsort(camps, camp_count, sizeof(camps[0]), compare_camps);
    tutti_text_add(&text, "group %s op %" PRIu64 ": %s differs: ", group, sequence,
                   tutti_signature_field_name(field));
    for (i = 0; i < camp_count; i++) {
        describe_camp(self, &camps[i], ranks, i == 0, field == TUTTI_FIELD_STEP, &text);
    }
    reason = tutti_signature_reason(field, &code);
    (void)TUTTI_FAIL_FOR(err, code, reason, "%s", words);
    tutti_error_set_op(err, group, sequence,
                       camps[0].count == 1 && self->size > 2 ? (int32_t)ranks[camps[0].first]
                                                             : TUTTI_ERROR_RANK_NONE);
    return code;
}

/*
 * The worst field over all pairs with `reference`; earlier fields are worse: it is of no use to say
 * that shapes differ if the ops do. Pairs without the reference need not be looked at: fields that
 * must be alike are alike with it, or differ.
 */
static tutti_signature_field
worst_field(const tutti_coll_agree *self, const tutti_coll_args *reference)
{
    tutti_signature_field worst = TUTTI_FIELD_NONE;
    tutti_coll_args other;
    uint32_t unused;
    uint32_t i;

    for (i = 0; i < self->kind_count; i++) {
        tutti_signature_field field;

        if (!tutti_signature_read(self->kinds[i].bytes, self->kinds[i].size, &other)) {
            return TUTTI_FIELD_OP;
        }
        field = tutti_signature_compare(reference, &other);
        if (field != TUTTI_FIELD_NONE && (worst == TUTTI_FIELD_NONE || field < worst)) {
            worst = field;
        }
    }
    return worst == TUTTI_FIELD_NONE && count_kind(self, OTHER, &unused) > 0 ? TUTTI_FIELD_SHAPE
                                                                             : worst;
}

/* Is there a rank that gave no spec? */
static bool
has_open(const tutti_coll_agree *self)
{
    tutti_coll_args args;
    uint32_t i;

    for (i = 0; i < self->kind_count; i++) {
        if (tutti_signature_read(self->kinds[i].bytes, self->kinds[i].size, &args) &&
            !args.has_spec) {
            return true;
        }
    }
    return false;
}

/*
 * The reference is the call of group rank 0; for an op from a root, that of the root, since only
 * the root knows the spec. A rank of which nothing was heard is a fault of a peer that left it out.
 */
tutti_code
tutti_agree_verdict(const tutti_coll_agree *agree, const char *group, uint64_t sequence,
                    const uint32_t *ranks, tutti_coll_args *ret_reference, bool *ret_open,
                    tutti_error *err)
{
    tutti_coll_args reference;
    tutti_signature_field field;
    const agree_kind *one;

    if (memchr(agree->of, UNKNOWN, agree->size) != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "BAD_PACKET",
                              "group %s op %" PRIu64
                              ": the signatures of some ranks did not arrive",
                              group, sequence);
    }
    one = &agree->kinds[agree->of[0] == OTHER ? 0 : agree->of[0]];
    if (!tutti_signature_read(one->bytes, one->size, &reference)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INTERNAL, "BAD_PACKET", "a signature that cannot be read");
    }
    if (tutti_coll_is_from_root(reference.kind) && reference.root < agree->size &&
        agree->of[reference.root] < OTHER) {
        one = &agree->kinds[agree->of[reference.root]];
        (void)tutti_signature_read(one->bytes, one->size, &reference);
    }
    field = agree->kind_count == 1 ? TUTTI_FIELD_NONE : worst_field(agree, &reference);
    if (field != TUTTI_FIELD_NONE) {
        return write_mismatch(agree, field, group, sequence, ranks, err);
    }
    *ret_reference = reference;
    *ret_open = tutti_coll_is_from_root(reference.kind) && has_open(agree);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ agree piggyback */

void
tutti_agree_piggyback(tutti_coll_agree *agree, const void *bytes, size_t size)
{
    assert(size > 0 && size <= TUTTI_AGREE_PIGGYBACK_MAX && agree->riders == NULL);
    agree->riders = agree->size <= TUTTI_AGREE_RIDING_RANKS_MAX ? calloc(agree->size, size) : NULL;
    if (agree->riders != NULL) { /* else the op has rounds of its own */
        agree->piggyback_size = size;
        agree->all_piggyback = true;
        memcpy(agree->riders + agree->own * size, bytes, size);
    }
}

const unsigned char *
tutti_agree_riders(const tutti_coll_agree *agree, size_t *ret_size)
{
    *ret_size = agree->piggyback_size;
    return agree->all_piggyback ? agree->riders : NULL;
}

tutti_code
tutti_agree_write_riders(tutti_coll_agree *self, tutti_error *err)
{
    unsigned char head[RUN_BYTES] = {0};
    uint32_t i;

    tutti_packet_put_u32(head, (uint32_t)self->piggyback_size);
    TUTTI_TRY(tutti_buf_add(&self->out, head, sizeof(head), err));
    for (i = 0; i < self->size; i++) {
        if (self->of[i] != UNKNOWN) {
            TUTTI_TRY(tutti_buf_add(&self->out, self->riders + i * self->piggyback_size,
                                    self->piggyback_size, err));
        }
    }
    return TUTTI_OK;
}

/* The runs were checked by read_run, so `first` and `count` are inside the group. Riders of another
 * length mean that some call differs: then there are none, and the verdict or messages follow. */
bool
tutti_agree_read_riders(tutti_coll_agree *self, const unsigned char *runs,
                        const unsigned char *riders, size_t size)
{
    const unsigned char *const end = riders + size;
    const unsigned char *at = riders + RUN_BYTES;

    if (!self->all_piggyback || tutti_packet_get_u32(riders) != self->piggyback_size) {
        return false;
    }
    while (runs < riders) {
        const size_t bytes = (size_t)tutti_packet_get_u32(runs + 4) * self->piggyback_size;

        if ((size_t)(end - at) < bytes) {
            return false;
        }
        memcpy(self->riders + tutti_packet_get_u32(runs) * self->piggyback_size, at, bytes);
        at += bytes;
        runs += RUN_BYTES + runs[8];
    }
    return at == end;
}
