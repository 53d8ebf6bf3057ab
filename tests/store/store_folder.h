/* What tests of stores in a folder share: the folder, and a store beside it. */
#ifndef TUTTI_TESTS_STORE_FOLDER_H
#define TUTTI_TESTS_STORE_FOLDER_H

#include "store/store.h"

/* Where the folder of the test that runs is. */
extern char store_folder[64];

/* cmocka's setup and teardown: an empty folder, and its end with all that a store leaves in it. */
int store_folder_begin(void **state);
int store_folder_end(void **state);

/* A store without limits, in memory: tutti_store_close it. */
tutti_store *store_in_memory(void);

/* Have both the same keys, values and versions? */
bool store_equals(tutti_store *left, tutti_store *right);

/* The folder's data.mdb, all of it. Returns its size, at most `room`. */
size_t store_file_read(unsigned char *to, size_t room);
void store_file_write(const unsigned char *from, size_t size);

/* A number below `below`; the same numbers for the same seed. */
unsigned store_draw(unsigned *seed, unsigned below);

#endif
