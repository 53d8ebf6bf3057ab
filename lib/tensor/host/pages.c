/*
 * The pages of the memfd: which chunks were ever handed out since the kernel provided them, how
 * they are cleared, and how they go back.
 *
 * Flags are relaxed atomics. That suffices: a flag of a chunk wholly in one block is touched by the
 * block's holder alone, or under the space's lock while it is in a hole, and both hand over through
 * that lock. A chunk shared by two blocks can only be set by both to the same value; a lost
 * "returned" is impossible, as only chunks wholly in a hole or in one block are returned.
 *
 * A flag too many costs a memset; a flag too few would show one tensor's bytes in another. So the
 * flag is cleared only after fallocate has succeeded.
 */
#include "tensor/host/pages.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error/fail.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* Linux 6.3; some systems refuse a memfd without it */
#endif

/* The size is fixed for ever: whoever gets the descriptor could else shrink it under our feet. */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

tutti_code
tutti_memfd_fail(const char *what, uint64_t size, tutti_error *err)
{
    const int number = errno;
    char buffer[32];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    tutti_text_add_bytes(&text, size);
    return TUTTI_FAIL_ERRNO(
        err, number, "could not %s %s of shared memory%s", what, buffer,
        number == ENOMEM ? " (is there a ulimit -v? --memory-limit says how much)" : "");
}

/* MFD_NOEXEC_SEAL is tried first: newer systems may refuse a memfd without it, older ones do not
 * know it. */
const char *
tutti_memfd_open(const char *name, uint64_t size, int *ret_fd)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) {
        fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    }
    *ret_fd = fd;
    if (fd < 0) {
        return "create";
    }
    return ftruncate(fd, (off_t)size) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0 ? "size" : NULL;
}

/* Both are wishes. Huge pages come where shmem_enabled says "advise"; tensors are data of others
 * and have no place in core files. */
void
tutti_memfd_advise(void *data, uint64_t size)
{
    (void)madvise(data, size, MADV_HUGEPAGE);
    (void)madvise(data, size, MADV_DONTDUMP);
}

static tutti_code
open_all_pages(tutti_pages *pages, tutti_error *err)
{
    const char *failed = tutti_memfd_open("tutti-tensors", pages->size, &pages->fd);
    void *data;

    if (failed != NULL) {
        return tutti_memfd_fail(failed, pages->size, err);
    }
    data =
        mmap(NULL, pages->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, pages->fd, 0);
    if (data == MAP_FAILED) {
        return tutti_memfd_fail("map", pages->size, err);
    }
    pages->data = data;
    tutti_memfd_advise(data, pages->size);
    pages->touched = calloc(pages->size / TUTTI_PAGES_CHUNK + 1, sizeof(*pages->touched));
    if (pages->touched == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the records of pages");
    }
    return TUTTI_OK;
}

tutti_code
tutti_pages_open(tutti_pages *pages, uint64_t size, tutti_error *err)
{
    tutti_code code;

    assert(size > 0 && size <= INT64_MAX);
    *pages = (tutti_pages){.fd = -1, .size = size};
    code = open_all_pages(pages, err);
    if (code != TUTTI_OK) {
        tutti_pages_close(pages);
    }
    return code;
}

void
tutti_pages_close(tutti_pages *pages)
{
    if (pages->data != NULL) {
        (void)munmap(pages->data, pages->size);
    }
    if (pages->fd >= 0) {
        (void)close(pages->fd);
    }
    free((void *)pages->touched);
}

void
tutti_pages_touch(tutti_pages *pages, tutti_range block)
{
    uint64_t chunk;

    assert(block.offset < block.end && block.end <= pages->size);
    for (chunk = block.offset / TUTTI_PAGES_CHUNK; chunk * TUTTI_PAGES_CHUNK < block.end; chunk++) {
        atomic_store_explicit(&pages->touched[chunk], TUTTI_PAGES_TOUCHED, memory_order_relaxed);
    }
}

/* Chunk by chunk, since a large block may lie partly in memory that was never used: clearing that
 * would make pages of zeros. */
