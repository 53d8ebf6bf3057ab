/*
 * Tensors by handle and name, their errors, and leases. Locks are in table_lock.c.
 *
 * Any thread; one mutex guards everything that struct tutti_entry and struct tutti_table have.
 * Fields that are written before an entry is listed and never again (number, rank, incarnation,
 * name, owner) may be read without it by a thread that holds a lock on the entry.
 *
 * Under the mutex nothing is called that may wait: no callback, no allocation of tensors, no
 * freeing of their memory. An entry whose last reference goes is put on table->dead, and
 * agent_table_unlock frees it after the mutex is released.
 *
 * An entry outlives its handle: deleting only takes handle and name away, and the tensor goes with
 * the last lock. So an op or a transfer never finds its memory gone.
 */
#include "server/agent/tensor/table.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/data/ref.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/agent/tensor/table_private.h"

/* Parts of a register's name. */
#define REGISTER_SESSION_MAX 32
#define REGISTER_DIGITS_MAX 10

/* For a failed tensor when there is no memory to keep why: it must not pass for a good one. */
static const tutti_error unsaid = {
    .code = TUTTI_RESOURCE_EXHAUSTED,
    .where = TUTTI_HERE,
    .rank = TUTTI_ERROR_RANK_NONE,
    .text = "the op that was to write the tensor failed, and there was no memory to keep why",
};

/* For an entry that was to become a tensor and did not. It may have memory already, which holds
 * whatever was there before: another client's bytes, say, so nobody may read it. */
static const tutti_error unwritten = {
    .code = TUTTI_FAILED_PRECONDITION,
    .where = TUTTI_HERE,
    .rank = TUTTI_ERROR_RANK_NONE,
    .text = "the tensor was never written",
};

tutti_code
tutti_table_new(uint64_t incarnation, uint32_t handles_max, tutti_table **ret_table,
                tutti_error *err)
{
    tutti_table *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the table of tensors");
    }
    (void)pthread_mutex_init(&self->mutex, NULL);
    self->incarnation = incarnation;
    self->handles_max = handles_max;
    tutti_map_init(&self->by_number);
    tutti_map_init(&self->by_name);
    tutti_map_init(&self->leases);
    tutti_list_init(&self->dead);
    *ret_table = self;
    return TUTTI_OK;
}

void
agent_table_lock(tutti_table *table)
{
    (void)pthread_mutex_lock(&table->mutex);
}

/* Two errors are static and shared; the others are copies. */
static void
free_err(const tutti_error *err)
{
    if (err != &unsaid && err != &unwritten) {
        free((void *)(uintptr_t)err);
    }
}

void
tutti_table_on_leave(tutti_table *table, void (*on_leave)(void *arg, tutti_tensor *tensor),
                     void *arg)
{
    table->on_leave = on_leave;
    table->on_leave_arg = arg;
}

static void
free_entry(const tutti_table *table, tutti_entry *entry)
{
    if (table->on_leave != NULL && entry->tensor != NULL) {
        table->on_leave(table->on_leave_arg, entry->tensor);
    }
    tutti_tensor_unref(entry->tensor);
    tutti_table_value_unref(entry->value);
    free_err(entry->err);
    free(entry);
}

/*
 * Also frees the entries that died under the lock. Giving memory back may take the system a while
 * (large pages, a GPU), and every thread of the agent waits for this mutex.
 */
void
agent_table_unlock(tutti_table *table)
{
    tutti_list_node dead;
    tutti_list_node *link;

    tutti_list_init(&dead);
    tutti_list_splice(&dead, &table->dead);
    (void)pthread_mutex_unlock(&table->mutex);
    while ((link = tutti_list_pop(&dead)) != NULL) {
        free_entry(table, tutti_container_of(link, tutti_entry, line));
    }
}

void
agent_table_unref(tutti_table *table, tutti_entry *entry)
{
    assert(entry->refs > 0);
    entry->refs--;
    if (entry->refs == 0) {
        assert(tutti_list_empty(&entry->line));
        tutti_list_add(&table->dead, &entry->line);
    }
}

static tutti_holder
holder_of(const tutti_entry *entry)
{
    return agent_table_is_register(entry->name) ? TUTTI_HOLDER_REGISTER : TUTTI_HOLDER_TENSOR;
}

tutti_tensor *
agent_table_set_tensor(tutti_entry *entry, tutti_tensor *tensor)
{
    tutti_tensor *before = entry->tensor;

    if (entry->listed && tensor != NULL) {
        tutti_tensor_hold(tensor, holder_of(entry));
    }
    if (entry->listed && before != NULL) {
        tutti_tensor_let_go(before, holder_of(entry));
    }
    entry->tensor = tensor;
    return before;
}

