/* tutti watch: who comes to the job and who goes, as it happens. */
#include <errno.h>
#include <inttypes.h>
#include <semaphore.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/diagnose/commands.h"
#include "client/cli/parse/parse.h"
#include "client/cli/util/output.h"
#include "tutti/membership.h"

typedef struct following {
    const cli *self;
    int64_t left; /* changes to be shown; -1 = all */
    bool failed;
    tutti_error why;
    sem_t over;
} following;

/* ------------------------------------------------------------------------------ lines */

static void
print_json(const cli *self, const tutti_member_event *event)
{
    const bool of_rank = event->kind == TUTTI_MEMBER_JOINED || event->kind == TUTTI_MEMBER_LOST ||
                         event->kind == TUTTI_MEMBER_LEAVING;
    json_t *one = json_pack("{s:s, s:I}", "event", tutti_member_change_name(event->kind), "epoch",
                            (json_int_t)event->epoch);

    if (of_rank) {
        (void)json_object_set_new(one, "rank", json_integer(event->rank));
    }
    if (event->reason[0] != '\0') {
        (void)json_object_set_new(one, "reason", json_string(event->reason));
    }
    if (event->kind == TUTTI_MEMBER_LOST) {
        (void)json_object_set_new(one, "left", json_boolean(event->left));
    }
    if (event->kind == TUTTI_MEMBERS_NOW) {
        (void)json_object_set_new(one, "alive", json_integer(event->alive_count));
        (void)json_object_set_new(one, "world_size", json_integer(event->world_size));
    }
    if (event->error != NULL) {
        (void)json_object_set_new(one, "error", cli_json_error(event->error));
    }
    (void)json_dumpf(one, self->out, JSON_COMPACT);
    (void)fputc('\n', self->out);
    json_decref(one);
}

/* Trouble with the coordinator goes to the standard error, so that the output has changes only. */
static void
print_change_line(const cli *self, const tutti_member_event *event)
{
    static const cli_style styles[] = {CLI_PLAIN, CLI_PLAIN, CLI_GREEN, CLI_YELLOW, CLI_RED};

    if (event->kind == TUTTI_MEMBERS_NOW) {
        (void)fprintf(self->out,
                      "epoch %" PRIu64 ": %" PRIu32 " of %" PRIu32 " ranks alive\n"
                      "EPOCH  RANK  EVENT    WHY\n",
                      event->epoch, event->alive_count, event->world_size);
    } else if (event->kind == TUTTI_MEMBERS_AWAY) {
        (void)fprintf(self->err, "tutti: watch: %s: trying again\n", event->error->text);
    } else if (event->kind < sizeof(styles) / sizeof(styles[0])) {
        (void)fprintf(self->out, "%5" PRIu64 " %5" PRIu32 "  %s%-7s%s  %s\n", event->epoch,
                      event->rank, cli_style_begin(self, styles[event->kind]),
                      tutti_member_change_name(event->kind), cli_style_end(self), event->reason);
    }
}

/* ------------------------------------------------------------------------------ following */

/*
 * Called on the watch's thread, while the main thread waits for the end. What both use is read by
 * the main thread only after the semaphore, or after the watch was stopped.
 */
static bool
on_member(void *arg, const tutti_member_event *event)
{
    following *it = arg;
    bool more = true;

    if (it->self->json) {
        print_json(it->self, event);
    } else {
        print_change_line(it->self, event);
    }
    if (event->kind == TUTTI_MEMBERS_END) {
        it->failed = true;
        it->why = *event->error;
        more = false;
    } else if (event->kind != TUTTI_MEMBERS_NOW && event->kind != TUTTI_MEMBERS_AWAY) {
        more = it->left < 0 || --it->left > 0;
    }
    more = fflush(it->self->out) == 0 && more; /* nobody reads it any more */
    if (!more) {
        (void)sem_post(&it->over);
    }
    return more;
}

/* Until it is over, or --timeout. A signal that is handled elsewhere only interrupts the wait. */
static void
wait_for_end(following *it)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += it->self->timeout_ms / 1000;
    until.tv_nsec += (long)(it->self->timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    while ((it->self->timeout_ms == 0 ? sem_wait(&it->over) : sem_timedwait(&it->over, &until)) !=
               0 &&
           errno == EINTR) {
    }
}

static tutti_code
follow_change(cli *self, following *it, const tutti_member_watch_options *options, tutti_error *err)
{
    tutti_member_watch *watch = NULL;
    tutti_client *client = NULL;
    tutti_code code = cli_connect_coordinator(self, &client, err);

    if (code == TUTTI_OK) {
        code = tutti_member_watch_start(client, options, on_member, it, &watch, err);
    }
    if (code == TUTTI_OK) {
        wait_for_end(it);
        tutti_member_watch_stop(watch);
    }
    if (code == TUTTI_OK && it->failed) {
        *err = it->why;
        code = err->code;
    }
    tutti_close(client);
    return code;
}

int
cli_watch(cli *self)
{
    following it = {.self = self, .left = -1};
    tutti_member_watch_options options;
    int64_t after = -1;
    tutti_error err;
    tutti_code code;

    if (!cli_number(self, "count", 1, INT64_MAX, &it.left) ||
        !cli_number(self, "after", 0, INT64_MAX, &after)) {
        return CLI_USAGE;
    }
    tutti_member_watch_options_init(&options);
    if (after >= 0) {
        options.after_epoch = (uint64_t)after;
    }
    (void)sem_init(&it.over, 0, 0);
    code = follow_change(self, &it, &options, &err);
    (void)sem_destroy(&it.over);
    return code == TUTTI_OK ? CLI_FINE : cli_failed(self, NULL, &err);
}
