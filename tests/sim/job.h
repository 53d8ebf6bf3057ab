/*
 * Job: what a schedule that runs is made of, for the files that play it. Everything here is one thread, and one job.
 *
 *   call.c     an op of a rank: its memory, its post, and what the engine says of it
 *   judge.c    what has to hold of it
 *   client.c   who calls: one client of each group on each rank
 *   member.c   processes, and what they hear of each other and of their groups
 *   befall.c   faults, and what the coordinator does with groups
 *   play.c     the order of it all
 */
#ifndef TUTTI_TESTS_SIM_JOB_H
#define TUTTI_TESTS_SIM_JOB_H

#include <pthread.h>

#include "base/data/list.h"
#include "coll/coll.h"
#include "coll/select/select.h"
#include "kernel.h"
#include "model.h"
#include "plan.h"
#include "play.h"

#define JOB 77
#define PROCESSES_MAX (RANKS_MAX + FAULTS_MAX)
#define LATE_NS                                                                                    \
    (1500 * TUTTI_NS_PER_MS) /* behind the deadline: an op's memory is given up after 1 s */
#define LOST_NS (400 * TUTTI_NS_PER_MS)   /* until the coordinator has told of a death */
#define PROMPT_NS (100 * TUTTI_NS_PER_MS) /* until an op ends that waits for nobody */
#define GRACE_NS (500 * TUTTI_NS_PER_MS)  /* behind the news of a death: the engine's is 300 ms */
#define CALM_NS (8 * TUTTI_NS_PER_S)      /* before the last ops */
#define LAST_NS (10 * TUTTI_NS_PER_S)     /* their time */
#define GUARD 0x5aa55aa55aa55aa5ULL
#define SPOILT 0x6b6b6b6b6b6b6b6bLL

typedef struct process process;

/* A thread of a process that calls the ops of one group. */
typedef struct client {
    process *process;
    uint32_t group;
    uint32_t under_way;
    sim_task *task;
    uint64_t epoch;     /* of the group, as it has noticed */
    uint64_t ordinal;   /* of its last collective in this epoch */
    bool last_well;     /* that one has succeeded */
    uint32_t restarted; /* the program that it is of */
    tutti_coll_pass pass;
    bool passing;
    bool at_end;
} client;

/* An op of one rank. */
typedef struct call {
    tutti_list_node link;
    tutti_coll_op op;
    process *process;
    client *client;  /* NULL: the driver */
    model_call part; /* part.what is NULL: a barrier of the end */
    uint32_t group;
    uint64_t epoch;
    int64_t *input;
    int64_t *output; /* may be the input; with a guard behind it */
    int64_t input_count;
    int64_t output_count;
    tutti_coll_tensor in[LIST_MAX];
    tutti_coll_tensor out[LIST_MAX];
    int64_t send_splits[RANKS_MAX];
    int64_t recv_splits[RANKS_MAX];
    unsigned char *meta;
    uint32_t to[RANKS_MAX];
    uint32_t members[RANKS_MAX]; /* processes that had the group's ranks when it was called */
    uint64_t called_ns;
    uint64_t deadline_ns;
    uint64_t done_ns;
    uint64_t stopped_at_done_ns;
    uint64_t stopped_ns; /* of its process, when it was called */
    bool done;
    bool released;
    tutti_code code;
} call;

typedef enum member_state {
    MEMBER_WAITS, /* the group is not made yet, or it has not heard of it */
    MEMBER_OPEN,
    MEMBER_CLOSED,
} member_state;

/* A group, as a process sees it. */
typedef struct member {
    tutti_coll_group *coll;
    member_state state;
    uint64_t epoch;
    uint64_t renewed_ns;
    uint64_t aborted_ns; /* 0 = not in this epoch */
} member;

struct process {
    uint32_t number; /* of its wire, too */
    uint32_t rank;
    uint64_t incarnation;
    bool dead;
    bool leaving; /* it calls nothing any more */
    uint64_t leaving_ns;
    uint32_t left_groups; /* as bits, whose members it has told */
    bool left;            /* and its engine has stopped */
    bool callers_gone;
    uint64_t gone_ns;    /* since when, or since when it was last */
    uint64_t come_ns;    /* when the next program came; SIM_NEVER = not yet */
    uint32_t orphans;    /* groups that nobody called then, as bits */
    bool ends;           /* its control thread has to */
    bool told;           /* all hear, or will hear, that it is gone */
    uint32_t restarts;   /* of the program that calls */
    uint64_t caller_ns;  /* since when its program is there */
    uint64_t stopped_ns; /* in all, and since when */
    uint64_t stopped_since_ns;
    uint64_t heard_ns;    /* when it gets the coordinator's last word */
    pthread_mutex_t lock; /* between its clients and its control thread */
    sim_task *control;
    sim_task *leaver; /* NULL = none */
    tutti_list_node news;
    tutti_coll_engine *engine;
    member groups[GROUPS_MAX];
    tutti_selector *selector;
    tutti_list_node calls;
    uint32_t under_way;
    client clients[GROUPS_MAX];
    uint32_t probes; /* that have not been answered */
};