void
agent_table_unlist(tutti_table *table, tutti_entry *entry)
{
    if (!entry->listed) {
        return;
    }
    entry->listed = false;
    if (entry->tensor != NULL) {
        tutti_tensor_let_go(entry->tensor, holder_of(entry));
    }
    tutti_map_remove(&table->by_number, &entry->by_number);
    if (entry->name[0] != '\0') {
        tutti_map_remove(&table->by_name, &entry->by_name);
        table->register_count -= agent_table_is_register(entry->name) ? 1 : 0;
    }
    agent_table_unref(table, entry);
}

/* No call holds a lock any more: each entry's only reference is its listing. */
void
tutti_table_free(tutti_table *table)
{
    tutti_map_node *node;

    if (table == NULL) {
        return;
    }
    agent_table_lock(table);
    while ((node = tutti_map_first(&table->by_number)) != NULL) {
        agent_table_unlist(table, tutti_container_of(node, tutti_entry, by_number));
    }
    agent_table_free_leases(table);
    agent_table_unlock(table);
    (void)pthread_mutex_destroy(&table->mutex);
    free(table);
}

void
tutti_table_set_rank(tutti_table *table, uint32_t rank)
{
    agent_table_lock(table);
    table->rank = rank;
    agent_table_unlock(table);
}

/* ------------------------------------------------------------------------------ what a use gives
 */

/* The view of a range is made by the thread that has the lock set, so no two threads make it. */
static tutti_code
find_view(const tutti_lock *lock, tutti_tensor *whole, tutti_error *err)
{
    tutti_tensor_range *range = lock->range;

    return range->view != NULL
               ? TUTTI_OK
               : tutti_tensor_view(whole, range->offset, &range->spec, &range->view, err);
}

/* The pointer stays valid while the lock is held: only a writer replaces a tensor. */
tutti_tensor *
tutti_table_tensor(tutti_table *table, const tutti_lock *lock)
{
    tutti_tensor *tensor;

    agent_table_lock(table);
    tensor = lock->range == NULL || lock->granted ? lock->entry->tensor : NULL;
    agent_table_unlock(table);
    if (tensor == NULL || lock->range == NULL) {
        return tensor;
    }
    return find_view(lock, tensor, NULL) == TUTTI_OK ? lock->range->view : NULL;
}

void
tutti_table_fill(tutti_table *table, const tutti_lock *lock, tutti_tensor *tensor)
{
    agent_table_lock(table);
    assert(lock->exclusive && lock->entry->tensor == NULL && lock->entry->value == NULL);
    (void)agent_table_set_tensor(lock->entry, tensor);
    agent_table_unlock(table);
}

/* The old tensor is freed behind the mutex, as in agent_table_unlock. */
void
tutti_table_replace(tutti_table *table, const tutti_lock *lock, tutti_tensor *tensor)
{
    tutti_tensor *before;

    agent_table_lock(table);
    assert(lock->exclusive && lock->granted);
    before = agent_table_set_tensor(lock->entry, tensor);
    agent_table_unlock(table);
    tutti_tensor_unref(before);
}

/*
 * The copy is made before the mutex is taken. Without memory for it, the tensor gets a static
 * error: a failed tensor must never be read as a good one.
 */
void
tutti_table_mark(tutti_table *table, const tutti_lock *lock, const tutti_error *err)
{
    tutti_error *copy = err == NULL ? NULL : malloc(sizeof(*copy));
    const tutti_error *old;

    if (copy != NULL) {
        *copy = *err;
    }
    agent_table_lock(table);
    old = lock->entry->err;
    lock->entry->err = err != NULL && copy == NULL ? &unsaid : copy;
    agent_table_unlock(table);
    free_err(old);
}

/* With the lock. */
static tutti_code
check_written(const tutti_entry *entry, tutti_error *err)
{
    if (entry->err != NULL) {
        return tutti_error_pass(err, entry->err);
    }
    return entry->tensor == NULL && entry->value == NULL ? tutti_error_pass(err, &unwritten)
                                                         : TUTTI_OK;
}

tutti_code
tutti_table_check(tutti_table *table, const tutti_lock *lock, tutti_error *err)
{
    tutti_tensor *tensor;
    tutti_code code;

    agent_table_lock(table);
    code = check_written(lock->entry, err);
    code = code == TUTTI_OK ? agent_table_check_kind(lock->entry, err) : code;
    tensor = lock->entry->tensor;
    agent_table_unlock(table);
    return code == TUTTI_OK && lock->range != NULL ? find_view(lock, tensor, err) : code;
}

