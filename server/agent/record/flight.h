/*
 * Flight recorder: the last ops of this agent, whatever became of them. Each op writes here when it
 * comes, when it is given to the engine, and when it ends; people and programs read it when
 * something went wrong, so it has to be right then and cheap always.
 *
 * Threads: any. One lock, held for some hundred bytes; a reader takes it a page at a time.
 */
#ifndef TUTTI_SERVER_AGENT_RECORD_FLIGHT_H
#define TUTTI_SERVER_AGENT_RECORD_FLIGHT_H

#include "coll/coll.h"
#include "tutti/types.h"

#define AGENT_FLIGHT_VERSION "2.5"  /* of the fields' names and meaning */
#define AGENT_FLIGHT_OPS 4096       /* that are remembered */
#define AGENT_FLIGHT_ERROR_SIZE 200 /* bytes of an error's words, with the NUL */

typedef struct agent_flight agent_flight;

typedef enum agent_flight_state {
    AGENT_FLIGHT_SCHEDULED = 1, /* waits for its turn, its group or its tensors */
    AGENT_FLIGHT_STARTED = 2,   /* the engine has it */
    AGENT_FLIGHT_COMPLETED = 3,
    AGENT_FLIGHT_FAILED = 4,
} agent_flight_state;

/* Times are those of tutti_clock_ns; 0 = not yet. */
typedef struct agent_flight_entry {
    uint64_t record_id; /* counts all ops of this process from 0 */
    agent_flight_state state;
    tutti_coll_kind kind;
    bool retired;        /* nothing of it is left in the agent */
    uint64_t group_id;   /* 0 = the group was never found */
    uint32_t group_rank; /* ours */
    uint32_t peer;       /* of a send or receive: group rank, TUTTI_COLL_ANY_SOURCE */
    uint64_t epoch;      /* of the group; 0 = never begun */
    uint64_t sequence;   /* in its group; 0 for sends and receives */
    uint64_t p2p_number; /* of sends and receives of this rank on the group, from 1; else 0 */
    uint64_t op_number;  /* of all ops of this rank on the group, from 1 */
    uint64_t created_ns;
    uint64_t started_ns;
    uint64_t completed_ns;
    uint64_t timeout_ms;
    uint32_t input_count; /* tensors; `input` is the first of them */
    uint32_t output_count;
    tutti_code code; /* failed */
    tutti_spec input;
    tutti_spec output;
    char group[TUTTI_NAME_MAX + 1];
    char reason[TUTTI_ERROR_REASON_MAX];
    char error[AGENT_FLIGHT_ERROR_SIZE];
    char trace[33]; /* of the caller: 32 digits, or "" */
} agent_flight_entry;

/* NULL: no memory. */
agent_flight *agent_flight_new(void);
void agent_flight_free(agent_flight *flight); /* NULL is fine */

/* A new entry in the place of the oldest, zeroed but for its record_id; the lock is held. */
agent_flight_entry *agent_flight_begin(agent_flight *flight);

/* The entry of that number, and the lock is held; or NULL when newer ones have taken its place. */
agent_flight_entry *agent_flight_change(agent_flight *flight, uint64_t record_id);

/* After each of the two, when it gave an entry. */
void agent_flight_unlock(agent_flight *flight);

/* Copies of the first entries from that number on, in order; how many. */
size_t agent_flight_read(agent_flight *flight, uint64_t from, agent_flight_entry *ret_entries,
                         size_t most);

/* The number that the next op will have. */
uint64_t agent_flight_next(agent_flight *flight);

/* "scheduled", "started", "completed", "failed". Static. */
const char *agent_flight_state_name(agent_flight_state state);

/* "nccl:all_reduce", "nccl:send 0->1": the form that readers of PyTorch's flight recorder take. */
#define AGENT_FLIGHT_NAME_SIZE 64
void agent_flight_name(const agent_flight_entry *entry, char ret_name[AGENT_FLIGHT_NAME_SIZE]);

#endif
