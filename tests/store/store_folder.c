#include "store/store_folder.h"
#include "support/testing.h"

#include <stdio.h>
#include <stdlib.h>
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
