#include "store/store_folder.h"
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "store/memory/memory.h"

char store_folder[64];

int
store_folder_begin(void **state)
{
    (void)state;
    (void)snprintf(store_folder, sizeof(store_folder), "/tmp/tutti-store-XXXXXX");
    return mkdtemp(store_folder) == NULL ? -1 : 0;
}

int
store_folder_end(void **state)
{
    static const char *const names[] = {"/data.mdb", "/lock.mdb", "/tutti.lock", ""};
    char path[128];
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(names); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", store_folder, names[i]);
        (void)remove(path);
    }
    return 0;
}

tutti_store *
store_in_memory(void)
{
    tutti_store *store = NULL;
    tutti_error err;

    assert_ok(tutti_store_memory_open(NULL, &store, &err));
    return store;
}

bool
store_equals(tutti_store *left, tutti_store *right)
{
    const tutti_bytes all = {NULL, 0};
    tutti_store_entry one = {0};
    tutti_store_entry other = {0};

    while (tutti_store_next(left, all, one.key, &one, NULL) == TUTTI_OK) {
        if (tutti_store_next(right, all, other.key, &other, NULL) != TUTTI_OK ||
            !tutti_bytes_equal(one.key, other.key) || one.version != other.version ||
            !tutti_bytes_equal(one.value, other.value)) {
            return false;
        }
    }
    return tutti_store_next(right, all, other.key, &other, NULL) == TUTTI_NOT_FOUND &&
           tutti_store_version(left) == tutti_store_version(right);
}

size_t
store_file_read(unsigned char *to, size_t room)
{
    char path[128];
    FILE *file;
    size_t size;

    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    file = fopen(path, "rb");
    assert_non_null(file);
    size = fread(to, 1, room, file);
    assert_int_equal(fclose(file), 0);
    return size;
}

void
store_file_write(const unsigned char *from, size_t size)
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/data.mdb", store_folder);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(from, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

unsigned
store_draw(unsigned *seed, unsigned below)
{
    *seed = *seed * 1664525U + 1013904223U;
    return (*seed >> 8) % below;
}
