/*
 * A group as this agent knows it: the ops in line for it, and those that run.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_GROUP_H
#define TUTTI_SERVER_AGENT_STATE_GROUP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/agent/agent.h"
#include "server/agent/state/types.h"

#define AGENT_PROGRAM_SIZE 64 /* a client's program in words, as the client gives it */
#define AGENT_MESSENGERS 4    /* programs of a rank that send and receive, the last ones */

/*
 * A group as this agent knows it. Control loop. op/group.c has its states.
 *
 * sequence >= entered >= what agent_group_left says. While barriers > 0, `sequence` does not grow
 * and ops in line have sequence 0; agent_group_count_again numbers them. `place` counts only while
 * placed is the epoch.
 *
 */
struct agent_group {
    tutti_map_node by_name;
    char name[TUTTI_NAME_MAX + 1];
    tutti_agent *agent;
    tutti_coll_group *coll; /* NULL until the coordinator has answered */
    uint64_t id;
    uint64_t epoch;
    tutti_list_node queue; /* ops in the order they came, the first one next */
    uint64_t sequence;     /* of the last op that came, as it will be numbered */
    uint32_t barriers; /* Backwards in the queue: nobody knows yet how many ops they will make */
    bool asking;       /* the first time; a group that is open may be asked for again beside this */
    uint64_t op_count; /* all that came, sends and receives too */
    uint64_t p2p_count;
    uint64_t entered;          /* the number of the last op that the engine was given */
    tutti_list_node running;   /* ops that the engine has, the oldest first */
    tutti_coll_args last_args; /* for its words: of the op that ended last, ... */
    uint64_t last_sequence;    /* ... its number, 0 = a send or receive, ... */
    uint64_t last_ns;          /* ... and when; 0 = none did */
    uint64_t changes;          /* of what the coordinator is told, ... */
    uint64_t told;             /* ... and how many it was told */
    bool pumping;
    tutti_space *place; /* the GPU on which its collectives run here; NULL = none yet, ... */
    uint64_t placed;    /* ... and in which epoch */
    bool aborted;       /* its ops are refused; ends with the epoch of "world" only */
    /* An op was ended by an abort, perhaps before the coordinator's news of it. Any thread. */
    atomic_bool abort_met;
    bool checking; /* an op came for it since it was aborted: is it still the same group? */
    /* checking: one more op came since that was asked, and the answer may be older */
    bool check_again;
    uint64_t asked;   /* number of the last question that was asked of the coordinator about it */
    bool abort_heard; /* while the coordinator was asked: its answer may be older */
    bool broken;      /* a member is gone, as far as we know; its return is news soon */
    tutti_timer backoff; /* until the first op in line is let go */
    uint64_t caller;     /* number of the client that called the last collective; 0 = none */
    uint64_t messengers[AGENT_MESSENGERS]; /* likewise, of sends and receives, the last one first */
    bool orphan;                   /* the caller's program has ended, and nobody has called since */
    bool silent;                   /* likewise, the last messenger's */
    char gone[AGENT_PROGRAM_SIZE]; /* the program that has ended last */
    uint64_t timeout_ns;           /* of its ops that have no time limit; 0 = --op-timeout */
    uint64_t next_epoch; /* of an elastic world: changes to that when its ops have ended, ... */
    uint64_t change_ns;  /* ... or at this time; 0 = does not change */
    struct agent_pass
        *passing;       /* a new client passes over the ends of others' ops; NULL = none does */
    uint64_t passed_ns; /* clients that came until then have done so */
    uint64_t failed_ns; /* when the client came whose op has failed last; 0 = none has */
};

#endif
