/* Private to lib/coll: shapes, before anything runs. */
#ifndef TUTTI_COLL_INFER_INFER_H
#define TUTTI_COLL_INFER_INFER_H

#include "coll/coll.h"

/* What each rank gets of a tensor `args->spec` that is cut into parts, one for each rank. */
tutti_code tutti_coll_infer_part(const tutti_coll_args *args, uint32_t size, tutti_spec *ret_part,
                                 tutti_error *err);

/* Tensors that are as many ops in one: the length of a coalesced list, else one. */
uint32_t tutti_coll_parts(const tutti_coll_args *args);

/* The part of a list that a rank gets: of a scatter, or a reduce_scatter. */
tutti_code tutti_coll_infer_pick(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                                 tutti_spec *ret_result, tutti_error *err);

/* infer_cut.c, for infer.c */
tutti_code tutti_coll_infer_cut(const tutti_coll_args *args, uint32_t size, uint32_t group_rank,
                                tutti_spec *result, tutti_error *err);
tutti_code tutti_coll_infer_all_to_all(const tutti_coll_args *args, uint32_t size,
                                       tutti_spec *result, tutti_error *err);

/* infer.c, for infer_cut.c: is `axis` one of `places`; make it `size` times as long; give `count`
 * elements the shape that a flat result takes here. */
tutti_code tutti_coll_check_axis(const tutti_spec *spec, uint32_t axis, uint32_t places,
                                 tutti_error *err);
tutti_code tutti_coll_grow_axis(tutti_spec *result, uint32_t axis, uint32_t size, tutti_error *err);
tutti_code tutti_coll_flatten(const tutti_coll_args *args, uint64_t count, tutti_spec *result,
                              tutti_error *err);

#endif
