/*
 * Says what it hears of the members of a job, until its input ends or it has heard as many changes
 * as its second argument says. Each callback makes a call of its own, as a program's may.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tutti/tutti.h"

typedef struct hearing {
    tutti_client *client;
    long left;
} hearing;

static bool
on_member(void *arg, const tutti_member_event *event)
{
    hearing *self = arg;
    int64_t count = 0;
    tutti_error err;

    (void)printf("%s %" PRIu64 " %" PRIu32 " %s\n", tutti_member_change_name(event->kind),
                 event->epoch, event->rank,
                 event->error != NULL ? event->error->reason : event->reason);
    if (event->kind != TUTTI_MEMBERS_AWAY && event->kind != TUTTI_MEMBERS_END &&
        tutti_kv_add(self->client, "heard", 5, 1, &count, &err) != TUTTI_OK) {
        (void)printf("add: %s\n", err.text);
    }
    (void)fflush(stdout);
    return event->kind == TUTTI_MEMBERS_NOW || --self->left != 0;
}

int
main(int argc, char **argv)
{
    tutti_client_options options;
    tutti_member_watch *watch = NULL;
    hearing self = {NULL, argc > 2 ? atol(argv[2]) : -1};
    tutti_error err;
    tutti_code code;

    tutti_client_options_init(&options);
    options.agent = "";
    options.coordinator = argc > 1 ? argv[1] : "";
    code = tutti_connect_with(&options, &self.client, &err);
    if (code == TUTTI_OK) {
        code = tutti_member_watch_start(self.client, NULL, on_member, &self, &watch, &err);
    }
    if (code != TUTTI_OK) {
        (void)printf("failed: %s\n", err.text);
    }
    while (code == TUTTI_OK && getchar() != EOF) {
    }
    tutti_member_watch_stop(watch);
    tutti_close(self.client);
    (void)printf("over\n");
    return code == TUTTI_OK ? 0 : 1;
}
