/*
 * Locks on tensors. Each entry has a line of locks in the order in which their lock sets asked. No
 * granted lock conflicts with a lock before it: on a whole tensor there is one writer at the head, or
 * any number of readers.
 *
 * No deadlock: tutti_table_acquire puts all locks of a lock set in line under one hold of the
 * mutex, so any two lock sets stand in the same order in every line that they share. The first lock
 * set of all that are not granted can therefore always be granted when those before it are
 * released.
 *
 * No call waits in a thread. The release that grants the last lock of a lock set posts the lock
 * set's task to its loop. From acquire until that task has run, the lock set is not freed and not
 * released: the table, or the loop's queue, points to it.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"
#include "server/agent/tensor/range.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

/* Locks may not move once they are made: lines and callers point to them. */
tutti_code
tutti_table_reserve(tutti_lock_set *lock_set, uint32_t count, tutti_error *err)
{
    assert(lock_set->count == 0 && lock_set->locks == NULL);
    if (count <= TUTTI_LOCK_SET_FEW) {
        return TUTTI_OK;
    }
    lock_set->locks = calloc(count, sizeof(*lock_set->locks));
    if (lock_set->locks == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory to claim %" PRIu32 " tensors", count);
    }
    lock_set->room = count;
    return TUTTI_OK;
}

static tutti_lock *
next_lock(tutti_lock_set *lock_set)
{
    if (lock_set->locks == NULL) {
        lock_set->locks = lock_set->few;
        lock_set->room = TUTTI_LOCK_SET_FEW;
    }
    assert(lock_set->count < lock_set->room);
    return &lock_set->locks[lock_set->count++];
}

/*
 * The reference keeps the entry, and its tensor, also when the handle is deleted meanwhile.
 *
 * [in, moved] range  NULL = the whole tensor
 */
static void
add_lock(tutti_lock_set *lock_set, tutti_entry *entry, bool exclusive, tutti_tensor_range *range)
{
    tutti_lock *lock = next_lock(lock_set);

    *lock =
        (tutti_lock){.entry = entry, .lock_set = lock_set, .exclusive = exclusive, .range = range};
    tutti_list_init(&lock->link);
    entry->refs++;
}

tutti_code
tutti_table_lock_by_name(tutti_table *table, tutti_lock_set *lock_set, const char *handle,
                         bool exclusive, tutti_error *err)
{
    tutti_entry *entry = NULL;
    tutti_code code;

    agent_table_lock(table);
    code = agent_table_find(table, handle, &entry, err);
    if (code == TUTTI_OK) {
        add_lock(lock_set, entry, exclusive, NULL);
    }
    agent_table_unlock(table);
    return code;
}

tutti_code
tutti_table_lock_range(tutti_table *table, tutti_lock_set *lock_set, const char *text,
                       bool exclusive, tutti_error *err)
{
    char name[TUTTI_TABLE_HANDLE_SIZE];
    tutti_entry *entry = NULL;
    tutti_tensor_range *range = NULL;
    tutti_code code;

    if (strchr(text, AGENT_RANGE_SIGN) == NULL) {
        return tutti_table_lock_by_name(table, lock_set, text, exclusive, err);
    }
    TUTTI_TRY(agent_range_parse(text, name, &range, err));
    agent_table_lock(table);
    code = agent_table_find(table, name, &entry, err);
    if (code == TUTTI_OK) {
        add_lock(lock_set, entry, exclusive, range);
        range = NULL;
    }
    agent_table_unlock(table);
    agent_range_free(range);
    return code;
}

bool
tutti_lock_meets(const tutti_lock *left, const tutti_lock *right)
{
    return left->entry == right->entry && agent_ranges_meet(left->range, right->range);
}

bool
tutti_lock_equals(const tutti_lock *left, const tutti_lock *right)
{
    return left->entry == right->entry && agent_ranges_equal(left->range, right->range);
}

/*
 * May the entry lose its name to a new one? If who asks says so (`instead`), and a register to the
 * next value of the same session. Other names, and those of another session's registers, are taken.
 */
