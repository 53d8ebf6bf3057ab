/*
 * Goal: a .safetensors file of anybody's does no harm, and each tensor that is found in one lies in
 * its bytes.
 * Method: the input in memory of exactly its size, behind a length that is made right for half of
 * the inputs; all bytes of all tensors are read.
 */
#include <assert.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/safetensors/safetensors.h"
#include "tutti/tutti.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_file(const safetensors *file, const uint8_t *bytes, size_t size)
{
    const uint64_t data_size = size - (size_t)((const uint8_t *)file->data - bytes);
    uint64_t at = 0;
    unsigned sum = 0;
    size_t i;

    for (i = 0; i < file->count; i++) {
        const safetensors_entry *entry = &file->entries[i];
        uint64_t expected = 0;
        uint64_t k;

        assert(tutti_spec_size(&entry->spec, NULL, &expected, NULL) == TUTTI_OK);
        assert(expected == entry->bytes && entry->offset == at && at + expected <= data_size);
        for (k = 0; k < expected; k++) {
            sum += ((const volatile unsigned char *)file->data)[at + k];
        }
        at += expected;
    }
    assert(at == data_size);
    (void)sum;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);
    safetensors file;
    tutti_error err;

    assert(bytes != NULL);
    bytes = realloc(bytes, size > 0 ? size : 1); /* exact, so that a byte too many is seen */
    assert(bytes != NULL);
    memcpy(bytes, data, size);
    if (size > 9 && bytes[7] != 0) { /* of its own accord nothing finds the length */
        const size_t header = bytes[0] % (size - 8 + 1);

        memset(bytes, 0, 8);
        bytes[0] = (uint8_t)header;
    }
    if (safetensors_parse(bytes, size, &file, &err) == TUTTI_OK) {
        check_file(&file, bytes, size);
        safetensors_close(&file);
    } else {
        assert(err.code != TUTTI_OK && err.text[0] != '\0');
    }
    free(bytes);
    return 0;
}
