/* Keys and values of the store are any bytes: how they are shown and typed. */
#ifndef TUTTI_CLIENT_CLI_STORE_STORE_BYTES_H
#define TUTTI_CLIENT_CLI_STORE_STORE_BYTES_H

#include <jansson.h>
#include <stddef.h>
#include <stdio.h>

#include "client/cli/cli.h"

/* As text under `key` where it is UTF-8; else as hex digits under "KEY_hex". */
void store_json_set(json_t *object, const char *key, const void *bytes, size_t size);

/* With \xNN for what a terminal would act on, and \\ for a backslash. */
void store_print(FILE *file, const void *bytes, size_t size);

/*
 * A value as the result of a command: as it is, with a newline behind it unless --raw was given. On
 * a terminal, without --raw, like store_print.
 */
void store_print_value(const cli *self, const void *bytes, size_t size);

/*
 * The store's key for what was typed: behind --prefix.
 *
 * [out] ret_key  TUTTI_KV_KEY_MAX bytes
 */
tutti_code store_key(const cli *self, const char *argument, char *ret_key, size_t *ret_size,
                     tutti_error *err);

/* A value: an argument, or all of standard input for "-". [out, owned] ret_value */
tutti_code store_value(const char *argument, char **ret_value, size_t *ret_size, tutti_error *err);

#endif
