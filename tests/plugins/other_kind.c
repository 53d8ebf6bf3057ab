/* No plug-in: a file of another system, which loader_plugin.c knows. */
__attribute__((visibility("default"))) int other_kind_numbers[] = {7, 8};
