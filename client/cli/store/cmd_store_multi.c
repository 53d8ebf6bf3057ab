/* tutti store multi-get, multi-set, check, meet: many keys, or many callers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/store/commands.h"
#include "client/cli/store/store_bytes.h"
#include "client/cli/util/output.h"

/* Every `step`-th argument is a key; behind it may be its value. */
typedef struct keys {
    char (*names)[TUTTI_KV_KEY_MAX];
    tutti_kv_bytes *keys;
    tutti_kv_bytes *values;
    size_t count;
} keys;

static void
keys_free(keys *all)
{
    free(all->names);
    free(all->keys);
    free(all->values);
}

/*
 * [in]         step  1: keys alone; 2: each with its value behind it
 * [out, owned] ret   keys_free it, also on failure
 */
static tutti_code
keys_read(cli *self, size_t step, keys *ret, tutti_error *err)
{
    keys all = {.count = (size_t)self->argument_count / step};
    tutti_code code = TUTTI_OK;
    size_t i;

    all.names = calloc(all.count, sizeof(*all.names));
    all.keys = calloc(all.count, sizeof(*all.keys));
    all.values = calloc(all.count, sizeof(*all.values));
    if (all.names == NULL || all.keys == NULL || all.values == NULL) {
        abort();
    }
    for (i = 0; i < all.count && code == TUTTI_OK; i++) {
        code = store_key(self, self->arguments[i * step], all.names[i], &all.keys[i].size, err);
        all.keys[i].data = all.names[i];
        if (step == 2) {
            const char *value = self->arguments[i * step + 1];

            all.values[i] = (tutti_kv_bytes){value, strlen(value)};
        }
    }
    *ret = all;
    return code;
}

/* ------------------------------------------------------------------------------ get, set */

/* Frees the values. */
static void
print_values(cli *self, void **values, const size_t *sizes, size_t count)
{
    json_t *list = json_array();
    size_t i;

    for (i = 0; i < count; i++) {
        json_t *one = json_pack("{s:s}", "key", self->arguments[i]);

        store_json_set(one, "value", values[i], sizes[i]);
        (void)json_array_append_new(list, one);
    }
    if (!cli_print_json(self, json_pack("{s:o}", "keys", list))) {
        for (i = 0; i < count; i++) {
            store_print(self->out, values[i], sizes[i]);
            (void)fputc('\n', self->out);
        }
    }
    for (i = 0; i < count; i++) {
        tutti_free(values[i]);
    }
}

int
cli_store_multi_get(cli *self)
{
    const uint32_t wait_ms = cli_flag(self, "no-wait") ? TUTTI_KV_AT_ONCE : self->timeout_ms;
    void *values[1024];
    size_t sizes[1024];
    tutti_client *client = NULL;
    keys all = {0};
    tutti_error err;
    tutti_code code = keys_read(self, 1, &all, &err);

    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_kv_multi_get(client, all.keys, all.count, wait_ms, values, sizes, &err);
    }
    tutti_close(client);
    if (code == TUTTI_OK) {
        print_values(self, values, sizes, all.count);
    }
    keys_free(&all);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}

int
cli_store_multi_set(cli *self)
{
    tutti_client *client = NULL;
    keys all = {0};
    tutti_error err;
    tutti_code code;

    if (self->argument_count % 2 != 0) {
        return cli_usage(self, "%d words, need a value for every key", self->argument_count);
    }
    code = keys_read(self, 2, &all, &err);
    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_kv_multi_set(client, all.keys, all.values, all.count, &err);
    }
    tutti_close(client);
    keys_free(&all);
    if (code != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    (void)cli_print_json(self, json_pack("{s:i}", "keys", self->argument_count / 2));
    return CLI_FINE;
}

/* ------------------------------------------------------------------------------ check */

/* The keys that are missing are named one by one; the exit code says whether there were any. */
static void
print_check(cli *self, const bool *exist, size_t count, bool everything)
{
    json_t *each = json_object();
    size_t i;

    for (i = 0; i < count; i++) {
        (void)json_object_set_new(each, self->arguments[i], json_boolean(exist[i]));
        if (!exist[i] && !self->json && !self->quiet) {
            (void)fprintf(self->err, "tutti: %s: there is no such key\n", self->arguments[i]);
        }
    }
    (void)cli_print_json(self, json_pack("{s:b, s:o}", "all_exist", everything, "exist", each));
}

int
cli_store_check(cli *self)
{
    bool exist[1024] = {false};
    bool everything = false;
    tutti_client *client = NULL;
    keys all = {0};
    tutti_error err;
    tutti_code code = keys_read(self, 1, &all, &err);

    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_kv_check(client, all.keys, all.count, exist, &everything, &err);
    }
    tutti_close(client);
    if (code == TUTTI_OK) {
        print_check(self, exist, all.count, everything);
    }
    keys_free(&all);
    if (code != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    return everything ? CLI_FINE : CLI_FAILED;
}

/* ------------------------------------------------------------------------------ meet */

static void
print_meeting(cli *self, const tutti_meeting *meeting)
{
    json_t *document = json_pack("{s:i, s:o}", "group_rank", (int)meeting->group_rank, "group_hash",
                                 json_sprintf("%016" PRIx64, meeting->group_hash));

    if (meeting->root_rank >= 0) {
        (void)json_object_set_new(document, "root_rank", json_integer(meeting->root_rank));
    }
    if (!cli_print_json(self, document)) {
        (void)fprintf(self->out, "%" PRIu32 "\n", meeting->group_rank);
    }
}

/* Ends when as many callers have come as --count says; all must say the same count. */
int
cli_store_meet(cli *self)
{
    const char *name = cli_value(self, "name");
    char key[TUTTI_KV_KEY_MAX];
    size_t key_size = 0;
    tutti_client *client = NULL;
    tutti_meeting meeting;
    int64_t count = 2;
    tutti_error err;
    tutti_code code;

    tutti_meeting_init(&meeting);
    if (!cli_number(self, "count", 1, TUTTI_RANKS_MAX, &count) ||
        !cli_number(self, "as", 0, TUTTI_RANKS_MAX - 1, &meeting.rank)) {
        return CLI_USAGE;
    }
    meeting.count = (uint32_t)count;
    meeting.is_root = cli_flag(self, "root");
    meeting.name = name != NULL ? name : "";
    meeting.timeout_ms = self->timeout_ms;
    code = store_key(self, self->arguments[0], key, &key_size, &err);
    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = tutti_meet(client, key, key_size, &meeting, &err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        return cli_failed(self, self->arguments[0], &err);
    }
    print_meeting(self, &meeting);
    return CLI_FINE;
}
