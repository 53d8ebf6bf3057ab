/* What the files of this folder share: who calls, what they keep of it, and what is known of the store. Private to it. */
#ifndef TUTTI_TESTS_SIM_STORE_STORES_PRIVATE_H
#define TUTTI_TESTS_SIM_STORE_STORES_PRIVATE_H

#include "sim/kernel.h"
#include "sim/leases.h"
#include "sim/plan.h"
#include "sim/play.h"
#include "sim/store/room.h"

#define CLIENTS_MAX 4
#define CLIENT_OPS_MAX 40
#define WATCHERS_MAX 2
#define HOLDERS_MAX 2 /* of leases */
#define HELD_MAX 4    /* leases of one of them, one after the other */
#define MANY (3 * LINEAR_KEYS_MAX)
#define OPS_LIMIT 1000
#define CHANGES_LIMIT 4000
#define TOLD_LIMIT 4000
#define EVENTS_MAX 200

#define GIVE_UP_NS (15 * TUTTI_NS_PER_S)   /* of a call: less than --retry-window */
#define WAY_NS (2 * TUTTI_NS_PER_MS)       /* of a message, at most; now and then ... */
#define LONG_WAY_NS (60 * TUTTI_NS_PER_MS) /* ... */
#define STOP_NS_MAX (4 * TUTTI_NS_PER_S)
#define SLACK_NS (500 * TUTTI_NS_PER_MS)  /* until a lease that is over is judged */
#define AGAIN_NS (1200 * TUTTI_NS_PER_MS) /* a second, and a bit */
#define PREFIX_BYTES 8

/* Keys by number. */
enum {
    KEY_FIRST = 0, /* 4 of them: what one wants */
    KEY_LAST = 3,
    KEY_DIGITS = 4,
    KEY_LEASED = 5, /* for each holder */
    KEY_QUEUE = KEY_LEASED + HOLDERS_MAX,
    KEYS,
    KEY_MANY = KEYS, /* for each holder MANY: more than go in one slice */
};

typedef struct step {
    linear_op op;
    uint64_t think_ns;
    uint64_t wait_ns;
} step;

typedef enum trouble_kind {
    TROUBLE_KILL,
    TROUBLE_KILL_AT_CHANGE, /* just behind one of the next changes of the store */
    TROUBLE_POWER,
    TROUBLE_STOP,
    TROUBLE_DISK_FULL,
    TROUBLE_DISK_FAILS,
    TROUBLE_DISK_SLOW,
    TROUBLE_CONNECTIONS,
    TROUBLES,
} trouble_kind;

typedef struct trouble {
    trouble_kind kind;
    uint64_t at_ns;
    uint64_t span_ns;
} trouble;

/* A caller with a connection of its own. */
typedef struct client {
    uint32_t number;
    uint64_t connection; /* counts them: what comes by an older one is not heard */
    room_call *call;     /* under way */
    uint64_t called_ns;  /* when it was sent */
    bool done;
    bool lost;
    bool is_through;
    sim_task *task;
    uint64_t sent_ns;    /* when its last message arrives: what it sends later comes behind */
    uint64_t arrived_ns; /* the same of what it is sent */
    step steps[CLIENT_OPS_MAX];
    uint32_t step_count;
} client;

typedef struct watcher {
    client client;
    char letters[4];           /* of its prefix, behind the era's */
    char prefix[ROOM_KEY_MAX]; /* of the stream that was opened last */
    watches_change told[TOLD_LIMIT];
    size_t told_count;
    uint64_t era;
    uint64_t history;
    uint64_t from;
    uint32_t skip;
    uint64_t floor;
    bool resumes;
    bool ended; /* the stream: open another one */
    bool stop;
} watcher;

typedef struct held_lease {
    uint64_t id;
    uint64_t era;
    uint64_t begin_ns;
    leases_event events[EVENTS_MAX];
    uint64_t versions[EVENTS_MAX]; /* of GONE */
    size_t count;
    bool granted;
    bool has_many;
} held_lease;

typedef struct holder {
    client client;
    held_lease leases[HELD_MAX];
    uint32_t count;
} holder;

/* A change of the store as it was made. */
typedef struct raw_change {
    tutti_map_node node; /* of the last one of its key, while they are compared */
    uint64_t version;
    bool remove;
    size_t value_size;
    unsigned char *bytes; /* [owned] key, value */
} raw_change;

typedef struct stores_state {
    uint64_t op_mask;
    uint64_t fault_mask;
    disk_mode mode;
    tutti_coordinator_options options;
    trouble troubles[FAULTS_MAX];
    uint32_t trouble_count;
    client clients[CLIENTS_MAX];
    uint32_t client_count;
    watcher *watchers;
    uint32_t watcher_count;
    holder *holders;
    uint32_t holder_count;
    sim_disk *disk;
    room *room; /* NULL = there is none */
    bool power_was_cut;
    uint64_t kill_at; /* so many changes until it is killed; 0 = it is not */
    uint64_t down_since_ns;
    bool calm;
    bool ending;
    uint64_t era;
    linear_op *ops; /* of this era */
    size_t op_count;
    watches_change *changes; /* likewise, of clients' keys */
    uint64_t *change_leases; /* which lease the key has after it */
    size_t change_count;
    raw_change *raws; /* of all times */
    size_t raw_count;
    uint64_t answered; /* the highest version that an answer has told of */
    uint64_t seen;     /* ... that a client has heard */
    play_counts counts;
    char words[1500];
} stores_state;

extern stores_state stores;

/* ------------------------------------------------------------------------------ callers.c */

/* Tasks: a client, a holder, a watcher. */
void *stores_run_client(void *arg);
void *stores_run_holder(void *arg);
void *stores_run_watcher(void *arg);

void stores_lose_connection(client *self);
bool stores_is_up(void *arg); /* does a coordinator run? */

/* By a task. False: there was no answer, or the era is over. */
bool stores_call_op(client *self, const linear_op *op, uint64_t wait_ns, tutti_code *ret_code);

/*
 * The time of leases may begin anew, from a time or until a while from now on.
 *
 * [in] died_ns  of a coordinator that was started again: leases that lived then have their whole time. Else SIM_NEVER
 */
void stores_restart_leases(uint64_t died_ns, uint64_t begin_ns, uint64_t later_ns);

/* ------------------------------------------------------------------------------ stores.c */

void stores_kill_soon(void);

/* ------------------------------------------------------------------------------ judges.c */

void stores_on_change(const tutti_store_change *changes, size_t count, uint64_t version);
leases_event *stores_add_event(held_lease *lease, leases_kind kind, uint64_t begin_ns,
                               uint64_t end_ns);

void stores_judge_leftovers(tutti_store *store); /* of leases: all are over */
void stores_judge_answers(void);
void stores_judge_watches(bool complete);
void stores_judge_leases(void);
void stores_judge_answered(void); /* what an answer tells of is on the disk */

/* Behind a crash: what there is up to a version. */
void stores_judge_contents(tutti_store *store);
void stores_judge_loss(uint64_t version);
void stores_forget_behind(uint64_t version);
void stores_end_era(void);

#endif
