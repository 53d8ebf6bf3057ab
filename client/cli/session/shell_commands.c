/* The commands of a session: a row each, and what it comes to. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/npy/npy.h"
#include "client/cli/session/shell.h"
#include "client/cli/util/output.h"
#include "client/cli/util/typed.h"
#include "client/cli/util/values.h"

#define SHOWN_BYTES_MAX ((uint64_t)64 << 20) /* show reads a whole tensor */

/* ------------------------------------------------------------------------------ words */

const char *
shell_key(const shell_call *call, const char *key)
{
    const size_t size = strlen(key);
    size_t i;

    for (i = 0; i < call->key_count; i++) {
        if (strncmp(call->keys[i], key, size) == 0 && call->keys[i][size] == '=') {
            return call->keys[i] + size + 1;
        }
        if (strcmp(call->keys[i], key) == 0) {
            return "";
        }
    }
    return NULL;
}

/* "in_group", "in_group=true", "in_group=false". */
static tutti_code
read_flag(const shell_call *call, const char *key, bool *ret, tutti_error *err)
{
    const char *value = shell_key(call, key);

    if (value == NULL) {
        return TUTTI_OK;
    }
    *ret = value[0] == '\0' || strcmp(value, "true") == 0 || strcmp(value, "1") == 0;
    if (!*ret && strcmp(value, "false") != 0 && strcmp(value, "0") != 0) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%s=%.60s: need true or false", key, value);
    }
    return TUTTI_OK;
}

static tutti_code
read_number(const shell_call *call, const char *key, uint32_t *ret, tutti_error *err)
{
    const char *value = shell_key(call, key);
    int64_t number = 0;

    if (value == NULL) {
        return TUTTI_OK;
    }
    if (!cli_parse_number(value, 0, UINT32_MAX, &number)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%s=%.60s: need a number", key, value);
    }
    *ret = (uint32_t)number;
    return TUTTI_OK;
}

/* "workers=0,2-3". [out, owned] ret  free its workers */
static tutti_code
read_workers(const shell_call *call, tutti_workers *ret, tutti_error *err)
{
    const char *value = shell_key(call, "workers");
    uint32_t *workers = NULL;
    size_t count = 0;

    *ret = (tutti_workers){0};
    if (value == NULL) {
        return TUTTI_OK;
    }
    if (!cli_parse_ranks(value, &workers, &count)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "workers=%.60s: write 0,2-3", value);
    }
    *ret = (tutti_workers){.workers = workers, .count = count};
    return TUTTI_OK;
}

static void
free_workers(const tutti_workers *on)
{
    free((void *)(uintptr_t)on->workers);
}

static tutti_code
find_register(const shell_call *call, const char *name, uint32_t *ret, tutti_error *err)
{
    const shell_variable *variable = shell_find(call->shell, name);

    if (variable == NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "nothing is called \"%.60s\": registers lists what there is", name);
    }
    *ret = variable->reg;
    return TUTTI_OK;
}

/* "FP32[2,3]"; "FP32" is a scalar. */
static tutti_code
read_tensor_spec(const char *word, tutti_spec *ret, tutti_error *err)
{
    const size_t size = strcspn(word, "[");
    char name[32];
    cli_typed dims = {0};
    tutti_code code;

    (void)snprintf(name, sizeof(name), "%.*s", size < sizeof(name) ? (int)size : 31, word);
    *ret = (tutti_spec){.dtype = tutti_dtype_parse(name)};
    if (ret->dtype == TUTTI_DTYPE_NONE) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "\"%.60s\" is no dtype with a shape: write FP32[2,3]", word);
    }
    if (word[size] == '\0') {
        return TUTTI_OK;
    }
    code = cli_typed_parse(word + size, &dims, err);
    if (code == TUTTI_OK && dims.value.u.shape.count > TUTTI_DIMS_MAX) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT, "%zu dimensions, at most %d",
                        dims.value.u.shape.count, TUTTI_DIMS_MAX);
    }
    if (code == TUTTI_OK) {
        ret->dim_count = (uint32_t)dims.value.u.shape.count;
        memcpy(ret->dims, dims.dims, sizeof(ret->dims));
    }
    return code;
}

