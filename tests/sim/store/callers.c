/* Who calls: clients one op after the other, holders of leases, and watchers, over connections that take time and break. */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "sim/store/stores_private.h"

/* ------------------------------------------------------------------------------ keys */

static void
write_key(uint32_t key, char ret_text[ROOM_KEY_MAX])
{
    const char letter = key <= KEY_LAST     ? 'k'
                        : key == KEY_DIGITS ? 'd'
                        : key == KEY_QUEUE  ? 'q'
                                            : 'l';

    (void)snprintf(ret_text, ROOM_KEY_MAX, "e%" PRIu64 "/%c%u", stores.era, letter, key);
}

/* ------------------------------------------------------------------------------ messages */

static uint64_t
draw_way(void)
{
    return sim_chance(20) ? sim_draw(LONG_WAY_NS) : sim_draw(WAY_NS);
}

void
stores_lose_connection(client *self)
{
    self->connection++;
    self->lost = true;
}

/* In order, as a connection has it. */
static void
send_to_room(client *self, void (*arrive)(void *arg, uint64_t number), room_call *call,
             uint64_t number)
{
    const uint64_t at_ns = sim_now_ns() + draw_way();

    self->sent_ns = at_ns > self->sent_ns ? at_ns : self->sent_ns;
    sim_at(self->sent_ns, arrive, call, number);
}

static void
arrive_cancel(void *arg, uint64_t number)
{
    room_call *call = arg;

    (void)number;
    if (stores.room != NULL) {
        room_cancel(stores.room, call);
    }
    room_call_unref(call);
}

/* The caller gives up, or its connection is gone: the room hears of it later. */
static void
leave_call(client *self)
{
    if (self->call != NULL) {
        send_to_room(self, arrive_cancel, self->call, 0); /* with the caller's reference */
        self->call = NULL;
    }
}

static void
arrive_request(void *arg, uint64_t connection)
{
    room_call *call = arg;
    client *self = call->owner;

    /* What was sent before a connection broke may have come. */
    if (connection == self->connection || sim_chance(2)) {
        if (stores.room == NULL || !room_receive(stores.room, call)) {
            if (connection == self->connection) {
                stores_lose_connection(self);
            }
        }
    }
    room_call_unref(call);
}

static void
arrive_answer(void *arg, uint64_t connection)
{
    room_call *call = arg;
    client *self = call->owner;

    if (self->connection == connection && self->call == call) {
        self->done = true;
    }
    room_call_unref(call);
}

static void
on_answer(room_call *call)
{
    const client *self = call->owner;

    call->refs++;
    sim_at(sim_now_ns() + draw_way(), arrive_answer, call, self->connection);
}

static bool
is_heard(void *arg)
{
    const client *self = arg;

    return self->done || self->lost;
}

bool
stores_is_up(void *arg)
{
    (void)arg;
    return stores.room != NULL && !room_is_dead(stores.room);
}

static room_call *
new_call(client *self, room_kind kind)
{
    room_call *call = room_call_new();

    call->kind = kind;
    call->owner = self;
    call->on_answer = on_answer;
    return call;
}

/* To the room, with a reference of the message's; the caller keeps its own as self->call. */
static void
send_call(client *self, room_call *call)
{
    self->call = call;
    self->called_ns = sim_now_ns();
    self->done = false;
    self->lost = false;
    call->refs++;
    send_to_room(self, arrive_request, call, self->connection);
}

/* True: it was answered. The call is then the caller's, to be given back by drop_call. */
static bool
call_once(client *self, room_call *call, uint64_t until_ns)
{
    if (!sim_wait(stores_is_up, NULL, until_ns)) {
        room_call_unref(call);
        return false;
    }
    send_call(self, call);
    (void)sim_wait(is_heard, self, until_ns);
    if (self->done) {
        return true;
    }
    if (!self->lost) {
        stores_lose_connection(self); /* it has waited long enough */
    }
    leave_call(self);
    return false;
}

