/* What is checked of a command, and the choice of the workers that it is for (agent_session.chosen). */
#include <inttypes.h>
#include <string.h>

#include "base/error/fail.h"
#include "server/agent/session/plan_pb.h"

/* ------------------------------------------------------------------------------ checks */

bool
agent_plan_is_going_on(const plan *self)
{
    return self->err.code == TUTTI_OK;
}

void
agent_plan_check_register(plan *self, uint32_t number)
{
    if (agent_plan_is_going_on(self) && number == 0) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "BAD_REGISTER",
                             "register 0, need 1 to %" PRIu32, self->session->registers_max);
    } else if (agent_plan_is_going_on(self) && number > self->session->registers_max) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_RESOURCE_EXHAUSTED, "REGISTER_LIMIT",
                             "register %" PRIu32 ", at most %" PRIu32
                             " (--registers-max): drop some and use their numbers again",
                             number, self->session->registers_max);
    }
}

/* A tensor that is there, or a register for a new one: one of them. */
void
agent_plan_check_target(plan *self, uint32_t dst, uint32_t into)
{
    if (agent_plan_is_going_on(self) && (dst == 0) == (into == 0)) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "BAD_REGISTER",
                             "dst %" PRIu32 " and into %" PRIu32 ": give one of them", dst, into);
    }
    agent_plan_check_register(self, dst != 0 ? dst : into);
}

/* The register of a result; "" = nobody wants it. */
void
agent_plan_name_result(plan *self, uint32_t into, char ret_name[AGENT_SESSION_NAME_SIZE])
{
    ret_name[0] = '\0';
    if (into != 0) {
        agent_plan_check_register(self, into);
        agent_session_register(self->session, into, ret_name);
    }
}

void
agent_plan_check_plain_value(plan *self, const Tutti__V1__Value *value)
{
    if (agent_plan_is_going_on(self) && value == NULL) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE", "no value");
    } else if (agent_plan_is_going_on(self) && (value->kind_case == TUTTI__V1__VALUE__KIND_TENSOR ||
                                                value->kind_case == TUTTI__V1__VALUE__KIND_NAME)) {
        (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "BAD_VALUE",
                             "%s is a name on one worker and not on the others: use a register",
                             value->kind_case == TUTTI__V1__VALUE__KIND_TENSOR ? value->tensor
                                                                               : value->name);
    }
}

/* ------------------------------------------------------------------------------ for whom */

void
agent_plan_choose_all(plan *self)
{
    memset(self->session->chosen, 1, self->session->worker_count);
}

/* In none: all of them. */
void
agent_plan_choose_workers(plan *self, const uint32_t *workers, size_t count)
{
    const uint32_t most = self->session->worker_count;
    size_t i;

    memset(self->session->chosen, count == 0 ? 1 : 0, most);
    for (i = 0; i < count && agent_plan_is_going_on(self); i++) {
        if (workers[i] >= most) {
            (void)TUTTI_FAIL_FOR(&self->err, TUTTI_INVALID_ARGUMENT, "BAD_WORKER",
                                 "worker %" PRIu32 ", need 0 to %" PRIu32, workers[i], most - 1);
        } else {
            self->session->chosen[workers[i]] = 1;
        }
    }
}

void
agent_plan_choose_others(plan *self)
{
    uint32_t i;

    for (i = 0; i < self->session->worker_count; i++) {
        self->session->chosen[i] ^= 1;
    }
}

static bool
is_first(const agent_session *session, uint32_t worker, bool in_group)
{
    return in_group ? worker % session->group_size == 0 : worker == 0;
}

/* Worker 0, or that of each group; or all the others. */
void
agent_plan_choose_firsts(plan *self, bool in_group, bool firsts)
{
    uint32_t i;

    for (i = 0; i < self->session->worker_count; i++) {
        self->session->chosen[i] = is_first(self->session, i, in_group) == firsts;
    }
}

void
agent_plan_choose_one(plan *self, uint32_t worker)
{
    memset(self->session->chosen, 0, self->session->worker_count);
    self->session->chosen[worker] = 1;
}

void
agent_plan_choose_living(plan *self)
{
    uint32_t i;

    for (i = 0; i < self->session->worker_count; i++) {
        self->session->chosen[i] = !self->session->workers[i].lost;
    }
}

/* Of those that are chosen: an op that one rank does not call would keep the others waiting, so it
 * is not begun at all. */
void
agent_plan_need_chosen(plan *self)
{
    agent_session *session = self->session;
    const bool good = agent_plan_is_going_on(self);
    uint32_t i;

    for (i = 0; i < session->worker_count && good; i++) {
        if (session->chosen[i] != 0 && session->workers[i].lost) {
            agent_drive_fail(self->command, &session->workers[i], &session->workers[i].gone);
            self->err = session->workers[i].gone;
        }
    }
}

/* The first lost worker of the group that begins with `first`; NULL = none. */
static const agent_worker *
find_lost(const agent_session *session, uint32_t first)
{
    uint32_t i;

    for (i = first; i < first + session->group_size; i++) {
        if (session->workers[i].lost) {
            return &session->workers[i];
        }
    }
    return NULL;
}

/* Ops of groups that have lost a worker are not begun: all of the group fail with its name. */
static void
fail_broken_groups(plan *self)
{
    agent_session *session = self->session;
    uint32_t first;
    uint32_t i;

    for (first = 0; first < session->worker_count && agent_plan_is_going_on(self);
         first += session->group_size) {
        const agent_worker *lost = find_lost(session, first);

        for (i = first; i < first + session->group_size && lost != NULL; i++) {
            agent_drive_fail(self->command, &session->workers[i], &lost->gone);
        }
    }
}

/* The workers of those groups are left out. */
static void
leave_broken_groups(plan *self)
{
    agent_session *session = self->session;
    uint32_t first;

    for (first = 0; first < session->worker_count; first += session->group_size) {
        if (find_lost(session, first) != NULL) {
            memset(session->chosen + first, 0, session->group_size);
        }
    }
}

/* For an op of all workers, or of the workers of each group. */
void
agent_plan_choose_for_op(plan *self, bool in_group)
{
    agent_plan_choose_all(self);
    if (in_group) {
        fail_broken_groups(self);
        leave_broken_groups(self);
    } else {
        agent_plan_need_chosen(self);
    }
}

/* Of those: the first ones, or all the others. */
void
agent_plan_choose_firsts_for_op(plan *self, bool in_group, bool firsts)
{
    agent_plan_choose_firsts(self, in_group, firsts);
    if (in_group) {
        leave_broken_groups(self);
    }
}

/* Who has a partner in the next group, or in the one before. */
static bool
find_partner(const agent_session *session, uint32_t worker, bool next, uint32_t *ret_partner)
{
    const uint32_t size = session->group_size;

    *ret_partner = next ? worker + size : worker - size;
    return next ? worker + size < session->worker_count : worker >= size;
}

void
agent_plan_choose_pairs(plan *self, bool next)
{
    agent_session *session = self->session;
    const bool good = agent_plan_is_going_on(self);
    uint32_t partner;
    uint32_t i;

    memset(session->chosen, 0, session->worker_count);
    for (i = 0; i < session->worker_count && good; i++) {
        agent_worker *worker = &session->workers[i];

        if (!find_partner(session, i, next, &partner)) {
            continue;
        }
        if (worker->lost || session->workers[partner].lost) {
            agent_drive_fail(self->command, worker,
                             worker->lost ? &worker->gone : &session->workers[partner].gone);
        } else {
            session->chosen[i] = 1;
        }
    }
}
