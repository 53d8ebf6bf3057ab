/*
 * Tensor meta: what an agent sends along with a tensor: names of tracers, and the caller's own
 * bytes.
 *
 *     0 user bytes
 *     1 count { length name }... user bytes
 *
 * Nothing at all stands for no names and no bytes. Pure functions; any thread.
 */
#ifndef TUTTI_SERVER_AGENT_AUTOGRAD_TENSOR_META_H
#define TUTTI_SERVER_AGENT_AUTOGRAD_TENSOR_META_H

#include <stdbool.h>
#include <stddef.h>

#include "base/data/bytes.h"
#include "tutti/types.h"

#define TUTTI_TENSOR_META_NAMES_MAX 32
#define TUTTI_TENSOR_META_EXTRA_MAX (2 + TUTTI_TENSOR_META_NAMES_MAX * (1 + TUTTI_NAME_MAX))

/* [out] ret  TUTTI_TENSOR_META_EXTRA_MAX + user.size bytes. Returns how many it took. */
size_t tutti_tensor_meta_write(const char *const *names, size_t name_count, tutti_bytes user,
                               unsigned char *ret);

/*
 * False: it is not what tutti_tensor_meta_write writes, and nothing is said. [out, borrowed] parts
 * of `bytes`; names for tutti_tensor_meta_next
 */
bool tutti_tensor_meta_read(tutti_bytes bytes, tutti_bytes *ret_names, tutti_bytes *ret_user);

/* Take the first of the names that were read. False: there are no more. */
bool tutti_tensor_meta_next(tutti_bytes *names, char ret_name[TUTTI_NAME_MAX + 1]);

#endif
