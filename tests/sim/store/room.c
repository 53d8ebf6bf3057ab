#include "sim/store/room.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/coordinator/core/core.h"
#include "sim/kernel.h"

struct room {
    sim_disk *disk;
    tutti_store *store;
    tutti_coordinator *core;
    sim_task *task;
    tutti_list_node inbox;   /* calls that have come */
    tutti_list_node open;    /* calls that were handled and have no answer that left */
    tutti_list_node gone;    /* of which the caller has gone */
    tutti_list_node held;    /* calls whose answer waits for the store */
    tutti_list_node told;    /* what watches are told, likewise: with numbers */
    tutti_list_node written; /* watches whose message was read */
    bool settled;            /* a batch of the store is over */
    bool ending;
    bool dead;
    uint64_t answered;
    uint64_t number;
};

typedef struct held_told {
    tutti_list_node link;
    uint64_t number;
    room_told *told;
} held_told;

static const room_call *handling;
static uint64_t rooms; /* counts them */

const room_call *
room_handling(void)
{
    return handling;
}

/* ------------------------------------------------------------------------------ calls */

room_call *
room_call_new(void)
{
    room_call *self = calloc(1, sizeof(*self));

    assert(self != NULL);
    self->refs = 1;
    tutti_list_init(&self->link);
    tutti_list_init(&self->open);
    tutti_list_init(&self->held);
    return self;
}

void
room_call_unref(room_call *call)
{
    if (--call->refs == 0) {
        free(call);
    }
}

/* ------------------------------------------------------------------------------ the gate */

static void
leave_open(room_call *call)
{
    tutti_list_remove(&call->held);
    tutti_list_remove(&call->open);
    room_call_unref(call);
}

static void
let_out(room *self, uint64_t number)
{
    self->answered = number > self->answered ? number : self->answered;
}

static void
open_gate(room *self)
{
    const uint64_t durable = tutti_store_durable(self->store);
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &self->told)
    {
        held_told *one = tutti_container_of(link, held_told, link);

        if (!self->dead && one->number <= durable) {
            tutti_list_remove(&one->link);
            let_out(self, one->number);
            one->told->call->on_told(one->told);
            free(one);
        }
    }
    tutti_list_each(link, spare, &self->held)
    {
        room_call *call = tutti_container_of(link, room_call, held);

        if (!self->dead && call->number <= durable) {
            let_out(self, call->number);
            call->on_answer(call);
            leave_open(call);
        }
    }
}

/* What is known now is in the store's present version. */
static void
answer(room_call *call, tutti_code code, const tutti_error *err)
{
    room *self = call->room;

    call->code = code;
    (void)snprintf(call->reason, sizeof(call->reason), "%s", code == TUTTI_OK ? "" : err->reason);
    call->number = tutti_store_version(self->store);
    call->is_parked = false;
    tutti_list_add(&self->held, &call->held);
}

static void
tell(room_call *call, const watches_change *change, bool is_over)
{
    room *self = call->room;
    held_told *one = calloc(1, sizeof(*one));
    room_told *told = calloc(1, sizeof(*told));

    assert(one != NULL && told != NULL);
    *told = (room_told){.call = call, .change = *change, .is_over = is_over};
    call->refs++;
    *one = (held_told){.number = tutti_store_version(self->store), .told = told};
    tutti_list_add(&self->told, &one->link);
}

/* ------------------------------------------------------------------------------ what is answered at once */

static int64_t
read_number(tutti_bytes value)
{
    char text[32];
    const size_t size = value.size < sizeof(text) ? value.size : sizeof(text) - 1;

    memcpy(text, value.data, size);
    text[size] = '\0';
    return strtoll(text, NULL, 10);
}

static void
take_entry(room_call *call, uint32_t i, const tutti_store_entry *entry)
{
    call->op.results[i] = read_number(entry->value);
    call->op.versions[i] = entry->version;
}

static tutti_coordinator_key
key_of(const room_call *call)
{
    return (tutti_coordinator_key){NULL, tutti_bytes_of(call->keys[0])};
}

/* There is no key is an answer like any other. */
static tutti_code
as_absent(room_call *call, tutti_code code)
{
    if (code == TUTTI_NOT_FOUND) {
        call->op.results[0] = LINEAR_ABSENT;
        return TUTTI_OK;
    }
    return code;
}

static tutti_code
do_get(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_key key = key_of(call);
    tutti_store_entry entry = {0};
    const tutti_code code = tutti_coordinator_key_get(core, &key, &entry, err);

    if (code == TUTTI_OK) {
        take_entry(call, 0, &entry);
    }
    return as_absent(call, code);
}

