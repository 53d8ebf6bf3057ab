/*
 * The map has the events whose client is there; one that ops still use when it goes is in no map and
 * lives by their references. It counts until then, so a client that comes and goes cannot make more
 * than the limit.
 */
#include "server/agent/state/events.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "server/agent/state/state.h"

void
agent_events_init(agent_events *events)
{
    (void)pthread_mutex_init(&events->lock, NULL); /* cannot fail on Linux */
    tutti_map_init(&events->by_id);
}

void
agent_events_fini(agent_events *events)
{
    (void)pthread_mutex_destroy(&events->lock);
}

static bool
count_event_in(agent_events *events)
{
    bool fits;

    (void)pthread_mutex_lock(&events->lock);
    fits = events->count < AGENT_EVENTS_MAX;
    events->count += fits ? 1 : 0;
    (void)pthread_mutex_unlock(&events->lock);
    return fits;
}

static void
count_event_out(agent_events *events)
{
    (void)pthread_mutex_lock(&events->lock);
    events->count--;
    (void)pthread_mutex_unlock(&events->lock);
}

/* Numbers are drawn again until one is free: in practice once. */
static void
name_event(agent_events *events, agent_event *event)
{
    (void)pthread_mutex_lock(&events->lock);
    do {
        event->id = tutti_id_draw();
        event->node.key = tutti_map_key_u64(event->key, event->id);
    } while (event->id == 0 || tutti_map_add(&events->by_id, &event->node) != NULL);
    (void)pthread_mutex_unlock(&events->lock);
}

tutti_code
agent_event_new(tutti_agent *agent, tutti_space *space, agent_event **ret_event, tutti_error *err)
{
    agent_event *event;
    tutti_code code = TUTTI_OK;

    if (!count_event_in(&agent->events)) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "EVENT_LIMIT",
                              "the agent has %d events of CUDA, the limit: end streams of "
                              "ShareEvents",
                              AGENT_EVENTS_MAX);
    }
    event = calloc(1, sizeof(*event));
    if (event == NULL) {
        code = TUTTI_FAIL_MEMORY(err, "no memory for an event");
    } else {
        code = agent->devices.cuda->event_open(space, &event->event, event->handle, err);
    }
    if (code != TUTTI_OK) {
        count_event_out(&agent->events);
        free(event);
        return code;
    }
    event->agent = agent;
    event->space = space;
    atomic_init(&event->refs, 1);
    name_event(&agent->events, event);
    *ret_event = event;
    return TUTTI_OK;
}

void
agent_event_leave(agent_event *event)
{
    agent_events *events = &event->agent->events;

    (void)pthread_mutex_lock(&events->lock);
    tutti_map_remove(&events->by_id, &event->node);
    (void)pthread_mutex_unlock(&events->lock);
    atomic_store(&event->left, true);
    agent_event_unref(event);
}

tutti_code
agent_event_find(tutti_agent *agent, uint64_t id, agent_event **ret_event, tutti_error *err)
{
    unsigned char key[8];
    tutti_map_node *node;

    (void)pthread_mutex_lock(&agent->events.lock);
    node = tutti_map_find(&agent->events.by_id, tutti_map_key_u64(key, id));
    if (node != NULL) {
        *ret_event = tutti_container_of(node, agent_event, node);
        atomic_fetch_add(&(*ret_event)->refs, 1);
    }
    (void)pthread_mutex_unlock(&agent->events.lock);
    return node != NULL ? TUTTI_OK
                        : TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_EVENT",
                                         "there is no event %" PRIu64 ": rank %" PRIu32
                                         " has made none of that number, or the stream of "
                                         "ShareEvents has ended",
                                         id, agent->rank);
}

void
agent_event_unref(agent_event *event)
{
    if (event == NULL || atomic_fetch_sub(&event->refs, 1) > 1) {
        return;
    }
    event->agent->devices.cuda->event_close(event->space, event->event);
    count_event_out(&event->agent->events);
    free(event);
}
