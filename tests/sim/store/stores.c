/*
 * The judges, and what they ask:
 *   answers     what clients were told is linearizable, tokens count once, and versions grow (linear.h)
 *   watches     are told each change under their prefix once and in order, over all streams (watches.h)
 *   leases      end neither early nor late, and for good (leases.h)
 *   durability  what an answer tells of is there after a crash, as the mode promises; and what is there is what the store
 *               had at one of its versions
 *   the end     nothing is left: no lease, no key of one, no call, no watch
 *
 * When a crash has cost answers as the mode allows (an era ends), all is judged up to there, and clients go on with other keys.
 */
#include "sim/store/stores.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/config.h"
#include "base/data/id.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "sim/store/stores_private.h"

stores_state stores;

/* ------------------------------------------------------------------------------ what befalls it */

static void
lose_connections(bool all)
{
    uint32_t i;

    for (i = 0; i < stores.client_count; i++) {
        if (all || sim_chance(2)) {
            stores_lose_connection(&stores.clients[i]);
        }
    }
    for (i = 0; i < stores.watcher_count; i++) {
        if (all || sim_chance(2)) {
            stores_lose_connection(&stores.watchers[i].client);
        }
    }
    for (i = 0; i < stores.holder_count; i++) {
        if (all || sim_chance(2)) {
            stores_lose_connection(&stores.holders[i].client);
        }
    }
}

static void
thaw(void *arg, uint64_t number)
{
    (void)arg;
    (void)number;
    sim_freeze(ROOM_PROCESS, false);
    stores_restart_leases(SIM_NEVER, sim_now_ns(), 0); /* its own silence does not count */
}

static void
repair(void *arg, uint64_t number)
{
    (void)arg;
    (void)number;
    disk_repair(stores.disk);
    stores_restart_leases(SIM_NEVER, sim_now_ns(),
                          AGAIN_NS); /* it asks the store again then to delete their keys */
}

static void
kill_room(bool with_power)
{
    if (stores.room != NULL && !room_is_dead(stores.room)) {
        stores_judge_answered();
        room_kill(stores.room);
    }
    if (with_power) {
        disk_cut_power(stores.disk);
        stores.power_was_cut = true;
    }
}

static void
kill_now(void *arg, uint64_t number)
{
    (void)arg;
    (void)number;
    if (!stores.calm) {
        sim_note("... now");
        kill_room(false);
    }
}

#define SOON_NS (30 * TUTTI_NS_PER_US)
#define SOON_CHANGES 20

void
stores_kill_soon(void)
{
    sim_at(sim_now_ns() + sim_draw(SOON_NS), kill_now, NULL, 0);
}

static void
befall(void *arg, uint64_t number)
{
    static const char *const names[TROUBLES] = {
        [TROUBLE_KILL] = "the process is killed",
        [TROUBLE_KILL_AT_CHANGE] = "the process is killed at a change",
        [TROUBLE_POWER] = "the power is cut",
        [TROUBLE_STOP] = "the process stops",
        [TROUBLE_DISK_FULL] = "the disk is full",
        [TROUBLE_DISK_FAILS] = "the disk fails",
        [TROUBLE_DISK_SLOW] = "the disk is slow",
        [TROUBLE_CONNECTIONS] = "connections break",
    };
    const trouble *now = &stores.troubles[number];

    (void)arg;
    if (stores.calm) {
        return;
    }
    sim_note("%s, %.3f ms", names[now->kind], (double)now->span_ns / 1e6);
    stores.counts.faults++;
    switch (now->kind) {
    case TROUBLE_KILL:
    case TROUBLE_POWER:
        kill_room(now->kind == TROUBLE_POWER);
        break;
    case TROUBLE_KILL_AT_CHANGE:
        stores.kill_at = 1 + sim_draw(SOON_CHANGES);
        break;
    case TROUBLE_STOP:
        sim_freeze(ROOM_PROCESS, true);
        sim_at(sim_now_ns() + now->span_ns, thaw, NULL, 0);
        break;
    case TROUBLE_DISK_SLOW:
        disk_slow(stores.disk, now->span_ns / 4);
        sim_at(sim_now_ns() + now->span_ns, repair, NULL, 0);
        break;
    case TROUBLE_CONNECTIONS:
        lose_connections(false);
        break;
    default:
        disk_fail(stores.disk, now->kind == TROUBLE_DISK_FULL);
        sim_at(sim_now_ns() + now->span_ns, repair, NULL, 0);
        break;
    }
}

/* ------------------------------------------------------------------------------ the supervisor */