tutti_code
tutti_table_check_any(tutti_table *table, const tutti_lock *lock, tutti_error *err)
{
    tutti_code code;

    agent_table_lock(table);
    code = check_written(lock->entry, err);
    agent_table_unlock(table);
    return code;
}

/* Calls that are in line for the entry already will find `unwritten` when they get it. */
void
tutti_table_drop_new(tutti_table *table, const tutti_lock *lock)
{
    agent_table_lock(table);
    agent_table_unlist(table, lock->entry); /* the use still holds it */
    if (lock->entry->err == NULL) {
        lock->entry->err = &unwritten;
    }
    agent_table_unlock(table);
}

bool
tutti_table_is_last(tutti_table *table, const tutti_lock *lock)
{
    bool last;

    agent_table_lock(table);
    last = !lock->entry->listed && lock->entry->refs == 1;
    agent_table_unlock(table);
    return last;
}

void
tutti_table_fail_new(tutti_table *table, const tutti_lock *lock, const tutti_error *err)
{
    if (agent_table_is_register(lock->entry->name)) {
        tutti_table_mark(table, lock, err);
    } else {
        tutti_table_drop_new(table, lock);
    }
}

/*
 * What the register held before goes in any case: a call that reads it later must not take the old
 * value for the new one.
 */
void
tutti_table_fail_register(tutti_table *table, const char *name, const char *owner, uint64_t lease,
                          const tutti_error *err)
{
    tutti_lock_set lock_set = {.lease = lease};
    char *names[] = {(char *)(uintptr_t)name};

    if (!agent_table_is_register(name)) {
        return;
    }
    (void)tutti_table_delete(table, names, 1, true, NULL);
    (void)snprintf(lock_set.owner, sizeof(lock_set.owner), "%s", owner);
    if (tutti_table_create_locked(table, &lock_set, name, NULL) == TUTTI_OK) {
        tutti_table_mark(table, &lock_set.locks[0], err);
        tutti_table_release(table, &lock_set);
    }
}

void
tutti_table_handle(const tutti_lock *lock, char ret_handle[TUTTI_TABLE_HANDLE_SIZE])
{
    agent_table_format_handle(lock->entry, ret_handle); /* fixed for the entry's life */
}

uint64_t
tutti_table_number(const tutti_lock *lock)
{
    return lock->entry->number;
}

void
tutti_table_handle_of(tutti_table *table, uint64_t number, char ret_handle[TUTTI_TABLE_HANDLE_SIZE])
{
    tutti_entry entry = {.number = number, .incarnation = table->incarnation};

    agent_table_lock(table);
    entry.rank = table->rank;
    agent_table_unlock(table);
    agent_table_format_handle(&entry, ret_handle);
}

/* ------------------------------------------------------------------------------ the whole table */

/*
 * All or none: the first pass finds all, the second deletes. A handle that is named twice, or by
 * its name as well, is gone at its second turn, which is fine.
 */
tutti_code
tutti_table_delete(tutti_table *table, char *const *handles, size_t count, bool missing_ok,
                   tutti_error *err)
{
    tutti_entry *entry = NULL;
    tutti_code code = TUTTI_OK;
    size_t i;

    agent_table_lock(table);
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = agent_table_find(table, handles[i], &entry, err);
        code = missing_ok && code == TUTTI_NOT_FOUND ? TUTTI_OK : code;
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        /* Not if it is named twice, or missing. */
        if (agent_table_find(table, handles[i], &entry, NULL) == TUTTI_OK) {
            agent_table_unlist(table, entry);
        }
    }
    agent_table_unlock(table);
    return code;
}

static void
fill_table_info(const tutti_entry *entry, tutti_table_info *info)
{
    const tutti_list_node *link;

    *info = (tutti_table_info){.number = entry->number};
    agent_table_format_handle(entry, info->handle);
    memcpy(info->name, entry->name, sizeof(info->name));
    memcpy(info->owner, entry->owner, sizeof(info->owner));
    info->ephemeral = entry->lease != 0;
    info->made_ns = entry->made_ns;
    if (entry->tensor != NULL) {
        info->has_spec = true;
        info->spec = entry->tensor->spec;
        info->bytes = entry->tensor->bytes;
        (void)snprintf(info->device, sizeof(info->device), "%s",
                       tutti_space_device(entry->tensor->space));
    }
    info->holds = entry->value == NULL ? NULL : entry->value->noun;
    for (link = entry->line.next; link != &entry->line; link = link->next) {
        info->pending = info->pending || tutti_container_of(link, tutti_lock, link)->exclusive;
    }
    if (entry->err != NULL) {
        info->failed = true;
        info->err = *entry->err;
    }
}

