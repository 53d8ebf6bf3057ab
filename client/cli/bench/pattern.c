#include "client/cli/bench/pattern.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "client/cli/bench/number.h"

#define ELEMENT_BYTES_MAX 16
#define EXACT_RANKS_MAX 64

/* One period of what a rank gives, or of a reduction, as bytes and as numbers. */
typedef struct block {
    double numbers[BENCH_PERIOD][2]; /* of complex ones both parts */
    unsigned char bytes[BENCH_PERIOD * ELEMENT_BYTES_MAX];
} block;

/* ------------------------------------------------------------------------------ what is given */

/*
 * The factors are there so that neighbours in rank, index and check differ. Reduced numbers are
 * small, so that sums of 64 ranks are exact in every dtype that rounds.
 */
static double
get_pattern_value(const bench_pattern *self, uint32_t rank, uint64_t index)
{
    const uint64_t mixed = index * 7 + rank * 31u + self->salt * 3u;

    if (self->dtype == TUTTI_DTYPE_BOOL) {
        return (double)((mixed ^ (mixed >> 2)) % 2);
    }
    if (self->reduce == TUTTI_REDUCE_NONE) {
        return (double)(mixed % 101);
    }
    if (self->reduce == TUTTI_REDUCE_PROD) { /* two ranks at most are not 1: it stays small */
        return (index + self->salt) % self->ranks == rank ? (double)(2 + index % 2) : 1;
    }
    return (double)(mixed % 4);
}

static void
value_at(const bench_pattern *self, uint32_t rank, uint64_t index, double ret[2])
{
    ret[0] = get_pattern_value(self, rank, index);
    ret[1] = get_pattern_value(self, rank, index + 5);
}

/* ------------------------------------------------------------------------------ what is got */

/* BOOL has its own rules: a sum is "or", a product is "and". */
static double
join_logic(tutti_reduce reduce, double left, double right)
{
    const bool one = left != 0;
    const bool other = right != 0;

    switch (reduce) {
    case TUTTI_REDUCE_PROD:
    case TUTTI_REDUCE_MIN:
    case TUTTI_REDUCE_BAND:
        return one && other ? 1 : 0;
    case TUTTI_REDUCE_BXOR:
        return one != other ? 1 : 0;
    default:
        return one || other ? 1 : 0;
    }
}

static double
join_numbers(tutti_reduce reduce, double left, double right)
{
    const int64_t one = (int64_t)left;
    const int64_t other = (int64_t)right;

    switch (reduce) {
    case TUTTI_REDUCE_PROD:
        return left * right;
    case TUTTI_REDUCE_MIN:
        return left < right ? left : right;
    case TUTTI_REDUCE_MAX:
        return left > right ? left : right;
    case TUTTI_REDUCE_BAND:
        return (double)(one & other);
    case TUTTI_REDUCE_BOR:
        return (double)(one | other);
    case TUTTI_REDUCE_BXOR:
        return (double)(one ^ other);
    default: /* SUM, AVG, PREMUL_SUM */
        return left + right;
    }
}

/* What happens once after all ranks were joined. */
static double
finish_pattern(const bench_pattern *self, double joined)
{
    if (self->reduce == TUTTI_REDUCE_PREMUL_SUM) {
        return joined * BENCH_PREMUL_FACTOR;
    }
    if (self->reduce != TUTTI_REDUCE_AVG) {
        return joined;
    }
    if (!bench_number_is_float(self->dtype)) { /* the sum wraps, its share is cut */
        return trunc(bench_number_wrap(self->dtype, joined) / self->ranks);
    }
    return joined / self->ranks;
}

/*
 * Ranks are joined in the order 0, 1, 2 ... As all results are exact up to 64 ranks, the agents'
 * order does not matter.
 */
static void
reduce_at(const bench_pattern *self, uint64_t index, double ret[2])
{
    double next[2];
    uint32_t rank;
    int i;

    value_at(self, 0, index, ret);
    for (rank = 1; rank < self->ranks; rank++) {
        value_at(self, rank, index, next);
        for (i = 0; i < 2; i++) {
            ret[i] = self->dtype == TUTTI_DTYPE_BOOL ? join_logic(self->reduce, ret[i], next[i])
                                                     : join_numbers(self->reduce, ret[i], next[i]);
        }
    }
    for (i = 0; i < 2; i++) {
        ret[i] = finish_pattern(self, ret[i]);
    }
}

/* [in] rank  whose elements; beyond the last one: the reduction of all */
static void
make_block(const bench_pattern *self, uint32_t rank, block *ret)
{
    const size_t size = tutti_dtype_bytes(self->dtype);
    uint64_t i;

    for (i = 0; i < BENCH_PERIOD; i++) {
        if (rank < self->ranks) {
            value_at(self, rank, i, ret->numbers[i]);
        } else {
            reduce_at(self, i, ret->numbers[i]);
        }
        bench_number_store(self->dtype, ret->numbers[i], ret->bytes + i * size);
        if (bench_number_is_float(self->dtype)) { /* as it was rounded */
            bench_number_load(self->dtype, ret->bytes + i * size, ret->numbers[i]);
        }
    }
}