static tutti_bytes
text_of(int64_t value, char text[32])
{
    (void)snprintf(text, 32, "%lld", (long long)value);
    return tutti_bytes_of(text);
}

static tutti_code
do_set(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_key key = key_of(call);
    char text[32];

    return tutti_coordinator_key_set_leased(core, &key, text_of(call->op.values[0], text),
                                            call->op.lease, &call->op.versions[0], err);
}

static tutti_code
do_change(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_change change = {key_of(call), call->op.token};
    tutti_coordinator_changed changed = {0};
    char text[32];
    const tutti_bytes value = text_of(call->op.values[0], text);
    tutti_code code;

    switch (call->op.kind) {
    case LINEAR_ADD:
        code = tutti_coordinator_key_add(core, &change, call->op.values[0], &changed, err);
        break;
    case LINEAR_APPEND:
        code = tutti_coordinator_key_append(core, &change, value, &changed, err);
        break;
    default:
        code = tutti_coordinator_queue_push(core, &change, value, &changed, err);
        break;
    }
    call->op.results[0] = changed.number;
    call->op.versions[0] = changed.version;
    return code;
}

static tutti_code
do_swap(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    char wanted[32];
    char text[32];
    const tutti_bytes expected = text_of(call->op.expected, wanted);
    const tutti_coordinator_swap_request request = {
        .key = key_of(call),
        .expected = call->op.expected == LINEAR_ABSENT ? NULL : &expected,
        .value = text_of(call->op.values[0], text)};
    tutti_coordinator_swap swap = {0};

    TUTTI_TRY(tutti_coordinator_key_swap(core, &request, &swap, err));
    call->op.refused = !swap.swapped;
    call->op.results[0] = LINEAR_ABSENT;
    if (swap.exists) {
        take_entry(call, 0, &swap.entry);
    }
    return TUTTI_OK;
}

static tutti_code
do_delete(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_key key = key_of(call);
    bool existed = false;

    TUTTI_TRY(tutti_coordinator_key_delete(core, &key, &existed, err));
    call->op.results[0] = existed ? 1 : 0;
    return TUTTI_OK;
}

static tutti_code
do_length(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_key key = key_of(call);
    uint64_t length = 0;

    TUTTI_TRY(tutti_coordinator_queue_length(core, &key, &length, err));
    call->op.results[0] = (int64_t)length;
    return TUTTI_OK;
}

static tutti_code
do_set_all(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_keys keys = {NULL, call->key_bytes, call->op.key_count};
    char texts[LINEAR_KEYS_MAX][32];
    tutti_bytes values[LINEAR_KEYS_MAX];
    uint64_t version = 0;
    uint32_t i;

    for (i = 0; i < call->op.key_count; i++) {
        values[i] = text_of(call->op.values[i], texts[i]);
    }
    TUTTI_TRY(
        tutti_coordinator_keys_set_leased(core, &keys, values, call->op.lease, &version, err));
    for (i = 0; i < call->op.key_count; i++) {
        call->op.versions[i] = version;
    }
    return TUTTI_OK;
}

static void
take_page(room_call *call, const tutti_coordinator_page *page)
{
    uint32_t i;

    for (i = 0; i < call->op.key_count && i < page->count; i++) {
        take_entry(call, i, &page->entries[i]);
    }
}

static tutti_code
do_get_all(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_keys keys = {NULL, call->key_bytes, call->op.key_count};
    tutti_coordinator_page page = {0};
    tutti_code code = tutti_coordinator_keys_get(core, &keys, &page, err);

    if (code == TUTTI_OK) {
        take_page(call, &page);
    } else if (code == TUTTI_NOT_FOUND) {
        call->op.refused = true;
        code = TUTTI_OK;
    }
    tutti_coordinator_page_fini(&page);
    return code;
}

static tutti_code
do_look(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_list_request request = {.prefix = {NULL, tutti_bytes_of(call->prefix)},
                                                    .page_size = 100};
    tutti_coordinator_page page = {0};
    const tutti_code code = tutti_coordinator_key_list(core, &request, &page, err);
    uint32_t i;
    size_t k;

    for (i = 0; i < call->op.key_count; i++) {
        call->op.results[i] = LINEAR_ABSENT;
        for (k = 0; code == TUTTI_OK && k < page.count; k++) {
            if (tutti_bytes_equal(page.entries[k].key, call->key_bytes[i])) {
                take_entry(call, i, &page.entries[k]);
            }
        }
    }
    tutti_coordinator_page_fini(&page);
    return code;
}