static bool
must_restart(void *arg)
{
    (void)arg;
    return stores.ending || room_is_dead(stores.room);
}

static bool
start_room(void)
{
    stores.room = room_open(stores.disk, &stores.options);
    if (stores.room == NULL) {
        return false;
    }
    sim_note("a coordinator starts, at version %" PRIu64,
             tutti_store_version(room_store(stores.room)));
    return true;
}

static void
look_at_disk(void)
{
    tutti_store *store = disk_look(stores.disk);
    const uint64_t version = tutti_store_version(store);

    stores_judge_loss(version);
    stores_judge_contents(store);
    tutti_store_close(store);
    if (version < stores.answered ||
        stores.mode == DISK_MEMORY) { /* leases are in no version there */
        stores_end_era();
        stores.answered = version;
    }
    stores_forget_behind(version);
    stores.power_was_cut = false;
}

static void
restart_room(void)
{
    uint64_t begin_ns;

    do {
        sim_sleep(sim_draw(sim_chance(4) ? 3 * TUTTI_NS_PER_S : 200 * TUTTI_NS_PER_MS));
        look_at_disk();
        begin_ns = sim_now_ns();
    } while (!start_room());
    if (stores.power_was_cut) { /* while it opened its store */
        room_kill(stores.room);
    }
    stores_restart_leases(stores.down_since_ns, begin_ns, 0);
}

static void *
run_supervisor(void *arg)
{
    (void)arg;
    for (;;) {
        room *old = stores.room;

        (void)sim_wait(must_restart, NULL, SIM_NEVER);
        if (stores.ending) {
            return NULL;
        }
        stores.down_since_ns = sim_now_ns();
        stores_judge_answered();
        stores.room = NULL;
        sim_freeze(ROOM_PROCESS, false);
        lose_connections(true);
        room_free(old);
        restart_room();
    }
}

/* ------------------------------------------------------------------------------ the plan */

static linear_kind
draw_kind(uint32_t key)
{
    static const linear_kind plain[] = {LINEAR_GET,  LINEAR_GET,     LINEAR_SET,     LINEAR_ADD,
                                        LINEAR_ADD,  LINEAR_SWAP,    LINEAR_SWAP,    LINEAR_DELETE,
                                        LINEAR_TAKE, LINEAR_SET_ALL, LINEAR_GET_ALL, LINEAR_LOOK};
    static const linear_kind digits[] = {LINEAR_APPEND, LINEAR_GET};
    static const linear_kind leased[] = {LINEAR_GET, LINEAR_GET, LINEAR_ADD, LINEAR_SET};
    static const linear_kind queue[] = {LINEAR_PUSH, LINEAR_PUSH, LINEAR_POP, LINEAR_POP,
                                        LINEAR_LENGTH};

    return key == KEY_DIGITS   ? digits[sim_draw(2)]
           : key == KEY_QUEUE  ? queue[sim_draw(5)]
           : key >= KEY_LEASED ? leased[sim_draw(sim_chance(3) ? 4 : 2)]
                               : plain[sim_draw(12)];
}

static bool
has_token(linear_kind kind)
{
    return kind == LINEAR_ADD || kind == LINEAR_APPEND || kind == LINEAR_PUSH ||
           kind == LINEAR_POP || kind == LINEAR_TAKE;
}

static void
draw_step(step *self, int64_t unique, uint32_t *digits)
{
    uint32_t key = sim_chance(3) ? KEY_QUEUE : (uint32_t)sim_draw(KEYS);
    linear_op *op = &self->op;
    uint32_t i;

    key = key == KEY_DIGITS && *digits == 0 ? 0 : key;
    *digits -= key == KEY_DIGITS ? 1 : 0;
    op->kind = draw_kind(key);
    op->key_count = op->kind == LINEAR_LOOK                                    ? 4
                    : op->kind == LINEAR_SET_ALL || op->kind == LINEAR_GET_ALL ? 2
                                                                               : 1;
    op->keys[0] = op->key_count > 1 ? 0 : key;
    for (i = 0; i < op->key_count; i++) {
        op->keys[i] = i == 0 ? op->keys[0] : i;
        op->values[i] = unique * 10 + i;
    }
    if (op->kind == LINEAR_ADD || op->kind == LINEAR_APPEND) {
        op->values[0] = 1 + (int64_t)sim_draw(9);
    }
    op->expected = sim_chance(2) ? LINEAR_ABSENT : (int64_t)sim_draw(15);
    op->token = has_token(op->kind) ? tutti_id_draw() : 0;
    self->think_ns =
        sim_chance(8) ? sim_draw(300 * TUTTI_NS_PER_MS) : sim_draw(10 * TUTTI_NS_PER_MS);
    self->wait_ns =
        (op->kind == LINEAR_TAKE || op->kind == LINEAR_POP || op->kind == LINEAR_GET_ALL) &&
                sim_chance(2)
            ? sim_draw(500 * TUTTI_NS_PER_MS)
            : 0;
}

