/*
 * Members: jobs, the seats in them, and the life lines of who sits there.
 *
 * A job begins with the first Join and is formed when its world is complete: then the epoch is 1
 * and every seat has an agent. From there on seats only change one at a time, each change raises
 * the epoch, and every session hears of it. A job whose joiners say a smaller min_world_size is
 * formed once so many are there and nobody has come for --elastic-wait: its free seats count as
 * lost, and "world" is whoever is alive, a fresh group with each change. A job without anybody
 * lingers for a while, so that people can look at it; the first Join after that begins it anew,
 * with another id.
 *
 * See coordinator.h for threads, time and what parked means. What is lent here is good until the
 * next call on the coordinator that may change something: another lookup does not.
 */
#ifndef TUTTI_SERVER_COORDINATOR_MEMBER_MEMBERS_H
#define TUTTI_SERVER_COORDINATOR_MEMBER_MEMBERS_H

#include "base/data/bytes.h"
#include "server/coordinator/coordinator.h"

#define TUTTI_COORDINATOR_MISSING_MAX 64  /* ranks that a progress message lists */
#define TUTTI_COORDINATOR_LOOKUP_MAX 1024 /* ranks of one lookup */
#define TUTTI_COORDINATOR_LOST_MAX 1024   /* ranks that an accepted session is told at once */
#define TUTTI_COORDINATOR_CHANGES_MAX 256 /* changes in one message to a session */
#define TUTTI_COORDINATOR_ADDRESSES_MAX 8 /* of one agent */
#define TUTTI_COORDINATOR_HOST_MAX 255    /* bytes, without the NUL: host and each address */
#define TUTTI_COORDINATOR_WORD_MAX 127    /* likewise: host_id, device, version */
#define TUTTI_COORDINATOR_GPUS_MAX 511    /* likewise */
#define TUTTI_COORDINATOR_DATA_ADDRESS_MAX 4096

/* What the others need to know of an agent. Borrowed; NULL strings count as empty. */
typedef struct tutti_coordinator_agent {
    const char *host;
    const char *host_id;
    const char *device;
    const char *version;
    const char *gpus; /* UUIDs, by spaces */
    bool allow_shared_gpu;
    const char *const *addresses;
    size_t address_count;
    tutti_bytes data_address;
    uint32_t pid;
    uint32_t local_rank;
} tutti_coordinator_agent;

/* Who speaks. `job` empty or NULL = "default", here and in all requests. */
typedef struct tutti_coordinator_member {
    const char *job;
    uint32_t rank;
    uint64_t incarnation;
} tutti_coordinator_member;

/* ------------------------------------------------------------------------------ join */

/* The seat that a process had in a job of an earlier coordinator; zeros = it had no seat. */
typedef struct tutti_coordinator_former {
    uint64_t job_id;
    uint64_t epoch; /* the newest that it has heard of */
    uint64_t joined_epoch;
} tutti_coordinator_former;

typedef struct tutti_coordinator_join_request {
    const char *job;
    uint32_t world_size;
    uint32_t min_world_size; /* 0 = world_size */
    bool has_rank;           /* else one is assigned when the world is complete */
    uint32_t rank;
    uint64_t incarnation;
    tutti_coordinator_agent agent;
    tutti_coordinator_former former;
    uint64_t deadline_ns; /* TUTTI_TIMERS_NEVER = none */
} tutti_coordinator_join_request;

/* Who is missing. */
typedef struct tutti_coordinator_progress {
    uint32_t joined_count;
    uint32_t world_size;
    uint32_t missing_count; /* of the array; at most world_size - joined_count are missing */
    uint32_t missing_ranks[TUTTI_COORDINATOR_MISSING_MAX]; /* nobody asked for them by number */
} tutti_coordinator_progress;

#define TUTTI_COORDINATOR_EPOCH_KEY_BYTES 32

/* What seals the data plane of an epoch: drawn when it begins, and told to its members alone. */
typedef struct tutti_coordinator_epoch_key {
    uint64_t epoch;
    unsigned char bytes[TUTTI_COORDINATOR_EPOCH_KEY_BYTES];
} tutti_coordinator_epoch_key;