static void
drop_call(client *self)
{
    room_call_unref(self->call);
    self->call = NULL;
}

/* ------------------------------------------------------------------------------ ops */

static bool
is_read(linear_kind kind)
{
    return kind == LINEAR_GET || kind == LINEAR_LENGTH || kind == LINEAR_GET_ALL ||
           kind == LINEAR_LOOK;
}

static bool
may_repeat(const linear_op *op)
{
    return is_read(op->kind) || op->token != 0;
}

static room_call *
op_call(client *self, const linear_op *op, uint64_t wait_ns)
{
    room_call *call = new_call(self, ROOM_OP);
    uint32_t i;

    call->op = *op;
    call->wait_ns = wait_ns;
    for (i = 0; i < op->key_count; i++) {
        write_key(op->keys[i], call->keys[i]);
    }
    (void)snprintf(call->prefix, sizeof(call->prefix), "e%" PRIu64 "/k", stores.era);
    return call;
}

static void
note_seen(const linear_op *op)
{
    uint32_t i;

    for (i = 0; i < op->key_count; i++) {
        stores.seen = op->versions[i] > stores.seen ? op->versions[i] : stores.seen;
    }
}

/* An error says that it has not happened. True: it is one that may be. */
static bool
may_fail(const room_call *call)
{
    switch (call->code) {
    case TUTTI_DEADLINE_EXCEEDED:
        return call->wait_ns > 0;
    case TUTTI_NOT_FOUND:
        return strcmp(call->reason, "NO_LEASE") == 0;
    case TUTTI_RESOURCE_EXHAUSTED:
    case TUTTI_DATA_LOSS:
        return stores.mode <= DISK_NONE && !stores.calm;
    case TUTTI_FAILED_PRECONDITION:
        return strcmp(call->reason, "WATCH_GAP") == 0;
    default:
        return false;
    }
}

static void
judge_code(const room_call *call)
{
    if (call->code != TUTTI_OK && !may_fail(call)) {
        sim_fail("client %u: code %d (%s) is none for what has befallen", call->op.client,
                 (int)call->code, call->reason);
    }
}

/* What is answered, and by whom, into the history: `at` is its place there. */
static void
keep_answer(const room_call *call, size_t at)
{
    linear_op *op = &stores.ops[at];
    const uint64_t begin = op->begin;
    char words[500];

    judge_code(call);
    *op = call->op;
    op->begin = begin;
    op->end = sim_now_ns();
    linear_say(op, words, sizeof(words));
    sim_note("%s %s", words, call->reason);
    if (call->code == TUTTI_OK) {
        note_seen(op);
    } else if (call->code == TUTTI_DEADLINE_EXCEEDED) {
        /* When its time was up there was nothing. */
        op->begin = ((const client *)call->owner)->called_ns + call->wait_ns;
        op->results[0] = LINEAR_ABSENT;
        op->refused = op->kind == LINEAR_GET_ALL;
        stores.counts.failed++;
    } else {
        op->key_count = 0; /* it has not happened */
        stores.counts.failed++;
    }
}

/* Returns whether it was answered. */
bool
stores_call_op(client *self, const linear_op *op, uint64_t wait_ns, tutti_code *ret_code)
{
    const uint64_t era = stores.era;
    const uint64_t until_ns = sim_now_ns() + GIVE_UP_NS;
    const size_t at = stores.op_count++;
    bool answered = false;
    bool again = true;

    assert(stores.op_count < OPS_LIMIT);
    stores.ops[at] = *op;
    stores.ops[at].client = self->number;
    stores.ops[at].begin = sim_now_ns();
    stores.ops[at].end = LINEAR_OPEN;
    stores.counts.calls++;
    while (!answered && again) {
        answered = call_once(self, op_call(self, &stores.ops[at], wait_ns), until_ns);
        again = era == stores.era && may_repeat(op) && sim_now_ns() < until_ns;
        if (!answered && again) {
            sim_sleep(sim_draw(20 * TUTTI_NS_PER_MS));
            again = era == stores.era;
        }
    }
    if (answered && era == stores.era) {
        keep_answer(self->call, at);
        *ret_code = self->call->code;
    } else if (era == stores.era && is_read(op->kind)) {
        stores.ops[at].key_count = 0;
    }
    if (answered) {
        drop_call(self);
    }
    return answered && era == stores.era;
}