static tutti_code
do_lease(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    tutti_coordinator_lease lease = {0};
    uint64_t key_count = 0;
    bool existed = false;

    switch (call->kind) {
    case ROOM_GRANT:
        return tutti_coordinator_lease_grant(core, NULL, call->lease, call->ttl_ns, &lease, err);
    case ROOM_KEEP:
        return tutti_coordinator_lease_keep(core, NULL, call->lease, &lease, err);
    default:
        return tutti_coordinator_lease_revoke(core, NULL, call->lease, &existed, &key_count, err);
    }
}

/* ------------------------------------------------------------------------------ what may wait */

static void
on_take(tutti_coordinator_take *take, const tutti_store_entry *entry, const tutti_error *err)
{
    room_call *call = tutti_container_of(take, room_call, take);

    if (err == NULL) {
        call->op.results[0] = read_number(entry->value);
        call->op.versions[0] = call->op.kind == LINEAR_TAKE ? entry->version : 0;
    }
    answer(call, err == NULL ? TUTTI_OK : err->code, err);
}

static tutti_code
start_take(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_take_request request = {.key = key_of(call),
                                                    .from_queue = call->op.kind == LINEAR_POP,
                                                    .at_once = call->wait_ns == 0,
                                                    .token = call->op.token,
                                                    .deadline_ns = sim_now_ns() + call->wait_ns};

    memset(&call->take, 0, sizeof(call->take));
    call->take.on_answer = on_take;
    call->is_parked = true;
    return tutti_coordinator_take_start(core, &request, &call->take, err);
}

static void
on_wait(tutti_coordinator_key_wait *wait, uint64_t version, const tutti_error *err)
{
    room_call *call = tutti_container_of(wait, room_call, wait);

    (void)version;
    if (err == NULL) {
        take_page(call, wait->values);
    }
    answer(call, err == NULL ? TUTTI_OK : err->code, err);
}

static tutti_code
start_wait(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_wait_request request = {.keys = call->key_bytes,
                                                    .count = call->op.key_count,
                                                    .with_values = true,
                                                    .deadline_ns = sim_now_ns() + call->wait_ns};

    memset(&call->wait, 0, sizeof(call->wait));
    call->wait.on_answer = on_wait;
    call->is_parked = true;
    return tutti_coordinator_key_wait_start(core, &request, &call->wait, err);
}

static void
on_change(tutti_coordinator_watch *watch, tutti_coordinator_change_kind kind,
          const tutti_store_entry *entry)
{
    room_call *call = tutti_container_of(watch, room_call, watch);
    watches_change change = {.version = entry->version,
                             .kind = kind == TUTTI_COORDINATOR_BEGUN ? WATCHES_BEGUN
                                     : kind == TUTTI_COORDINATOR_SET ? WATCHES_SET
                                                                     : WATCHES_DELETED};

    (void)snprintf(change.key, sizeof(change.key), "%.*s", (int)entry->key.size,
                   entry->key.size > 0 ? (const char *)entry->key.data : "");
    change.value = kind == TUTTI_COORDINATOR_SET ? read_number(entry->value) : 0;
    call->writing = true;
    tell(call, &change, false);
}

static void
on_watch_end(tutti_coordinator_watch *watch, const tutti_error *err)
{
    room_call *call = tutti_container_of(watch, room_call, watch);
    const watches_change none = {.kind = WATCHES_BEGUN};

    call->is_parked = false;
    (void)snprintf(call->reason, sizeof(call->reason), "%s", err->reason);
    tell(call, &none, true);
}

static tutti_code
start_watch(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    const tutti_coordinator_key prefix = {NULL, tutti_bytes_of(call->prefix)};

    memset(&call->watch, 0, sizeof(call->watch));
    call->watch.on_change = on_change;
    call->watch.on_end = on_watch_end;
    call->is_parked = true;
    call->history = tutti_coordinator_watch_history(core);
    return tutti_coordinator_watch_start(core, &prefix, call->resumes ? &call->place : NULL,
                                         &call->watch, err);
}

static void
withdraw(room_call *call)
{
    if (call->is_parked) {
        tutti_coordinator_take_withdraw(&call->take);
        tutti_coordinator_key_wait_withdraw(&call->wait);
        tutti_coordinator_watch_withdraw(&call->watch);
        call->is_parked = false;
    }
}

/* ------------------------------------------------------------------------------ handling */

