/* Memory of other processes. */
#include "cuda_standin.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct handle {
    char magic[8];
    int32_t pid;
    int32_t fd;
    uint64_t offset;
    uint64_t size;
} handle;

/* As the real one: not of a pool's memory. */
STANDIN_API cudaError_t
cudaIpcGetMemHandle(cudaIpcMemHandle_t *ret, void *ptr)
{
    handle words = {.magic = "standin", .pid = (int32_t)getpid()};
    const standin_block *block;
    int i;

    STANDIN_BEGIN();
    standin_lock();
    for (i = 0; i < STANDIN_DEVICES_MAX && words.size == 0; i++) {
        for (block = standin.devices[i].blocks; block != NULL; block = block->next) {
            if (standin.devices[i].base + block->offset == ptr && block->pool == NULL) {
                words.fd = standin.devices[i].fd;
                words.offset = block->offset;
                words.size = block->size;
            }
        }
    }
    standin_unlock();
    memset(ret, 0, sizeof(*ret));
    memcpy(ret, &words, sizeof(words));
    return words.size == 0 ? cudaErrorInvalidValue : cudaSuccess;
}

static void *
map_of(const handle *words)
{
    const uint64_t page = words->offset / 4096 * 4096;
    char path[64];
    void *bytes;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)words->pid, (int)words->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    bytes = mmap(NULL, words->size + words->offset - page, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                 (off_t)page);
    (void)close(fd);
    return bytes == MAP_FAILED ? NULL : (unsigned char *)bytes + (words->offset - page);
}

STANDIN_API cudaError_t
cudaIpcOpenMemHandle(void **ptr, cudaIpcMemHandle_t given, unsigned int flags)
{
    handle words;
    void *bytes;
    void *base;

    STANDIN_BEGIN();
    (void)flags;
    memcpy(&words, &given, sizeof(words));
    if (memcmp(words.magic, "standin", 8) != 0 || (bytes = map_of(&words)) == NULL) {
        return cudaErrorInvalidValue;
    }
    base = mmap(NULL, words.size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    standin_lock();
    if (base == MAP_FAILED || !standin_add_range(base, bytes, words.size)) {
        abort();
    }
    standin.imports++;
    standin_unlock();
    *ptr = base;
    return cudaSuccess;
}

STANDIN_API cudaError_t
cudaIpcCloseMemHandle(void *ptr)
{
    standin_range range = {0};
    standin_range *found;

    standin_lock();
    found = standin_find_range(ptr, 1);
    if (found != NULL && found->base == ptr && found->base != found->bytes) {
        range = *found;
        *found = (standin_range){0};
        standin.imports--;
    }
    standin_unlock();
    if (range.base == NULL) {
        return cudaErrorInvalidValue;
    }
    (void)munmap(range.base, range.size);
    (void)munmap((void *)((uintptr_t)range.bytes & ~(uintptr_t)4095),
                 range.size + ((uintptr_t)range.bytes & 4095));
    return cudaSuccess;
}