/* ------------------------------------------------------------------------------ ending */

/* A command has been given: wait for it, and say what it has to say. Its failure is told here, so
 * `err` has no text then. */
static tutti_code
finish_command(shell_call *call, tutti_code given, uint64_t ticket, tutti_error *err)
{
    tutti_session_result result = {0};
    tutti_code code = given;

    if (code == TUTTI_OK) {
        code = tutti_session_wait(call->shell->session, ticket, &result, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    code = result.error.code;
    if (code == TUTTI_OK) {
        shell_print_result(call, &result);
    } else {
        shell_print_failed(call->shell, call->shell->number, call->command->name, &result.error,
                           &result);
        err->text[0] = '\0';
    }
    tutti_session_result_free(&result);
    return code;
}

/* Another command has to come before this one can end: it is asked for at the next sync, or at the
 * end. */
static tutti_code
leave_command(shell_call *call, tutti_code given, uint64_t ticket, tutti_error *err)
{
    shell *self = call->shell;
    shell_pending *more;

    if (given != TUTTI_OK) {
        return given;
    }
    more = realloc(self->pending, (self->pending_count + 1) * sizeof(*more));
    if (more == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a command");
    }
    self->pending = more;
    more[self->pending_count] = (shell_pending){.ticket = ticket, .number = self->number};
    (void)snprintf(more[self->pending_count].command, sizeof(more->command), "%s",
                   call->command->name);
    self->pending_count++;
    return TUTTI_OK;
}

/* What is no command of the wire has ended well. */
static tutti_code
end_plain(const shell_call *call)
{
    const tutti_session_result nothing = {0};

    shell_print_result(call, &nothing);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ registers */

static tutti_code
run_empty(shell_call *call, tutti_error *err)
{
    tutti_session_empty_options options;
    tutti_workers on = {0};
    uint64_t ticket = 0;
    tutti_spec spec;
    tutti_code code;

    tutti_session_empty_init(&options);
    options.device = shell_key(call, "device");
    code = read_tensor_spec(call->words[0], &spec, err);
    if (code == TUTTI_OK) {
        code = read_flag(call, "worker0_only", &options.worker0_only, err);
    }
    if (code == TUTTI_OK) {
        code = read_flag(call, "in_group", &options.in_group, err);
    }
    if (code == TUTTI_OK) {
        code = read_workers(call, &on, err);
    }
    if (code == TUTTI_OK) {
        options.on = on;
        code = tutti_session_empty(call->shell->session, call->into, &spec, &options, &ticket, err);
        code = finish_command(call, code, ticket, err);
    }
    free_workers(&on);
    return code;
}

/* The variable is gone, whatever the workers say. */
static void
remove_variable(shell *self, const char *name)
{
    size_t i;

    for (i = 0; i < self->variable_count; i++) {
        if (strcmp(self->variables[i].name, name) == 0) {
            self->variable_count--;
            self->renamed = true;
            memmove(&self->variables[i], &self->variables[i + 1],
                    (self->variable_count - i) * sizeof(*self->variables));
            return;
        }
    }
}

static tutti_code
run_drop(shell_call *call, tutti_error *err)
{
    uint32_t registers[SHELL_WORDS_MAX];
    uint64_t ticket = 0;
    tutti_code code = TUTTI_OK;
    size_t i;

    for (i = 0; i < call->word_count && code == TUTTI_OK; i++) {
        code = find_register(call, call->words[i], &registers[i], err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    for (i = 0; i < call->word_count; i++) {
        remove_variable(call->shell, call->words[i]);
    }
    code = tutti_session_drop(call->shell->session, registers, call->word_count, &ticket, err);
    return finish_command(call, code, ticket, err);
}

/* A word as a value: a variable is its register, what is quoted a text. */
static tutti_code
read_value(const shell_call *call, size_t index, cli_typed *ret, tutti_error *err)
{
    const char *word = call->words[index];
    const shell_variable *variable = call->quoted[index] ? NULL : shell_find(call->shell, word);

    *ret = (cli_typed){0};
    if (call->quoted[index]) {
        ret->value = tutti_value_text(word);
    } else if (variable != NULL) {
        ret->value = tutti_value_register(variable->reg);
    } else {
        return cli_typed_parse(word, ret, err);
    }
    return TUTTI_OK;
}

static tutti_code
run_set(shell_call *call, tutti_error *err)
{
    tutti_workers on = {0};
    uint64_t ticket = 0;
    cli_typed typed;
    tutti_code code = read_value(call, 0, &typed, err);

    if (code == TUTTI_OK) {
        code = read_workers(call, &on, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_session_set(call->shell->session, call->into, &typed.value, &on, &ticket, err);
        code = finish_command(call, code, ticket, err);
    }
    free_workers(&on);
    cli_typed_free(&typed);
    return code;
}

static tutti_code
run_get(shell_call *call, tutti_error *err)
{
    tutti_workers on = {0};
    uint64_t ticket = 0;
    uint32_t src = 0;
    tutti_code code = find_register(call, call->words[0], &src, err);

    if (code == TUTTI_OK) {
        code = read_workers(call, &on, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_session_get(call->shell->session, src, &on, &ticket, err);
        code = finish_command(call, code, ticket, err);
    }
    free_workers(&on);
    return code;
}

/* ------------------------------------------------------------------------------ moving */

/* [out] ret  what a line says of src, dst and in_group */
static tutti_code
read_move(const shell_call *call, tutti_session_move *ret, tutti_error *err)
{
    const char *dst = shell_key(call, "dst");
    tutti_code code = TUTTI_OK;

    tutti_session_move_init(ret);
    ret->into = call->into;
    if (call->word_count > 0) {
        code = find_register(call, call->words[0], &ret->src, err);
    }
    if (code == TUTTI_OK && dst != NULL) {
        code = find_register(call, dst, &ret->dst, err);
    }
    if (code == TUTTI_OK && dst != NULL && call->into != 0) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "dst= names a tensor that is overwritten: leave out \"NAME =\", or dst");
    }
    return code == TUTTI_OK ? read_flag(call, "in_group", &ret->in_group, err) : code;
}

static tutti_code
run_copy(shell_call *call, tutti_error *err)
{
    tutti_session_move move;
    tutti_workers on = {0};
    uint64_t ticket = 0;
    tutti_code code = read_move(call, &move, err);

    if (code == TUTTI_OK) {
        code = read_workers(call, &on, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_session_copy(call->shell->session, &move, &on, &ticket, err);
        code = finish_command(call, code, ticket, err);
    }
    free_workers(&on);
    return code;
}

static tutti_code
run_all_reduce(shell_call *call, tutti_error *err)
{
    const char *word = shell_key(call, "op");
    const tutti_reduce reduce = word == NULL ? TUTTI_REDUCE_SUM : tutti_reduce_parse(word);
    tutti_session_move move;
    uint64_t ticket = 0;
    tutti_code code = read_move(call, &move, err);

    if (code == TUTTI_OK && reduce == TUTTI_REDUCE_NONE) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT, "op=%.60s: need sum, prod, min, max or avg",
                        word);
    }
    if (code == TUTTI_OK) {
        code = tutti_session_all_reduce(call->shell->session, &move, reduce, &ticket, err);
        code = finish_command(call, code, ticket, err);
    }
    return code;
}

typedef tutti_code (*move_fn)(tutti_session *session, const tutti_session_move *move,
                              uint64_t *ret_ticket, tutti_error *err);

static tutti_code
run_move(shell_call *call, move_fn fn, tutti_error *err)
{
    tutti_session_move move;
    uint64_t ticket = 0;
    tutti_code code = read_move(call, &move, err);

    if (code == TUTTI_OK) {
        code = fn(call->shell->session, &move, &ticket, err);
        code = finish_command(call, code, ticket, err);
    }
    return code;
}

#define DEFINE_MOVE(name)                                                                          \
    static tutti_code run_##name(shell_call *call, tutti_error *err)                               \
    {                                                                                              \
        return run_move(call, tutti_session_##name, err);                                          \
    }
DEFINE_MOVE(all_gather)
DEFINE_MOVE(broadcast_from_worker0)
DEFINE_MOVE(scatter_from_worker0)
DEFINE_MOVE(gather_to_worker0)
DEFINE_MOVE(recv_from_prev_group)

static tutti_code
run_send_to_next_group(shell_call *call, tutti_error *err)
{
    tutti_session_move move;
    uint64_t ticket = 0;
    tutti_code code = read_move(call, &move, err);

    if (code == TUTTI_OK) {
        code = tutti_session_send_to_next_group(call->shell->session, &move, &ticket, err);
        code = leave_command(call, code, ticket, err);
    }
    return code == TUTTI_OK ? end_plain(call) : code;
}

static tutti_code
run_transfer(shell_call *call, tutti_error *err)
{
    tutti_session_move move;
    uint64_t ticket = 0;
    uint32_t from = 0;
    uint32_t to = 0;
    tutti_code code = read_move(call, &move, err);

    if (code == TUTTI_OK && (shell_key(call, "from") == NULL || shell_key(call, "to") == NULL)) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT, "say from= and to=, numbers of workers");
    }
    if (code == TUTTI_OK) {
        code = read_number(call, "from", &from, err);
    }
    if (code == TUTTI_OK) {
        code = read_number(call, "to", &to, err);
    }
    if (code == TUTTI_OK) {
        code = tutti_session_transfer(call->shell->session, &move, from, to, &ticket, err);
        code = finish_command(call, code, ticket, err);
    }
    return code;
}

/* ------------------------------------------------------------------------------ functions */

static tutti_code
give_call(shell_call *call, const cli_typed *typed, const tutti_session_call_options *options,
          uint64_t *ret_ticket, tutti_error *err)
{
    const shell_variable *variable = shell_find(call->shell, call->words[0]);
    const tutti_value function = variable != NULL ? tutti_value_register(variable->reg)
                                                  : tutti_value_function(call->words[0]);
    tutti_value args[SHELL_WORDS_MAX];
    size_t i;

    for (i = 0; i + 1 < call->word_count; i++) {
        args[i] = typed[i].value;
    }
    return tutti_session_call(call->shell->session, &function, args, call->word_count - 1, options,
                              ret_ticket, err);
}

static tutti_code
read_call_options(const shell_call *call, tutti_session_call_options *ret, tutti_error *err)
{
    const char *timeout = shell_key(call, "timeout");

    tutti_session_call_init(ret);
    ret->into = call->into;
    if (timeout != NULL && !cli_parse_ms(timeout, &ret->timeout_ms)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "timeout=%.60s: write 250ms, 10s, 5m",
                        timeout);
    }
    return read_workers(call, &ret->on, err);
}

static tutti_code
run_call(shell_call *call, tutti_error *err)
{
    cli_typed *typed = calloc(SHELL_WORDS_MAX, sizeof(*typed));
    tutti_session_call_options options = {0};
    uint64_t ticket = 0;
    tutti_code code;
    size_t i;

    if (typed == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a call");
    }
    code = read_call_options(call, &options, err);
    for (i = 1; i < call->word_count && code == TUTTI_OK; i++) {
        code = read_value(call, i, &typed[i - 1], err);
    }
    if (code == TUTTI_OK) {
        code = give_call(call, typed, &options, &ticket, err);
        code = finish_command(call, code, ticket, err);
    }
    for (i = 0; i < SHELL_WORDS_MAX; i++) {
        cli_typed_free(&typed[i]);
    }
    free_workers(&options.on);
    free(typed);
    return code;
}

static tutti_code
run_get_function(shell_call *call, tutti_error *err)
{
    uint64_t ticket = 0;
    const tutti_code code =
        tutti_session_get_function(call->shell->session, call->into, call->words[0], &ticket, err);

    return finish_command(call, code, ticket, err);
}

static tutti_code
run_load_module(shell_call *call, tutti_error *err)
{
    uint64_t ticket = 0;
    const tutti_code code = tutti_session_load_module(
        call->shell->session, call->into, call->words[0], shell_key(call, "device"), &ticket, err);

    return finish_command(call, code, ticket, err);
}

static tutti_code
run_import_module(shell_call *call, tutti_error *err)
{
    uint64_t ticket = 0;
    const tutti_code code =
        tutti_session_import_module(call->shell->session, call->words[0], &ticket, err);

    return finish_command(call, code, ticket, err);
}

/* ------------------------------------------------------------------------------ waiting */

static tutti_code
run_wait(shell_call *call,
         tutti_code (*wait)(tutti_session *session, const tutti_workers *on, tutti_error *err),
         tutti_error *err)
{
    tutti_workers on = {0};
    tutti_code code = read_workers(call, &on, err);

    if (code == TUTTI_OK) {
        code = wait(call->shell->session, &on, err);
    }
    free_workers(&on);
    return code == TUTTI_OK ? end_plain(call) : code;
}

static tutti_code
run_sync(shell_call *call, tutti_error *err)
{
    shell_settle(call->shell);
    return run_wait(call, tutti_session_sync, err);
}

static tutti_code
run_flush(shell_call *call, tutti_error *err)
{
    return run_wait(call, tutti_session_flush, err);
}

/* ------------------------------------------------------------------------------ files */

static tutti_code
run_put(shell_call *call, tutti_error *err)
{
    npy_array array = {0};
    uint32_t worker = 0;
    tutti_error inner;
    tutti_code code = read_number(call, "worker", &worker, err);

    if (code != TUTTI_OK) {
        return code;
    }
    code = npy_open(call->words[0], TUTTI_DTYPE_NONE, &array, &inner);
    if (code != TUTTI_OK) {
        return cli_fail(err, code, "%.200s: %.800s", call->words[0], inner.text);
    }
    code = tutti_session_put(call->shell->session, worker, call->into, &array.spec, array.data,
                             NULL, err);
    npy_close(&array);
    return code == TUTTI_OK ? end_plain(call) : code;
}

static tutti_code
run_write(shell_call *call, tutti_error *err)
{
    npy_array array = {0};
    uint32_t worker = 0;
    uint32_t dst = 0;
    tutti_error inner;
    tutti_code code = find_register(call, call->words[0], &dst, err);

    if (code == TUTTI_OK) {
        code = read_number(call, "worker", &worker, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    code = npy_open(call->words[1], TUTTI_DTYPE_NONE, &array, &inner);
    if (code != TUTTI_OK) {
        return cli_fail(err, code, "%.200s: %.800s", call->words[1], inner.text);
    }
    code =
        tutti_session_write(call->shell->session, worker, dst, &array.spec, array.data, NULL, err);
    npy_close(&array);
    return code == TUTTI_OK ? end_plain(call) : code;
}

/* What a register is on one worker; it waits for what writes it. */
static tutti_code
find_tensor(shell_call *call, uint32_t worker, uint32_t reg, tutti_spec *ret_spec, tutti_error *err)
{
    const tutti_workers on = {.workers = &worker, .count = 1};
    tutti_session_result result = {0};
    uint64_t ticket = 0;
    tutti_code code = tutti_session_get(call->shell->session, reg, &on, &ticket, err);

    if (code == TUTTI_OK) {
        code = tutti_session_wait(call->shell->session, ticket, &result, err);
    }
    if (code == TUTTI_OK && result.error.code != TUTTI_OK) {
        *err = result.error;
        code = result.error.code;
    } else if (code == TUTTI_OK &&
               (result.value_count == 0 || result.values[0].value.kind != TUTTI_VALUE_TENSOR)) {
        code = cli_fail(err, TUTTI_FAILED_PRECONDITION, "%s is no tensor on worker %" PRIu32,
                        call->words[0], worker);
    } else if (code == TUTTI_OK) {
        *ret_spec = result.values[0].value.spec;
    }
    tutti_session_result_free(&result);
    return code;
}

static tutti_code
read_into_file(shell_call *call, uint32_t worker, uint32_t src, tutti_error *err)
{
    npy_output output = {0};
    tutti_spec spec;
    tutti_code code = find_tensor(call, worker, src, &spec, err);

    if (code == TUTTI_OK) {
        code = npy_create(call->words[1], &spec, &output, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    code =
        tutti_session_read(call->shell->session, worker, src, output.data, output.bytes, NULL, err);
    if (code != TUTTI_OK) {
        npy_discard(&output);
        return code;
    }
    return npy_commit(&output, err);
}

static tutti_code
run_read(shell_call *call, tutti_error *err)
{
    uint32_t worker = 0;
    uint32_t src = 0;
    tutti_code code = find_register(call, call->words[0], &src, err);

    if (code == TUTTI_OK) {
        code = read_number(call, "worker", &worker, err);
    }
    if (code == TUTTI_OK) {
        code = read_into_file(call, worker, src, err);
    }
    return code == TUTTI_OK ? end_plain(call) : code;
}

/* ------------------------------------------------------------------------------ looking */

/* [out, owned] ret_data  free it */
static tutti_code
load_tensor(shell_call *call, uint32_t worker, uint32_t src, tutti_spec *ret_spec, void **ret_data,
            tutti_error *err)
{
    uint64_t bytes = 0;
    tutti_code code = find_tensor(call, worker, src, ret_spec, err);

    if (code == TUTTI_OK) {
        code = tutti_spec_size(ret_spec, NULL, &bytes, err);
    }
    if (code == TUTTI_OK && bytes > SHOWN_BYTES_MAX) {
        code = cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "%" PRIu64 " bytes are too many to be shown: read %s FILE.npy", bytes,
                        call->words[0]);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    *ret_data = malloc((size_t)bytes + 1);
    return *ret_data == NULL
               ? cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %" PRIu64 " bytes", bytes)
               : tutti_session_read(call->shell->session, worker, src, *ret_data, bytes, NULL, err);
}

static tutti_code
show_tensor(shell_call *call, uint32_t worker, uint32_t src, tutti_error *err)
{
    cli *tool = call->shell->tool;
    char shape[CLI_WORD_SIZE];
    char elements[1024];
    void *data = NULL;
    tutti_spec spec;
    const tutti_code code = load_tensor(call, worker, src, &spec, &data, err);

    if (code == TUTTI_OK) {
        shell_format_elements(&spec, data, elements, sizeof(elements));
        if (tool->json) {
            json_t *object =
                json_pack("{s:I, s:s, s:I, s:s}", "line", (json_int_t)call->shell->number,
                          "command", "show", "worker", (json_int_t)worker, "elements", elements);

            cli_json_spec(object, &spec);
            shell_print_json(call->shell, object);
        } else {
            (void)fprintf(tool->out, "worker %" PRIu32 "  %s%s  %s\n", worker,
                          tutti_dtype_name(spec.dtype), cli_format_shape(&spec, shape), elements);
        }
    }
    free(data);
    return code;
}

static tutti_code
run_show(shell_call *call, tutti_error *err)
{
    const tutti_session_info *info = tutti_session_describe(call->shell->session);
    tutti_workers on = {0};
    uint32_t src = 0;
    tutti_code code = find_register(call, call->words[0], &src, err);
    uint32_t i;

    if (code == TUTTI_OK) {
        code = read_workers(call, &on, err);
    }
    for (i = 0; code == TUTTI_OK && i < (on.count > 0 ? on.count : info->worker_count); i++) {
        code = show_tensor(call, on.count > 0 ? on.workers[i] : i, src, err);
    }
    free_workers(&on);
    return code;
}

static tutti_code
run_workers(shell_call *call, tutti_error *err)
{
    const tutti_session_info *info = tutti_session_describe(call->shell->session);
    const cli *tool = call->shell->tool;
    uint32_t i;

    (void)err;
    for (i = 0; i < info->worker_count; i++) {
        const tutti_worker_info *worker = &info->workers[i];

        if (tool->json) {
            shell_print_json(
                call->shell,
                json_pack("{s:I, s:I, s:I, s:s, s:s, s:s, s:b}", "worker", (json_int_t)i, "group",
                          (json_int_t)(i / (info->worker_count / info->num_groups)), "rank",
                          (json_int_t)worker->rank, "host", worker->host, "device", worker->device,
                          "address", worker->address, "leader", i == info->leader));
        } else {
            (void)fprintf(tool->out,
                          "worker %" PRIu32 "  group %" PRIu32 "  rank %" PRIu32 "  %s  %s  %s%s\n",
                          i, i / (info->worker_count / info->num_groups), worker->rank,
                          worker->host, worker->device, worker->address,
                          i == info->leader ? "  leads" : "");
        }
    }
    return TUTTI_OK;
}

static tutti_code
run_registers(shell_call *call, tutti_error *err)
{
    const shell *self = call->shell;
    char name[TUTTI_REGISTER_NAME_MAX];
    size_t i;

    (void)err;
    for (i = 0; i < self->variable_count; i++) {
        const shell_variable *variable = &self->variables[i];

        (void)tutti_session_name(self->session, variable->reg, name);
        if (self->tool->json) {
            shell_print_json(self, json_pack("{s:s, s:I, s:s}", "name", variable->name, "register",
                                             (json_int_t)variable->reg, "handle", name));
        } else {
            (void)fprintf(self->tool->out, "%-16s %s\n", variable->name, name);
        }
    }
    return TUTTI_OK;
}

static tutti_code
run_help(shell_call *call, tutti_error *err)
{
    const shell_command *command = call->word_count > 0 ? shell_find_command(call->words[0]) : NULL;

    if (call->word_count > 0 && command == NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "there is no command \"%.60s\": help lists those that there are",
                        call->words[0]);
    }
    shell_help(call->shell, command);
    return TUTTI_OK;
}

static tutti_code
run_quit(shell_call *call, tutti_error *err)
{
    (void)err;
    call->shell->over = true;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the table */

const shell_command shell_commands[] = {
    {"empty", "DTYPE[DIMS] [device=DEVICE] [worker0_only] [in_group] [workers=LIST]",
     "a new tensor of zeros on each worker", "device worker0_only in_group workers", 1, 1, '!',
     run_empty},
    {"put", "FILE.npy [worker=N]", "a new tensor of a file on one worker (default: 0)", "worker", 1,
     1, '!', run_put},
    {"write", "NAME FILE.npy [worker=N]", "a file into a tensor that is there", "worker", 2, 2, ' ',
     run_write},
    {"read", "NAME FILE.npy [worker=N]", "a tensor of one worker into a file", "worker", 2, 2, ' ',
     run_read},
    {"show", "NAME [workers=LIST]", "the first elements of a tensor on each worker", "workers", 1,
     1, ' ', run_show},
    {"set", "VALUE [workers=LIST]", "a plain value on each worker", "workers", 1, 1, '!', run_set},
    {"get", "NAME [workers=LIST]", "what a register holds on each worker", "workers", 1, 1, ' ',
     run_get},
    {"drop", "NAME...", "free registers", "", 1, SHELL_WORDS_MAX, ' ', run_drop},
    {"copy", "NAME [dst=NAME] [workers=LIST]", "a copy of a register on each worker", "dst workers",
     1, 1, '!', run_copy},
    {"all_reduce", "NAME [op=OP] [dst=NAME] [in_group]",
     "combine the tensors of all workers: sum, prod, min, max, avg", "op dst in_group", 1, 1, '!',
     run_all_reduce},
    {"all_gather", "NAME [dst=NAME] [in_group]", "join the tensors of all workers, on all",
     "dst in_group", 1, 1, '!', run_all_gather},
    {"broadcast_from_worker0", "NAME [dst=NAME] [in_group]", "give worker 0's tensor to all",
     "dst in_group", 1, 1, '!', run_broadcast_from_worker0},
    {"scatter_from_worker0", "NAME [dst=NAME] [in_group]",
     "give each worker an equal part of worker 0's tensor", "dst in_group", 1, 1, '!',
     run_scatter_from_worker0},
    {"gather_to_worker0", "NAME [dst=NAME] [in_group]",
     "join the tensors of all workers, on worker 0", "dst in_group", 1, 1, '!',
     run_gather_to_worker0},
    {"send_to_next_group", "NAME", "give tensors to the next group; ends when they are taken", "",
     1, 1, ' ', run_send_to_next_group},
    {"recv_from_prev_group", "[dst=NAME]", "take what the group before has sent", "dst", 0, 0, '!',
     run_recv_from_prev_group},
    {"transfer", "NAME from=N to=N [dst=NAME]", "a tensor from one worker to another",
     "from to dst", 1, 1, '!', run_transfer},
    {"call", "FUNCTION [VALUE...] [workers=LIST] [timeout=TIME]",
     "call a function on each worker; names are registers, the rest values", "workers timeout", 1,
     TUTTI_ARGUMENTS_MAX + 1, '?', run_call},
    {"get_function", "FUNCTION", "a function, to be called by a name of the session", "", 1, 1, '!',
     run_get_function},
    {"load_module", "FILE [device=DEVICE]", "load a module out of the agents' --module-path",
     "device", 1, 1, '?', run_load_module},
    {"import_module", "MODULE", "have the hosts of functions import a module", "", 1, 1, ' ',
     run_import_module},
    {"sync", "[workers=LIST]", "wait until all commands so far have ended", "workers", 0, 0, ' ',
     run_sync},
    {"flush", "[workers=LIST]", "wait until all commands so far have begun", "workers", 0, 0, ' ',
     run_flush},
    {"workers", "", "show the workers", "", 0, 0, ' ', run_workers},
    {"registers", "", "show the names that there are", "", 0, 0, ' ', run_registers},
    {"help", "[COMMAND]", "show this, or more about one command", "", 0, 1, ' ', run_help},
    {"quit", "", "end the session", "", 0, 0, ' ', run_quit},
    {NULL, NULL, NULL, NULL, 0, 0, ' ', NULL},
};

const shell_command *
shell_find_command(const char *name)
{
    const shell_command *command;

    for (command = shell_commands; command->name != NULL; command++) {
        if (strcmp(command->name, name) == 0) {
            return command;
        }
    }
    return strcmp(name, "exit") == 0 ? shell_find_command("quit") : NULL;
}

void
shell_help(const shell *self, const shell_command *command)
{
    FILE *out = self->tool->out;
    const shell_command *one;

    if (command != NULL) {
        (void)fprintf(out, "%s%s %s\n\n%s\n", command->gives == '!' ? "NAME = " : "", command->name,
                      command->synopsis, command->help);
        return;
    }
    (void)fputs("NAME = COMMAND WORD... KEY=VALUE...\n\n", out);
    for (one = shell_commands; one->name != NULL; one++) {
        (void)fprintf(out, "  %-24s %s\n", one->name, one->help);
    }
    (void)fprintf(out, "\n%s\n", CLI_TYPED_HELP);
}
