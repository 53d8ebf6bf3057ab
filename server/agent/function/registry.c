#include "server/agent/function/registry.h"

#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/utf8.h"
#include "base/error/fail.h"
#include "server/agent/function/value.h"

void
agent_registry_init(agent_registry *registry)
{
    tutti_map_init(&registry->by_name);
}

static void
free_if_over(agent_function *function)
{
    if (!function->listed && function->calls == 0) {
        free(function);
    }
}

void
agent_registry_remove(agent_registry *registry, agent_function *function)
{
    assert(function->listed);
    tutti_map_remove(&registry->by_name, &function->by_name);
    function->listed = false;
    function->host = NULL;
    free_if_over(function);
}

void
agent_registry_fini(agent_registry *registry)
{
    agent_function *function;

    while ((function = agent_registry_next(registry, NULL)) != NULL) {
        agent_registry_remove(registry, function);
    }
}

void
agent_function_ref(agent_function *function)
{
    function->calls++;
}

void
agent_function_unref(agent_function *function)
{
    if (function != NULL) {
        assert(function->calls > 0);
        function->calls--;
        free_if_over(function);
    }
}

bool
agent_function_is_name(const char *name, size_t most)
{
    const size_t size = strnlen(name, most + 1);
    size_t i;

    for (i = 0; i < size; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("._/-", name[i]) == NULL) {
            return false;
        }
    }
    return size > 0 && size <= most;
}

agent_function *
agent_registry_find(const agent_registry *registry, const char *name)
{
    tutti_map_node *node = tutti_map_find(&registry->by_name, tutti_bytes_of(name));

    return node == NULL ? NULL : tutti_container_of(node, agent_function, by_name);
}

agent_function *
agent_registry_next(const agent_registry *registry, const agent_function *after)
{
    tutti_map_node *node = after == NULL
                               ? tutti_map_first(&registry->by_name)
                               : tutti_map_next((tutti_map_node *)(uintptr_t)&after->by_name);

    return node == NULL ? NULL : tutti_container_of(node, agent_function, by_name);
}

/* How many functions begin with the first word of a name: the most common slip is behind it. */
static const agent_function *
find_like(const agent_registry *registry, const char *name)
{
    const size_t prefix = strcspn(name, ".");
    tutti_map_node *node =
        tutti_map_from(&registry->by_name, (tutti_bytes){(const unsigned char *)name, prefix});
    const agent_function *found =
        node == NULL ? NULL : tutti_container_of(node, agent_function, by_name);

    return found != NULL && prefix > 0 && strncmp(found->name, name, prefix) == 0 ? found : NULL;
}

tutti_code
agent_registry_get(const agent_registry *registry, const char *name, agent_function **ret_function,
                   tutti_error *err)
{
    agent_function *function = agent_registry_find(registry, name);
    const agent_function *like;

    if (function != NULL) {
        *ret_function = function;
        return TUTTI_OK;
    }
    like = find_like(registry, name);
    return TUTTI_FAIL_FOR(
        err, TUTTI_NOT_FOUND, "UNKNOWN_FUNC",
        "no function is called \"%.100s\" on this agent (%zu are%s%s): name it with "
        "--plugin, --module-path or --functions",
        name, registry->by_name.count, like == NULL ? "" : ", one is ",
        like == NULL ? "" : like->name);
}

/* What is no UTF-8 is left out; what does not fit is cut at a character. Signatures are shown on
 * terminals: nothing in them acts on one. */
static void
copy_text(char *ret_text, size_t size, const char *text)
{
    size_t used;

    (void)snprintf(ret_text, size, "%s", text == NULL ? "" : text);
    used = strlen(ret_text);
    if (used + 1 == size) {
        while (used > 0 && !agent_is_utf8(ret_text, used)) {
            used--;
        }
    }
    ret_text[agent_is_utf8(ret_text, used) ? used : 0] = '\0';
    (void)tutti_utf8_clean(ret_text);
}

tutti_code
agent_registry_add(agent_registry *registry, const char *name, const char *source,
                   const char *signature, agent_function **ret_function, tutti_error *err)
{
    agent_function *self;

    if (!agent_function_is_name(name, AGENT_FUNCTION_NAME_MAX)) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
            "\"%.100s\" is no name of a function: 1 to %d letters, digits and . _ "
            "/ -",
            name, AGENT_FUNCTION_NAME_MAX);
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a function");
    }
    (void)snprintf(self->name, sizeof(self->name), "%s", name);
    copy_text(self->source, sizeof(self->source), source);
    copy_text(self->signature, sizeof(self->signature), signature);
    self->by_name.key = tutti_bytes_of(self->name);
    if (tutti_map_add(&registry->by_name, &self->by_name) != NULL) {
        const agent_function *other = agent_registry_find(registry, name);

        (void)TUTTI_FAIL_FOR(err, TUTTI_ALREADY_EXISTS, "FUNCTION_TAKEN",
                             "function %s is there already, of %s", name, other->source);
        free(self);
        return TUTTI_ALREADY_EXISTS;
    }
    self->listed = true;
    if (ret_function != NULL) {
        *ret_function = self;
    }
    return TUTTI_OK;
}