static tutti_code
do_op(room_call *call, tutti_coordinator *core, tutti_error *err)
{
    switch (call->op.kind) {
    case LINEAR_GET:
        return do_get(call, core, err);
    case LINEAR_SET:
        return do_set(call, core, err);
    case LINEAR_ADD:
    case LINEAR_APPEND:
    case LINEAR_PUSH:
        return do_change(call, core, err);
    case LINEAR_SWAP:
        return do_swap(call, core, err);
    case LINEAR_DELETE:
        return do_delete(call, core, err);
    case LINEAR_TAKE:
    case LINEAR_POP:
        return start_take(call, core, err);
    case LINEAR_LENGTH:
        return do_length(call, core, err);
    case LINEAR_SET_ALL:
        return do_set_all(call, core, err);
    case LINEAR_GET_ALL:
        return call->wait_ns > 0 ? start_wait(call, core, err) : do_get_all(call, core, err);
    default:
        return do_look(call, core, err);
    }
}

static void
handle(room_call *call)
{
    tutti_coordinator *core = call->room->core;
    tutti_error err = {0};
    tutti_code code;
    uint32_t i;

    for (i = 0; i < LINEAR_KEYS_MAX; i++) {
        call->key_bytes[i] = tutti_bytes_of(call->keys[i]);
    }
    code = call->kind == ROOM_OP      ? do_op(call, core, &err)
           : call->kind == ROOM_WATCH ? start_watch(call, core, &err)
                                      : do_lease(call, core, &err);
    if (code != TUTTI_OK && call->kind == ROOM_OP && call->wait_ns == 0 &&
        (call->op.kind == LINEAR_TAKE || call->op.kind == LINEAR_POP)) {
        code = as_absent(call, code);
        call->is_parked = false;
        answer(call, code, &err);
    } else if (code != TUTTI_OK || !call->is_parked) {
        call->is_parked = false;
        answer(call, code, &err);
    }
}

/* As lose_store of service_loop.c: the process ends, and nobody is answered any more. */
static void
lose_store(void *arg, const tutti_error *why)
{
    room *self = arg;

    if (!self->dead) {
        sim_note("the coordinator loses its store: %s", why->text);
        room_kill(self);
    }
}

static void
flush(room *self)
{
    tutti_error err = {0};

    if (tutti_store_flush(self->store, &err) != TUTTI_OK) {
        lose_store(self, &err);
    }
}

static void
enter(room *self)
{
    tutti_coordinator_set_time(self->core, tutti_clock_ns(), tutti_clock_wall_ns());
}

/* A short piece of work is done at once; what is left waits for an idle turn. */
static void
leave(room *self)
{
    if (tutti_coordinator_next(self->core) <= self->core->now_ns) {
        tutti_coordinator_run(self->core);
    }
    tutti_coordinator_turn(self->core, false);
    flush(self);
}

static void
handle_next(room *self)
{
    room_call *call = tutti_container_of(tutti_list_pop(&self->inbox), room_call, link);

    if (call->is_gone) {
        room_call_unref(call);
        return;
    }
    tutti_list_add(&self->open, &call->open);
    enter(self);
    handling = call;
    handle(call);
    handling = NULL;
    leave(self);
}

static void
handle_gone(room *self)
{
    room_call *call = tutti_container_of(tutti_list_pop(&self->gone), room_call, link);

    enter(self);
    withdraw(call);
    if (!tutti_list_empty(&call->open)) { /* its answer has not left meanwhile */
        leave_open(call);
    }
    leave(self);
    room_call_unref(call);
}

static void
handle_written(room *self)
{
    room_call *call = tutti_container_of(tutti_list_pop(&self->written), room_call, link);

    enter(self);
    call->writing = false;
    if (call->is_parked) {
        tutti_coordinator_watch_written(&call->watch);
    }
    leave(self);
    if (call->is_gone && tutti_list_empty(&call->link)) { /* told while it was in the list */
        tutti_list_add(&self->gone, &call->link);
        return;
    }
    room_call_unref(call);
}

static bool
has_messages(const room *self)
{
    return !tutti_list_empty(&self->inbox) || !tutti_list_empty(&self->gone) ||
           !tutti_list_empty(&self->written);
}

static bool
has_work(void *arg)
{
    const room *self = arg;

    return self->ending || self->dead || self->settled || has_messages(self) ||
           tutti_coordinator_busy(self->core);
}

