/*
 * Room: the coordinator's real core on a loop of the simulation, as server/coordinator/service/service_loop.c has it on one
 * of lib/rpc: calls come to an inbox and are handled one at a time, the store is flushed behind each, answers pass a gate
 * until the store has made durable what they tell of, timers run, and turns are idle when nothing has come.
 *
 * A call is a struct that its caller and the room both hold. Nothing here is a message: the caller says how long the way is.
 */
#ifndef TUTTI_TESTS_SIM_STORE_ROOM_H
#define TUTTI_TESTS_SIM_STORE_ROOM_H

#include "server/coordinator/coordinator.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/lease.h"
#include "server/coordinator/kv/multi.h"
#include "server/coordinator/kv/queue.h"
#include "sim/linear.h"
#include "sim/store/disk.h"
#include "sim/watches.h"

#define ROOM_PROCESS 0
#define ROOM_KEY_MAX 24

typedef struct room room;
typedef struct room_call room_call;

typedef enum room_kind {
    ROOM_OP, /* `op` says which */
    ROOM_GRANT,
    ROOM_KEEP,
    ROOM_REVOKE,
    ROOM_WATCH,
} room_kind;

/* What a watch was told, on its way. */
typedef struct room_told {
    tutti_list_node link;
    room_call *call;
    watches_change change;
    bool is_over; /* the stream has ended: `reason` of the call */
} room_told;

struct room_call {
    room_kind kind;
    int refs;
    void *owner; /* the caller's */
    /* the request: */
    linear_op op;
    char keys[LINEAR_KEYS_MAX][ROOM_KEY_MAX];
    char prefix[ROOM_KEY_MAX];
    uint64_t wait_ns; /* 0 = at once */
    uint64_t lease;
    uint64_t ttl_ns;
    bool resumes; /* of a watch, from: */
    tutti_coordinator_watch_place place;
    /* the answer, once on_answer is called: */
    tutti_code code;
    char reason[40];
    uint64_t history; /* of a watch */
    void (*on_answer)(room_call *call);
    void (*on_told)(room_told *told); /* it owns `told` */
    /* the room's: */
    tutti_list_node link; /* in the inbox */
    tutti_list_node open; /* among those that are parked or held */
    tutti_list_node held; /* by the gate */
    room *room;
    uint64_t room_number; /* which it is: a room may lie where one lay before */
    uint64_t number;      /* for which the gate waits */
    bool is_gone;         /* its caller has gone away */
    bool is_parked;
    bool writing; /* a watch has a message on its way */
    tutti_bytes key_bytes[LINEAR_KEYS_MAX];
    tutti_coordinator_take take;
    tutti_coordinator_key_wait wait;
    tutti_coordinator_watch watch;
};

room_call *room_call_new(void);
void room_call_unref(room_call *call);

/* Start a coordinator on a disk; it takes up what is there. Its loop is a task of ROOM_PROCESS. NULL: the disk fails. */
room *room_open(sim_disk *disk, const tutti_coordinator_options *options);

/* The caller's message has arrived; the room takes a reference of its own. False: nobody is there. */
bool room_receive(room *self, room_call *call);

/* The caller has gone away. A call of another room is fine. */
void room_cancel(room *self, room_call *call);

/* The message of a watch has been read. A call of another room is fine. */
void room_written(room *self, room_call *call);

/* Killed: nothing is answered any more. Then, by a task: wait until its tasks have ended, and free it. */
void room_kill(room *self);
void room_free(room *self);

bool room_is_dead(const room *self); /* it was killed, or has lost its store */
tutti_store *room_store(const room *self);
tutti_coordinator *room_core(const room *self);

/* The highest version of which an answer has told that has left. */
uint64_t room_answered(const room *self);

/* The call that is being handled; NULL = none. */
const room_call *room_handling(void);

#endif
