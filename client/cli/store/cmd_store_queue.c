/* tutti store push, pop, len, take, append, count: what is not of one key's value alone. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/parse/parse.h"
#include "client/cli/store/commands.h"
#include "client/cli/store/store_bytes.h"
#include "client/cli/util/output.h"

/* What the value commands share: a key behind --prefix, and perhaps a value. */
typedef struct call {
    cli *self;
    tutti_client *client;
    char key[TUTTI_KV_KEY_MAX];
    size_t key_size;
    void *value;
    size_t value_size;
    uint64_t number;
} call;

typedef tutti_code (*call_fn)(call *one, tutti_error *err);

/* [out] `one` has what the command answered */
static int
run_queue(cli *self, call *one, call_fn fn)
{
    const char *key = self->argument_count > 0 ? self->arguments[0] : "";
    tutti_error err;
    tutti_code code;

    one->self = self;
    code = store_key(self, key, one->key, &one->key_size, &err);
    if (code == TUTTI_OK) {
        code = cli_connect_coordinator(self, &one->client, &err);
    }
    if (code == TUTTI_OK) {
        code = fn(one, &err);
    }
    tutti_close(one->client);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, key, &err);
}

/* [in] exit_code  of the call; nothing is printed unless it went well */
static int
print_number(const call *one, const char *word, int exit_code)
{
    const char *key = one->self->argument_count > 0 ? one->self->arguments[0] : "";

    if (exit_code == CLI_FINE &&
        !cli_print_json(one->self,
                        json_pack("{s:s, s:I}", "key", key, word, (json_int_t)one->number))) {
        (void)fprintf(one->self->out, "%" PRIu64 "\n", one->number);
    }
    return exit_code;
}

/* Frees the value. */
static int
print_value(call *one, int exit_code)
{
    if (exit_code != CLI_FINE) {
        return exit_code;
    }
    if (one->self->json) {
        json_t *document = json_pack("{s:s}", "key", one->self->arguments[0]);

        store_json_set(document, "value", one->value, one->value_size);
        (void)cli_print_json(one->self, document);
    } else {
        store_print_value(one->self, one->value, one->value_size);
    }
    tutti_free(one->value);
    return CLI_FINE;
}

/* ------------------------------------------------------------------------------ values in */

static tutti_code
push_queue(call *one, tutti_error *err)
{
    tutti_code code =
        store_value(one->self->arguments[1], (char **)&one->value, &one->value_size, err);

    if (code == TUTTI_OK) {
        code = tutti_kv_push(one->client, one->key, one->key_size, one->value, one->value_size,
                             &one->number, err);
        free(one->value);
    }
    return code;
}

int
cli_store_push(cli *self)
{
    call one = {0};

    return print_number(&one, "length", run_queue(self, &one, push_queue));
}

static tutti_code
append_queue(call *one, tutti_error *err)
{
    tutti_code code =
        store_value(one->self->arguments[1], (char **)&one->value, &one->value_size, err);

    if (code == TUTTI_OK) {
        code = tutti_kv_append(one->client, one->key, one->key_size, one->value, one->value_size,
                               &one->number, err);
        free(one->value);
    }
    return code;
}

int
cli_store_append(cli *self)
{
    call one = {0};

    return print_number(&one, "bytes", run_queue(self, &one, append_queue));
}

/* ------------------------------------------------------------------------------ values out */

/* 0 is the library's own limit. */
static uint32_t
get_queue_timeout(const cli *self)
{
    return cli_flag(self, "no-wait") ? TUTTI_KV_AT_ONCE : self->timeout_ms;
}

static tutti_code
pop_queue(call *one, tutti_error *err)
{
    return tutti_kv_pop(one->client, one->key, one->key_size, get_queue_timeout(one->self),
                        &one->value, &one->value_size, err);
}

int
cli_store_pop(cli *self)
{
    call one = {0};

    return print_value(&one, run_queue(self, &one, pop_queue));
}

static tutti_code
take_queue(call *one, tutti_error *err)
{
    return tutti_kv_take(one->client, one->key, one->key_size, get_queue_timeout(one->self),
                         &one->value, &one->value_size, err);
}

int
cli_store_take(cli *self)
{
    call one = {0};

    return print_value(&one, run_queue(self, &one, take_queue));
}

/* ------------------------------------------------------------------------------ numbers */

static tutti_code
print_queue_length(call *one, tutti_error *err)
{
    return tutti_kv_length(one->client, one->key, one->key_size, &one->number, err);
}

int
cli_store_len(cli *self)
{
    call one = {0};

    return print_number(&one, "length", run_queue(self, &one, print_queue_length));
}

static tutti_code
print_queue_count(call *one, tutti_error *err)
{
    return tutti_kv_count(one->client, one->key, one->key_size, &one->number, err);
}

int
cli_store_count(cli *self)
{
    call one = {0};

    return print_number(&one, "count", run_queue(self, &one, print_queue_count));
}
