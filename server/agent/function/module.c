#include "server/agent/function/module.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/utf8.h"
#include "base/error/fail.h"
#include "base/os/log.h"
#include "base/os/module.h"
#include "server/agent/function/functions.h"
#include "server/agent/function/value.h"
#include "server/agent/state/device.h"
#include "server/agent/state/hooks.h"
#include "server/agent/state/state.h"

#define SYMBOL "tutti_plugin_1"
#define FUNCTIONS_MAX 4096  /* of one file */
#define WORDS_BYTES_MAX 500 /* of registry->fail */

/* ------------------------------------------------------------------------------ what a file adds */

/* A function that a file has added: it is in the registry only when all of them can be. */
typedef struct added {
    tutti_list_node link;
    char name[AGENT_FUNCTION_NAME_MAX + 1];
    char signature[AGENT_FUNCTION_SIGNATURE_MAX + 1];
    tutti_function run;
    void *context;
} added;

/* A call of LoadModule. */
typedef struct waiter {
    tutti_list_node link;
    tutti_rpc_call *rpc; /* [ref] */
    agent_module_fn answer;
} waiter;

/* A file while it is loaded. */
typedef struct loading {
    tutti_list_node link; /* in functions->loads */
    agent_pool_job job;
    tutti_rpc_task done;
    tutti_agent *agent;
    tutti_list_node waiters; /* the calls that asked for it */
    char path[PATH_MAX];
    char name[AGENT_MODULE_NAME_MAX + 1]; /* its prefix; "" = none */
    char source[AGENT_FUNCTION_SOURCE_MAX + 1];
    char device[TUTTI_DEVICE_MAX + 1];
    tutti_list_node functions;
    size_t count;
    tutti_loader loaders[AGENT_LOADERS_MAX]; /* that are asked, if it is no plug-in */
    size_t loader_count;
    tutti_loader added_loaders[AGENT_LOADERS_MAX];
    size_t added_loader_count;
    tutti_error err; /* code OK = well */
} loading;

static bool
has_function(const loading *self, const char *name)
{
    const tutti_list_node *link;

    for (link = self->functions.next; link != &self->functions; link = link->next) {
        if (strcmp(tutti_container_of(link, added, link)->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static int
refuse_function(loading *self, const char *name, const char *why)
{
    if (self->err.code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE",
                             "%.300s adds function \"%.100s\": %s", self->path, name, why);
    }
    return -1;
}

static int
add_function(const tutti_registry *registry, const char *name, tutti_function function,
             void *context, const char *signature)
{
    loading *self = registry->self;
    added *one;

    if (name == NULL || !agent_function_is_name(name, TUTTI_NAME_MAX)) {
        return refuse_function(self, name == NULL ? "" : name,
                               "no name: 1 to 127 letters, digits and . _ / -");
    }
    if (function == NULL) {
        return refuse_function(self, name, "a function that is NULL");
    }
    if (self->count >= FUNCTIONS_MAX) {
        return refuse_function(self, name, "more than 4096 functions");
    }
    one = calloc(1, sizeof(*one));
    if (one == NULL) {
        return refuse_function(self, name, "no memory");
    }
    (void)snprintf(one->name, sizeof(one->name), "%s%s%s", self->name,
                   self->name[0] == '\0' ? "" : ".", name);
    (void)snprintf(one->signature, sizeof(one->signature), "%s",
                   signature == NULL ? "" : signature);
    one->run = function;
    one->context = context;
    if (has_function(self, one->name)) {
        free(one);
        return refuse_function(self, name, "twice");
    }
    tutti_list_init(&one->link);
    tutti_list_add(&self->functions, &one->link);
    self->count++;
    return 0;
}

static int
fail_load(const tutti_registry *registry, const char *text)
{
    loading *self = registry->self;
    char words[WORDS_BYTES_MAX + 1];

    (void)snprintf(words, sizeof(words), "%s", text == NULL ? "" : text);
    (void)tutti_utf8_clean(words);
    if (self->err.code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE", "%.300s: %s",
                             self->path, words);
    }
    return -1;
}

static int
add_loader(const tutti_registry *registry, tutti_loader loader)
{
    loading *self = registry->self;

    if (loader == NULL || self->loader_count + self->added_loader_count >= AGENT_LOADERS_MAX) {
        return fail_load(registry, loader == NULL ? "a loader that is NULL"
                                                  : "it adds a loader, and there are 8 already");
    }
    self->added_loaders[self->added_loader_count++] = loader;
    return 0;
}

static int
add_no_loader(const tutti_registry *registry, tutti_loader loader)
{
    (void)loader;
    return fail_load(registry, "a loader adds a loader");
}

static void
start_plugin(loading *self, tutti_registry *registry, const void *symbol)
{
    tutti_plugin_fn start;
    int status;

    registry->add_loader = add_loader;
    memcpy(&start, &symbol, sizeof(start)); /* POSIX has it that they are alike */
    status = start(registry);
    if (status != 0 && self->err.code == TUTTI_OK) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE",
                             "%.500s does not want to be loaded: " SYMBOL " returned %d",
                             self->path, status);
    }
}

