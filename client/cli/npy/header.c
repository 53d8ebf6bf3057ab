/* The header of a .npy file: a Python dictionary with three entries, in a very small subset. */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/cli/npy/descr.h"
#include "client/cli/npy/npy.h"
#include "client/cli/util/output.h"

#define MAGIC "\x93NUMPY"
#define MAGIC_SIZE 6
#define WORD_MAX 32 /* of a descr; ours are shorter */

/* ------------------------------------------------------------------------------ the prefix */

static size_t
little_endian(const unsigned char *bytes, size_t count)
{
    size_t number = 0;

    while (count > 0) {
        number = number << 8 | bytes[--count];
    }
    return number;
}

/*
 * Version 1 has two bytes of length, later ones four. The length is limited, as it comes from the
 * file.
 */
tutti_code
npy_header_size(const void *bytes, size_t size, size_t *ret_size, tutti_error *err)
{
    const unsigned char *at = bytes;
    size_t prefix;
    size_t length;

    if (size == 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the file is empty, this is no .npy file");
    }
    if (size >= 4 && memcmp(at, "PK\3\4", 4) == 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "this is an archive of arrays (.npz), this is no .npy file: take one out, "
                        "numpy.save(\"x.npy\", numpy.load(\"x.npz\")[\"NAME\"])");
    }
    if (size < MAGIC_SIZE + 4 || memcmp(at, MAGIC, MAGIC_SIZE) != 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "this is no .npy file");
    }
    if (at[6] < 1 || at[6] > 3 || at[7] != 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "version %u.%u of .npy, need 1.0 to 3.0",
                        at[6], at[7]);
    }
    prefix = at[6] == 1 ? 10 : 12;
    if (size < prefix) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the file ends inside its header");
    }
    length = little_endian(at + 8, prefix - 8);
    if (length > NPY_HEADER_MAX - prefix) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "a header of %zu bytes, at most %zu", length,
                        NPY_HEADER_MAX - prefix);
    }
    *ret_size = prefix + length;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the words */

/* Where the parser is; everything in [at, end) is still to be read. */
typedef struct reader {
    const char *at;
    const char *end;
} reader;

static void
skip_space(reader *in)
{
    while (in->at < in->end &&
           (*in->at == ' ' || *in->at == '\n' || *in->at == '\t' || *in->at == '\r')) {
        in->at++;
    }
}

/* The next character that is no space, taken when it is `wanted`. */
static bool
take_npy_header(reader *in, char wanted)
{
    skip_space(in);
    if (in->at < in->end && *in->at == wanted) {
        in->at++;
        return true;
    }
    return false;
}

/* 'text' or "text", without escapes; false when it is none, or longer than WORD_MAX - 1. */
static bool
take_string(reader *in, char ret[WORD_MAX])
{
    const char *begin;
    size_t size;
    char quote;

    skip_space(in);
    if (in->at == in->end || (*in->at != '\'' && *in->at != '"')) {
        return false;
    }
    quote = *in->at;
    begin = in->at + 1;
    for (in->at = begin; in->at < in->end && *in->at != quote; in->at++) {
        if (*in->at == '\\' || !isprint((unsigned char)*in->at)) {
            return false;
        }
    }
    size = (size_t)(in->at - begin);
    if (in->at == in->end || size >= WORD_MAX) {
        return false;
    }
    in->at++;
    memcpy(ret, begin, size);
    ret[size] = '\0';
    return true;
}

static bool
take_bool(reader *in, bool *ret)
{
    skip_space(in);
    if (in->end - in->at >= 4 && memcmp(in->at, "True", 4) == 0) {
        in->at += 4;
        *ret = true;
        return true;
    }
    if (in->end - in->at >= 5 && memcmp(in->at, "False", 5) == 0) {
        in->at += 5;
        *ret = false;
        return true;
    }
    return false;
}

/* A number of at most 63 bits; Python 2 wrote an L behind long ones. */
static bool
take_number(reader *in, int64_t *ret)
{
    int64_t number = 0;

    skip_space(in);
    if (in->at == in->end || !isdigit((unsigned char)*in->at)) {
        return false;
    }
    while (in->at < in->end && isdigit((unsigned char)*in->at)) {
        const int64_t digit = *in->at++ - '0';

        if (number > (INT64_MAX - digit) / 10) {
            return false;
        }
        number = number * 10 + digit;
    }
    if (in->at < in->end && *in->at == 'L') {
        in->at++;
    }
    *ret = number;
    return true;
}

/* "()", "(3,)", "(3, 4)"; numpy writes "(3, 4, )" nowhere, but Python takes it. */
static tutti_code
take_shape(reader *in, tutti_spec *spec, tutti_error *err)
{
    spec->dim_count = 0;
    if (!take_npy_header(in, '(')) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header's shape is not a tuple");
    }
    while (!take_npy_header(in, ')')) {
        if (spec->dim_count == TUTTI_DIMS_MAX) {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT, "more than %d dimensions", TUTTI_DIMS_MAX);
        }
        if (!take_number(in, &spec->dims[spec->dim_count++])) {
            return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                            "the header's shape holds something else than numbers of 63 bits");
        }
        if (!take_npy_header(in, ',')) {
            if (spec->dim_count > 1 && take_npy_header(in, ')')) {
                return TUTTI_OK;
            }
            return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header's shape misses a comma");
        }
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ all of it */

