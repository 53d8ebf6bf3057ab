/*
 * Membership: hear which ranks come to a job and which go, as it happens.
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
 * A watch asks the coordinator alone; the client need not have an agent. Ops do not depend on it:
 * agents learn of lost ranks by sessions of their own, and ops fail by themselves.
 *
 * What is told. The first event is TUTTI_MEMBERS_NOW; then each change of a rank comes with the
 * epoch that it began. Epochs go up by one with each change. If a rank changed several times before
 * the watch could be told, only its last change is told, which shows as a gap between epochs.
 *
 * When the coordinator goes away, the watch says so once (TUTTI_MEMBERS_AWAY), and asks again after
 * pauses that double from 0.1 s to 5 s, each shortened at random by up to a half. When the
 * coordinator answers, TUTTI_MEMBERS_NOW comes again, and the watch goes on behind the last epoch
 * that it has told: with --store lmdb nothing is told twice, and no rank's last change is left out.
 * If another job of the same name has begun, job_id is another one, and the last change of each of
 * its ranks is told.
 *
 * Threads. Any thread may start or stop a watch; a client may have several. Events come on a thread
 * of the watch's own.
 *
 * Caveats
 *
 * - A coordinator that is frozen, not gone, is noticed only when gRPC's ping has no answer. How it
 *   looks: no event for minutes although ranks die. What to do: rely on the errors of ops.
 * - A coordinator without a store that was restarted does not know the job before its agents have
 *   joined again. How it looks: TUTTI_MEMBERS_AWAY with NO_JOB. What to do: nothing; the watch asks
 *   again for the client's timeout_ms and ends only then.
 * - A watch has one stream for as long as it lives. The coordinator serves --watcher-limit (16384)
 *   of them: WAITER_LIMIT.
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

/* What an event tells. A program should ignore kinds that it does not know. */
typedef enum tutti_member_change {
    /*
     * The watch stands, or stands again: epoch, world_size, alive_count. Also when the world is
     * complete for the first time.
     */
    TUTTI_MEMBERS_NOW = 1,
    /* A rank that was lost has a new process, or a free seat is taken: rank, incarnation, epoch. */
    TUTTI_MEMBER_JOINED = 2,
    /*
     * A rank has announced that it will go; the ops that it has begun still end: rank, incarnation,
     * epoch, reason.
     */
    TUTTI_MEMBER_LEAVING = 3,
    /* A rank is gone: rank, incarnation, epoch, reason, left. */
    TUTTI_MEMBER_LOST = 4,
    /* The coordinator does not answer, and is asked again: error; epoch is the last one told. */
    TUTTI_MEMBERS_AWAY = 5,
    /*
     * The last event: error says why the watch cannot go on; epoch is the last one told. Not sent
     * after tutti_member_watch_stop, nor after the callback returned false.
     */
    TUTTI_MEMBERS_END = 6,
} tutti_member_change;

/* Returns "now", "joined" and so on; "unknown" for another number. Static. Any thread. */
TUTTI_API const char *tutti_member_change_name(tutti_member_change kind);

/*
 * One event. Fields that the kind does not have are 0, false or NULL, and `reason` is "". The
 * struct and what it points to are borrowed until the callback returns.
 */
typedef struct tutti_member_event {
    /* Bytes of this struct in the library: fields beyond it are not there. */
    size_t size;
    /* What happened. */
    tutti_member_change kind;
    /* Joined, leaving, lost: whose rank in the job. */
    uint32_t rank;
    /* Joined, leaving, lost: of the agent's process that came, or goes. */
    uint64_t incarnation;
    /*
     * The job's epoch that this change began; of NOW, the present one, 0 = the world was not
     * complete yet.
     */
    uint64_t epoch;
    /* Leaving, lost: why, in words: "no heartbeat for 10 s", "left: pod deleted". */
    const char *reason;
    /* Lost: the rank had said goodbye, instead of being found dead. */
    bool left;
    /* Of all kinds. Another number than before means another job of that name. */
    uint64_t job_id;
    /* Now: ranks of the job. */
    uint32_t world_size;
    /* Now: how many of them are alive. */
    uint32_t alive_count;
    /* Away, end: why. NULL in the other kinds. */
    const tutti_error *error;
} tutti_member_event;

