#include "client/cli/diagnose/way.h"

#include <string.h>

void
cli_add_way(json_t *object, const tutti_error *why)
{
    const bool lane = why->code == TUTTI_OK;

    (void)json_object_set_new(object, "calls", json_string(lane ? "lane" : "grpc"));
    if (!lane) {
        (void)json_object_set_new(object, "no_lane", cli_json_error(why));
    }
}

cli_style
cli_write_way(FILE *out, const json_t *row, const char *key)
{
    const json_t *why = json_object_get(row, "no_lane");

    if (json_object_get(row, key) == NULL) {
        (void)fputc('-', out);
    } else if (why == NULL) {
        (void)fputs("lane", out);
    } else {
        const char *reason = json_string_value(json_object_get(why, "reason"));

        (void)fprintf(out, "gRPC (%s)",
                      reason != NULL && reason[0] != '\0'
                          ? reason
                          : json_string_value(json_object_get(why, "code")));
    }
    return CLI_PLAIN;
}