static void
draw_trouble(trouble *self)
{
    self->kind = (trouble_kind)sim_draw(TROUBLES);
    self->at_ns = sim_draw(sim_chance(2) ? 400 * TUTTI_NS_PER_MS : 3 * TUTTI_NS_PER_S);
    self->span_ns = sim_chance(3) ? sim_draw(STOP_NS_MAX) : sim_draw(300 * TUTTI_NS_PER_MS);
}

static void
load_options(void)
{
    const tutti_option_set set = tutti_coordinator_option_set(&stores.options);
    char name[] = "sim";
    char *argv[] = {name};
    tutti_config *config = NULL;
    tutti_config_wish wish;
    tutti_error err;

    if (tutti_config_load(&set, 1, 1, argv, &config, &wish, &err) != TUTTI_OK) {
        sim_fail("options: %s", err.text);
    }
    tutti_config_free(config); /* texts of options are not used */
    stores.options.host_id = "";
    stores.options.durable = stores.mode != DISK_MEMORY;
    stores.options.watch_changes_limit = sim_chance(4) ? 3 : stores.options.watch_changes_limit;
}

static void
draw_all(void)
{
    static const char *const letters[] = {"", "k", "k1", "l", "d", "k"};
    uint32_t digits = 15;
    uint32_t i;
    uint32_t k;

    stores.mode = (disk_mode)sim_draw(DISK_MODES);
    load_options();
    stores.client_count = 1 + (uint32_t)sim_draw(CLIENTS_MAX);
    for (i = 0; i < stores.client_count; i++) {
        client *self = &stores.clients[i];

        self->number = i;
        self->step_count = 5 + (uint32_t)sim_draw(CLIENT_OPS_MAX - 5);
        for (k = 0; k < self->step_count; k++) {
            draw_step(&self->steps[k], 1000 + (int64_t)(i * CLIENT_OPS_MAX + k), &digits);
        }
    }
    stores.watcher_count = (uint32_t)sim_draw(WATCHERS_MAX + 1);
    for (i = 0; i < stores.watcher_count; i++) {
        stores.watchers[i].client.number = 10 + i;
        (void)snprintf(stores.watchers[i].letters, sizeof(stores.watchers[i].letters), "%s",
                       letters[sim_draw(6)]);
    }
    stores.holder_count = (uint32_t)sim_draw(HOLDERS_MAX + 1);
    for (i = 0; i < stores.holder_count; i++) {
        stores.holders[i].client.number = 20 + i;
    }
    stores.trouble_count = sim_chance(5) ? 0 : 1 + (uint32_t)sim_draw(FAULTS_MAX);
    for (i = 0; i < stores.trouble_count; i++) {
        draw_trouble(&stores.troubles[i]);
    }
}

/* ------------------------------------------------------------------------------ from begin to end */

static bool
are_through(void *arg)
{
    uint32_t i;

    (void)arg;
    for (i = 0; i < stores.client_count; i++) {
        if (!stores.clients[i].is_through) {
            return false;
        }
    }
    for (i = 0; i < stores.holder_count; i++) {
        if (!stores.holders[i].client.is_through) {
            return false;
        }
    }
    return true;
}

static void
start_all(void)
{
    uint32_t i;

    for (i = 0; i < stores.trouble_count; i++) {
        if (plan_plays(stores.fault_mask, i)) {
            sim_at(sim_now_ns() + stores.troubles[i].at_ns, befall, NULL, i);
        }
    }
    for (i = 0; i < stores.client_count; i++) {
        stores.clients[i].task = sim_task_new(SIM_DRIVER, stores_run_client, &stores.clients[i]);
    }
    for (i = 0; i < stores.watcher_count; i++) {
        stores.watchers[i].client.task =
            sim_task_new(SIM_DRIVER, stores_run_watcher, &stores.watchers[i]);
    }
    for (i = 0; i < stores.holder_count; i++) {
        stores.holders[i].client.task =
            sim_task_new(SIM_DRIVER, stores_run_holder, &stores.holders[i]);
    }
}

