/*
 * Gate: holds answers back until what they tell of is certain, in a durable store for example. The
 * handlers of a service with a gate answer and write as ever; what they say leaves when the gate
 * has come to its number. Calls are not held back, and neither is what the server itself answers.
 *
 * A gate belongs to one loop, and so do all services that have it; its handlers answer on that
 * loop only.
 */
#ifndef TUTTI_RPC_GATE_H
#define TUTTI_RPC_GATE_H

#include <stdint.h>

#include "base/data/list.h"

typedef struct tutti_rpc_gate tutti_rpc_gate;
struct tutti_rpc_gate {
    /* For what number does an answer wait that is given now? 0 = it need not. Numbers never get
     * smaller. Runs on the loop, in the middle of a handler. */
    uint64_t (*number)(void *arg);
    void *arg;
    tutti_list_node held; /* the gate's own: calls, in the order of their numbers */
};

void tutti_rpc_gate_init(tutti_rpc_gate *gate, uint64_t (*number)(void *arg), void *arg);

/* Let out what waits for `number` or less. The loop's thread. */
void tutti_rpc_gate_open(tutti_rpc_gate *gate, uint64_t number);

#endif
