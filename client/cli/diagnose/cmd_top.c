/* tutti top: the status page in a terminal, or once. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/diagnose/top.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "client/cli/util/values.h"

#define INTERVAL_MS 2000 /* as heartbeats come */
#define CALL_MS 2000     /* a coordinator that is away must not hold up the keys for long */

static tutti_code
open_top(cli *self, top *shown, tutti_error *err)
{
    const uint32_t timeout_ms = self->timeout_ms;
    tutti_client *client = NULL;
    tutti_code code;

    self->timeout_ms = timeout_ms == 0 ? CALL_MS : timeout_ms;
    code = cli_connect_coordinator(self, &client, err);
    self->timeout_ms = timeout_ms;
    if (code != TUTTI_OK) {
        return code;
    }
    (void)snprintf(shown->coordinator, sizeof(shown->coordinator), "%s", self->coordinator);
    return top_open(shown, client, err);
}

static void
pause_for(uint32_t ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

    (void)nanosleep(&pause, NULL);
}

/* Two samples: rates are between them. */
static tutti_code
show_once(cli *self, top *shown, uint32_t interval_ms, tutti_error *err)
{
    tutti_code code;

    pause_for(interval_ms);
    code = top_sample(shown, 0, err);
    if (code != TUTTI_OK) {
        return code;
    }
    if (self->json) {
        (void)cli_print_json(self, top_json(shown));
    } else {
        top_draw(shown, self, self->out, 0);
    }
    return TUTTI_OK;
}

int
cli_top(cli *self)
{
    const char *interval = cli_value(self, "interval");
    const char *sort = cli_value(self, "sort");
    const bool once =
        self->json || cli_flag(self, "once") || !isatty(fileno(self->out)) || !isatty(STDIN_FILENO);
    uint32_t interval_ms = INTERVAL_MS;
    top *shown = calloc(1, sizeof(*shown));
    tutti_error err = {0};
    tutti_code code;
    int status = CLI_FINE;

    if (shown == NULL) {
        abort();
    }
    if (interval != NULL &&
        (!cli_parse_ms(interval, &interval_ms) || interval_ms < 100 || interval_ms > 3600000)) {
        free(shown);
        return cli_usage(self, "--interval \"%s\": need a time from 100ms to 1h: 500ms, 5s",
                         interval);
    }
    if (sort != NULL && !top_order_find(sort, &shown->order)) {
        free(shown);
        return cli_usage(self, "--sort \"%s\": need rank, state, host, ops/s, bytes/s or ops",
                         sort);
    }
    code = open_top(self, shown, &err);
    if (code == TUTTI_OK) {
        code = top_sample(shown, 0, &err);
    }
    if (code == TUTTI_OK && once) {
        code = show_once(self, shown, interval_ms, &err);
    } else if (code == TUTTI_OK) {
        status = top_run(shown, self, interval_ms);
    }
    top_close(shown);
    free(shown);
    return code == TUTTI_OK ? status : cli_failed(self, NULL, &err);
}