void
tutti_pages_clean(tutti_pages *pages, tutti_range block)
{
    uint64_t at = block.offset;

    assert(block.offset <= block.end && block.end <= pages->size);
    while (at < block.end) {
        const uint64_t chunk = at / TUTTI_PAGES_CHUNK;
        const uint64_t chunk_end = (chunk + 1) * TUTTI_PAGES_CHUNK;
        const uint64_t end = chunk_end < block.end ? chunk_end : block.end;

        if (atomic_load_explicit(&pages->touched[chunk], memory_order_relaxed) != 0) {
            memset(pages->data + at, 0, end - at);
        }
        atomic_store_explicit(&pages->touched[chunk], TUTTI_PAGES_TOUCHED, memory_order_relaxed);
        at = end;
    }
}

/* Whole chunks only: bytes at the edges may share a chunk, and so a page, with another tensor. */
tutti_range
tutti_pages_chunks(tutti_range inside, tutti_range part)
{
    tutti_range chunks;

    assert(inside.offset <= part.offset && part.offset < part.end && part.end <= inside.end);
    chunks.offset = part.offset / TUTTI_PAGES_CHUNK * TUTTI_PAGES_CHUNK;
    if (chunks.offset < inside.offset) {
        chunks.offset += TUTTI_PAGES_CHUNK;
    }
    chunks.end = (part.end - 1) / TUTTI_PAGES_CHUNK * TUTTI_PAGES_CHUNK + TUTTI_PAGES_CHUNK;
    if (chunks.end > inside.end) {
        chunks.end -= TUTTI_PAGES_CHUNK;
    }
    if (chunks.end < chunks.offset) {
        chunks.end = chunks.offset;
    }
    return chunks;
}

uint64_t
tutti_pages_touched(const tutti_pages *pages, tutti_range chunks)
{
    uint64_t touched = 0;
    uint64_t at;

    for (at = chunks.offset; at < chunks.end; at += TUTTI_PAGES_CHUNK) {
        const _Atomic unsigned char *flag = &pages->touched[at / TUTTI_PAGES_CHUNK];

        if (atomic_load_explicit(flag, memory_order_relaxed) != 0) {
            touched += TUTTI_PAGES_CHUNK;
        }
    }
    return touched;
}

/* Punching a hole returns the pages and makes the bytes zero, also for other processes that have
 * mapped them. */
void
tutti_pages_return(tutti_pages *pages, tutti_range chunks)
{
    const uint64_t size = chunks.end - chunks.offset;
    uint64_t at;

    if (size == 0 || fallocate(pages->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                               (off_t)chunks.offset, (off_t)size) != 0) {
        return;
    }
    for (at = chunks.offset; at < chunks.end; at += TUTTI_PAGES_CHUNK) {
        atomic_store_explicit(&pages->touched[at / TUTTI_PAGES_CHUNK], 0, memory_order_relaxed);
    }
}

static uint64_t
return_run(tutti_pages *pages, tutti_range run)
{
    const uint64_t before = tutti_pages_touched(pages, run);

    tutti_pages_return(pages, run);
    return before - tutti_pages_touched(pages, run);
}

/* Chunks that were aged before are returned in runs, as each fallocate is a system call. A taker
 * sets its chunks to TOUCHED again, so "aged" means that nobody has had it since the last pass. */
uint64_t
tutti_pages_age(tutti_pages *pages, tutti_range chunks)
{
    tutti_range run = {chunks.offset, chunks.offset}; /* of aged ones */
    uint64_t returned = 0;
    uint64_t at;

    for (at = chunks.offset; at < chunks.end; at += TUTTI_PAGES_CHUNK) {
        _Atomic unsigned char *flag = &pages->touched[at / TUTTI_PAGES_CHUNK];
        const unsigned char was = atomic_load_explicit(flag, memory_order_relaxed);

        if (was == TUTTI_PAGES_AGED) {
            run.offset = run.offset == run.end ? at : run.offset;
            run.end = at + TUTTI_PAGES_CHUNK;
            continue;
        }
        returned += return_run(pages, run);
        run = (tutti_range){at, at};
        if (was == TUTTI_PAGES_TOUCHED) {
            atomic_store_explicit(flag, TUTTI_PAGES_AGED, memory_order_relaxed);
        }
    }
    return returned + return_run(pages, run);
}