/* No plug-in: perhaps one of the loaders knows what it is. */
static void
ask_loaders(loading *self, const tutti_registry *registry, const tutti_module_file *file)
{
    int status = 1;
    size_t i;

    for (i = 0; i < self->loader_count && status == 1 && self->err.code == TUTTI_OK; i++) {
        status = self->loaders[i](registry, file->path, file->library);
    }
    if (status == 1) {
        (void)fail_load(registry, self->loader_count == 0 ? "it exports no " SYMBOL
                                                            ", so it is no plug-in of this version"
                                                          : "it exports no " SYMBOL
                                                            ", and no loader knows it");
    } else if (status != 0) {
        (void)fail_load(registry, "its loader refuses it, and did not say why");
    }
}

/* Any thread: the file's own code runs here. */
static void
load_file(loading *self)
{
    tutti_registry registry = {.size = sizeof(registry),
                               .self = self,
                               .device = self->device,
                               .add = add_function,
                               .add_loader = add_no_loader,
                               .fail = fail_load};
    tutti_module_file file;

    if (tutti_module_open(self->path, SYMBOL, &file, &self->err) != TUTTI_OK) {
        return;
    }
    if (file.symbol != NULL) {
        start_plugin(self, &registry, file.symbol);
    } else {
        ask_loaders(self, &registry, &file);
    }
}

static void
free_loading(loading *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->functions)) != NULL) {
        free(tutti_container_of(link, added, link));
    }
    free(self);
}

/* ------------------------------------------------------------------------------ all or none */

static void
unlist_added(loading *self, const tutti_list_node *end)
{
    agent_registry *registry = &self->agent->functions->registry;
    const tutti_list_node *link;

    for (link = self->functions.next; link != end; link = link->next) {
        agent_registry_remove(
            registry, agent_registry_find(registry, tutti_container_of(link, added, link)->name));
    }
}

/* It has counted those that were there when it began; another file may have added some since. */
static tutti_code
put_loaders(loading *self, tutti_error *err)
{
    agent_functions *functions = self->agent->functions;
    size_t i;

    if (functions->loader_count + self->added_loader_count > AGENT_LOADERS_MAX) {
        unlist_added(self, &self->functions);
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "BAD_MODULE",
                              "%.300s: it adds a loader, and there are 8 already", self->path);
    }
    for (i = 0; i < self->added_loader_count; i++) {
        functions->loaders[functions->loader_count++] = self->added_loaders[i];
    }
    return TUTTI_OK;
}

static tutti_code
put_functions(loading *self, tutti_error *err)
{
    agent_registry *registry = &self->agent->functions->registry;
    tutti_list_node *link;

    for (link = self->functions.next; link != &self->functions; link = link->next) {
        const added *one = tutti_container_of(link, added, link);
        agent_function *function = NULL;
        const tutti_code code =
            agent_registry_add(registry, one->name, self->source, one->signature, &function, err);

        if (code != TUTTI_OK) {
            unlist_added(self, link);
            return code;
        }
        function->run = one->run;
        function->context = one->context;
    }
    TUTTI_TRY(put_loaders(self, err));
    TUTTI_LOG("agent", INFO, "loaded %s: %zu functions (%s)", self->path, self->count,
              self->source);
    return TUTTI_OK;
}

