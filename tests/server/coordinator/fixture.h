/*
 * Fixture: a coordinator whose time is a number we choose, and callers that write down what they
 * are told. One thread. Callers that are still parked at the end of a test must be static: the
 * fixture is closed after it.
 */
#ifndef TUTTI_TESTS_COORDINATOR_FIXTURE_H
#define TUTTI_TESTS_COORDINATOR_FIXTURE_H

#include "base/os/clock.h"
#include "server/coordinator/coordinator.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/metadata/metadata.h"

#define BYTES(text) ((tutti_bytes){(text), sizeof(text) - 1})
#define MS TUTTI_NS_PER_MS
#define SECOND TUTTI_NS_PER_S
#define ANY_RANK UINT32_MAX
#define START_NS (1000 * SECOND)

typedef struct fixture {
    tutti_coordinator *self;
    tutti_store *store;
    tutti_coordinator_options options;
    uint64_t now_ns;
    tutti_list_node lines;    /* sessions whose messages leave at once */
    tutti_list_node watchers; /* likewise */
    char notes[1024];         /* what happened, with a semicolon behind each sentence */
} fixture;

/* That of the test that runs. */
extern fixture fix;

/* For cmocka: open `fix`, with the defaults or what a store with a disk has; close it. */
int fixture_begin(void **state);
int fixture_begin_durable(void **state);
int fixture_end(void **state);

/* Of the default job. */
tutti_coordinator_key key_of(const char *key);

/* The options as they are without a command line. */
void fixture_options(tutti_coordinator_options *ret_options);

/* [in] options  NULL = the defaults */
void fixture_open(fixture *at, const tutti_coordinator_options *options);

/* Another coordinator on the same store, a second later; it takes up what is there. */
void fixture_restart(fixture *at);

/* Drains first; whatever is parked is told. */
void fixture_close(fixture *at);

/* Run what is to be done now, short of what is written; not idle: one slice of it. */
void fixture_run(fixture *at, bool idle);

/* Run what is to be done now. */
void fixture_settle(fixture *at);

/* Let time pass, with every timer at its time. */
void fixture_advance(fixture *at, uint64_t wait_ns);

/* Likewise, but busy all the time: nothing that was sent or written in it is looked at. */
void fixture_hold(fixture *at, uint64_t wait_ns);

/* ------------------------------------------------------------------------------ joiners */

typedef struct joiner {
    tutti_coordinator_join join;
    int progress_count;
    int answer_count;
    tutti_coordinator_progress progress;
    tutti_coordinator_seat seat;
    bool failed;
    tutti_error err;
} joiner;

/* A request of a process: its incarnation and pid are `id`, its host is "host". */
tutti_coordinator_join_request join_request(const char *job, uint32_t world_size, uint32_t rank,
                                            uint64_t id);

tutti_code joiner_start(fixture *at, joiner *one, const tutti_coordinator_join_request *request,
                        tutti_error *err);

/* Join with good luck, without answering yet. */
void joiner_must_start(fixture *at, joiner *one, uint32_t world_size, uint32_t rank, uint64_t id);

/* A formed world "default" of `world_size` agents; rank r has the incarnation 100 + r. */
void form_world(fixture *at, uint32_t world_size);

tutti_coordinator_member member_of(uint32_t rank);

/* ------------------------------------------------------------------------------ sessions */

#define LINE_EVENTS_MAX 32

typedef struct line {
    tutti_coordinator_session session;
    tutti_list_node link;
    bool stuck; /* its messages do not leave */
    bool in_flight;
    int accepted_count;
    uint64_t epoch;
    tutti_coordinator_epoch_key key; /* as the last message had it */
    size_t lost_count;
    uint32_t lost_rank;   /* the first */
    size_t message_count; /* of changes */
    size_t event_count;
    tutti_coordinator_event events[LINE_EVENTS_MAX]; /* the first; their texts are gone */
    char reason[200];                                /* of the last lost rank */
    char group_name[128];                            /* of the last deleted group */
    int heard_count;                                 /* of words that it is heard */
    int end_count;
    bool failed;
    tutti_error err;
} line;

/* A stream comes and says who it is. */
tutti_code line_open(fixture *at, line *one, const tutti_coordinator_member *member,
                     tutti_error *err);
void line_must_open(fixture *at, line *one, uint32_t rank);
void line_beat(line *one);

/* ------------------------------------------------------------------------------ others */

typedef struct meeter {
    tutti_coordinator_meet meet;
    int answer_count;
    size_t value_count;
    char values[256]; /* each with a comma behind it */
    bool failed;
    tutti_error err;
} meeter;

typedef struct waiter {
    tutti_coordinator_key_wait wait;
    int answer_count;
    uint64_t version;
    bool failed;
    tutti_error err;
} waiter;

typedef struct counter {
    tutti_coordinator_count count;
    int answer_count;
    uint64_t number;
    bool failed;
    tutti_error err;
} counter;

typedef struct watcher {
    tutti_coordinator_watch watch;
    tutti_list_node link;
    bool stuck;
    bool in_flight;
    size_t change_count;
    char text[1024]; /* "begun,set a=1,deleted a," */
    uint64_t version;
    int end_count;
    tutti_error err;
} watcher;

tutti_code meeter_start(fixture *at, meeter *one, tutti_coordinator_meet_request *request,
                        tutti_error *err);
tutti_code waiter_start(fixture *at, waiter *one, const tutti_coordinator_wait_request *request,
                        tutti_error *err);
tutti_code counter_start(fixture *at, counter *one, const tutti_coordinator_key *prefix,
                         tutti_error *err);
tutti_code watcher_start(fixture *at, watcher *one, const char *job, const char *prefix,
                         tutti_error *err);
tutti_code watcher_start_at(fixture *at, watcher *one, const char *job, const char *prefix,
                            const tutti_coordinator_watch_place *place, tutti_error *err);

#endif
