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

/* For a failed tensor when there is no memory to keep why: it must not pass for a good one. */
static const tutti_error unsaid = {
    .code = TUTTI_RESOURCE_EXHAUSTED,
    .where = TUTTI_HERE,
    .rank = TUTTI_ERROR_RANK_NONE,
    .text = "the op that was to write the tensor failed, and there was no memory to keep why",
};

/* Of what was to become a tensor: memory may be there, and whatever it held. */
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
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the table of tensors");
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

/* Giving memory back may take the system a while: not under the lock. */
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

void
agent_table_unlist(tutti_table *table, tutti_entry *entry)
{
    if (!entry->listed) {
        return;
    }
    entry->listed = false;
    tutti_map_remove(&table->by_number, &entry->by_number);
    if (entry->name[0] != '\0') {
        tutti_map_remove(&table->by_name, &entry->by_name);
    }
    agent_table_unref(table, entry);
}

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

tutti_tensor *
tutti_table_tensor(tutti_table *table, const tutti_lock *lock)
{
    tutti_tensor *tensor;

    agent_table_lock(table);
    tensor = lock->entry->tensor;
    agent_table_unlock(table);
    return tensor;
}

void
tutti_table_fill(tutti_table *table, const tutti_lock *lock, tutti_tensor *tensor)
{
    agent_table_lock(table);
    assert(lock->exclusive && lock->entry->tensor == NULL && lock->entry->value == NULL);
    lock->entry->tensor = tensor;
    agent_table_unlock(table);
}

void
tutti_table_replace(tutti_table *table, const tutti_lock *lock, tutti_tensor *tensor)
{
    tutti_tensor *before;

    agent_table_lock(table);
    assert(lock->exclusive && lock->granted);
    before = lock->entry->tensor;
    lock->entry->tensor = tensor;
    agent_table_unlock(table);
    tutti_tensor_unref(before);
}

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
    tutti_code code;

    agent_table_lock(table);
    code = check_written(lock->entry, err);
    code = code == TUTTI_OK ? agent_table_check_kind(lock->entry, err) : code;
    agent_table_unlock(table);
    return code;
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

tutti_code
tutti_table_delete(tutti_table *table, char *const *handles, size_t count, tutti_error *err)
{
    tutti_entry *entry = NULL;
    tutti_code code = TUTTI_OK;
    size_t i;

    agent_table_lock(table);
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        code = agent_table_find(table, handles[i], &entry, err);
    }
    for (i = 0; i < count && code == TUTTI_OK; i++) {
        if (agent_table_find(table, handles[i], &entry, NULL) ==
            TUTTI_OK) { /* not if named twice */
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
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_TENSOR", "%s was deleted, or never was",
                              text);
    }
    return TUTTI_OK;
}

tutti_code
agent_table_find(const tutti_table *table, const char *text, tutti_entry **ret, tutti_error *err)
{
    tutti_map_node *node;

    if (strncmp(text, "tensor:", 7) == 0) {
        return find_handle(table, text, ret, err);
    }
    if (text[0] == '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_HANDLE",
                              "an empty handle, need tensor:... or a name");
    }
    TUTTI_TRY(tutti_check_name(text, "tensor", err));
    node = tutti_map_find(&table->by_name, tutti_bytes_of(text));
    if (node == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_TENSOR", "no tensor is named \"%s\"", text);
    }
    *ret = tutti_container_of(node, tutti_entry, by_name);
    return TUTTI_OK;
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

tutti_code
tutti_table_open_lease(tutti_table *table, uint64_t leases_max, uint64_t *ret_lease,
                       tutti_error *err)
{
    lease *self = calloc(1, sizeof(*self));
    tutti_code code = TUTTI_OK;

    if (self == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a lease");
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
                          "lease %" PRIu64 " is over, its stream has ended: open another one",
                          number);
}

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