/* What has become of an op on all ranks, in the newest epoch in which it was called. */
typedef struct standing {
    uint64_t epoch;
    uint32_t calls;
    uint32_t callers; /* ranks of the job, as bits */
    uint64_t last_call_ns;
    uint64_t call_ns[RANKS_MAX];
    uint64_t failed_ns; /* on the first rank that tells it to the others; 0 = on none */
} standing;

/* A group, as the coordinator sees it. */
typedef struct job_group {
    bool made;
    plan_end end;
    uint64_t epoch;
    uint32_t resume;     /* the op with which its members begin this epoch */
    uint32_t called;     /* the op behind the last one that was called */
    uint32_t unclosed;   /* members that have not heard that it is deleted */
    uint64_t deleted_ns; /* when the coordinator has deleted it */
    uint64_t closed_ns;  /* when the last member has heard of it */
} job_group;

typedef struct job {
    plan plan;
    standing standings[OPS_MAX];
    job_group groups[GROUPS_MAX];
    uint64_t epoch;
    uint32_t untold;  /* deaths that not all have heard of */
    uint64_t lost_ns; /* when all have heard of a death last; SIM_NEVER = not yet */
    process processes[PROCESSES_MAX];
    uint32_t process_count;
    process *seats[RANKS_MAX];
    bool starved; /* words that a process had no memory for were not said */
    bool parks;   /* what was sent may wait for ever: its sender is gone, or never was */
    bool calm;    /* nothing befalls anybody any more */
    bool prompt;  /* nothing in the plan keeps ops longer than it has to */
    play_counts counts;
} job;

extern job our;

/* ------------------------------------------------------------------------------ call.c */

call *call_new(process *caller, uint32_t group, uint32_t group_rank, uint32_t number);
void call_fill(call *self, const plan_op *what); /* by the plan */
void call_post(call *self, uint64_t timeout_ns);
void call_note_refused(uint32_t number, uint64_t epoch, uint32_t rank); /* instead of the call */
void call_free(call *self);
int64_t *call_values(int64_t count);                               /* with a guard behind them */
bool call_holds(uint32_t number, const void *data, uint64_t size); /* for wire_open */

/* ------------------------------------------------------------------------------ judge.c */

bool judge_is_odd(const call *self);
const char *judge_words(const call *self);
uint64_t judge_stopped(const process *self);         /* for how long it has been, in all */
uint64_t judge_stopped_holders(const process *self); /* and those that may have memory of it */
void judge_done(const call *self, const tutti_error *err);
void judge_released(const call *self);
void judge_spoilt(const call *self);  /* that nobody has touched its memory since */
void judge_rest(const process *self); /* what is left over when all has ended */

/* ------------------------------------------------------------------------------ client.c */

void client_start_all(process *self);
void client_join_all(process *self);
bool client_are_at_end(const process *self); /* they have nothing to do unless more befalls */

/* ------------------------------------------------------------------------------ member.c */

uint32_t member_of(const plan_group *group, uint32_t rank); /* the group's size: it is none */
bool member_is_gone(const process *self);                   /* dead, or about to leave */

process *member_new(uint32_t rank); /* takes the seat */
void member_close(process *self);   /* its engine */
void member_free(process *self);

/* Its control thread runs this, in the order in which the coordinator said it: `most_ns` later, drawn. */
typedef void (*member_news)(process *self, uint64_t a, uint64_t b);
void member_tell(process *self, uint64_t most_ns, member_news run, uint64_t a, uint64_t b);

void member_hear_of(process *self, uint64_t number, uint64_t unused); /* of another process */
void member_hear_open(process *self, uint64_t group, uint64_t epoch);
void member_hear_deleted(process *self, uint64_t group, uint64_t unused);
void member_hear_aborted(process *self, uint64_t group, uint64_t tells);
void member_hear_renewed(process *self, uint64_t group, uint64_t epoch);

/* ------------------------------------------------------------------------------ befall.c */

void befall_all(void);                 /* from now on, by the plan: groups are made, too */
#define BEFALL_NS (4 * TUTTI_NS_PER_S) /* until then all has befallen */

#endif
