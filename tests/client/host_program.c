/*
 * A host of functions in C: tests/system/test_host_program.py calls what it offers. It prints
 * "serving" once the agent has taken the functions, and at its end how it ended.
 *
 *     host_program [NAME-OF-A-FURTHER-FUNCTION]
 */
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tutti/plugin.h"
#include "tutti/tutti.h"

static tutti_host *the_host;

static int
bad(const tutti_env *env)
{
    return env->fail(env, "BAD_ARGS", "other arguments are needed");
}

/* x *= a, in place */
static int
scale(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    int64_t i;

    (void)ret;
    if (count != 2 || args[0].kind != TUTTI_ANY_TENSOR || args[1].kind != TUTTI_ANY_FLOAT ||
        args[0].u.tensor->ndim != 1 || args[0].u.tensor->dtype.bits != 32) {
        return bad(env);
    }
    for (i = 0; i < args[0].u.tensor->shape[0]; i++) {
        ((float *)args[0].u.tensor->data)[i] *= (float)args[1].u.real;
    }
    return 0;
}

static int
identity(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    if (count != 1) {
        return bad(env);
    }
    *ret = args[0];
    return 0;
}

/* A new tensor {0, 1, ... n - 1}. */
static int
range(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    const DLDataType fp32 = {2, 32, 1};
    DLTensor *made;
    int64_t i;

    if (count != 1 || args[0].kind != TUTTI_ANY_INT) {
        return bad(env);
    }
    made = env->make(env, fp32, &args[0].u.integer, 1, NULL);
    if (made == NULL) {
        return -1;
    }
    for (i = 0; i < args[0].u.integer; i++) {
        ((float *)made->data)[i] = (float)i;
    }
    *ret = tutti_any_tensor(made);
    return 0;
}

/* The sum over the ranks, in place; the second argument is the reduce op. */
static int
sum(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    tutti_env_op op = {.size = sizeof(op), .op = "all_reduce"};

    if (count != 2 || args[0].kind != TUTTI_ANY_TENSOR || args[1].kind != TUTTI_ANY_TEXT) {
        return bad(env);
    }
    op.input = args[0].u.tensor;
    op.output = args[0].u.tensor;
    op.reduce = args[1].u.text;
    if (env->op(env, &op) != 0) {
        return -1;
    }
    *ret = tutti_any_int((int64_t)env->rank * 10 + env->world_size);
    return 0;
}

/* What nobody may return; the argument says which. */
static int
nonsense(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    static DLTensor stranger;

    if (count != 1 || args[0].kind != TUTTI_ANY_INT) {
        return bad(env);
    }
    switch (args[0].u.integer) {
    case 0:
        *ret = tutti_any_tensor(&stranger);
        return 0;
    case 1:
        *ret = tutti_any_text("\xff");
        return 0;
    case 2:
        ret->kind = 77;
        return 0;
    case 3:
        return env->fail(env, "no reason", "\xff is no text");
    default:
        return -1; /* and no word why */
    }
}

/* Until nobody waits for it any more. */
static int
linger(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    (void)count;
    printf("lingering\n");
    while (*env->cancelled == 0) {
        (void)sched_yield();
    }
    *ret = tutti_any_int(1);
    printf("cancelled\n");
    return 0;
}

static int
crash(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)env;
    (void)args;
    (void)count;
    (void)ret;
    (void)raise(SIGKILL);
    return 0;
}

static int
stop(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)args;
    (void)count;
    tutti_host_stop(the_host);
    *ret = tutti_any_text(env->context);
    return 0;
}

static tutti_code
add_all(tutti_host *host, const char *more, tutti_error *err)
{
    static char word[] = "stopped";
    static const struct {
        const char *name;
        tutti_host_function function;
    } rows[] = {{"demo.scale", scale}, {"demo.identity", identity}, {"demo.range", range},
                {"demo.sum", sum},     {"demo.nonsense", nonsense}, {"demo.linger", linger},
                {"demo.crash", crash}};
    tutti_code code = tutti_host_add(host, "demo.stop", stop, word, "-> text", err);
    size_t i;

    for (i = 0; i < sizeof(rows) / sizeof(rows[0]) && code == TUTTI_OK; i++) {
        code = tutti_host_add(host, rows[i].name, rows[i].function, NULL, NULL, err);
    }
    if (code == TUTTI_OK && more != NULL) {
        code = tutti_host_add(host, more, identity, NULL, NULL, err);
    }
    return code;
}

/* Calls in a wrong order change nothing. */
static void
say_refusal(const char *wanted, tutti_code code, const tutti_error *err)
{
    if (code != TUTTI_FAILED_PRECONDITION || strcmp(err->reason, wanted) != 0) {
        printf("%s %s instead of %s\n", tutti_code_name(code), err->reason, wanted);
    }
}

static tutti_code
serve(tutti_host *host, const char *more, tutti_error *err)
{
    tutti_code code = add_all(host, more, err);

    if (code == TUTTI_OK) {
        say_refusal("HOST_NOT_STARTED", tutti_host_wait(host, err), err);
        code = tutti_host_start(host, err);
    }
    if (code == TUTTI_OK) {
        say_refusal("HOST_STARTED", tutti_host_start(host, err), err);
        say_refusal("HOST_STARTED", tutti_host_add(host, "demo.late", identity, NULL, NULL, err),
                    err);
        printf("serving\n");
        code = tutti_host_wait(host, err);
    }
    return code;
}

int
main(int argc, char **argv)
{
    tutti_host_options options;
    tutti_client *client = NULL;
    tutti_error err;
    tutti_code code = tutti_connect(NULL, &client, &err);

    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    tutti_host_options_init(&options);
    options.name = "host_program";
    options.calls_max = 2;
    if (code == TUTTI_OK) {
        code = tutti_host_open(client, &options, &the_host, &err);
    }
    if (code == TUTTI_OK) {
        code = serve(the_host, argc > 1 ? argv[1] : NULL, &err);
    }
    printf("%s %s\n", tutti_code_name(code), code == TUTTI_OK ? "" : err.reason);
    tutti_host_close(the_host);
    tutti_close(client);
    return code == TUTTI_OK ? 0 : 1;
}
