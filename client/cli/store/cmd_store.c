/* tutti store get, set, cas, add, delete: one key of the job's store. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/store/commands.h"
#include "client/cli/store/hold.h"
#include "client/cli/store/lease_text.h"
#include "client/cli/store/store_bytes.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

/* What a command about one key does. */
typedef tutti_code (*key_fn)(cli *self, tutti_client *client, const tutti_kv_bytes *key,
                             int *ret_exit, tutti_error *err);

/*
 * What commands about one key share: the key with its prefix, a connection to the coordinator,
 * and the exit code.
 */
static int
with_key(cli *self, key_fn fn)
{
    char bytes[TUTTI_KV_KEY_MAX];
    tutti_kv_bytes key = {.data = bytes};
    tutti_client *client = NULL;
    int exit_code = CLI_FINE;
    tutti_error err;
    tutti_code code = store_key(self, self->arguments[0], bytes, &key.size, &err);

    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &client, &err);
    }
    if (code == TUTTI_OK) {
        code = fn(self, client, &key, &exit_code, &err);
    }
    tutti_close(client);
    return code == TUTTI_OK ? exit_code : cli_failed(self, self->arguments[0], &err);
}

static tutti_code
get_key(cli *self, tutti_client *client, const tutti_kv_bytes *key, int *ret_exit, tutti_error *err)
{
    void *value = NULL;
    size_t size = 0;
    const tutti_code code = tutti_kv_get(client, key->data, key->size, &value, &size, err);

    (void)ret_exit;
    if (code != TUTTI_OK) {
        return code;
    }
    if (self->json) {
        json_t *document = json_pack("{s:s}", "key", self->arguments[0]);

        store_json_set(document, "value", value, size);
        (void)cli_print_json(self, document);
    } else {
        store_print_value(self, value, size);
    }
    tutti_free(value);
    return TUTTI_OK;
}

int
cli_store_get(cli *self)
{
    return with_key(self, get_key);
}

/* The lease that the options name or ask for; its id is 0 if there is none. */
static tutti_code
take_lease(cli *self, tutti_client *client, tutti_kv_lease *ret_lease, int *ret_exit,
           tutti_error *err)
{
    const char *time = cli_value(self, "lease");
    const char *id = cli_value(self, "lease-id");
    uint32_t ttl_ms = 0;

    *ret_lease = (tutti_kv_lease){0};
    if (id != NULL && !lease_parse(id, &ret_lease->id)) {
        *ret_exit = cli_usage(self, LEASE_WANTED, id);
    } else if (time != NULL && (id != NULL || !cli_parse_ms(time, &ttl_ms))) {
        *ret_exit =
            cli_usage(self, "--lease \"%s\": write a time, 10s or 5m, and no --lease-id", time);
    }
    return time == NULL || *ret_exit != CLI_FINE
               ? TUTTI_OK
               : tutti_kv_lease_grant(client, ttl_ms, ret_lease, err);
}

static tutti_code
set_value(cli *self, tutti_client *client, const tutti_kv_bytes *key, uint64_t lease,
          tutti_error *err)
{
    char *value = NULL;
    size_t size = 0;
    tutti_code code = store_value(self->arguments[1], &value, &size, err);

    if (code == TUTTI_OK) {
        code = tutti_kv_set_with_lease(client, key->data, key->size, value, size, lease, err);
    }
    if (code == TUTTI_OK) {
        (void)cli_print_json(
            self, json_pack("{s:s, s:I}", "key", self->arguments[0], "bytes", (json_int_t)size));
        (void)fflush(self->out); /* a command that holds a lease goes on */
    }
    free(value);
    return code;
}

static tutti_code
set_key(cli *self, tutti_client *client, const tutti_kv_bytes *key, int *ret_exit, tutti_error *err)
{
    tutti_kv_lease lease;
    tutti_code code = take_lease(self, client, &lease, ret_exit, err);

    if (code == TUTTI_OK && *ret_exit == CLI_FINE) {
        code = set_value(self, client, key, lease.id, err);
    }
    if (code == TUTTI_OK && lease.ttl_ms != 0) {
        code = store_hold(self, client, &lease, err);
    }
    return code;
}

int
cli_store_set(cli *self)
{
    if (cli_value(self, "lease") != NULL) {
        store_hold_prepare();
    }
    return with_key(self, set_key);
}

/* What is there instead goes to the standard error, so that the output of a script stays empty. */
static tutti_code
swap_key(cli *self, tutti_client *client, const tutti_kv_bytes *key, int *ret_exit,
         tutti_error *err)
{
    const char *expected = cli_value(self, "expect");
    void *now = NULL;
    size_t now_size = 0;
    bool swapped = false;
    char *value = NULL;
    size_t size = 0;
    tutti_code code = store_value(self->arguments[1], &value, &size, err);

    if (code == TUTTI_OK) {
        code = tutti_kv_compare_and_set(client, key->data, key->size, expected,
                                        expected == NULL ? 0 : strlen(expected), value, size,
                                        &swapped, &now, &now_size, err);
    }
    if (code == TUTTI_OK && self->json) {
        json_t *document = json_pack("{s:s, s:b}", "key", self->arguments[0], "swapped", swapped);

        if (now != NULL) {
            store_json_set(document, "value", now, now_size);
        }
        (void)cli_print_json(self, document);
    } else if (code == TUTTI_OK && !swapped) {
        (void)fprintf(self->err, "tutti: %s: %s", self->arguments[0],
                      now == NULL ? "there is no such key" : "it holds ");
        store_print(self->err, now == NULL ? "" : now, now_size);
        (void)fputc('\n', self->err);
    }
    *ret_exit = swapped ? CLI_FINE : CLI_FAILED;
    tutti_free(now);
    free(value);
    return code;
}

int
cli_store_cas(cli *self)
{
    return with_key(self, swap_key);
}

static tutti_code
add_key(cli *self, tutti_client *client, const tutti_kv_bytes *key, int *ret_exit, tutti_error *err)
{
    int64_t delta = 1;
    int64_t value = 0;
    tutti_code code;

    if (!cli_number(self, "by", INT64_MIN, INT64_MAX, &delta)) {
        *ret_exit = CLI_USAGE;
        return TUTTI_OK;
    }
    code = tutti_kv_add(client, key->data, key->size, delta, &value, err);
    if (code == TUTTI_OK && !cli_print_json(self, json_pack("{s:s, s:I}", "key", self->arguments[0],
                                                            "value", (json_int_t)value))) {
        (void)fprintf(self->out, "%" PRId64 "\n", value);
    }
    return code;
}

int
cli_store_add(cli *self)
{
    return with_key(self, add_key);
}

static tutti_code
delete_key(cli *self, tutti_client *client, const tutti_kv_bytes *key, int *ret_exit,
           tutti_error *err)
{
    bool existed = false;
    tutti_code code = tutti_kv_delete(client, key->data, key->size, &existed, err);

    if (code == TUTTI_OK &&
        !cli_print_json(self,
                        json_pack("{s:s, s:b}", "key", self->arguments[0], "existed", existed)) &&
        !existed) {
        (void)fprintf(self->err, "tutti: %s: there is no such key\n", self->arguments[0]);
    }
    *ret_exit = existed ? CLI_FINE : CLI_FAILED;
    return code;
}

int
cli_store_delete(cli *self)
{
    return with_key(self, delete_key);
}
