/*
 * The flight recorder's ring. One mutex, which begin and change leave locked for the caller to fill
 * the entry in place: no copy, and no entry that is half written in a reader's eyes. Ops write some
 * hundred bytes under it; a reader takes a page of entries at a time, so no op waits long.
 *
 * An entry is addressed by its record_id. When 4096 newer ops have come, it is overwritten, and
 * agent_flight_change returns NULL: an op that is older than that is no longer recorded.
 */
#include "server/agent/record/flight.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "coll/coll.h"

struct agent_flight {
    pthread_mutex_t lock;
    uint64_t next;
    agent_flight_entry ring[AGENT_FLIGHT_OPS];
};

agent_flight *
agent_flight_new(void)
{
    agent_flight *self = calloc(1, sizeof(*self)); /* pages come as ops do */

    if (self != NULL) {
        (void)pthread_mutex_init(&self->lock, NULL);
    }
    return self;
}

void
agent_flight_free(agent_flight *flight)
{
    if (flight != NULL) {
        (void)pthread_mutex_destroy(&flight->lock);
        free(flight);
    }
}

/* Never fails: the place of the oldest entry is taken, whatever became of its op. */
agent_flight_entry *
agent_flight_begin(agent_flight *flight)
{
    agent_flight_entry *entry;

    (void)pthread_mutex_lock(&flight->lock);
    entry = &flight->ring[flight->next % AGENT_FLIGHT_OPS];
    *entry = (agent_flight_entry){.record_id = flight->next++, .state = AGENT_FLIGHT_SCHEDULED};
    return entry;
}

static uint64_t
get_oldest_record(const agent_flight *flight)
{
    return flight->next < AGENT_FLIGHT_OPS ? 0 : flight->next - AGENT_FLIGHT_OPS;
}

agent_flight_entry *
agent_flight_change(agent_flight *flight, uint64_t record_id)
{
    (void)pthread_mutex_lock(&flight->lock);
    if (record_id >= get_oldest_record(flight) && record_id < flight->next) {
        return &flight->ring[record_id % AGENT_FLIGHT_OPS];
    }
    (void)pthread_mutex_unlock(&flight->lock);
    return NULL;
}

void
agent_flight_unlock(agent_flight *flight)
{
    (void)pthread_mutex_unlock(&flight->lock);
}

size_t
agent_flight_read(agent_flight *flight, uint64_t from, agent_flight_entry *ret_entries, size_t most)
{
    size_t count = 0;
    uint64_t at;

    (void)pthread_mutex_lock(&flight->lock);
    at = from < get_oldest_record(flight) ? get_oldest_record(flight) : from;
    while (count < most && at < flight->next) {
        ret_entries[count++] = flight->ring[at++ % AGENT_FLIGHT_OPS];
    }
    (void)pthread_mutex_unlock(&flight->lock);
    return count;
}

uint64_t
agent_flight_next(agent_flight *flight)
{
    uint64_t next;

    (void)pthread_mutex_lock(&flight->lock);
    next = flight->next;
    (void)pthread_mutex_unlock(&flight->lock);
    return next;
}

const char *
agent_flight_state_name(agent_flight_state state)
{
    static const char *const names[] = {"", "scheduled", "started", "completed", "failed"};

    return names[state];
}

void
agent_flight_name(const agent_flight_entry *entry, char ret_name[AGENT_FLIGHT_NAME_SIZE])
{
    const char *name = tutti_coll_kind_name(entry->kind);
    const bool sends = entry->kind == TUTTI_COLL_SEND;

    if (!sends && entry->kind != TUTTI_COLL_RECV) {
        (void)snprintf(ret_name, AGENT_FLIGHT_NAME_SIZE, "nccl:%s", name);
    } else if (entry->peer == TUTTI_COLL_ANY_SOURCE) {
        (void)snprintf(ret_name, AGENT_FLIGHT_NAME_SIZE, "nccl:recvAnySource");
    } else {
        (void)snprintf(ret_name, AGENT_FLIGHT_NAME_SIZE, "nccl:%s %" PRIu32 "%s%" PRIu32, name,
                       entry->group_rank, sends ? "->" : "<-", entry->peer);
    }
}
