/*
 * Pieces as rows of bytes. Pure, any thread. Specs were checked, so products cannot overflow. A cut
 * and a join are the same picture seen from the part and from the whole: row i of rank r stands `r
 * * row` behind row i of rank 0.
 */
#include "coll/packet/strided.h"

#include "tensor/spec.h"

uint64_t
tutti_strided_bytes(const tutti_strided *piece)
{
    return piece->rows * piece->row_bytes;
}

bool
tutti_strided_is_whole(const tutti_strided *piece)
{
    return piece->rows <= 1 || piece->row_bytes == piece->stride;
}

bool
tutti_pieces_are_whole(const tutti_strided *pieces, uint32_t count)
{
    uint32_t i;

    for (i = 0; i < count; i++) {
        if (!tutti_strided_is_whole(&pieces[i])) {
            return false;
        }
    }
    return true;
}

tutti_strided
tutti_strided_view(const void *base, uint64_t bytes)
{
    return (tutti_strided){.base = (unsigned char *)(uintptr_t)base,
                           .rows = bytes > 0 ? 1 : 0,
                           .row_bytes = bytes,
                           .stride = bytes};
}

/* Elements of dimensions [first, end). */
static uint64_t
count_between(const tutti_spec *spec, uint32_t first, uint32_t end)
{
    uint64_t count = 1;
    uint32_t i;

    for (i = first; i < end; i++) {
        count *= (uint64_t)spec->dims[i];
    }
    return count;
}

/* Of a view without rows the base may be NULL, to which C allows no pointer to be added. */
static unsigned char *
place_at(const void *base, uint64_t offset)
{
    return base == NULL ? NULL : (unsigned char *)(uintptr_t)base + offset;
}

tutti_strided
tutti_strided_cut(const void *base, const tutti_spec *spec, uint32_t axis, uint32_t i,
                  uint32_t size)
{
    const uint64_t stride =
        count_between(spec, axis, spec->dim_count) * tutti_dtype_bytes(spec->dtype);
    const uint64_t row = stride / size;

    return (tutti_strided){.base = place_at(base, i * row),
                           .rows = count_between(spec, 0, axis),
                           .row_bytes = row,
                           .stride = stride};
}

tutti_strided
tutti_strided_join(void *base, const tutti_spec *spec, uint32_t axis, uint32_t i, uint32_t size)
{
    const uint64_t row =
        count_between(spec, axis, spec->dim_count) * tutti_dtype_bytes(spec->dtype);

    return (tutti_strided){.base = place_at(base, i * row),
                           .rows = count_between(spec, 0, axis),
                           .row_bytes = row,
                           .stride = row * size};
}

void
tutti_pieces_of_rows(const void *base, const tutti_spec *spec, const int64_t *splits, uint32_t size,
                     tutti_strided *ret_pieces)
{
    const unsigned char *at = base;
    tutti_spec row = *spec;
    uint64_t bytes;
    uint32_t i;

    row.dims[0] = 1;
    bytes = tutti_spec_bytes(&row);
    for (i = 0; i < size; i++) {
        ret_pieces[i] = tutti_strided_view(at, (uint64_t)splits[i] * bytes);
        at += (uint64_t)splits[i] * bytes;
    }
}