/*
 * The caller's function for events. It runs on the watch's thread, one call after the other, the
 * first perhaps before tutti_member_watch_start has returned. It may block: what happens meanwhile
 * is told afterwards. It may use the client and all of libtutti, except tutti_member_watch_stop on
 * its own watch, which would wait for itself.
 *
 * [in] arg    as it was given to tutti_member_watch_start
 * [in] event  borrowed until it returns
 *
 * Returns true to go on; false to hear no more: the watch is stopped as ever.
 */
typedef bool (*tutti_member_fn)(void *arg, const tutti_member_event *event);

/* As after_epoch: only what happens from now on. */
#define TUTTI_MEMBERS_FROM_NOW UINT64_MAX

/* Where a watch begins. Begin with tutti_member_watch_options_init. */
typedef struct tutti_member_watch_options {
    /* Bytes of this struct. Set by init; do not change it. */
    size_t size;
    /*
     * Tell changes of later epochs than this one: the epoch of the last change that the program was
     * told, not that of a later NOW. 0 = the last change of every rank, so that a program learns
     * the present state. Default: TUTTI_MEMBERS_FROM_NOW: what has happened before is not told.
     */
    uint64_t after_epoch;
    /*
     * The job of after_epoch, as an event told it: if the job of that name is another one now,
     * after_epoch counts as 0. Default: 0 = whichever job has the name.
     */
    uint64_t job_id;
} tutti_member_watch_options;

/* [out] options  from now on, whichever job has the name */
TUTTI_API void tutti_member_watch_options_init(tutti_member_watch_options *options);

/* A watch: a thread and a stream to the coordinator. */
typedef struct tutti_member_watch tutti_member_watch;

/*
 * Start a watch of the client's job. The function returns when the coordinator has answered, at
 * most after the client's timeout_ms; it does not wait for the callback.
 *
 * [in]         client     not NULL; outlives the watch
 * [in]         options    NULL = defaults; copied
 * [in]         on_event   not NULL
 * [in]         arg        for on_event; must live until tutti_member_watch_stop has returned
 * [out, owned] ret_watch  not NULL; tutti_member_watch_stop it, also when its events have ended
 *
 * TUTTI_NOT_FOUND            NO_JOB: there is no such job
 * TUTTI_RESOURCE_EXHAUSTED   WAITER_LIMIT: as many watches as the coordinator serves; no thread, no
 *                            memory
 * TUTTI_UNAVAILABLE          UNREACHABLE: nobody answers; DRAINING: the coordinator shuts down. A
 *                            watch tries again by itself only once it has stood
 * TUTTI_DEADLINE_EXCEEDED    no answer within the client's timeout_ms
 * TUTTI_FAILED_PRECONDITION  NO_COORDINATOR: nobody says where it is
 * TUTTI_INVALID_ARGUMENT     BAD_STRUCT: options that were not initialised
 * and the common statuses (tutti/client.h)
 */
TUTTI_API tutti_code tutti_member_watch_start(tutti_client *client,
                                              const tutti_member_watch_options *options,
                                              tutti_member_fn on_event, void *arg,
                                              tutti_member_watch **ret_watch, tutti_error *err);

/*
 * Stop a watch and free it. The function waits for a callback that runs; afterwards none runs any
 * more. Not from the callback itself, which the library asserts; before tutti_close of its client.
 *
 * [in, moved] watch  NULL is fine
 */
TUTTI_API void tutti_member_watch_stop(tutti_member_watch *watch);

#ifdef __cplusplus
}
#endif

#endif
