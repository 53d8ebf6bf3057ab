#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/agent/tensor/table.h"
#include "server/agent/tensor/table_private.h"

tutti_code
tutti_table_reserve(tutti_claim *claim, uint32_t count, tutti_error *err)
{
    assert(claim->count == 0 && claim->uses == NULL);
    if (count <= TUTTI_CLAIM_USES_FEW) {
        return TUTTI_OK;
    }
    claim->uses = calloc(count, sizeof(*claim->uses));
    if (claim->uses == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory to claim %" PRIu32 " tensors",
                          count);
    }
    claim->room = count;
    return TUTTI_OK;
}

static tutti_use *
next_use(tutti_claim *claim)
{
    if (claim->uses == NULL) {
        claim->uses = claim->few;
        claim->room = TUTTI_CLAIM_USES_FEW;
    }
    assert(claim->count < claim->room);
    return &claim->uses[claim->count++];
}

static void
add_use(tutti_claim *claim, tutti_entry *entry, bool exclusive)
{
    tutti_use *use = next_use(claim);

    *use = (tutti_use){.entry = entry, .claim = claim, .exclusive = exclusive};
    tutti_list_init(&use->link);
    entry->refs++;
}

tutti_code
tutti_table_want(tutti_table *table, tutti_claim *claim, const char *handle, bool exclusive,
                 tutti_error *err)
{
    tutti_entry *entry = NULL;
    tutti_code code;

    agent_table_lock(table);
    code = agent_table_find(table, handle, &entry, err);
    if (code == TUTTI_OK) {
        add_use(claim, entry, exclusive);
    }
    agent_table_unlock(table);
    return code;
}

static tutti_code
check_new(const tutti_table *table, const char *name, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (table->by_number.count >= table->handles_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "HANDLE_LIMIT",
                              "%" PRIu32 " tensors are here, the limit (--handles-max)",
                              table->handles_max);
    }
    if (name[0] != '\0') {
        code = tutti_check_name(name, "tensor", err);
    }
    if (code == TUTTI_OK && name[0] != '\0' &&
        tutti_map_find(&table->by_name, tutti_bytes_of(name)) != NULL) {
        code =
            TUTTI_FAIL_FOR(err, TUTTI_ALREADY_EXISTS, "NAME_TAKEN",
                           "a tensor is named \"%s\" already: delete it, overwrite it (into), or "
                           "choose another name",
                           name);
    }
    return code;
}

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
    }
    tutti_list_init(&entry->line);
    entry->refs = 1;
    entry->listed = true;
}

void
tutti_table_unwant(tutti_table *table, tutti_claim *claim)
{
    assert(claim->count > 0);
    agent_table_lock(table);
    claim->count--;
    agent_table_unref(table, claim->uses[claim->count].entry);
    agent_table_unlock(table);
}

tutti_code
tutti_table_make(tutti_table *table, tutti_claim *claim, const char *name, tutti_error *err)
{
    tutti_entry *entry = calloc(1, sizeof(*entry));
    tutti_code code;

    if (entry == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a handle");
    }
    agent_table_lock(table);
    code = check_new(table, name, err);
    code = code == TUTTI_OK ? agent_table_check_lease(table, claim->lease, err) : code;
    if (code == TUTTI_OK) {
        list_entry(table, entry, name);
        entry->lease = claim->lease;
        memcpy(entry->owner, claim->owner, sizeof(entry->owner));
        add_use(claim, entry, true);
        entry = NULL;
    }
    agent_table_unlock(table);
    free(entry);
    return code;
}

/* ------------------------------------------------------------------------------ the line */

/* Grant what can be granted; claims that got their last one go to `ready`. */
static void
grant(tutti_entry *entry, tutti_link *ready)
{
    tutti_link *link;
    bool first = true;

    for (link = entry->line.next; link != &entry->line; link = link->next) {
        tutti_use *use = tutti_container_of(link, tutti_use, link);

        if (use->exclusive && !first) {
            return;
        }
        first = false;
        if (!use->granted) {
            use->granted = true;
            entry->version += use->exclusive ? 1 : 0;
            use->claim->waiting--;
            if (use->claim->waiting == 0 && ready != NULL) {
                tutti_list_add(ready, &use->claim->task.link);
            }
        }
        if (use->exclusive) {
            return;
        }
    }
}

static void
run_ready(tutti_rpc_task *task)
{
    tutti_claim *claim = tutti_container_of(task, tutti_claim, task);

    claim->on_ready(claim);
}

bool
tutti_table_claim(tutti_table *table, tutti_claim *claim)
{
    bool ready;
    uint32_t i;

    claim->task.on_run = run_ready;
    tutti_list_init(&claim->task.link);
    agent_table_lock(table);
    claim->waiting = claim->count;
    for (i = 0; i < claim->count; i++) {
        tutti_list_add(&claim->uses[i].entry->line, &claim->uses[i].link);
        grant(claim->uses[i].entry, NULL);
    }
    ready = claim->waiting == 0;
    agent_table_unlock(table);
    return ready;
}

uint64_t
tutti_table_version(tutti_table *table, const tutti_use *use)
{
    uint64_t version;

    agent_table_lock(table);
    version = use->entry->version;
    agent_table_unlock(table);
    return version;
}

static void
post_ready(tutti_link *ready)
{
    tutti_link *link;

    while ((link = tutti_list_pop(ready)) != NULL) {
        tutti_claim *claim =
            tutti_container_of(tutti_container_of(link, tutti_rpc_task, link), tutti_claim, task);

        tutti_rpc_loop_post(claim->loop, &claim->task);
    }
}

void
tutti_table_release(tutti_table *table, tutti_claim *claim)
{
    tutti_link ready;
    uint32_t i;

    tutti_list_init(&ready);
    agent_table_lock(table);
    for (i = 0; i < claim->count; i++) {
        tutti_use *use = &claim->uses[i];

        tutti_list_remove(&use->link);
        grant(use->entry, &ready);
        agent_table_unref(table, use->entry);
    }
    claim->count = 0;
    agent_table_unlock(table);
    if (claim->uses != claim->few) {
        free(claim->uses);
    }
    claim->uses = NULL;
    post_ready(&ready);
}
