/* Private to client/cli: files of many tensors, for tutti put and get. */
#ifndef TUTTI_CLIENT_CLI_TENSOR_FILES_H
#define TUTTI_CLIENT_CLI_TENSOR_FILES_H

#include "client/cli/cli.h"

/*
 * Pickles can run code when they are read, so we do not: the error names who does.
 *
 * TUTTI_INVALID_ARGUMENT  the path ends as PyTorch's files do
 */
tutti_code cli_refuse_pickle(const char *path, tutti_error *err);

/* tutti put FILE.safetensors, tutti get NAME... -o FILE.safetensors. Each returns the exit code. */
int cli_put_safetensors(cli *self, const char *path);
int cli_get_safetensors(cli *self, const char *path);

#endif
