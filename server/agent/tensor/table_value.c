/* Entries that hold plain values. */
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

void
tutti_table_value_ref(tutti_table_value *value)
{
    (void)atomic_fetch_add(&value->refs, 1);
}

void
tutti_table_value_unref(tutti_table_value *value)
{
    if (value != NULL && atomic_fetch_sub(&value->refs, 1) == 1) {
        value->on_free(value);
    }
}

/* What it held is freed without the lock: a value may be a megabyte, a tensor much more. */
void
tutti_table_set_value(tutti_table *table, const tutti_lock *lock, tutti_table_value *value)
{
    tutti_table_value *before;
    tutti_tensor *tensor;

    agent_table_lock(table);
    assert(lock->exclusive && lock->granted);
    before = lock->entry->value;
    tensor = agent_table_set_tensor(lock->entry, NULL);
    lock->entry->value = value;
    agent_table_unlock(table);
    tutti_table_value_unref(before);
    tutti_tensor_unref(tensor);
}

tutti_table_value *
tutti_table_value_of(tutti_table *table, const tutti_lock *lock)
{
    tutti_table_value *value;

    agent_table_lock(table);
    value = lock->entry->value;
    agent_table_unlock(table);
    return value;
}

/* "reg:7f3a/12" is register 12 to people, who have one session in mind. */
tutti_code
agent_table_check_kind(const tutti_entry *entry, tutti_error *err)
{
    char handle[TUTTI_TABLE_HANDLE_SIZE];
    const char *slash = strrchr(entry->name, '/');

    if (entry->value == NULL) {
        return TUTTI_OK;
    }
    if (agent_table_is_register(entry->name) && slash != NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_A_TENSOR",
                              "register %s holds %s, not a tensor", slash + 1, entry->value->noun);
    }
    agent_table_format_handle(entry, handle);
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_A_TENSOR",
                          "%s holds %s, not a tensor",
                          entry->name[0] != '\0' ? entry->name : handle, entry->value->noun);
}
