/*
 * Memory of one tensor alone: a memfd beside the arena, which may be handed to a process that may
 * see this tensor and no other. The block in the arena stays taken, so the limit still counts it,
 * without pages.
 *
 * The caller has the tensor for itself (tutti_tensor_own). On failure the block is as it was: the
 * copy is made before anything of the arena is returned.
 */
#include "tensor/host/own.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error/fail.h"

/* The mode is 0400 before anybody gets the descriptor: a process that gets it for reading could
 * otherwise open it anew for writing, through /proc. */
static tutti_code
fill_own(tutti_own *own, tutti_error *err)
{
    const char *failed = tutti_memfd_open("tutti-shared", own->size, &own->fd);

    if (failed == NULL && fchmod(own->fd, S_IRUSR) != 0) {
        failed = "protect";
    }
    if (failed == NULL) {
        own->data =
            mmap(NULL, own->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, own->fd, 0);
        failed = own->data == MAP_FAILED ? "map" : NULL;
    }
    if (failed != NULL) {
        own->data = NULL;
        return tutti_memfd_fail(failed, own->size, err);
    }
    tutti_memfd_advise(own->data, own->size);
    return TUTTI_OK;
}

/*
 * Memory that was never written is a hole in the file: to read it would make pages of zeros on both
 * sides. If the kernel cannot tell (SEEK_DATA fails otherwise than by ENXIO), all is copied. Where
 * a process that has mapped the arena writes meanwhile, its bytes are copied or not, as with any
 * write.
 */
static void
copy_data(const tutti_pages *pages, uint64_t offset, uint64_t bytes, unsigned char *to)
{
    const uint64_t end = offset + bytes;
    uint64_t at = offset;

    while (at < end) {
        const off_t data = lseek(pages->fd, (off_t)at, SEEK_DATA);
        const off_t hole = data < 0 ? -1 : lseek(pages->fd, data, SEEK_HOLE);
        uint64_t from = data < 0 ? (errno == ENXIO ? end : at) : (uint64_t)data;
        uint64_t until = hole < 0 || (uint64_t)hole > end ? end : (uint64_t)hole;

        from = from > end ? end : from;
        until = until < from ? end : until;
        memcpy(to + (from - offset), pages->data + from, (size_t)(until - from));
        at = until;
    }
}

tutti_code
tutti_own_open(tutti_pages *pages, tutti_range block, uint64_t bytes, tutti_own **ret_own,
               tutti_error *err)
{
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    tutti_own *self = calloc(1, sizeof(*self));
    tutti_code code;

    assert(bytes > 0 && bytes <= block.end - block.offset);
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a tensor's own memory");
    }
    self->fd = -1;
    self->size = (bytes + page - 1) / page * page;
    code = fill_own(self, err);
    if (code != TUTTI_OK) {
        tutti_own_close(self);
        return code;
    }
    copy_data(pages, block.offset, bytes, self->data);
    tutti_pages_return(pages, tutti_pages_chunks(block, block));
    *ret_own = self;
    return TUTTI_OK;
}

void
tutti_own_close(tutti_own *own)
{
    if (own == NULL) {
        return;
    }
    if (own->data != NULL) {
        (void)munmap(own->data, own->size);
    }
    if (own->fd >= 0) {
        (void)close(own->fd);
    }
    free(own);
}
