/*
 * Fault injection: disturb packets of the data plane and ops, at named points. For tests/faults.
 *
 * TUTTI_CHAOS in the environment holds a rule, "point:action[:n]", that strikes once, when the
 * point is passed for the n-th time (n = 1 when it is not said); or a path that begins with "/": a
 * file of a page, mapped, whose rule may be changed while the process runs (tutti_fault_page). A
 * number is not for us: lib/coll/shm delays by it. Without it nothing of this is in the way but a
 * look at a pointer, four times an op.
 *
 * Points of packets that leave for other hosts are named like their kinds (packet.h): agree, data,
 * abort, query, report, send, taken, refused, retract, meta, leave, reset. Points of an op:
 * after-agree, before-data, mid-data (every round but the first), before-done. Point of joining:
 * after-key, when the engine has the epoch's key, and the agent does not know yet that it has
 * joined.
 *
 * Actions: delay=MS, kill and stop (SIGKILL, SIGSTOP to ourselves), cut (the way breaks; at a point
 * of an op: all ways); of packets also drop and duplicate.
 *
 * For one engine of the process, on the thread that does its work.
 */
#ifndef TUTTI_COLL_FAULT_INJECT_FAULT_INJECT_H
#define TUTTI_COLL_FAULT_INJECT_FAULT_INJECT_H

#include <stdatomic.h>

#include "coll/packet/packet.h"
#include "coll/transport.h"

#define TUTTI_FAULT_RULE_BYTES 120

typedef enum tutti_fault_point {
    /* 1 to TUTTI_PACKET_SILENT: packets of that kind */
    TUTTI_FAULT_AFTER_AGREE = TUTTI_PACKET_SILENT + 1, /* all ranks have said the same */
    TUTTI_FAULT_BEFORE_DATA,                           /* the backend's first round */
    TUTTI_FAULT_MID_DATA,                              /* each later one */
    TUTTI_FAULT_BEFORE_DONE,                           /* its caller has not heard yet */
    TUTTI_FAULT_AFTER_KEY,                             /* the control loop passes it, as it joins */
    TUTTI_FAULT_POINTS,
} tutti_fault_point;

typedef enum tutti_fault_action {
    TUTTI_FAULT_NOTHING,
    TUTTI_FAULT_DELAY,
    TUTTI_FAULT_DROP,
    TUTTI_FAULT_DUPLICATE,
    TUTTI_FAULT_CUT,
    TUTTI_FAULT_KILL,
    TUTTI_FAULT_STOP,
} tutti_fault_action;

/* How the mapped file begins. Write the rule, then count `generation` up. */
typedef struct tutti_fault_page {
    char rule[TUTTI_FAULT_RULE_BYTES]; /* "" = none */
    atomic_uint generation;
    atomic_uint struck; /* rules that have struck since the file was made */
} tutti_fault_page;

typedef struct tutti_fault_rule {
    uint32_t point; /* 0 = none */
    tutti_fault_action action;
    uint32_t delay_ms;
    uint32_t nth;
} tutti_fault_rule;

/* TUTTI_INVALID_ARGUMENT  no such point or action, or not both; the text lists them */
tutti_code tutti_fault_read_rule(const char *text, tutti_fault_rule *ret_rule, tutti_error *err);

/*
 * Before the engine starts. [in] text  what TUTTI_CHAOS holds; NULL or a number: nothing is spoilt
 *
 * TUTTI_INVALID_ARGUMENT  a rule that cannot be read
 * TUTTI_NOT_FOUND         the file cannot be opened, or is shorter than a tutti_fault_page
 */
tutti_code tutti_fault_open(const char *text, tutti_error *err);
bool tutti_fault_is_on(void);
void tutti_fault_close(void);

/* A packet passes its point: what is to be done with it? kill and stop have happened by then. */
tutti_fault_action tutti_fault_packet(tutti_packet_kind kind, uint32_t *ret_delay_ms);

/* A point of an op is passed. What is asked for has happened; but a cut follows with the next
 * progress of the transport. */
void tutti_fault_at(tutti_fault_point point);

/* Has a cut of all ways been asked for since the last call? */
bool tutti_fault_take_cut(void);

/* [in, moved] inner  closed with the new one, also when this fails. Only where fault injection is
 * on. */
tutti_code tutti_transport_fault_open(tutti_transport *inner, tutti_transport **ret_transport,
                                      tutti_error *err);

#endif
