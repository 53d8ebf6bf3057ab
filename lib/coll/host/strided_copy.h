/* Private to coll/host: copies between pieces. */
#ifndef TUTTI_COLL_HOST_STRIDED_COPY_H
#define TUTTI_COLL_HOST_STRIDED_COPY_H

#include "coll/host/host_private.h"
#include "coll/packet/strided.h"

/* Bytes [at, at + size) of one into those of the other. The same memory is fine, no other overlap.
 */
void tutti_host_strided_copy(const tutti_strided *to, uint64_t to_at, const tutti_strided *from,
                             uint64_t from_at, uint64_t size);

/*
 * The same for what is far larger than the caches: what is written there would only push out what
 * is read. Where the processor knows no such stores it is the same.
 */
void tutti_host_strided_copy_past_cache(const tutti_strided *to, uint64_t to_at,
                                        const tutti_strided *from, uint64_t from_at, uint64_t size);
void tutti_host_copy_past_cache(void *to, const void *from, size_t size);

/*
 * From here on, for all ranks of a host together, it is faster: a copy leaves the second-level
 * cache to those who answer the op, a reduction goes by it in any case and only saves the reading
 * of what it overwrites (docs/measured/2026-11-22-peers.md).
 */
#define HOST_PAST_CACHE_BYTES (1U << 20)
#define HOST_REDUCE_PAST_CACHE_BYTES (64U << 20)

#endif
