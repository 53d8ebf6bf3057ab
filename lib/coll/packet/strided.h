/*
 * Pieces: the parts of a tensor that belong to one rank. A piece is rows of bytes at equal
 * distances; its bytes are counted row by row. Pure; any thread.
 */
#ifndef TUTTI_COLL_PACKET_STRIDED_H
#define TUTTI_COLL_PACKET_STRIDED_H

#include <stdbool.h>
#include <stdint.h>

#include "tutti/types.h"

typedef struct tutti_strided {
    unsigned char *base;
    uint64_t rows;
    uint64_t row_bytes;
    uint64_t stride; /* bytes from row to row */
} tutti_strided;

uint64_t tutti_strided_bytes(const tutti_strided *piece);

/* Are its bytes in one run? */
bool tutti_strided_is_whole(const tutti_strided *piece);
bool tutti_pieces_are_whole(const tutti_strided *pieces, uint32_t count);

/* All of `bytes` at `base`. */
tutti_strided tutti_strided_view(const void *base, uint64_t bytes);

/* Part `i` of `size` equal ones along dimension `axis` of a tensor of this shape. */
tutti_strided tutti_strided_cut(const void *base, const tutti_spec *spec, uint32_t axis, uint32_t i,
                                uint32_t size);

/* Place `i` of `size` along dimension `axis` for a tensor of this shape: what it becomes when
 * joined. */
tutti_strided tutti_strided_join(void *base, const tutti_spec *spec, uint32_t axis, uint32_t i,
                                 uint32_t size);

/* Rows of a tensor of this shape, splits[i] of them for rank i, one behind the other. */
void tutti_pieces_of_rows(const void *base, const tutti_spec *spec, const int64_t *splits,
                          uint32_t size, tutti_strided *ret_pieces);

#endif