/* A seat. */
typedef struct tutti_coordinator_seat {
    uint32_t rank;
    uint32_t world_size;
    uint64_t epoch;
    uint64_t joined_epoch;
    uint64_t job_id;
    uint32_t heartbeat_interval_ms;
    uint32_t heartbeat_timeout_ms;
    uint32_t min_world_size;
    tutti_coordinator_epoch_key key;
} tutti_coordinator_seat;

/* A parked Join. Zero it and set the callbacks. */
typedef struct tutti_coordinator_join tutti_coordinator_join;
struct tutti_coordinator_join {
    /* Any number of times; may be dropped when the last one has not left yet. */
    void (*on_progress)(tutti_coordinator_join *join, const tutti_coordinator_progress *progress);
    /* The answer: `seat`, or `err` when that is not NULL. Borrowed until it returns. */
    void (*on_answer)(tutti_coordinator_join *join, const tutti_coordinator_seat *seat,
                      const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link; /* in one of its job's lists */
    tutti_list_node peer; /* in its agent's list */
    struct coord_agent *agent;
};

/*
 * Take a seat. Several calls of one incarnation wait for the same seat.
 *
 * TUTTI_OK                  parked
 * TUTTI_INVALID_ARGUMENT    BAD_NAME, BAD_AGENT (a text or list of it is too long), WORLD_SIZE,
 *                           RANK_RANGE; BAD_INCARNATION: 0, or it asked for another rank before,
 *                           or its rank was lost: a process that comes back draws a new one
 * TUTTI_ALREADY_EXISTS      ALREADY_JOINED
 * TUTTI_FAILED_PRECONDITION SHARED_GPU: and the agent does not allow it
 * TUTTI_RESOURCE_EXHAUSTED  WORLD_FULL, JOB_LIMIT, WAITER_LIMIT; no memory
 * TUTTI_UNAVAILABLE         DRAINING
 *
 * The answer, beside OK:
 *
 * TUTTI_DEADLINE_EXCEEDED   JOIN_TIMEOUT
 * TUTTI_UNAVAILABLE         RANK_LOST: its agent was lost or left before it was told; DRAINING
 */
tutti_code tutti_coordinator_join_start(tutti_coordinator *self,
                                        const tutti_coordinator_join_request *request,
                                        tutti_coordinator_join *join, tutti_error *err);

/*
 * The caller went away. An agent that still waits for the world keeps its seat for lost_grace, for
 * a new call. Not parked is fine.
 */
void tutti_coordinator_join_withdraw(tutti_coordinator_join *join);

/* ------------------------------------------------------------------------------ session */

typedef enum tutti_coordinator_event_kind {
    TUTTI_COORDINATOR_RANK_LOST,
    TUTTI_COORDINATOR_RANK_JOINED,
    TUTTI_COORDINATOR_GROUP_DELETED,
    TUTTI_COORDINATOR_RANK_LEAVING,
    TUTTI_COORDINATOR_GROUP_ABORTED,
} tutti_coordinator_event_kind;

typedef struct tutti_coordinator_event {
    tutti_coordinator_event_kind kind;
    uint32_t rank;
    uint64_t incarnation;
    uint64_t epoch;
    const char *reason; /* of a lost rank, or one that is about to leave */
    bool left;          /* a lost rank said goodbye */
    uint64_t group_id;
    const char *group_name;
    const struct tutti_coordinator_abort *abort; /* of an aborted group: groups.h */
} tutti_coordinator_event;

/*
 * An agent's life line. Zero it and set the callbacks.
 *
 * A session keeps no queue: the job keeps the last change of each rank, the session how far it has
 * read. So a slow session costs nothing, and of a rank that went and came it hears the end only.
 */
typedef struct tutti_coordinator_session tutti_coordinator_session;
struct tutti_coordinator_session {
    /*
     * Each of the four is one message; the next comes only after
     * tutti_coordinator_session_written. on_accepted is the first. `lost` holds at most
     * TUTTI_COORDINATOR_LOST_MAX ranks; were there more, changes follow. Those are told in the
     * order of their epochs, TUTTI_COORDINATOR_CHANGES_MAX at once. Borrowed until it returns.
     * `alike` counts messages of changes: sessions that are given one number, one after the other,
     * are told the same, key included.
     */
    void (*on_accepted)(tutti_coordinator_session *session, uint64_t epoch,
                        const tutti_coordinator_event *lost, size_t lost_count);
    void (*on_changes)(tutti_coordinator_session *session, const tutti_coordinator_event *changes,
                       size_t count, uint64_t alike);
    /* Likewise a message: its agent is asked to say where its ops stand (progress.h). */
    void (*on_wanted)(tutti_coordinator_session *session, uint64_t number);
    /* Likewise: it is heard, and has been told nothing for a quarter of the heartbeat timeout. */
    void (*on_heartbeat_ack)(tutti_coordinator_session *session);
    /* The last: end the stream. `err` NULL = it left. The session is the owner's again. */
    void (*on_end)(tutti_coordinator_session *session, const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link;      /* in its job's list of idle sessions, or of those behind */
    tutti_list_node suspect;   /* in the coordinator's list of those that are silent */
    struct coord_agent *agent; /* NULL = not open yet */
    uint64_t seen_ns;          /* the last sign of life */
    uint64_t write_ns;         /* since when the message in flight is in flight */
    uint64_t sending;          /* the number of the last event in flight */
    bool writing;
    bool accepted;
    bool heartbeat_due; /* a heartbeat has come that nothing has answered for long */
};

/* The key of its job's epoch at this moment, for an accepted one to be told with what changed. */
tutti_coordinator_epoch_key tutti_coordinator_session_key(const tutti_coordinator_session *session);

/* A stream has come that has not said yet who it is: it has heartbeat_timeout for that. */
void tutti_coordinator_session_start(tutti_coordinator *self, tutti_coordinator_session *session);

/*
 * It says who it is. A second session of one incarnation replaces the first, which ends with
 * TUTTI_ABORTED, SUPERSEDED. On failure the session is no longer parked: end the stream with `err`.
 *
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK: also for a rank that was lost
 * TUTTI_FAILED_PRECONDITION  STALE_INCARNATION; BAD_ORDER: it is open already
 * TUTTI_INVALID_ARGUMENT     BAD_NAME
 * TUTTI_UNAVAILABLE          DRAINING
 */
tutti_code tutti_coordinator_session_open(tutti_coordinator_session *session,
                                          const tutti_coordinator_member *member, tutti_error *err);

/*
 * A sign of life.
 *
 * TUTTI_FAILED_PRECONDITION  BAD_ORDER: not open yet; the session is no longer parked
 */
tutti_code tutti_coordinator_session_heartbeat(tutti_coordinator_session *session,
                                               tutti_error *err);

/* The message in flight has left. Not parked is fine. */
void tutti_coordinator_session_written(tutti_coordinator_session *session);

/*
 * The stream is gone. Unless another session of its incarnation comes within lost_grace, the rank
 * is lost. Not parked is fine.
 */
void tutti_coordinator_session_withdraw(tutti_coordinator_session *session);

/*
 * Give the seat back. [in] reason: for people; NULL = none.
 *
 * TUTTI_NOT_FOUND            NO_JOB, NO_RANK
 * TUTTI_FAILED_PRECONDITION  STALE_INCARNATION
 * TUTTI_INVALID_ARGUMENT     BAD_NAME
 */
tutti_code tutti_coordinator_leave(tutti_coordinator *self, const tutti_coordinator_member *member,
                                   const char *reason, tutti_error *err);

/*
 * Say that it will be given back soon: a new epoch, and an event for the others. Saying it again
 * changes nothing. Errors as tutti_coordinator_leave.
 * [out] ret_key  of the epoch: its session does not tell it what it did itself
 */
tutti_code tutti_coordinator_announce_leave(tutti_coordinator *self,
                                            const tutti_coordinator_member *member,
                                            const char *reason,
                                            tutti_coordinator_epoch_key *ret_key, tutti_error *err);

/* ------------------------------------------------------------------------------ lookup */

/* The numbers of tutti.v1.RankState. */
typedef enum tutti_coordinator_state {
    TUTTI_COORDINATOR_FREE = 1,
    TUTTI_COORDINATOR_WAITING = 2,
    TUTTI_COORDINATOR_ALIVE = 3,
    TUTTI_COORDINATOR_LOST = 4,
} tutti_coordinator_state;

typedef struct tutti_coordinator_rank {
    uint32_t rank;
    tutti_coordinator_state state;
    uint64_t incarnation;  /* 0 = nobody yet */
    uint64_t joined_epoch; /* 0 = not yet */
    const char *reason;    /* why it is lost, or about to leave; or "" */
    uint64_t since_ms;     /* 0 = nobody yet */
    uint64_t ops;          /* as its heartbeats told */
    uint64_t counted_ms;   /* how long ago, at least 1; 0 = never */
    uint64_t bytes;
    const tutti_coordinator_agent *agent; /* NULL = nobody yet */
} tutti_coordinator_rank;

/*
 * [in]  ranks      `count` numbers; count 0 = the first TUTTI_COORDINATOR_LOOKUP_MAX
 * [out] ret_ranks  room for TUTTI_COORDINATOR_LOOKUP_MAX
 *
 * TUTTI_INVALID_ARGUMENT  RANK_RANGE, LOOKUP_LIMIT, BAD_NAME
 * TUTTI_NOT_FOUND         NO_JOB
 */
tutti_code tutti_coordinator_lookup(tutti_coordinator *self, const char *job, const uint32_t *ranks,
                                    size_t count, tutti_coordinator_rank *ret_ranks,
                                    size_t *ret_count, tutti_error *err);

typedef struct tutti_coordinator_job {
    const char *name;
    uint64_t id;
    uint32_t world_size;
    uint64_t epoch; /* 0 = not formed yet */
    uint32_t alive_count;
    uint32_t lost_count;
    uint32_t group_count;
    uint64_t since_ms;
    uint64_t ops; /* of all agents, since this process has heard of them */
    uint64_t bytes;
} tutti_coordinator_job;

/* ------------------------------------------------------------------------------ watching */

/* Somebody who follows the ranks of a job. Zero it and set the callbacks. */
typedef struct tutti_coordinator_member_watch tutti_coordinator_member_watch;
struct tutti_coordinator_member_watch {
    /* Each of the two is one message; the next comes only after
     * tutti_coordinator_member_watch_written. on_now is the first, and comes again when the job is
     * formed. */
    void (*on_now)(tutti_coordinator_member_watch *watch, const tutti_coordinator_job *job);
    void (*on_event)(tutti_coordinator_member_watch *watch, const tutti_coordinator_event *event);
    void (*on_end)(tutti_coordinator_member_watch *watch, const tutti_error *err);
    /* The coordinator's: */
    tutti_coordinator_pending_call wait;
    tutti_list_node link; /* in one of its job's lists */
    struct coord_job *job;
    uint64_t after_epoch;
    uint64_t acked_event; /* the number of the last event it was told, ... */
    uint64_t sending;     /* ... or will have been */
    bool writing;
    bool begun;
    bool formed; /* as it was told */
};

/*
 * [in] job_id, after_epoch  what the caller knows: nothing up to that epoch is told again, when it
 *                           is still that job; job_id 0 = any
 *
 * TUTTI_OK                  parked
 * TUTTI_NOT_FOUND           NO_JOB
 * TUTTI_INVALID_ARGUMENT    BAD_NAME
 * TUTTI_RESOURCE_EXHAUSTED  WAITER_LIMIT: --watcher-limit
 * TUTTI_UNAVAILABLE         DRAINING
 *
 * The end:
 *
 * TUTTI_NOT_FOUND           NO_JOB: the job has ended, or was begun anew
 * TUTTI_UNAVAILABLE         DRAINING
 */
tutti_code tutti_coordinator_member_watch_start(tutti_coordinator *self, const char *job,
                                                uint64_t job_id, uint64_t after_epoch,
                                                tutti_coordinator_member_watch *watch,
                                                tutti_error *err);

/* The message in flight has left. Not parked is fine. */
void tutti_coordinator_member_watch_written(tutti_coordinator_member_watch *watch);

/* The caller went away. Not parked is fine. */
void tutti_coordinator_member_watch_withdraw(tutti_coordinator_member_watch *watch);

/* TUTTI_NOT_FOUND NO_JOB; TUTTI_INVALID_ARGUMENT BAD_NAME */
tutti_code tutti_coordinator_job_get(tutti_coordinator *self, const char *name,
                                     tutti_coordinator_job *ret_job, tutti_error *err);

/* The first job whose name comes after `after` ("" = the first of all); false = there is none. */
bool tutti_coordinator_job_next(tutti_coordinator *self, const char *after,
                                tutti_coordinator_job *ret_job);

#endif
