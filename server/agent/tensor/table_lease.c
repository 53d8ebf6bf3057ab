/* Leases: tensors that end together, with whoever asked for them. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

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