/* A list is the type of a record, which has no dtype of ours. */
static tutti_code
take_descr(reader *in, npy_header *header, tutti_error *err)
{
    char word[WORD_MAX];

    skip_space(in);
    if (in->at < in->end && (*in->at == '[' || *in->at == '(')) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "an array of records cannot be a tensor, need one of numbers");
    }
    if (!take_string(in, word)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header's descr is no short string");
    }
    return npy_descr_read(word, header, err);
}

enum {
    HAS_DESCR = 1,
    HAS_FORTRAN = 2,
    HAS_SHAPE = 4,
    HAS_ALL = 7,
};

static tutti_code
take_entry(reader *in, npy_header *header, unsigned *seen, tutti_error *err)
{
    char key[WORD_MAX];
    unsigned which = 0;
    tutti_code code = TUTTI_OK;

    if (!take_string(in, key) || !take_npy_header(in, ':')) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header is no dictionary of strings");
    }
    if (strcmp(key, "descr") == 0) {
        which = HAS_DESCR;
        code = take_descr(in, header, err);
    } else if (strcmp(key, "shape") == 0) {
        which = HAS_SHAPE;
        code = take_shape(in, &header->spec, err);
    } else if (strcmp(key, "fortran_order") == 0) {
        which = HAS_FORTRAN;
        if (!take_bool(in, &header->fortran)) {
            code = cli_fail(err, TUTTI_INVALID_ARGUMENT, "fortran_order is neither True nor False");
        }
    } else {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header has an entry '%s'", key);
    }
    if (code == TUTTI_OK && (*seen & which) != 0) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header has two entries '%s'", key);
    }
    *seen |= which;
    return code;
}

/* NumPy writes the entries in one order, but any order is valid. Each must come once. */
static tutti_code
parse_dictionary(reader *in, npy_header *header, tutti_error *err)
{
    unsigned seen = 0;
    tutti_code code;

    if (!take_npy_header(in, '{')) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header is no dictionary");
    }
    while (!take_npy_header(in, '}')) {
        code = take_entry(in, header, &seen, err);
        if (code != TUTTI_OK) {
            return code;
        }
        if (!take_npy_header(in, ',')) {
            if (!take_npy_header(in, '}')) {
                return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header's dictionary has no end");
            }
            break;
        }
    }
    skip_space(in);
    if (in->at != in->end) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header goes on behind its dictionary");
    }
    if (seen != HAS_ALL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the header has no '%s'",
                        (seen & HAS_DESCR) == 0     ? "descr"
                        : (seen & HAS_FORTRAN) == 0 ? "fortran_order"
                                                    : "shape");
    }
    return TUTTI_OK;
}

/* The parser takes what NumPy writes and refuses all else of Python: nothing is evaluated. */
tutti_code
npy_header_parse(const void *bytes, size_t size, npy_header *ret_header, tutti_error *err)
{
    npy_header header = {0};
    tutti_spec sized;
    reader in;
    tutti_code code = npy_header_size(bytes, size, &header.data_size, err);

    if (code != TUTTI_OK) {
        return code;
    }
    if (header.data_size > size) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "the file ends inside its header");
    }
    in = (reader){(const char *)bytes + (((const unsigned char *)bytes)[6] == 1 ? 10 : 12),
                  (const char *)bytes + header.data_size};
    code = parse_dictionary(&in, &header, err);
    if (code == TUTTI_OK) {
        sized = header.spec;
        sized.dtype = sized.dtype == TUTTI_DTYPE_NONE ? TUTTI_DTYPE_UINT8 : sized.dtype;
        code = tutti_spec_size(&sized, NULL, &header.bytes, err);
    }
    if (code == TUTTI_OK) {
        *ret_header = header;
    }
    return code;
}

/* Padded, as NumPy does, so that the array begins at a multiple of 64. */
size_t
npy_header_write(const tutti_spec *spec, char ret_bytes[NPY_HEADER_MAX])
{
    char *text = ret_bytes + 10;
    const size_t room = NPY_HEADER_MAX - 10;
    size_t used;
    size_t total;
    uint32_t i;

    memcpy(ret_bytes, MAGIC "\x01\x00", 8);
    used = (size_t)snprintf(text, room, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                            npy_descr_of(spec->dtype));
    for (i = 0; i < spec->dim_count; i++) {
        used += (size_t)snprintf(text + used, room - used, "%s%" PRId64, i == 0 ? "" : ", ",
                                 spec->dims[i]);
    }
    used += (size_t)snprintf(text + used, room - used, spec->dim_count == 1 ? ",), }" : "), }");
    total = (10 + used + 1 + 63) / 64 * 64;
    memset(text + used, ' ', total - 10 - used);
    ret_bytes[total - 1] = '\n';
    ret_bytes[8] = (char)((total - 10) & 0xff);
    ret_bytes[9] = (char)((total - 10) >> 8);
    return total;
}