/* Its thread has those that are there now. Control loop. */
static void
open_loading(loading *self, tutti_agent *agent)
{
    const agent_functions *functions = agent->functions;

    self->agent = agent;
    tutti_list_init(&self->functions);
    tutti_list_init(&self->waiters);
    memcpy(self->loaders, functions->loaders, sizeof(self->loaders));
    self->loader_count = functions->loader_count;
}

/* ------------------------------------------------------------------------------ --plugin */

static tutti_code
load_plugin(tutti_agent *agent, const char *path, size_t size, tutti_error *err)
{
    loading *self = calloc(1, sizeof(*self));
    const char *file;
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a plug-in");
    }
    open_loading(self, agent);
    (void)snprintf(self->path, sizeof(self->path), "%.*s", (int)size, path);
    file = strrchr(self->path, '/');
    (void)snprintf(self->source, sizeof(self->source), "plugin %.140s",
                   file == NULL ? self->path : file + 1);
    load_file(self);
    code =
        self->err.code == TUTTI_OK ? put_functions(self, err) : tutti_error_pass(err, &self->err);
    free_loading(self);
    return code;
}

tutti_code
agent_plugins_load(tutti_agent *agent, tutti_error *err)
{
    const char *rest = agent->options->plugin;

    while (rest[0] != '\0') {
        const size_t size = strcspn(rest, ",");

        if (size > 0) {
            TUTTI_TRY(load_plugin(agent, rest, size, err));
        }
        rest += size + (rest[size] == ',' ? 1 : 0);
    }
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ --module-path */

static agent_module *
find_module(const tutti_agent *agent, const char *name)
{
    tutti_map_node *node = tutti_map_find(&agent->functions->modules, tutti_bytes_of(name));

    return node == NULL ? NULL : tutti_container_of(node, agent_module, by_name);
}

static agent_module *
keep_module(loading *self, tutti_error *err)
{
    agent_module *module = calloc(1, sizeof(*module));

    if (module == NULL) {
        (void)TUTTI_FAIL_MEMORY(err, "no memory for a module");
        return NULL;
    }
    memcpy(module->name, self->name, sizeof(module->name));
    memcpy(module->source, self->source, sizeof(module->source));
    if (put_functions(self, err) != TUTTI_OK) {
        free(module);
        return NULL;
    }
    module->by_name.key = tutti_bytes_of(module->name);
    (void)tutti_map_add(&self->agent->functions->modules, &module->by_name);
    return module;
}

static void
answer_waiters(loading *self, agent_module *module, const tutti_error *err)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->waiters)) != NULL) {
        waiter *one = tutti_container_of(link, waiter, link);

        one->answer(self->agent, one->rpc, module, module == NULL ? err : NULL);
        tutti_rpc_call_unref(one->rpc);
        free(one);
    }
}

static void
run_loaded(tutti_rpc_task *task)
{
    loading *self = tutti_container_of(task, loading, done);
    agent_module *module = NULL;
    tutti_error err = self->err;

    if (err.code == TUTTI_OK) {
        module = keep_module(self, &err);
    }
    if (module == NULL) {
        TUTTI_LOG_OFTEN("agent", WARN, "module %s was not loaded: %s", self->path, err.text);
    }
    answer_waiters(self, module, &err);
    tutti_list_remove(&self->link);
    self->agent->functions->load_count--;
    self->agent->hooks->op_over(self->agent);
    free_loading(self);
}

static void
run_load(agent_pool_job *job)
{
    loading *self = tutti_container_of(job, loading, job);

    load_file(self);
    tutti_rpc_loop_post(self->agent->control, &self->done);
}