static bool
may_replace(const tutti_entry *entry, uint64_t lease, bool instead)
{
    return entry != NULL &&
           (instead || (agent_table_is_register(entry->name) && entry->lease == lease));
}

/* [in] named    the entry that has the name; NULL = none
 * [in] replace  it may lose it */
static tutti_code
check_lock_new(const tutti_table *table, const char *name, const tutti_entry *named, bool replace,
               tutti_error *err)
{
    if (table->by_number.count >= table->handles_max && !replace) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "HANDLE_LIMIT",
                              "%" PRIu32 " tensors are here, the limit (--handles-max)",
                              table->handles_max);
    }
    if (name[0] == '\0') {
        return TUTTI_OK;
    }
    TUTTI_TRY(agent_table_check_name(name, err));
    if (named != NULL && !replace) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_ALREADY_EXISTS, "NAME_TAKEN",
            "a tensor is named \"%s\" already: delete it, overwrite it (into), or "
            "choose another name",
            name);
    }
    return TUTTI_OK;
}

/*
 * One reference for being listed; agent_table_unlist gives it back. The rank is copied: handles of
 * an entry do not change when the agent learns its rank.
 */
static void
list_entry(tutti_table *table, tutti_entry *entry, const char *name)
{
    entry->number = ++table->last_number;
    entry->rank = table->rank;
    entry->incarnation = table->incarnation;
    entry->by_number.key = tutti_map_key_u64(entry->key, entry->number);
    (void)tutti_map_add(&table->by_number, &entry->by_number);
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    if (name[0] != '\0') {
        entry->by_name.key = tutti_bytes_of(entry->name);
        (void)tutti_map_add(&table->by_name, &entry->by_name);
        table->register_count += agent_table_is_register(name) ? 1 : 0;
    }
    tutti_list_init(&entry->line);
    entry->refs = 1;
    entry->listed = true;
}

void
tutti_table_unwant(tutti_table *table, tutti_lock_set *lock_set)
{
    assert(lock_set->count > 0);
    agent_table_lock(table);
    lock_set->count--;
    agent_table_unref(table, lock_set->locks[lock_set->count].entry);
    agent_table_unlock(table);
    agent_range_free(lock_set->locks[lock_set->count].range);
}

/* The entry is allocated before the mutex is taken: nothing under it may wait for the system. */
static tutti_code
create_entry(tutti_table *table, tutti_lock_set *lock_set, const char *name, bool instead,
             tutti_error *err)
{
    tutti_entry *entry = calloc(1, sizeof(*entry));
    tutti_entry *named;
    bool replace;
    tutti_code code;

    if (entry == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a handle");
    }
    entry->made_ns = tutti_clock_ns();
    agent_table_lock(table);
    named = agent_table_named(table, name);
    replace = may_replace(named, lock_set->lease, instead);
    code = check_lock_new(table, name, named, replace, err);
    code = code == TUTTI_OK ? agent_table_check_lease(table, lock_set->lease, err) : code;
    if (code == TUTTI_OK) {
        if (replace) {
            agent_table_unlist(table, named);
        }
        list_entry(table, entry, name);
        entry->lease = lock_set->lease;
        memcpy(entry->owner, lock_set->owner, sizeof(entry->owner));
        add_lock(lock_set, entry, true, NULL);
        entry = NULL;
    }
    agent_table_unlock(table);
    free(entry);
    return code;
}

tutti_code
tutti_table_create_locked(tutti_table *table, tutti_lock_set *lock_set, const char *name,
                          tutti_error *err)
{
    return create_entry(table, lock_set, name, false, err);
}

tutti_code
tutti_table_create_instead(tutti_table *table, tutti_lock_set *lock_set, const char *name,
                           tutti_error *err)
{
    return create_entry(table, lock_set, name, true, err);
}

/* ------------------------------------------------------------------------------ the line */

static bool
conflict_locks(const tutti_lock *left, const tutti_lock *right)
{
    return (left->exclusive || right->exclusive) && agent_ranges_meet(left->range, right->range);
}