tutti_code
tutti_table_stat(tutti_table *table, const char *handle, tutti_table_info *ret_info,
                 tutti_error *err)
{
    tutti_entry *entry = NULL;
    tutti_code code;

    agent_table_lock(table);
    code = agent_table_find(table, handle, &entry, err);
    if (code == TUTTI_OK) {
        fill_table_info(entry, ret_info);
    }
    agent_table_unlock(table);
    return code;
}

uint64_t
tutti_table_next(tutti_table *table, uint64_t after, tutti_table_info *ret_info)
{
    unsigned char key[8];
    tutti_map_node *node;
    uint64_t number = 0;

    agent_table_lock(table);
    node = tutti_map_from(&table->by_number, tutti_map_key_u64(key, after + 1));
    if (node != NULL) {
        const tutti_entry *entry = tutti_container_of(node, tutti_entry, by_number);

        number = entry->number;
        fill_table_info(entry, ret_info);
    }
    agent_table_unlock(table);
    return number;
}

uint64_t
tutti_table_count(tutti_table *table)
{
    uint64_t count;

    agent_table_lock(table);
    count = table->by_number.count;
    agent_table_unlock(table);
    return count;
}

uint64_t
tutti_table_register_count(tutti_table *table)
{
    uint64_t count;

    agent_table_lock(table);
    count = table->register_count;
    agent_table_unlock(table);
    return count;
}

/* ------------------------------------------------------------------------------ finding */

static tutti_code
parse_handle(const char *text, tutti_ref *ret, tutti_error *err)
{
    if (!tutti_ref_parse(text, "tensor", ret)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "\"%.80s\" is no handle of a tensor, they look like "
                              "tensor:0.0123456789abcdef.1",
                              text);
    }
    return TUTTI_OK;
}

static tutti_entry *
find_number(const tutti_table *table, uint64_t number)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&table->by_number, tutti_map_key_u64(key, number));

    return node == NULL ? NULL : tutti_container_of(node, tutti_entry, by_number);
}

/*
 * The incarnation tells processes apart: numbers begin at 1 in each. The rank in the handle is only
 * used to say whose it is.
 */
static tutti_code
find_handle(const tutti_table *table, const char *text, tutti_entry **ret, tutti_error *err)
{
    tutti_ref parts;

    TUTTI_TRY(parse_handle(text, &parts, err));
    if (parts.incarnation != table->incarnation) {
        return parts.rank == table->rank
                   ? TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STALE_HANDLE",
                                    "%s belongs to a former process of rank %" PRIu32
                                    ": its tensors are gone",
                                    text, parts.rank)
                   : TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "FOREIGN_HANDLE",
                                    "%s belongs to rank %" PRIu32 ", this is rank %" PRIu32, text,
                                    parts.rank, table->rank);
    }
    *ret = find_number(table, parts.number);
    if (*ret == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_TENSOR",
                              "there is no tensor %s: it was deleted, or never existed", text);
    }
    return TUTTI_OK;
}

bool
agent_table_is_register(const char *name)
{
    return strncmp(name, TUTTI_REGISTER_PREFIX, sizeof(TUTTI_REGISTER_PREFIX) - 1) == 0;
}

tutti_code
agent_table_check_name(const char *name, tutti_error *err)
{
    const char *session = name + sizeof(TUTTI_REGISTER_PREFIX) - 1;
    size_t letters;
    size_t digits;

    if (!agent_table_is_register(name)) {
        return tutti_check_name(name, "tensor", err);
    }
    letters = strspn(session, "0123456789abcdefghijklmnopqrstuvwxyz");
    digits = session[letters] == '/' ? strspn(session + letters + 1, "0123456789") : 0;
    if (letters == 0 || letters > REGISTER_SESSION_MAX || digits == 0 ||
        digits > REGISTER_DIGITS_MAX || session[letters + 1 + digits] != '\0') {
        return TUTTI_FAIL_FOR(
            err, TUTTI_INVALID_ARGUMENT, "BAD_NAME",
            "\"%.80s\" is no register, they look like " TUTTI_REGISTER_PREFIX "7f3a/12", name);
    }
    return TUTTI_OK;
}