/* The prefix of the functions: the file's name without its end. */
static tutti_code
read_name(const char *path, char ret_name[AGENT_MODULE_NAME_MAX + 1], tutti_error *err)
{
    const size_t size = strlen(path);
    const bool so = size > 3 && strcmp(path + size - 3, ".so") == 0;
    const size_t used = so ? size - 3 : size;

    (void)snprintf(ret_name, AGENT_MODULE_NAME_MAX + 1, "%.*s",
                   (int)(used > AGENT_MODULE_NAME_MAX ? 0 : used), path);
    if (strchr(path, '/') != NULL || path[0] == '.' ||
        !agent_function_is_name(ret_name, AGENT_MODULE_NAME_MAX)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PATH",
                              "\"%.100s\" is no name of a file inside of --module-path: up to %d "
                              "letters, digits and . _ - and no folder",
                              path, AGENT_MODULE_NAME_MAX);
    }
    return TUTTI_OK;
}

static tutti_code
check_load(tutti_agent *agent, const char *device, tutti_error *err)
{
    tutti_space *space = NULL;

    if (agent->options->module_path[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_PERMISSION_DENIED, "NO_MODULES",
                              "this agent loads no modules for clients: it was started without "
                              "--module-path");
    }
    return agent_devices_find(agent, device, &space, err);
}

static loading *
find_load(const tutti_agent *agent, const char *name)
{
    const tutti_list_node *loads = &agent->functions->loads;
    tutti_list_node *link;

    for (link = loads->next; link != loads; link = link->next) {
        loading *self = tutti_container_of(link, loading, link);

        if (strcmp(self->name, name) == 0) {
            return self;
        }
    }
    return NULL;
}

static loading *
start_load(tutti_agent *agent, const char *path, const char *name, const char *device)
{
    loading *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    open_loading(self, agent);
    self->job.on_run = run_load;
    self->done.on_run = run_loaded;
    (void)snprintf(self->path, sizeof(self->path), "%.3000s/%.300s", agent->options->module_path,
                   path);
    (void)snprintf(self->name, sizeof(self->name), "%s", name);
    (void)snprintf(self->source, sizeof(self->source), "module %s", name);
    (void)snprintf(self->device, sizeof(self->device), "%s", device);
    tutti_list_init(&self->link);
    tutti_list_add(&agent->functions->loads, &self->link);
    agent->functions->load_count++;
    return self;
}

/* A file's code runs once: who asks while it is loaded waits for that. */
static void
join_load(tutti_agent *agent, waiter *one, const char *path, const char *name, const char *device)
{
    loading *self = find_load(agent, name);
    const bool starts = self == NULL;
    tutti_error err;

    if (starts) {
        self = start_load(agent, path, name, device);
    }
    if (self == NULL) {
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a module");
        one->answer(agent, one->rpc, NULL, &err);
        free(one);
        return;
    }
    tutti_rpc_call_ref(one->rpc);
    tutti_list_init(&one->link);
    tutti_list_add(&self->waiters, &one->link);
    if (starts) {
        agent_pool_add(agent->functions->pool, &self->job);
    }
}

void
agent_module_load(tutti_agent *agent, tutti_rpc_call *rpc, const char *path, const char *device,
                  agent_module_fn answer)
{
    char name[AGENT_MODULE_NAME_MAX + 1];
    agent_module *module = NULL;
    waiter *one = NULL;
    tutti_error err;
    tutti_code code = check_load(agent, device, &err);

    code = code == TUTTI_OK ? read_name(path, name, &err) : code;
    if (code == TUTTI_OK) {
        module = find_module(agent, name);
        one = module != NULL ? NULL : calloc(1, sizeof(*one));
        (void)TUTTI_FAIL_MEMORY(&err, "no memory for a module");
    }
    if (one == NULL) {
        answer(agent, rpc, module, module == NULL ? &err : NULL);
        return;
    }
    one->rpc = rpc;
    one->answer = answer;
    join_load(agent, one, path, name, device);
}

void
agent_modules_free(tutti_agent *agent)
{
    tutti_map *modules = &agent->functions->modules;
    tutti_map_node *node;

    while ((node = tutti_map_first(modules)) != NULL) {
        tutti_map_remove(modules, node);
        free(tutti_container_of(node, agent_module, by_name));
    }
}