static void
run_once(room *self)
{
    if (self->settled) {
        self->settled = false;
        flush(self);
        open_gate(self);
    } else if (!tutti_list_empty(&self->inbox)) {
        handle_next(self);
    } else if (!tutti_list_empty(&self->gone)) {
        handle_gone(self);
    } else if (!tutti_list_empty(&self->written)) {
        handle_written(self);
    } else {
        enter(self);
        if (tutti_coordinator_next(self->core) <= self->core->now_ns) {
            tutti_coordinator_run(self->core);
        }
        tutti_coordinator_turn(self->core, true);
        flush(self);
    }
    open_gate(self);
}

static void *
run_loop(void *arg)
{
    room *self = arg;

    while (!self->ending && !self->dead) {
        (void)sim_wait(has_work, self, tutti_coordinator_next(self->core));
        if (!self->ending && !self->dead) {
            run_once(self);
        }
    }
    return NULL;
}

/* The writer's thread. */
static void
on_durable(void *arg)
{
    ((room *)arg)->settled = true;
}

/* ------------------------------------------------------------------------------ door */

room *
room_open(sim_disk *disk, const tutti_coordinator_options *options)
{
    room *self = calloc(1, sizeof(*self));
    tutti_error err = {0};

    assert(self != NULL);
    self->disk = disk;
    self->number = ++rooms;
    tutti_list_init(&self->inbox);
    tutti_list_init(&self->open);
    tutti_list_init(&self->gone);
    tutti_list_init(&self->held);
    tutti_list_init(&self->told);
    tutti_list_init(&self->written);
    sim_enter(ROOM_PROCESS); /* of which are the tasks that are started here */
    if (disk_open(disk, &self->store, &err) != TUTTI_OK) {
        sim_note("a coordinator does not start: %s", err.text);
        sim_enter(SIM_DRIVER);
        free(self);
        return NULL;
    }
    if (tutti_coordinator_new(options, self->store, &self->core, &err) != TUTTI_OK) {
        sim_fail("a coordinator does not start: %s", err.text);
    }
    tutti_coordinator_set_lost(self->core, lose_store, self);
    enter(self);
    if (tutti_coordinator_restore(self->core, &err) != TUTTI_OK) {
        sim_fail("a coordinator does not take up what is there: %s", err.text);
    }
    tutti_store_on_durable(self->store, on_durable, self);
    self->task = sim_task_new(ROOM_PROCESS, run_loop, self);
    sim_enter(SIM_DRIVER);
    return self;
}

bool
room_receive(room *self, room_call *call)
{
    if (self->dead || self->ending) {
        return false;
    }
    call->refs++;
    call->room = self;
    call->room_number = self->number;
    tutti_list_add(&self->inbox, &call->link);
    return true;
}

void
room_cancel(room *self, room_call *call)
{
    if (call->room_number != self->number || self->dead) {
        return;
    }
    call->is_gone = true;
    if (!tutti_list_empty(&call->open) && tutti_list_empty(&call->link)) {
        call->refs++;
        tutti_list_add(&self->gone, &call->link);
    }
}

void
room_written(room *self, room_call *call)
{
    if (call->room_number == self->number && !self->dead && tutti_list_empty(&call->link)) {
        call->refs++;
        tutti_list_add(&self->written, &call->link);
    }
}

void
room_kill(room *self)
{
    self->dead = true;
    disk_kill(self->disk);
}

static void
drop_all(tutti_list_node *list)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(list)) != NULL) {
        room_call_unref(tutti_container_of(link, room_call, link));
    }
}

static void
drop_open(room *self)
{
    while (!tutti_list_empty(&self->open)) {
        room_call *call = tutti_container_of(self->open.next, room_call, open);

        withdraw(call);
        leave_open(call);
    }
}

static void
drop_told(room *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->told)) != NULL) {
        held_told *one = tutti_container_of(link, held_told, link);

        room_call_unref(one->told->call);
        free(one->told);
        free(one);
    }
}

void
room_free(room *self)
{
    self->ending = true;
    sim_task_join(self->task);
    drop_all(&self->inbox);
    drop_all(&self->gone);
    drop_all(&self->written);
    drop_open(self);
    drop_told(self);
    tutti_store_on_durable(self->store, NULL, NULL);
    tutti_coordinator_free(self->core);
    tutti_store_close(self->store);
    free(self);
}

bool
room_is_dead(const room *self)
{
    return self->dead;
}

tutti_store *
room_store(const room *self)
{
    return self->store;
}

tutti_coordinator *
room_core(const room *self)
{
    return self->core;
}

uint64_t
room_answered(const room *self)
{
    return self->answered;
}
