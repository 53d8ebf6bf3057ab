/* A coordinator that knows groups, for agents of a test: it answers GetGroup when a test says so.
 */
#ifndef TUTTI_TESTS_COORDINATOR_FAKE_H
#define TUTTI_TESTS_COORDINATOR_FAKE_H

#include "server/agent/op/rpc_fake.h"
#include "tutti/types.h"

#define FAKE_GROUPS_MAX 8
#define FAKE_RANKS_MAX 8

typedef struct fake_group {
    char name[TUTTI_NAME_MAX + 1];
    uint64_t id;
    uint64_t epoch;
    uint32_t ranks[FAKE_RANKS_MAX];
    uint32_t count;
} fake_group;

typedef struct fake_coordinator {
    tutti_rpc_channel channel; /* its agents' */
    fake_group groups[FAKE_GROUPS_MAX];
    size_t count;
    bool holds;           /* it does not answer, ... */
    tutti_error refuses;  /* ... or with this; code OK = it answers */
    bool answers_nothing; /* a response without a group */
    bool answers_spans;   /* with spans of ranks instead of ranks */
} fake_coordinator;

void fake_coordinator_init(fake_coordinator *self);

/* Make a group; ids count from 1. One of that name is replaced: as deleted, and made anew. */
fake_group *fake_coordinator_group(fake_coordinator *self, const char *name, const uint32_t *ranks,
                                   uint32_t count);

/* Answer what has come, as it is set up. Returns how many requests. */
unsigned fake_coordinator_run(fake_coordinator *self);

#endif
