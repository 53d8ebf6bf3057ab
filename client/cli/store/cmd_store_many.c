/* tutti store list, wait, watch: many keys at once. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/store/commands.h"
#include "client/cli/store/store_bytes.h"
#include "client/cli/util/output.h"
#include "client/cli/util/table.h"

#define CELL_BYTES 60 /* of a key or value in a table */

typedef struct listing {
    const cli *self;
    cli_table *table;
    json_t *keys;
} listing;

/* Bytes as a table cell: about 60 of them, whole characters. */
static void
add_bytes(cli_table *table, const void *bytes, size_t size)
{
    size_t shown = size < CELL_BYTES ? size : CELL_BYTES;
    char *text = NULL;
    size_t text_size = 0;
    FILE *memory = open_memstream(&text, &text_size);

    if (memory == NULL) {
        abort();
    }
    while (shown < size && shown > CELL_BYTES - 4 &&
           (((const unsigned char *)bytes)[shown] & 0xc0) == 0x80) {
        shown--;
    }
    store_print(memory, bytes, shown);
    (void)fputs(shown < size ? "..." : "", memory);
    (void)fclose(memory);
    cli_table_add(table, "%s", text);
    free(text);
}

/* Both forms are made, although only one is printed. */
static bool
on_listed(void *arg, const tutti_kv_entry *entry)
{
    listing *self = arg;
    json_t *one = json_object();

    store_json_set(one, "key", entry->key, entry->key_size);
    store_json_set(one, "value", entry->value, entry->value_size);
    (void)json_object_set_new(one, "version", json_integer((json_int_t)entry->version));
    (void)json_array_append_new(self->keys, one);
    add_bytes(self->table, entry->key, entry->key_size);
    cli_table_add(self->table, "%" PRIu64, entry->version);
    cli_table_add(self->table, "%zu", entry->value_size);
    add_bytes(self->table, entry->value, entry->value_size);
    return true;
}

/* What keys are to begin with: --prefix, and the argument. */
static tutti_code
read_prefix(const cli *self, char ret[TUTTI_KV_KEY_MAX], size_t *ret_size, tutti_error *err)
{
    return store_key(self, self->argument_count > 0 ? self->arguments[0] : "", ret, ret_size, err);
}

int
cli_store_list(cli *self)
{
    listing list = {.self = self, .table = cli_table_new(), .keys = json_array()};
    char prefix[TUTTI_KV_KEY_MAX];
    size_t size = 0;
    tutti_client *client = NULL;
    tutti_error err;
    tutti_code code = read_prefix(self, prefix, &size, &err);

    cli_table_add_column(list.table, "KEY");
    cli_table_add_column(list.table, ">VERSION");
    cli_table_add_column(list.table, ">BYTES");
    cli_table_add_column(list.table, "VALUE");
    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_kv_list(client, prefix, size, on_listed, &list, &err);
    }
    tutti_close(client);
    if (code == TUTTI_OK && !cli_print_json(self, json_pack("{s:O}", "keys", list.keys))) {
        cli_table_print(self, list.table);
    }
    cli_table_free(list.table);
    json_decref(list.keys);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

/* The arrays have room for as many keys as the command takes (its row in the table says 1024). */
int
cli_store_wait(cli *self)
{
    const size_t count = (size_t)self->argument_count;
    char(*names)[TUTTI_KV_KEY_MAX] = calloc(count, sizeof(*names));
    size_t sizes[1024];
    const void *keys[1024];
    tutti_client *client = NULL;
    tutti_error err;
    tutti_code code = TUTTI_OK;
    size_t i;

    if (names == NULL) {
        abort();
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        keys[i] = names[i];
        code = store_key(self, self->arguments[i], names[i], &sizes[i], &err);
    }
    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_kv_wait(client, keys, sizes, count, self->timeout_ms, &err);
    }
    tutti_close(client);
    free(names);
    if (code != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    (void)cli_print_json(self, json_pack("{s:I}", "keys", (json_int_t)count));
    return CLI_FINE;
}

/* ------------------------------------------------------------------------------ watch */

typedef struct watching {
    const cli *self;
    int64_t left; /* changes to be shown; -1 = all */
} watching;

/* One line for each change, in JSON as well: a watch has no end. */
static bool
on_change(void *arg, const tutti_kv_entry *entry)
{
    watching *self = arg;
    FILE *out = self->self->out;

    if (entry->key == NULL) {
        return true;
    }
    if (self->self->json) {
        json_t *one = json_pack("{s:b, s:I}", "deleted", entry->deleted, "version",
                                (json_int_t)entry->version);

        store_json_set(one, "key", entry->key, entry->key_size);
        if (!entry->deleted) {
            store_json_set(one, "value", entry->value, entry->value_size);
        }
        (void)json_dumpf(one, out, JSON_COMPACT);
        json_decref(one);
    } else {
        (void)fprintf(out, "%s ", entry->deleted ? "deleted" : "set");
        store_print(out, entry->key, entry->key_size);
        if (!entry->deleted) {
            (void)fputs(" = ", out);
            store_print(out, entry->value, entry->value_size);
        }
    }
    (void)fputc('\n', out);
    if (fflush(out) != 0) {
        return false; /* nobody reads it any more */
    }
    return self->left < 0 || --self->left > 0;
}

int
cli_store_watch(cli *self)
{
    watching watch = {.self = self, .left = -1};
    char prefix[TUTTI_KV_KEY_MAX];
    size_t size = 0;
    tutti_client *client = NULL;
    tutti_error err;
    tutti_code code;

    if (!cli_number(self, "count", 1, INT64_MAX, &watch.left)) {
        return CLI_USAGE;
    }
    code = read_prefix(self, prefix, &size, &err);
    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_kv_watch(client, prefix, size, self->timeout_ms, on_change, &watch, &err);
    }
    tutti_close(client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}
