/* Private to agent/session: a command while it is planned, what is checked of it, and for which workers it is. */
#ifndef TUTTI_AGENT_SESSION_PLAN_PB_H
#define TUTTI_AGENT_SESSION_PLAN_PB_H

#include "server/agent/session/session.h"
#include "tutti/v1/commands_service.pb-c.h"
#include "tutti/v1/session_service.pb-c.h"

/* A command while it is planned. */
typedef struct plan {
    agent_session *session;
    agent_drive *command;
    tutti_error err; /* code not OK: it is refused, and nothing more is sent */
} plan;

/* Nothing was refused so far. */
bool agent_plan_is_going_on(const plan *self);

/* A register that a result may go to: BAD_REGISTER, REGISTER_LIMIT. */
void agent_plan_check_register(plan *self, uint32_t number);

/* A tensor that is there, or a register for a new one: one of them. */
void agent_plan_check_target(plan *self, uint32_t dst, uint32_t into);

/* The register of a result; "" = nobody wants it. */
void agent_plan_name_result(plan *self, uint32_t into, char ret_name[AGENT_SESSION_NAME_SIZE]);

/* A value that means the same on all workers: BAD_VALUE. */
void agent_plan_check_plain_value(plan *self, const Tutti__V1__Value *value);

/* Every worker. */
void agent_plan_choose_all(plan *self);

/* These; none = all of them. BAD_WORKER */
void agent_plan_choose_workers(plan *self, const uint32_t *workers, size_t count);

/* Those that were not chosen. */
void agent_plan_choose_others(plan *self);

/* Worker 0, or that of each group; or all the others. */
void agent_plan_choose_firsts(plan *self, bool in_group, bool firsts);

/* That worker alone. */
void agent_plan_choose_one(plan *self, uint32_t worker);

/* All that are not lost. */
void agent_plan_choose_living(plan *self);

/* Of those that are chosen: an op that one rank does not call would keep the others waiting, so it
 * is not begun at all. */
void agent_plan_need_chosen(plan *self);

/* For an op of all workers, or of the workers of each group. */
void agent_plan_choose_for_op(plan *self, bool in_group);

/* Of those of choose_for_op: the first ones, or all the others. */
void agent_plan_choose_firsts_for_op(plan *self, bool in_group, bool firsts);

/*
 * The workers that send to the next group, or that receive from the one before: those that have a
 * partner there. Where one of the two is lost, the pair fails, and the others go on.
 */
void agent_plan_choose_pairs(plan *self, bool next);

#endif
