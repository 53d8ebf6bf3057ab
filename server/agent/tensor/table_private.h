/* Private to table*.c: entries, and the lock that guards them. */
#ifndef TUTTI_SERVER_AGENT_TENSOR_TABLE_PRIVATE_H
#define TUTTI_SERVER_AGENT_TENSOR_TABLE_PRIVATE_H

#include <pthread.h>

#include "base/data/map.h"
#include "server/agent/tensor/table.h"

/*
 * A tensor with its handle. `listed`: in by_number (and by_name if it has a name), which is one of
 * its references; the others are locks. `tensor` is NULL until it is filled; it may be filled and
 * still have `err`. `line` is the queue of locks; when refs is 0 no lock is in it, and it links the
 * entry in table->dead.
 *
 */
struct tutti_entry {
    tutti_map_node by_number;
    unsigned char key[8];
    tutti_map_node by_name;
    char name[TUTTI_NAME_MAX + 1];
    char owner[TUTTI_OWNER_SIZE];
    uint64_t lease; /* 0 = none */
    uint64_t made_ns;
    uint64_t number;
    uint32_t rank; /* as it stands in the handle */
    uint64_t incarnation;
    tutti_tensor *tensor;
    tutti_table_value *value; /* [ref] instead of a tensor */
    const tutti_error *err;   /* of the op that was to write it: owned, or a static one */
    tutti_list_node line;     /* uses, in order; of a dead entry its place in table->dead */
    uint32_t refs;            /* uses, and the table while it has a handle */
    bool listed;
    uint64_t version; /* counts the writers that had their turn */
};

struct tutti_table {
    pthread_mutex_t mutex;
    uint64_t incarnation;
    uint32_t rank;
    uint32_t handles_max;
    uint64_t last_number;
    tutti_map by_number;
    tutti_map by_name;
    uint64_t register_count; /* of by_name, those that are registers of sessions */
    tutti_map leases;
    void (*on_leave)(void *arg, tutti_tensor *tensor); /* NULL = nobody asks */
    void *on_leave_arg;
    tutti_list_node dead; /* entries to be freed when the lock is */
};

/*
 * All of these but the first are called with the lock held. unlock also frees dead entries, after
 * it has released the mutex.
 */
void agent_table_lock(tutti_table *table);
void agent_table_unlock(tutti_table *table);
/* One reference less; the last one puts the entry among the dead. */
void agent_table_unref(tutti_table *table, tutti_entry *entry);
/* Take its handle and name away, and the reference of its listing. Fine when it has none. */
void agent_table_unlist(tutti_table *table, tutti_entry *entry);

/* The tensor that the entry had, whose reference is the caller's now; NULL = none. */
tutti_tensor *agent_table_set_tensor(tutti_entry *entry, tutti_tensor *tensor);

/* May a tensor be called so? A name, or a register's. BAD_NAME */
tutti_code agent_table_check_name(const char *name, tutti_error *err);
bool agent_table_is_register(const char *name);

/* Does the lease still exist? LEASE_OVER */
tutti_code agent_table_check_lease(const tutti_table *table, uint64_t lease, tutti_error *err);

void agent_table_free_leases(tutti_table *table);

/* The entry that has the name; NULL = none, as of "". */
tutti_entry *agent_table_named(const tutti_table *table, const char *name);

/* Handles and names; codes as tutti_table_lock_by_name. */
tutti_code agent_table_find(const tutti_table *table, const char *text, tutti_entry **ret,
                            tutti_error *err);
/* FAILED_PRECONDITION NOT_A_TENSOR: it holds a plain value. */
tutti_code agent_table_check_kind(const tutti_entry *entry, tutti_error *err);
void agent_table_format_handle(const tutti_entry *entry, char ret[TUTTI_TABLE_HANDLE_SIZE]);

#endif