void *
stores_run_client(void *arg)
{
    client *self = arg;
    tutti_code code;
    uint32_t i;

    for (i = 0; i < self->step_count; i++) {
        if (plan_plays(stores.op_mask, (self->number * 16 + i) % 64)) {
            sim_sleep(self->steps[i].think_ns);
            (void)stores_call_op(self, &self->steps[i].op, self->steps[i].wait_ns, &code);
        }
    }
    self->is_through = true;
    return NULL;
}

/* ------------------------------------------------------------------------------ leases */

/* One attempt, as an event of the lease. Without an answer it may be handled until the room is told that nobody waits. */
static bool
call_lease(client *self, held_lease *lease, room_kind kind, uint64_t ttl_ns)
{
    static const leases_kind kinds[] = {
        [ROOM_GRANT] = LEASES_GRANT, [ROOM_KEEP] = LEASES_KEEP, [ROOM_REVOKE] = LEASES_REVOKE};
    room_call *call = new_call(self, kind);
    const uint64_t begin_ns = sim_now_ns();
    leases_event *event;
    bool answered;

    call->lease = lease->id;
    call->ttl_ns = ttl_ns;
    answered = call_once(self, call, begin_ns + GIVE_UP_NS);
    if (lease->era != stores.era) {
        if (answered) {
            drop_call(self);
        }
        return false;
    }
    event = stores_add_event(lease, kinds[kind], begin_ns,
                             answered ? sim_now_ns() : sim_now_ns() + 2 * LONG_WAY_NS);
    event->ttl_ns = ttl_ns;
    event->answered = answered && self->call->code == TUTTI_OK;
    if (answered) {
        judge_code(self->call);
        sim_note("holder %u: %d of lease %" PRIx64 ": %s", self->number, (int)kind, lease->id,
                 self->call->code == TUTTI_OK ? "ok" : self->call->reason);
        if (self->call->code == TUTTI_NOT_FOUND) {
            event->kind = LEASES_MISSED;
            event->answered = true;
        } else if (self->call->code != TUTTI_OK && kind != ROOM_REVOKE) {
            lease->count--; /* it has not happened; of a revocation the rest happens later */
        }
        answered = self->call->code == TUTTI_OK;
        drop_call(self);
    }
    return answered;
}

static bool
grant(holder *self, held_lease *lease, uint64_t ttl_ns)
{
    uint32_t i;

    *lease = (held_lease){.id = tutti_id_draw(), .era = stores.era, .begin_ns = sim_now_ns()};
    for (i = 0; i < 5 && !lease->granted && lease->era == stores.era; i++) {
        lease->granted = call_lease(&self->client, lease, ROOM_GRANT, ttl_ns);
        if (!lease->granted) {
            lease->count = 0; /* it may have been granted: the time of the next one counts */
        }
    }
    return lease->granted;
}

static bool
set_leased(holder *self, held_lease *lease, uint32_t key, int64_t value)
{
    linear_op op = {.kind = LINEAR_SET, .keys = {key}, .key_count = 1, .lease = lease->id};
    const uint64_t begin_ns = sim_now_ns();
    tutti_code code = TUTTI_OK;

    op.values[0] = value;
    if (!stores_call_op(&self->client, &op, 0, &code) || lease->era != stores.era) {
        return lease->era == stores.era;
    }
    if (code == TUTTI_NOT_FOUND) {
        (void)stores_add_event(lease, LEASES_MISSED, begin_ns, sim_now_ns());
    }
    return code == TUTTI_OK;
}