/* ------------------------------------------------------------------------------ the door */

bool
bench_pattern_known(const bench_pattern *self)
{
    const bool reduces = self->reduce != TUTTI_REDUCE_NONE;

    return !reduces || (self->dtype != TUTTI_DTYPE_FP8_E4M3 && self->dtype != TUTTI_DTYPE_FP8_E5M2);
}

/*
 * One period is made and then copied: making each element on its own would take longer than the
 * op.
 */
void
bench_pattern_fill(const bench_pattern *self, uint32_t rank, uint64_t count, void *ret_data)
{
    const size_t size = tutti_dtype_bytes(self->dtype);
    unsigned char *at = ret_data;
    block one;

    assert(rank < self->ranks);
    make_block(self, rank, &one);
    while (count > 0) {
        const uint64_t some = count < BENCH_PERIOD ? count : BENCH_PERIOD;

        memcpy(at, one.bytes, some * size);
        at += some * size;
        count -= some;
    }
}

static bool
is_right(const bench_pattern *self, const double wanted[2], const unsigned char *data)
{
    const bool average = self->reduce == TUTTI_REDUCE_AVG;
    double got[2];
    double units;
    int i;

    if (!bench_number_is_float(self->dtype) || self->reduce == TUTTI_REDUCE_NONE) {
        return false; /* the bytes differ, and have no business to */
    }
    units = self->ranks > EXACT_RANKS_MAX ? self->ranks : average ? 1 : 0;
    bench_number_load(self->dtype, data, got);
    for (i = 0; i < 2; i++) {
        const double slack = units * bench_number_unit(self->dtype) * fabs(wanted[i]);

        if (!(fabs(got[i] - wanted[i]) <= slack)) { /* NaN is wrong */
            return false;
        }
    }
    return true;
}

/* `count` elements that are to be the block's from `first` on. */
static uint64_t
count_wrong(const bench_pattern *self, const block *wanted, uint64_t first, uint64_t count,
            const unsigned char *data)
{
    const size_t size = tutti_dtype_bytes(self->dtype);
    uint64_t wrong = 0;
    uint64_t i;

    while (count > 0) {
        const uint64_t at = first % BENCH_PERIOD;
        const uint64_t some = count < BENCH_PERIOD - at ? count : BENCH_PERIOD - at;

        /* nearly always equal, so elements are looked at only when they are not */
        if (memcmp(data, wanted->bytes + at * size, some * size) != 0) {
            for (i = 0; i < some; i++) {
                wrong += memcmp(data + i * size, wanted->bytes + (at + i) * size, size) != 0 &&
                                 !is_right(self, wanted->numbers[at + i], data + i * size)
                             ? 1
                             : 0;
            }
        }
        data += some * size;
        first += some;
        count -= some;
    }
    return wrong;
}

/* Joined parts: part i comes from rank i, its elements from `first` on. */
static uint64_t
count_wrong_parts(const bench_pattern *self, uint64_t first, uint64_t count,
                  const unsigned char *data)
{
    const size_t size = tutti_dtype_bytes(self->dtype);
    uint64_t wrong = count - self->part * self->ranks;
    uint32_t i;
    block one;

    for (i = 0; i < self->ranks; i++) {
        make_block(self, i, &one);
        wrong += count_wrong(self, &one, first, self->part, data + i * self->part * size);
    }
    return wrong;
}

/*
 * Which rank's data, and from where, follows from the kind of the op. The default are ops that
 * reduce.
 */
uint64_t
bench_pattern_wrong(const bench_pattern *self, uint32_t rank, uint64_t count, const void *data)
{
    const uint64_t own = self->part * rank; /* where this rank's part begins */
    block one;

    switch (self->kind) {
    case TUTTI_OP_ALL_GATHER:
    case TUTTI_OP_GATHER:
        return count_wrong_parts(self, 0, count, data);
    case TUTTI_OP_ALL_TO_ALL:
        return count_wrong_parts(self, own, count, data);
    case TUTTI_OP_BROADCAST:
    case TUTTI_OP_SCATTER:
        make_block(self, self->root, &one);
        break;
    case TUTTI_OP_PERMUTE:
    case TUTTI_OP_SEND: /* from the rank before this one */
        make_block(self, (rank + self->ranks - 1) % self->ranks, &one);
        break;
    default:
        make_block(self, self->ranks, &one);
        break;
    }
    return count_wrong(self, &one,
                       self->kind == TUTTI_OP_SCATTER || self->kind == TUTTI_OP_REDUCE_SCATTER ? own
                                                                                               : 0,
                       count, data);
}
