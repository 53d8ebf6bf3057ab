/*
 * Membership: hear who comes to a job and who goes, as it happens.
 *
 *     static bool
 *     on_member(void *arg, const tutti_member_event *event)
 *     {
 *         if (event->kind == TUTTI_MEMBER_LOST) {
 *             printf("rank %u is gone: %s\n", event->rank, event->reason);
 *         }
 *         return true;
 *     }
 *
 *     tutti_member_watch *watch;
 *
 *     if (tutti_member_watch_start(client, NULL, on_member, NULL, &watch, &err) == TUTTI_OK) {
 *         ...
 *         tutti_member_watch_stop(watch);
 *     }
 *
 * A watch asks the coordinator alone; the client need not have an agent. When the coordinator goes
 * away, it says so once, tries again with growing pauses, and goes on behind the last epoch that it
 * has told: with --store lmdb nothing is told twice and no rank's last change is left out. Of a
 * rank that changed several times while nobody could be told, the last change counts: epochs go up
 * by one with each change, so a gap shows.
 *
 * Caveat: a coordinator that is frozen, not gone, is noticed when gRPC's ping has no answer,
 * minutes later. Ops do not depend on that.
 */
#ifndef TUTTI_MEMBERSHIP_H
#define TUTTI_MEMBERSHIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tutti/client.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tutti_member_change {
    TUTTI_MEMBERS_NOW = 1,    /* the watch stands, or stands again: epoch, job_id, counts */
    TUTTI_MEMBER_JOINED = 2,  /* a rank is back, or a free seat is taken */
    TUTTI_MEMBER_LEAVING = 3, /* a rank has said that it will go: its ops under way still end */
    TUTTI_MEMBER_LOST = 4,    /* a rank is gone */
    TUTTI_MEMBERS_AWAY = 5,   /* the coordinator does not answer: `error`; it is asked again */
    TUTTI_MEMBERS_END = 6,    /* the last event: `error` says why */
} tutti_member_change;

/* "joined". Static. */
TUTTI_API const char *tutti_member_change_name(tutti_member_change kind);

/* Fields that the kind does not have are 0, and texts "". Borrowed until the callback returns. */
typedef struct tutti_member_event {
    size_t size; /* of this struct, in the library */
    tutti_member_change kind;
    uint32_t rank;
    uint64_t incarnation; /* of the process that came, or went */
    uint64_t epoch;       /* of the job since then */
    const char *reason;   /* leaving, lost: why */
    bool left;            /* lost: it had said goodbye */
    uint64_t job_id;      /* of all kinds: another number is another job of that name */
    uint32_t world_size;  /* now */
    uint32_t alive_count; /* now */
    const tutti_error *error;
} tutti_member_event;

/*
 * Runs on a thread of the watch's own, one call after the other. It may take its time (what happens
 * meanwhile is told afterwards) and use the client, and all of libtutti but tutti_member_watch_stop
 * on its own watch. Return false to hear no more; the watch is stopped as ever.
 */
typedef bool (*tutti_member_fn)(void *arg, const tutti_member_event *event);

#define TUTTI_MEMBERS_FROM_NOW UINT64_MAX

/* Begin with tutti_member_watch_options_init. */
typedef struct tutti_member_watch_options {
    size_t size;          /* of this struct: set by init */
    uint64_t after_epoch; /* changes of later epochs (that of the last change you were told, not of
                             a later NOW); 0 = the last change of every rank;
                             TUTTI_MEMBERS_FROM_NOW, the default = what has happened is not told */
    uint64_t job_id;      /* the job of after_epoch; 0 = whichever has the name */
} tutti_member_watch_options;

TUTTI_API void tutti_member_watch_options_init(tutti_member_watch_options *options);

typedef struct tutti_member_watch tutti_member_watch;

/*
 * Waits until the coordinator has answered, at most the client's timeout; on_event may run before
 * it returns.
 *
 * [in]         options    NULL = defaults
 * [out, owned] ret_watch  tutti_member_watch_stop it, before the client is closed
 *
 * TUTTI_NOT_FOUND            NO_JOB
 * TUTTI_RESOURCE_EXHAUSTED   WAITER_LIMIT; no thread, no memory
 * TUTTI_UNAVAILABLE, TUTTI_DEADLINE_EXCEEDED  nobody answers
 */
TUTTI_API tutti_code tutti_member_watch_start(tutti_client *client,
                                              const tutti_member_watch_options *options,
                                              tutti_member_fn on_event, void *arg,
                                              tutti_member_watch **ret_watch, tutti_error *err);

/* Ends it: on_event does not run any more when this returns. Not from on_event. NULL is fine. */
TUTTI_API void tutti_member_watch_stop(tutti_member_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