/* So many keys that they go in several slices. */
static void
set_many(holder *self, held_lease *lease, uint32_t number)
{
    tutti_code code = TUTTI_OK;
    uint32_t i;
    uint32_t k;

    lease->has_many = true;
    for (i = 0; i < MANY && lease->era == stores.era; i += LINEAR_KEYS_MAX) {
        linear_op op = {.kind = LINEAR_SET_ALL, .key_count = LINEAR_KEYS_MAX, .lease = lease->id};

        for (k = 0; k < LINEAR_KEYS_MAX; k++) {
            op.keys[k] = KEY_MANY + number * MANY + i + k;
            op.values[k] = (int64_t)sim_draw(1000);
        }
        (void)stores_call_op(&self->client, &op, 0, &code);
    }
}

/* Hold it for a while: the key is set, the lease is kept, and now and then late. */
static void
hold(holder *self, held_lease *lease, uint32_t number)
{
    const uint64_t ttl_ns = (1 + sim_draw(2)) * TUTTI_NS_PER_S;
    const uint32_t key = KEY_LEASED + number;
    uint32_t rounds = (uint32_t)sim_draw(5);

    if (!grant(self, lease, ttl_ns) || lease->era != stores.era ||
        !set_leased(self, lease, key, (int64_t)sim_draw(1000))) {
        return;
    }
    if (lease->era == stores.era && sim_chance(3)) {
        set_many(self, lease, number);
    }
    while (rounds-- > 0 && lease->era == stores.era) {
        sim_sleep(sim_chance(5) ? ttl_ns - 50 * TUTTI_NS_PER_MS + sim_draw(100 * TUTTI_NS_PER_MS)
                                : sim_draw(ttl_ns / 2));
        (void)call_lease(&self->client, lease, ROOM_KEEP, 0);
        if (lease->era == stores.era && sim_chance(3)) {
            (void)set_leased(self, lease, key, (int64_t)sim_draw(1000));
        }
    }
    if (lease->era == stores.era && sim_chance(3)) {
        (void)call_lease(&self->client, lease, ROOM_REVOKE, 0);
    }
}

void *
stores_run_holder(void *arg)
{
    holder *self = arg;
    const uint32_t number = (uint32_t)(self - stores.holders);
    const uint32_t count = 1 + (uint32_t)sim_draw(HELD_MAX);

    while (self->count < count) {
        sim_sleep(sim_draw(500 * TUTTI_NS_PER_MS));
        hold(self, &self->leases[self->count++], number);
    }
    self->client.is_through = true;
    return NULL;
}

/* Was it kept so that it could not have ended at this time? */
static bool
surely_lives(const held_lease *lease, uint64_t at_ns)
{
    bool lives = false;
    uint64_t ttl_ns = 0;
    size_t i;

    for (i = 0; i < lease->count; i++) {
        const leases_event *one = &lease->events[i];

        ttl_ns = one->kind == LEASES_GRANT ? one->ttl_ns : ttl_ns;
        if ((one->kind == LEASES_GRANT || one->kind == LEASES_KEEP) && one->answered) {
            lives = one->begin_ns + ttl_ns > at_ns;
        } else if (one->kind == LEASES_REVOKE || one->kind == LEASES_GONE ||
                   one->kind == LEASES_MISSED) {
            return false;
        }
    }
    return lives;
}

/*
 * Their time may begin anew now, or until a while later.
 *
 * [in] died_ns  of a coordinator that was started again: leases that lived then have their whole time. Else SIM_NEVER
 */
void
stores_restart_leases(uint64_t died_ns, uint64_t begin_ns, uint64_t later_ns)
{
    uint32_t i;
    uint32_t k;

    for (i = 0; i < stores.holder_count; i++) {
        for (k = 0; k < stores.holders[i].count; k++) {
            held_lease *lease = &stores.holders[i].leases[k];

            if (lease->era == stores.era && lease->count > 0) {
                const bool lives = surely_lives(lease, died_ns);

                stores_add_event(lease, LEASES_RESTART, begin_ns, sim_now_ns() + later_ns)
                    ->answered = lives;
            }
        }
    }
}