static void
read_all(client *self)
{
    tutti_code code = TUTTI_OK;
    uint32_t key;

    for (key = 0; key < KEYS; key++) {
        linear_op op = {
            .kind = key == KEY_QUEUE ? LINEAR_POP : LINEAR_GET, .keys = {key}, .key_count = 1};
        bool more = true;

        while (more) {
            op.token = key == KEY_QUEUE ? tutti_id_draw() : 0;
            if (!stores_call_op(self, &op, 0, &code) || code != TUTTI_OK) {
                sim_fail("all is well, and key %u cannot be read", key);
            }
            more = key == KEY_QUEUE && stores.ops[stores.op_count - 1].results[0] != LINEAR_ABSENT;
        }
    }
}

/* All leases are over by now, and nobody calls any more. */
static void
judge_rest(void)
{
    const tutti_coordinator *core = room_core(stores.room);

    if (core->leases.count > 0 || core->leased.count > 0) {
        sim_fail("%zu leases and %zu keys of leases are left over", core->leases.count,
                 core->leased.count);
    }
    if (core->parked > 0 || core->watcher_count > 0 || core->waiter_count > 0 ||
        core->watch_bytes > 0 || core->wait_bytes > 0 || core->takers.count > 0 ||
        core->take_tokens.count > 0 || core->wanted.count > 0) {
        sim_fail("%zu calls are left over, %zu of them watches", core->parked, core->watcher_count);
    }
}

static void
heal(void)
{
    stores.calm = true;
    stores.kill_at = 0;
    repair(NULL, 0);
    if (sim_frozen(ROOM_PROCESS)) {
        thaw(NULL, 0);
    }
    sim_sleep(TUTTI_NS_PER_S);
    (void)sim_wait(stores_is_up, NULL, SIM_NEVER);
    sim_sleep(5 * TUTTI_NS_PER_S); /* events of faults that were under way are over */
    (void)sim_wait(stores_is_up, NULL, SIM_NEVER);
}

static void
stop_watchers(void)
{
    uint32_t i;

    for (i = 0; i < stores.watcher_count; i++) {
        stores.watchers[i].stop = true;
        sim_task_join(stores.watchers[i].client.task);
    }
}

static void *
run_all(void *arg)
{
    sim_task *supervisor;
    uint32_t i;

    (void)arg;
    (void)start_room();
    supervisor = sim_task_new(SIM_DRIVER, run_supervisor, NULL);
    start_all();
    (void)sim_wait(are_through, NULL, SIM_NEVER);
    for (i = 0; i < stores.client_count; i++) {
        sim_task_join(stores.clients[i].task);
    }
    for (i = 0; i < stores.holder_count; i++) {
        sim_task_join(stores.holders[i].client.task);
    }
    heal();
    read_all(&stores.clients[0]);
    sim_sleep(TUTTI_NS_PER_S);
    stores_judge_answered();
    stores_judge_answers();
    stores_judge_watches(true);
    stores_judge_leases();
    stop_watchers();
    sim_sleep(TUTTI_NS_PER_S);
    judge_rest();
    stores_judge_leftovers(room_store(stores.room));
    stores.ending = true;
    sim_task_join(supervisor);
    room_free(stores.room);
    return NULL;
}

static void
allocate(void)
{
    stores.watchers = calloc(WATCHERS_MAX, sizeof(watcher));
    stores.holders = calloc(HOLDERS_MAX, sizeof(holder));
    stores.ops = calloc(OPS_LIMIT, sizeof(linear_op));
    stores.changes = calloc(CHANGES_LIMIT, sizeof(watches_change));
    stores.change_leases = calloc(CHANGES_LIMIT, sizeof(uint64_t));
    stores.raws = calloc(CHANGES_LIMIT, sizeof(raw_change));
    assert(stores.watchers != NULL && stores.holders != NULL && stores.ops != NULL &&
           stores.changes != NULL && stores.change_leases != NULL && stores.raws != NULL);
}

static void
release(void)
{
    stores_forget_behind(0);
    disk_free(stores.disk);
    free(stores.watchers);
    free(stores.holders);
    free(stores.ops);
    free(stores.changes);
    free(stores.change_leases);
    free(stores.raws);
}

void
stores_play(uint64_t seed, uint64_t ops, uint64_t faults, bool print, play_counts *ret_counts)
{
    memset(&stores, 0, sizeof(stores));
    sim_open(seed, print);
    allocate();
    stores.op_mask = ops;
    stores.fault_mask = faults;
    draw_all();
    stores.disk = disk_new(stores.mode, stores_on_change);
    sim_run(sim_task_new(SIM_DRIVER, run_all, NULL));
    stores.counts.virtual_ns = sim_now_ns() - TUTTI_NS_PER_S;
    stores.counts.hash = sim_hash();
    *ret_counts = stores.counts;
    sim_close();
    release();
}
