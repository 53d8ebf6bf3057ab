/*
 * The nodes of one `tutti run`: commands on several hosts that start the ranks of one job together.
 *
 * They meet at the coordinator, tell each other how many ranks each has, and hear of each other's
 * failures by keys of the job's store, "tutti-run/ID/...", and by the coordinator's watch of
 * members: agents end with the command that started them, so a node that died shows as lost ranks.
 * Nodes that were told their ranks (--rank-start) do not meet and do not wait for each other.
 */
#ifndef TUTTI_CLIENT_CLI_CLUSTER_NODES_H
#define TUTTI_CLIENT_CLI_CLUSTER_NODES_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/cli/cli.h"

#define NODES_MAX 1024
#define NODES_TEXT_MAX 512
#define NODES_HOST_MAX 256

/* What a node tells the others about itself. */
typedef struct node {
    uint32_t rank_count;
    char host[NODES_HOST_MAX];    /* its name */
    char address[NODES_HOST_MAX]; /* where others reach it */
    uint16_t port;                /* a free one, for MASTER_PORT */
} node;

typedef struct nodes {
    cli *cli;                /* borrowed */
    const char *coordinator; /* "HOST:PORT" */
    const char *job;
    uint32_t count;      /* --nnodes; 0 = they do not meet */
    uint32_t rank;       /* --node-rank */
    uint32_t rank_count; /* ranks here */
    uint32_t rank_start; /* known when they have met, or from the start */
    uint32_t world_size;
    node here;
    node *all;            /* `count` of them, once they have met; NULL = not yet */
    char run[32];         /* the ID; "" = not known yet */
    tutti_client *client; /* of the coordinator; NULL = not connected */
    tutti_member_watch *members;
    pthread_t thread; /* watches the keys */
    bool watching;
    atomic_bool over;     /* it need not watch any longer */
    atomic_bool away;     /* the coordinator was given up: a call to it takes its whole time */
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    bool failed;
    bool ended;                   /* the programs of all nodes have ended well */
    uint32_t gone;                /* nodes whose agents have ended */
    char failure[NODES_TEXT_MAX]; /* of another node, in words */
} nodes;

/* What the caller sets stays: cli, coordinator, job, count, rank, the ranks. nodes_fini it. */
tutti_code nodes_init(nodes *self, tutti_error *err);
void nodes_fini(nodes *self);

/*
 * Meet the others: rank_start, world_size, all and run are known then, and failures are heard.
 *
 * TUTTI_INVALID_ARGUMENT   a node rank that is taken; nodes that state different --nnodes
 * TUTTI_DEADLINE_EXCEEDED  not all came
 * TUTTI_CANCELLED          a signal came
 */
tutti_code nodes_meet(nodes *self, tutti_error *err);

/* The agents have joined: hear of lost ranks as well. */
tutti_code nodes_watch(nodes *self, tutti_error *err);

/* Something here has failed: end the others, who print this. The first word counts. */
void nodes_tell(nodes *self, const char *text);

/* Has another node failed? In words. */
bool nodes_have_failed(nodes *self, char ret[NODES_TEXT_MAX]);

/* The programs here have ended well: wait for those of the others, a failure, or a signal. */
void nodes_wait(nodes *self);

/*
 * The agents here have ended: who has the coordinator waits for the others, for a while. No news is
 * heard after that. Before the coordinator ends, as this asks it.
 */
void nodes_leave(nodes *self, bool serve);

/* Where other hosts reach us, from how the coordinator is reached; "127.0.0.1" for a socket. */
tutti_code nodes_own_address(const char *coordinator, char ret[NODES_HOST_MAX], tutti_error *err);

/* Does anybody listen there? Waits a second at most. A socket counts as served. */
bool nodes_are_served(const char *coordinator);

/* Is this address one of this host where nobody listens? Then we can. */
bool nodes_can_serve(const char *coordinator);

#endif