/* ------------------------------------------------------------------------------ watches */

/* As libtutti keeps its place. */
static void
keep_place(watcher *self, const watches_change *change)
{
    if (change->kind == WATCHES_BEGUN) {
        if (!self->resumes) {
            self->from = change->version + 1;
            self->skip = 0;
        }
        self->resumes = true;
        return;
    }
    self->skip = change->version == self->from ? self->skip + 1 : 1;
    self->from = change->version;
}

static void
hear(watcher *self, const room_told *told)
{
    watches_change *kept = &self->told[self->told_count];

    if (told->is_over) {
        self->resumes = self->resumes && strcmp(told->call->reason, "SLOW_WATCHER") != 0;
        self->ended = true;
        return;
    }
    assert(self->told_count + 1 < TOLD_LIMIT);
    *kept = told->change;
    kept->at_ns = sim_now_ns();
    kept->floor = self->floor;
    if (kept->kind == WATCHES_BEGUN && self->resumes) {
        kept->kind = WATCHES_RESUMED;
    }
    if (kept->kind == WATCHES_BEGUN) {
        self->history = told->call->history;
    }
    sim_note("watcher of \"%s\": %d %s = %lld at %" PRIu64, self->prefix, (int)kept->kind,
             kept->key, (long long)kept->value, kept->version);
    self->told_count++;
    keep_place(self, &told->change);
}

static void
arrive_written(void *arg, uint64_t number)
{
    room_call *call = arg;

    (void)number;
    if (stores.room != NULL) {
        room_written(stores.room, call);
    }
    room_call_unref(call);
}

static void
arrive_told(void *arg, uint64_t connection)
{
    room_told *told = arg;
    room_call *call = told->call;
    watcher *self = tutti_container_of((client *)call->owner, watcher, client);

    if (self->client.connection == connection && self->client.call == call &&
        self->era == stores.era) {
        hear(self, told);
        sim_at(sim_now_ns() + draw_way(), arrive_written, call, 0); /* with told's reference */
    } else {
        room_call_unref(call);
    }
    free(told);
}

/* In order, as a connection has it. */
static void
on_told(room_told *told)
{
    client *self = told->call->owner;
    const uint64_t at_ns = sim_now_ns() + draw_way();

    self->arrived_ns = at_ns > self->arrived_ns ? at_ns : self->arrived_ns;
    sim_at(self->arrived_ns, arrive_told, told, self->connection);
}

static bool
is_watch_over(void *arg)
{
    const watcher *self = arg;

    return self->client.done || self->client.lost || self->ended || self->stop;
}

static void
open_watch(watcher *self)
{
    room_call *call = new_call(&self->client, ROOM_WATCH);

    self->resumes = self->resumes && self->era == stores.era;
    self->era = stores.era;
    self->floor = stores.seen;
    self->ended = false;
    (void)snprintf(self->prefix, sizeof(self->prefix), "e%" PRIu64 "/%s", stores.era,
                   self->letters);
    memcpy(call->prefix, self->prefix, sizeof(call->prefix));
    call->on_told = on_told;
    call->resumes = self->resumes;
    call->place = (tutti_coordinator_watch_place){self->history, self->from, self->skip};
    send_call(&self->client, call);
}

void *
stores_run_watcher(void *arg)
{
    watcher *self = arg;

    while (!self->stop) {
        sim_sleep(sim_draw(10 * TUTTI_NS_PER_MS));
        if (!sim_wait(stores_is_up, NULL, sim_now_ns() + TUTTI_NS_PER_S)) {
            continue;
        }
        open_watch(self);
        (void)sim_wait(is_watch_over, self, SIM_NEVER);
        if (self->client.done) {
            judge_code(self->client.call);
            self->resumes = false; /* WATCH_GAP */
        }
        self->client.connection++;
        leave_call(&self->client);
    }
    self->client.is_through = true;
    return NULL;
}