/* Does a lock before it in the line conflict with it, granted or not? */
static bool
must_wait(const tutti_entry *entry, const tutti_lock *lock)
{
    const tutti_list_node *link;

    for (link = entry->line.next; link != &lock->link; link = link->next) {
        if (conflict_locks(tutti_container_of(link, tutti_lock, link), lock)) {
            return true;
        }
    }
    return false;
}

/*
 * A lock set that got its last lock goes to `ready` (NULL: the caller sees for itself). `ready` uses
 * the task's own list node, so that nothing is allocated under the mutex.
 */
static void
grant_lock(tutti_entry *entry, tutti_lock *lock, tutti_list_node *ready)
{
    lock->granted = true;
    entry->version += lock->exclusive ? 1 : 0;
    lock->lock_set->waiting--;
    if (lock->lock_set->waiting == 0 && ready != NULL) {
        tutti_list_add(ready, &lock->lock_set->task.link);
    }
}

/*
 * `gone` has left the line: grant what waited for it. A lock that has no conflict with it waits for
 * others, and is not looked at. Behind a writer of the whole tensor nothing can be granted, so the
 * walk ends there. Since a lock waits for all earlier ones that conflict with it, a stream of readers
 * cannot starve a writer.
 */
static void
grant_waiting(tutti_entry *entry, const tutti_lock *gone, tutti_list_node *ready)
{
    tutti_list_node *link;

    for (link = entry->line.next; link != &entry->line; link = link->next) {
        tutti_lock *lock = tutti_container_of(link, tutti_lock, link);

        if (!lock->granted && conflict_locks(gone, lock) && !must_wait(entry, lock)) {
            grant_lock(entry, lock, ready);
        }
        if (lock->exclusive && lock->range == NULL) {
            return;
        }
    }
}

static void
run_ready(tutti_rpc_task *task)
{
    tutti_lock_set *lock_set = tutti_container_of(task, tutti_lock_set, task);

    lock_set->on_ready(lock_set);
}

bool
tutti_table_acquire(tutti_table *table, tutti_lock_set *lock_set)
{
    bool ready;
    uint32_t i;

    lock_set->task.on_run = run_ready;
    tutti_list_init(&lock_set->task.link);
    agent_table_lock(table);
    lock_set->waiting = lock_set->count;
    for (i = 0; i < lock_set->count; i++) {
        tutti_lock *lock = &lock_set->locks[i];

        tutti_list_add(&lock->entry->line, &lock->link);
        if (!must_wait(lock->entry, lock)) {
            grant_lock(lock->entry, lock, NULL);
        }
    }
    ready = lock_set->waiting == 0;
    agent_table_unlock(table);
    return ready;
}

uint64_t
tutti_table_version(tutti_table *table, const tutti_lock *lock)
{
    uint64_t version;

    agent_table_lock(table);
    version = lock->entry->version;
    agent_table_unlock(table);
    return version;
}

/* Without the mutex: a loop's mailbox has a lock of its own, and no two are held at once. */
static void
post_ready(tutti_list_node *ready)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(ready)) != NULL) {
        tutti_lock_set *lock_set = tutti_container_of(
            tutti_container_of(link, tutti_rpc_task, link), tutti_lock_set, task);

        tutti_rpc_loop_post(lock_set->loop, &lock_set->task);
    }
}

/*
 * Each lock leaves its line, which may grant others. on_ready of those runs on their own loops,
 * later.
 */
void
tutti_table_release(tutti_table *table, tutti_lock_set *lock_set)
{
    tutti_list_node ready;
    uint32_t i;

    tutti_list_init(&ready);
    agent_table_lock(table);
    for (i = 0; i < lock_set->count; i++) {
        tutti_lock *lock = &lock_set->locks[i];

        tutti_list_remove(&lock->link);
        grant_waiting(lock->entry, lock, &ready);
        agent_table_unref(table, lock->entry);
    }
    agent_table_unlock(table);
    for (i = 0; i < lock_set->count; i++) {
        agent_range_free(lock_set->locks[i].range);
    }
    lock_set->count = 0;
    if (lock_set->locks != lock_set->few) {
        free(lock_set->locks);
    }
    lock_set->locks = NULL;
    post_ready(&ready);
}
