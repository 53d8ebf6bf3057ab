/* Private to the diagnose commands: which way a client's calls go to an agent. */
#ifndef TUTTI_CLI_DIAGNOSE_WAY_H
#define TUTTI_CLI_DIAGNOSE_WAY_H

#include <stdio.h>

#include "client/cli/util/output.h"
#include "tutti/error.h"

/*
 * Add "calls": "lane" or "grpc", and for the latter "no_lane", why.
 *
 * [in] why  of tutti_lane_check; code OK = they go through a lane
 */
void cli_add_way(json_t *object, const tutti_error *why);

/* A cell of such an object: "lane", "gRPC (OTHER_HOST)", or "-". */
cli_style cli_write_way(FILE *out, const json_t *row, const char *key);

#endif
