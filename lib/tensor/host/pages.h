/*
 * Pages: the shared memory itself, and which of it was ever handed out since the kernel provided
 * it.
 *
 * Memory that was not is zero without our doing. It is counted in chunks; the flags lie outside the
 * shared memory. A flag may be set too often, never too seldom.
 */
#ifndef TUTTI_TENSOR_HOST_PAGES_H
#define TUTTI_TENSOR_HOST_PAGES_H

#include <stdint.h>

#include "tensor/host/blocks.h"

#define TUTTI_PAGES_CHUNK (64U << 10)
#define TUTTI_PAGES_TOUCHED 1
#define TUTTI_PAGES_AGED 2 /* touched, and free when tutti_pages_age last looked */

typedef struct tutti_pages {
    int fd;
    unsigned char *data;
    uint64_t size;
    /* One per chunk: neighbours may share one, so atomic. 0, TUTTI_PAGES_TOUCHED, or _AGED. */
    _Atomic unsigned char *touched;
} tutti_pages;

/*
 * What all memory here is: a memfd whose size is fixed for ever. NULL, or what could not be done,
 * with errno; ret_fd is -1 or to be closed all the same.
 */
const char *tutti_memfd_open(const char *name, uint64_t size, int *ret_fd);
tutti_code tutti_memfd_fail(const char *what, uint64_t size, tutti_error *err);
void tutti_memfd_advise(void *data, uint64_t size); /* mapped: wishes of ours to the kernel */

/*
 * `size` is a multiple of the system's pages.
 *
 * Codes as tutti_space_host_open; nothing is owed then.
 */
tutti_code tutti_pages_open(tutti_pages *pages, uint64_t size, tutti_error *err);
void tutti_pages_close(tutti_pages *pages);

/*
 * Make the bytes of a block zero, and note that they will not stay so. Any thread, for a block that
 * is the caller's.
 */
void tutti_pages_clean(tutti_pages *pages, tutti_range block);

/* Note that they will not stay as they are, and do not clear them: for a caller that overwrites
 * all of them. */
void tutti_pages_touch(tutti_pages *pages, tutti_range block);

/* The chunks that lie wholly in `inside` and have bytes of `part`, a range of it. */
tutti_range tutti_pages_chunks(tutti_range inside, tutti_range part);

/* Bytes of the touched ones of these chunks. */
uint64_t tutti_pages_touched(const tutti_pages *pages, tutti_range chunks);

/*
 * Of chunks in which nobody has a block: return those that were aged before and not taken since,
 * and age the others. Returns the bytes that went back.
 */
uint64_t tutti_pages_age(tutti_pages *pages, tutti_range chunks);

/*
 * Let the kernel have the memory of these chunks, in which nobody has a block (or the caller has
 * all). Where the kernel will not, they stay touched: that costs memory, not safety.
 */
void tutti_pages_return(tutti_pages *pages, tutti_range chunks);

#endif
