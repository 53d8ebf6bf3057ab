/* A plug-in that does not want to be loaded. */
#include "tutti/plugin.h"

TUTTI_PLUGIN_EXPORT int
tutti_plugin_1(const tutti_registry *registry)
{
    (void)registry;
    return 7;
}