/* Nothing has this name. For people a register is a number of a session. */
static tutti_code
fail_unknown_name(const tutti_table *table, const char *name, tutti_error *err)
{
    if (agent_table_is_register(name)) {
        const char *slash = strchr(name, '/');

        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_TENSOR",
                              "register %s of session %.*s is null on rank %" PRIu32, slash + 1,
                              (int)(slash - name) - (int)sizeof(TUTTI_REGISTER_PREFIX) + 1,
                              name + sizeof(TUTTI_REGISTER_PREFIX) - 1, table->rank);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_TENSOR", "no tensor is named \"%s\"", name);
}

tutti_entry *
agent_table_named(const tutti_table *table, const char *name)
{
    tutti_map_node *node =
        name[0] == '\0' ? NULL : tutti_map_find(&table->by_name, tutti_bytes_of(name));

    return node == NULL ? NULL : tutti_container_of(node, tutti_entry, by_name);
}

tutti_code
agent_table_find(const tutti_table *table, const char *text, tutti_entry **ret, tutti_error *err)
{
    if (strncmp(text, "tensor:", 7) == 0) {
        return find_handle(table, text, ret, err);
    }
    if (text[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "an empty handle, need tensor:... or a name");
    }
    TUTTI_TRY(agent_table_check_name(text, err));
    *ret = agent_table_named(table, text);
    return *ret != NULL ? TUTTI_OK : fail_unknown_name(table, text, err);
}

void
agent_table_format_handle(const tutti_entry *entry, char ret[TUTTI_TABLE_HANDLE_SIZE])
{
    const tutti_ref ref = {entry->rank, entry->incarnation, entry->number};

    tutti_ref_format(&ref, "tensor", ret, TUTTI_TABLE_HANDLE_SIZE);
}

/* ------------------------------------------------------------------------------ leases */

typedef struct lease {
    tutti_map_node node;
    unsigned char key[8];
    uint64_t number;
} lease;

static lease *
find_lease(const tutti_table *table, uint64_t number)
{
    unsigned char key[8];
    tutti_map_node *node = tutti_map_find(&table->leases, tutti_map_key_u64(key, number));

    return node == NULL ? NULL : tutti_container_of(node, lease, node);
}

/*
 * Lease numbers are drawn and not counted, so that a caller cannot guess another one's and have its
 * tensors end with it.
 */
tutti_code
tutti_table_open_lease(tutti_table *table, uint64_t leases_max, uint64_t *ret_lease,
                       tutti_error *err)
{
    lease *self = calloc(1, sizeof(*self));
    tutti_code code = TUTTI_OK;

    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a lease");
    }
    agent_table_lock(table);
    if (table->leases.count >= leases_max) {
        code = TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "LEASE_LIMIT",
                              "%zu leases are open, the limit (--leases-max)", table->leases.count);
    } else {
        do {
            self->number = tutti_id_draw();
        } while (find_lease(table, self->number) != NULL);
        self->node.key = tutti_map_key_u64(self->key, self->number);
        (void)tutti_map_add(&table->leases, &self->node);
        *ret_lease = self->number;
        self = NULL;
    }
    agent_table_unlock(table);
    free(self);
    return code;
}

tutti_code
agent_table_check_lease(const tutti_table *table, uint64_t number, tutti_error *err)
{
    if (number == 0 || find_lease(table, number) != NULL) {
        return TUTTI_OK;
    }
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "LEASE_OVER",
                          "lease %" PRIu64 " has ended with its stream: open another one", number);
}

/*
 * A walk over all tensors: leases end seldom, and a list of each lease's tensors would cost every
 * tensor two pointers. The lease goes first, so that no call can make an entry of it afterwards.
 */
size_t
tutti_table_close_lease(tutti_table *table, uint64_t number)
{
    tutti_map_node *node;
    tutti_map_node *next;
    lease *self;
    size_t ended = 0;

    agent_table_lock(table);
    self = find_lease(table, number);
    if (self != NULL) {
        tutti_map_remove(&table->leases, &self->node);
    }
    for (node = tutti_map_first(&table->by_number); self != NULL && node != NULL; node = next) {
        tutti_entry *entry = tutti_container_of(node, tutti_entry, by_number);

        next = tutti_map_next(node);
        if (entry->lease == number) {
            agent_table_unlist(table, entry);
            ended++;
        }
    }
    agent_table_unlock(table);
    free(self);
    return ended;
}

void
agent_table_free_leases(tutti_table *table)
{
    tutti_map_node *node;

    while ((node = tutti_map_first(&table->leases)) != NULL) {
        tutti_map_remove(&table->leases, node);
        free(tutti_container_of(node, lease, node));
    }
}
