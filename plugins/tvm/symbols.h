/*
 * Symbols: the names that a loaded library exports, from its table of dynamic symbols.
 */
#ifndef PLUGINS_TVM_SYMBOLS_H
#define PLUGINS_TVM_SYMBOLS_H

/* Told of a name, which stays as long as the library. Returns 0 to go on. */
typedef int (*tvm_symbol_fn)(void *context, const char *name);

/* All names that the library defines, in no order. Returns what `each` returned last. */
int tvm_symbols_list(void *library, tvm_symbol_fn each, void *context);

#endif
