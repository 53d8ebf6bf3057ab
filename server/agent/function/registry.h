/*
 * Registry: the functions of an agent by their names. Control loop; before the loops start, the
 * main thread.
 */
#ifndef TUTTI_SERVER_AGENT_FUNCTION_REGISTRY_H
#define TUTTI_SERVER_AGENT_FUNCTION_REGISTRY_H

#include <stdbool.h>

#include "base/data/map.h"
#include "tutti/error.h"
#include "tutti/plugin.h"

#define AGENT_FUNCTION_NAME_MAX 255
#define AGENT_FUNCTION_SOURCE_MAX 159
#define AGENT_FUNCTION_SIGNATURE_MAX 255

typedef struct agent_host agent_host; /* host.h */

typedef struct agent_function {
    tutti_map_node by_name;
    char name[AGENT_FUNCTION_NAME_MAX + 1];
    char source[AGENT_FUNCTION_SOURCE_MAX + 1]; /* "builtin", "plugin FILE" ... */
    char signature[AGENT_FUNCTION_SIGNATURE_MAX + 1];
    tutti_function run; /* NULL: of a host, ... */
    void *context;      /* env->context */
    agent_host *host;   /* ... which is gone when this is NULL, too */
    uint32_t calls;     /* that run or wait: they keep it */
    bool listed;
} agent_function;

typedef struct agent_registry {
    tutti_map by_name;
} agent_registry;

void agent_registry_init(agent_registry *registry);
void agent_registry_fini(agent_registry *registry); /* no calls are left */

/*
 * Add a function. Texts that are too long are cut, but the name.
 *
 * TUTTI_INVALID_ARGUMENT   BAD_NAME: not 1 to 255 of letters, digits and . _ / -
 * TUTTI_ALREADY_EXISTS     FUNCTION_TAKEN
 * TUTTI_RESOURCE_EXHAUSTED no memory
 */
tutti_code agent_registry_add(agent_registry *registry, const char *name, const char *source,
                              const char *signature, agent_function **ret_function,
                              tutti_error *err);

/* NULL: there is none. */
agent_function *agent_registry_find(const agent_registry *registry, const char *name);

/* TUTTI_NOT_FOUND UNKNOWN_FUNC, with names that look like it. */
tutti_code agent_registry_get(const agent_registry *registry, const char *name,
                              agent_function **ret_function, tutti_error *err);

/* The first one behind `after` in the order of names; NULL = from the beginning, or at the end. */
agent_function *agent_registry_next(const agent_registry *registry, const agent_function *after);

/* Its name is free again; it goes with its last call. */
void agent_registry_remove(agent_registry *registry, agent_function *function);

void agent_function_ref(agent_function *function);
void agent_function_unref(agent_function *function); /* NULL is fine */

/* Is it 1 to `most` of letters, digits and . _ / - ? */
bool agent_function_is_name(const char *name, size_t most);

#endif
