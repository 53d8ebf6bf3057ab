/*
 * Hosts: before the first op that goes by messages, the ranks of a group tell each other which host
 * they are on, in ceil(log2 n) rounds (Bruck et al. 1997). The result is the same on all ranks:
 * hosts are numbered in the order in which group ranks name them.
 *
 * The map is kept in the group's note, with the epoch for which it holds: a rank that has returned
 * may be on another host. If the op fails in the middle, some ranks have the map and some do not;
 * the next op's votes show that, and all learn it again.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/host/pick.h"

#define STEP_HOSTS 0x50000U /* beyond those of plans and exposed regions */

typedef struct host_map {
    uint64_t epoch;
    uint32_t host_count;
    uint32_t hosts[]; /* by group rank */
} host_map;

typedef struct host_learning {
    host_state base;
    host_start_fn then;
    uint64_t numbers[]; /* [size] unit j is of rank me + j; the lowest byte first */
} host_learning;

const uint32_t *
tutti_coll_host_map(const tutti_coll_op *op, uint32_t *ret_count)
{
    const host_map *map = *tutti_coll_group_note(op);

    if (map == NULL || map->epoch != op->epoch) {
        return NULL;
    }
    *ret_count = map->host_count;
    return map->hosts;
}

/* Quadratic in hosts, once per epoch: a few milliseconds for a thousand. */
static void
number_hosts(host_map *map, const uint64_t *numbers, uint32_t size, uint32_t me)
{
    uint32_t i;
    uint32_t j;

    for (i = 0; i < size; i++) {
        const uint64_t number = numbers[(i + size - me) % size];

        for (j = 0; j < i && numbers[(j + size - me) % size] != number; j++) {
        }
        map->hosts[i] = j < i ? map->hosts[j] : map->host_count++;
    }
}

static tutti_code
keep_map(const tutti_coll_op *op, tutti_error *err)
{
    const host_learning *self = op->backend_state;
    const uint32_t size = tutti_coll_group_size(op->group);
    void **note = tutti_coll_group_note(op);
    host_map *map = calloc(1, sizeof(*map) + size * sizeof(map->hosts[0]));

    if (map == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the hosts of %u ranks", size);
    }
    map->epoch = op->epoch;
    number_hosts(map, self->numbers, size, tutti_coll_group_rank(op->group));
    free(*note);
    *note = map;
    return TUTTI_OK;
}

static tutti_code
advance_hosts(tutti_coll_op *op, bool *ret_done, tutti_error *err)
{
    host_learning *self = op->backend_state;
    const uint32_t size = tutti_coll_group_size(op->group);
    const uint32_t me = tutti_coll_group_rank(op->group);
    const uint32_t have = 1U << op->round;
    uint32_t count;
    tutti_code code;

    if (op->round == tutti_host_log2_up(size)) {
        code = keep_map(op, err);
        return code == TUTTI_OK ? tutti_coll_host_restart(op, self->then, true, ret_done, err)
                                : code;
    }
    count = have < size - have ? have : size - have;
    tutti_coll_send(op, STEP_HOSTS + op->round, (me + size - have) % size, self->numbers,
                    count * sizeof(uint64_t), 0);
    tutti_coll_recv(op, STEP_HOSTS + op->round, (me + have) % size, self->numbers + have,
                    count * sizeof(uint64_t), NULL);
    return TUTTI_OK;
}

tutti_code
tutti_coll_host_learn(tutti_coll_op *op, host_start_fn then, tutti_error *err)
{
    static const host_algorithm algorithm = {.advance = advance_hosts};
    const size_t bytes = tutti_coll_group_size(op->group) * sizeof(uint64_t);
    void *memory = NULL;
    const tutti_code code =
        tutti_coll_host_state(op, sizeof(host_learning) + bytes, 0, &memory, err);
    host_learning *self = memory;

    if (code == TUTTI_OK) {
        self->base.algorithm = &algorithm;
        self->then = then;
        self->numbers[0] = tutti_coll_host_number(op); /* only compared: any order of bytes */
    }
    return code;
}
