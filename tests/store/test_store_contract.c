/*
 * Goal: the backends that need no other process keep the promises of the store.
 * Method: one list of sentences (contract.c) over a table of backends.
 */
#include "support/testing.h"

#include "store/contract.h"
#include "store/lmdb/lmdb.h"
#include "store/memory/memory.h"

static tutti_code
open_memory(tutti_store **ret_store, tutti_error *err)
{
    const tutti_store_memory_options options = {.bytes_max = STORE_CONTRACT_BYTES_MAX,
                                                .keys_max = STORE_CONTRACT_KEYS_MAX};

    return tutti_store_memory_open(&options, ret_store, err);
}

static char folder[64];

static int
begin_folder(void)
{
    (void)snprintf(folder, sizeof(folder), "/tmp/tutti-store-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static void
empty_folder(void)
{
    static const char *const names[] = {"/data.mdb", "/lock.mdb", "/tutti.lock", ""};
    char path[128];
    size_t i;

    for (i = 0; i < COUNT_OF(names); i++) {
        (void)snprintf(path, sizeof(path), "%s%s", folder, names[i]);
        (void)remove(path);
    }
}

/* In an empty folder; the backend makes it. */
static tutti_code
open_lmdb(tutti_store **ret_store, tutti_error *err)
{
    const tutti_store_lmdb_options options = {
        .path = folder, .bytes_max = STORE_CONTRACT_BYTES_MAX, .keys_max = STORE_CONTRACT_KEYS_MAX};

    empty_folder();
    return tutti_store_lmdb_open(&options, ret_store, err);
}

/* Nothing is flushed here: what is read, and what is refused, is the same before it is durable. */
static tutti_code
open_deferred(tutti_store **ret_store, tutti_error *err)
{
    const tutti_store_lmdb_options options = {.path = folder,
                                              .bytes_max = STORE_CONTRACT_BYTES_MAX,
                                              .keys_max = STORE_CONTRACT_KEYS_MAX,
                                              .deferred = true};

    empty_folder();
    return tutti_store_lmdb_open(&options, ret_store, err);
}

static const store_contract_backend backends[] = {
    {"store/memory", open_memory, true},
    {"store/lmdb", open_lmdb, true},
    {"store/lmdb, deferred", open_deferred, true},
};

int
main(void)
{
    int failed;

    if (begin_folder() != 0) {
        return 1;
    }
    failed = store_contract_run(backends, COUNT_OF(backends));
    empty_folder();
    return failed;
}
