/*
 * Bytes of the store as text. Keys and values may be any bytes; in JSON what is no UTF-8 becomes
 * hex under another name, and on a terminal control characters are written out.
 */
#include "client/cli/store/store_bytes.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/data/utf8.h"
#include "client/cli/cli.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"

void
store_json_set(json_t *object, const char *key, const void *bytes, size_t size)
{
    json_t *text = json_stringn(bytes, size);
    char name[32];
    char *hex;
    size_t i;

    if (text != NULL) {
        (void)json_object_set_new(object, key, text);
        return;
    }
    hex = malloc(2 * size + 1);
    if (hex == NULL) {
        abort();
    }
    for (i = 0; i < size; i++) {
        (void)snprintf(hex + 2 * i, 3, "%02x", ((const unsigned char *)bytes)[i]);
    }
    (void)snprintf(name, sizeof(name), "%s_hex", key);
    (void)json_object_set_new(object, name, json_string(hex));
    free(hex);
}

/* Text stays text; what is none, or acts on a terminal, is shown byte by byte. */
static bool
is_text(const void *bytes, size_t size)
{
    json_t *text = json_stringn(bytes, size);
    const bool good = text != NULL;

    json_decref(text);
    return good;
}

static void
print_bytes(FILE *file, const unsigned char *bytes, size_t size)
{
    size_t i;

    for (i = 0; i < size; i++) {
        (void)fprintf(file, "\\x%02x", bytes[i]);
    }
}

void
store_print(FILE *file, const void *bytes, size_t size)
{
    const unsigned char *at = bytes;
    const bool text = is_text(bytes, size);

    while (size > 0) {
        const size_t whole = at[0] < 0x80 || text ? tutti_utf8_size(at, size) : 0;
        const size_t step = whole == 0 ? 1 : whole;

        if (at[0] == '\\') {
            (void)fputs("\\\\", file);
        } else if (whole > 0 && !tutti_utf8_steers(at, whole)) {
            (void)fwrite(at, 1, whole, file);
        } else {
            print_bytes(file, at, step);
        }
        at += step;
        size -= step;
    }
}

/* A program reads what the value is; a person gets what the terminal shows as it is. */
void
store_print_value(const cli *self, const void *bytes, size_t size)
{
    const bool raw = cli_flag(self, "raw");

    if (raw || isatty(fileno(self->out)) != 1) {
        (void)fwrite(bytes, 1, size, self->out);
    } else {
        store_print(self->out, bytes, size);
    }
    if (!raw) {
        (void)fputc('\n', self->out);
    }
}

/* The key is made by the library, in the same way as for programs with a prefix. */
tutti_code
store_key(const cli *self, const char *argument, char *ret_key, size_t *ret_size, tutti_error *err)
{
    const char *prefix = cli_value(self, "prefix");
    tutti_kv_view view = {0};
    tutti_code code = TUTTI_OK;

    if (prefix != NULL) {
        code = tutti_kv_view_init(&view, NULL, prefix, err);
    }
    return code == TUTTI_OK
               ? tutti_kv_view_key(&view, argument, strlen(argument), ret_key, ret_size, err)
               : code;
}

/* "-" reads the value from standard input, where it may hold any byte. */
tutti_code
store_value(const char *argument, char **ret_value, size_t *ret_size, tutti_error *err)
{
    const size_t most = (1u << 20) + 1; /* one more than the store takes: it says so itself */
    char *value;

    if (strcmp(argument, "-") != 0) {
        *ret_value = strdup(argument);
        *ret_size = strlen(argument);
        return *ret_value != NULL ? TUTTI_OK : cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory");
    }
    value = malloc(most);
    if (value == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory");
    }
    *ret_size = fread(value, 1, most, stdin);
    *ret_value = value;
    return TUTTI_OK;
}
