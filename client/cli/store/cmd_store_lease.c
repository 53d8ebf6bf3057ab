/* tutti store lease grant, keep, revoke, list. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/store/commands.h"
#include "client/cli/store/hold.h"
#include "client/cli/store/lease_text.h"
#include "client/cli/util/output.h"
#include "client/cli/util/table.h"
#include "client/cli/util/values.h"

static json_t *
lease_json(const tutti_kv_lease *lease)
{
    char text[LEASE_TEXT_SIZE];

    lease_format(lease->id, text);
    return json_pack("{s:s, s:I, s:I, s:I}", "lease", text, "ttl_ms", (json_int_t)lease->ttl_ms,
                     "left_ms", (json_int_t)lease->left_ms, "keys", (json_int_t)lease->key_count);
}

int
cli_store_lease_grant(cli *self)
{
    tutti_client *client = NULL;
    tutti_kv_lease lease = {0};
    uint32_t ttl_ms = 0;
    tutti_error err;
    tutti_code code;

    if (!cli_parse_ms(self->arguments[0], &ttl_ms)) {
        return cli_usage(self, "\"%s\": write the time of the lease as 10s, 5m ...",
                         self->arguments[0]);
    }
    code = cli_connect_coordinator(self, &client, &err);
    if (code == TUTTI_OK) {
        code = tutti_kv_lease_grant(client, ttl_ms, &lease, &err);
    }
    tutti_close(client);
    if (code != TUTTI_OK) {
        return cli_failed(self, NULL, &err);
    }
    if (!cli_print_json(self, lease_json(&lease))) {
        char text[LEASE_TEXT_SIZE];

        lease_format(lease.id, text);
        (void)fprintf(self->out, "%s\n", text);
    }
    return CLI_FINE;
}

/* What the commands about one lease do. */
typedef tutti_code (*lease_fn)(cli *self, tutti_client *client, uint64_t lease, int *ret_exit,
                               tutti_error *err);

static int
with_lease(cli *self, lease_fn fn)
{
    tutti_client *client = NULL;
    int exit_code = CLI_FINE;
    uint64_t lease = 0;
    tutti_error err;
    tutti_code code;

    if (!lease_parse(self->arguments[0], &lease)) {
        return cli_usage(self, LEASE_WANTED, self->arguments[0]);
    }
    code = cli_connect_coordinator(self, &client, &err);
    if (code == TUTTI_OK) {
        code = fn(self, client, lease, &exit_code, &err);
    }
    tutti_close(client);
    return code == TUTTI_OK ? exit_code : cli_failed(self, self->arguments[0], &err);
}

static tutti_code
keep_now(cli *self, tutti_client *client, uint64_t id, int *ret_exit, tutti_error *err)
{
    tutti_kv_lease lease = {0};
    const tutti_code code = tutti_kv_lease_keep(client, id, &lease, err);

    (void)ret_exit;
    if (code == TUTTI_OK && cli_flag(self, "hold")) {
        return store_hold(self, client, &lease, err);
    }
    if (code == TUTTI_OK) {
        (void)cli_print_json(self, lease_json(&lease));
    }
    return code;
}

int
cli_store_lease_keep(cli *self)
{
    if (cli_flag(self, "hold")) {
        store_hold_prepare();
    }
    return with_lease(self, keep_now);
}

static tutti_code
revoke(cli *self, tutti_client *client, uint64_t id, int *ret_exit, tutti_error *err)
{
    bool existed = false;
    uint64_t keys = 0;
    const tutti_code code = tutti_kv_lease_revoke(client, id, &existed, &keys, err);

    if (code == TUTTI_OK &&
        !cli_print_json(self, json_pack("{s:s, s:b, s:I}", "lease", self->arguments[0], "existed",
                                        existed, "keys", (json_int_t)keys)) &&
        !existed) {
        (void)fprintf(self->err, "tutti: %s: there is no such lease\n", self->arguments[0]);
    }
    *ret_exit = existed ? CLI_FINE : CLI_FAILED;
    return code;
}

int
cli_store_lease_revoke(cli *self)
{
    return with_lease(self, revoke);
}

/* Both forms are made, although only one is printed. */
typedef struct leases {
    cli_table *table;
    json_t *list;
} leases;

static bool
on_lease(void *arg, const tutti_kv_lease *lease)
{
    leases *self = arg;
    char text[LEASE_TEXT_SIZE];

    lease_format(lease->id, text);
    cli_table_add(self->table, "%s", text);
    cli_table_add(self->table, "%.1f s", lease->ttl_ms / 1000.0);
    cli_table_add(self->table, "%.1f s", lease->left_ms / 1000.0);
    cli_table_add(self->table, "%" PRIu64, lease->key_count);
    (void)json_array_append_new(self->list, lease_json(lease));
    return true;
}

int
cli_store_lease_list(cli *self)
{
    leases all = {.table = cli_table_new(), .list = json_array()};
    tutti_client *client = NULL;
    tutti_error err;
    tutti_code code = cli_connect_coordinator(self, &client, &err);

    cli_table_add_column(all.table, "LEASE");
    cli_table_add_column(all.table, ">TIME");
    cli_table_add_column(all.table, ">LEFT");
    cli_table_add_column(all.table, ">KEYS");
    if (code == TUTTI_OK) {
        code = tutti_kv_lease_list(client, on_lease, &all, &err);
    }
    tutti_close(client);
    if (code == TUTTI_OK && !cli_print_json(self, json_pack("{s:O}", "leases", all.list))) {
        cli_table_print(self, all.table);
    }
    cli_table_free(all.table);
    json_decref(all.list);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}
