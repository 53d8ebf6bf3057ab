/*
 * Do packets reach other ranks, and do their answers come back? A query about no group goes out as
 * any small packet of an op does; the report that comes back says so.
 *
 * A probe is made on any thread, pushed, and from then on is the engine's: it ends once, by its
 * last answer, its timer, or the end of the engine, calls on_done and frees itself.
 */
#include "coll/net/probe.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "coll/net/io.h"
#include "coll/net/peer.h"
#include "coll/packet/packet.h"
#include "coll/state/engine.h"
#include "coll/state/group.h"
#include "coll/state/inbox.h"

typedef struct coll_probe {
    tutti_coll_item item;
    tutti_list_node link; /* in the engine's */
    tutti_coll_engine *engine;
    uint64_t id;
    uint64_t wait_ns;
    uint64_t began_ns;
    tutti_timer timer;
    tutti_coll_probe_fn on_done;
    void *arg;
    size_t awaited;
    size_t count;
    tutti_coll_reach reaches[];
} coll_probe;

/* Why a rank has not answered, as far as this rank knows. */
static void
explain_probe(const coll_probe *self, tutti_coll_reach *reach)
{
    const coll_peer *peer = tutti_coll_peer_of(self->engine, reach->rank);

    if (peer == NULL) {
        (void)snprintf(reach->why, sizeof(reach->why), "no memory");
    } else if (peer->lost) {
        (void)snprintf(reach->why, sizeof(reach->why), "it is gone: %.150s", peer->reason);
    } else if (peer->address == NULL) {
        (void)snprintf(reach->why, sizeof(reach->why), "the coordinator has not told its address");
    } else if (peer->conn == NULL) {
        (void)snprintf(reach->why, sizeof(reach->why), "the connection to it broke");
    } else {
        (void)snprintf(reach->why, sizeof(reach->why), "no answer in %.3g s",
                       (double)(self->engine->now_ns - self->began_ns) / (double)TUTTI_NS_PER_S);
    }
}

static void
end_probe(coll_probe *self)
{
    size_t i;

    tutti_timers_stop(&self->engine->timers, &self->timer);
    tutti_list_remove(&self->link);
    for (i = 0; i < self->count; i++) {
        if (!self->reaches[i].reached) {
            explain_probe(self, &self->reaches[i]);
        }
    }
    self->on_done(self->arg, self->reaches, self->count);
    free(self);
}

static void
on_expiry(tutti_timer *timer)
{
    end_probe(tutti_container_of(timer, coll_probe, timer));
}

static void
run_probe(tutti_coll_engine *engine, tutti_coll_item *item)
{
    coll_probe *self = tutti_container_of(item, coll_probe, item);
    const tutti_packet packet = {.kind = TUTTI_PACKET_QUERY,
                                 .from = engine->rank,
                                 .job_id = engine->job_id,
                                 .incarnation = engine->incarnation,
                                 .group = NO_GROUP,
                                 .sequence = self->id};
    size_t i;

    self->began_ns = engine->now_ns;
    self->timer.on_expiry = on_expiry;
    tutti_list_add(&engine->probes, &self->link);
    /* With nothing to wait for it ends by its timer, too: the loop below still uses it. */
    tutti_timers_start(&engine->timers, &self->timer,
                       engine->ending || self->count == 0 ? engine->now_ns
                                                          : engine->now_ns + self->wait_ns);
    for (i = 0; i < self->count && !engine->ending; i++) {
        tutti_coll_note(engine, self->reaches[i].rank, &packet, NULL, 0);
    }
}

static void
recv_probe(coll_probe *self, uint32_t rank)
{
    size_t i;

    for (i = 0; i < self->count; i++) {
        tutti_coll_reach *reach = &self->reaches[i];

        if (reach->rank == rank && !reach->reached) {
            reach->reached = true;
            reach->trip_ns = tutti_clock_ns() - self->began_ns;
            self->awaited--;
        }
    }
    if (self->awaited == 0) {
        end_probe(self);
    }
}

void
tutti_coll_probe_heard(tutti_coll_engine *engine, const tutti_packet *report)
{
    tutti_list_node *link;

    for (link = engine->probes.next; link != &engine->probes; link = link->next) {
        coll_probe *self = tutti_container_of(link, coll_probe, link);

        if (self->id == report->sequence) {
            recv_probe(self, report->from);
            return;
        }
    }
}

void
tutti_coll_probes_end(tutti_coll_engine *engine)
{
    while (!tutti_list_empty(&engine->probes)) {
        end_probe(tutti_container_of(engine->probes.next, coll_probe, link));
    }
}

tutti_code
tutti_coll_probe(tutti_coll_engine *engine, const uint32_t *ranks, size_t count, uint64_t wait_ns,
                 tutti_coll_probe_fn on_done, void *arg, tutti_error *err)
{
    coll_probe *self = calloc(1, sizeof(*self) + count * sizeof(self->reaches[0]));
    bool stopping;
    size_t i;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a probe");
    }
    self->item.run = run_probe;
    tutti_list_init(&self->link);
    self->engine = engine;
    self->wait_ns = wait_ns;
    self->on_done = on_done;
    self->arg = arg;
    self->count = count;
    self->awaited = count;
    for (i = 0; i < count; i++) {
        self->reaches[i].rank = ranks[i];
    }
    (void)pthread_mutex_lock(&engine->lock);
    stopping = engine->stopping;
    self->id = ++engine->next_id;
    (void)pthread_mutex_unlock(&engine->lock);
    if (stopping) {
        free(self);
        return TUTTI_FAIL_FOR(err, TUTTI_UNAVAILABLE, "STOPPING", "this agent is stopping");
    }
    tutti_coll_engine_push(engine, &self->item);
    return TUTTI_OK;
}
