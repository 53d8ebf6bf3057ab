/* A plug-in that adds a function of its own, and then one that every agent has: neither is there. */
#include "tutti/plugin.h"

static int
give_null(const tutti_env *env, const tutti_any *args, int32_t count, tutti_any *ret)
{
    (void)env;
    (void)args;
    (void)count;
    (void)ret;
    return 0;
}

TUTTI_PLUGIN_EXPORT int
tutti_plugin_1(const tutti_registry *registry)
{
    return registry->add(registry, "twice.own", give_null, NULL, NULL) ||
           registry->add(registry, "runtime.disco.device", give_null, NULL, NULL);
}
