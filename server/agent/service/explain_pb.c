/*
 * DiagnosticsService.Explain and SetAlgorithms: which algorithm an op of a size would take, and
 * why; and another choice. Control loop. The answer comes from the same functions by which ops
 * choose (lib/coll/select), with what the group's last op has learned of its hosts.
 */
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/host/host.h"
#include "coll/reduce/reduce.h"
#include "coll/self/self.h"
#include "server/agent/op/group.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/algorithms.h"
#include "server/agent/state/group.h"
#include "server/agent/state/state.h"
#include "tutti/v1/diagnostics_service.pb-c.h"

#define RULE_BYTES 192

typedef struct wire_explanation {
    tutti_selection_query query;
    Tutti__V1__ExplainResponse message;
    Tutti__V1__Alternative alternatives[TUTTI_ALGORITHM_COUNT];
    Tutti__V1__Alternative *pointers[TUTTI_ALGORITHM_COUNT];
    char rule[RULE_BYTES];
    char passed_over[RULE_BYTES];
} wire_explanation;

static char *
get_explanation_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* ------------------------------------------------------------------------------ the question */

static tutti_code
read_order(const Tutti__V1__ExplainRequest *request, tutti_selection_query *query, tutti_error *err)
{
    const tutti_dtype dtype = request->dtype != TUTTI__V1__DTYPE__DTYPE_UNSPECIFIED
                                  ? (tutti_dtype)request->dtype
                                  : TUTTI_DTYPE_FP32;
    const tutti_reduce reduce = request->reduce_op != TUTTI__V1__REDUCE_OP__REDUCE_OP_UNSPECIFIED
                                    ? (tutti_reduce)request->reduce_op
                                    : TUTTI_REDUCE_SUM;
    const bool reduces = tutti_coll_is_reduction(query->kind);

    query->class_ = tutti_selection_class_of(query->kind, reduce, dtype);
    query->scaled = reduce == TUTTI_REDUCE_PREMUL_SUM;
    return reduces ? tutti_reduce_check(reduce, dtype, err) : TUTTI_OK;
}

static tutti_code
read_question(const Tutti__V1__ExplainRequest *request, tutti_selection_query *query,
              tutti_error *err)
{
    query->kind = tutti_selection_kind_of(request->op, strlen(request->op));
    query->bytes = request->bytes;
    query->regular = true;
    if (query->kind == 0) {
        return tutti_selection_refuse_kind(request->op, strlen(request->op), err);
    }
    return read_order(request, query, err);
}

/* Before the first op the hosts are those that the caller has asked the coordinator for. */
static void
take_hosts(const tutti_agent *agent, uint32_t told, wire_explanation *self)
{
    const uint32_t ranks = self->query.ranks;

    self->query.hosts = told == 0 || told > ranks ? ranks : told;
    self->query.same_host = self->query.hosts == 1 && ranks > 1 && !agent->options->no_shm;
}

/* The group as its last op found it. */
static tutti_code
look_at_group(tutti_agent *agent, const char *name, uint32_t told, wire_explanation *self,
              tutti_error *err)
{
    const agent_group *group = agent_group_find(agent, name);
    const tutti_coll_group *coll = group != NULL ? group->coll : NULL;
    tutti_coll_host_facts facts = {0};

    if (agent->state != AGENT_JOINED) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_JOINED",
                              "this agent has no job yet");
    }
    if (coll == NULL && strcmp(name, "world") != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_GROUP",
                              "no op was called on group %.128s here yet", name);
    }
    if (coll != NULL) {
        facts = tutti_coll_host_look(coll);
    }
    self->query.ranks = coll != NULL ? tutti_coll_group_size(coll) : agent->world_size;
    self->query.hosts = facts.host_count;
    self->query.same_host = facts.same_host;
    if (!facts.known) {
        take_hosts(agent, told, self);
    }
    self->message.settled = facts.known || self->query.ranks == 1;
    self->message.same_host = self->query.same_host;
    self->message.alike = facts.alike || !facts.known;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ the answer */

static void
write_selection(wire_explanation *self, const tutti_selection *selection)
{
    static const char *const whys[] = {"forced", "rule", "base"};
    const tutti_selection_query *query = &self->query;
    const tutti_algorithm forced = selection->forced[query->kind];
    const char *why_not = "";
    tutti_selection_why why = TUTTI_SELECTION_BASE;
    tutti_text text = tutti_text_in(self->rule, sizeof(self->rule));
    size_t rule = 0;
    tutti_algorithm algorithm = tutti_selection_base(query);
    /*
     * Small data travels inside the agreement, but not with the first op of a group of more than
     * two ranks: that op learns the hosts.
     */
    const bool rides =
        (self->message.settled || query->ranks <= 2) && tutti_coll_host_rides(selection, query);

    if (self->message.alike) {
        algorithm = tutti_selection_pick(selection, query, &why, &rule);
    }
    if (why == TUTTI_SELECTION_RULE && !rides) {
        tutti_selection_write_rule(&selection->rules[rule], &text);
        self->message.rule_number = (uint32_t)rule + 1;
    }
    text = tutti_text_in(self->passed_over, sizeof(self->passed_over));
    if (forced != TUTTI_ALGORITHM_NONE && !tutti_algorithm_fits(forced, query, &why_not)) {
        tutti_text_add(&text, "%s: %s", tutti_algorithm_name(forced), why_not);
    }
    self->message.algorithm =
        get_explanation_text(rides ? "agreement" : tutti_algorithm_name(algorithm));
    self->message.why = get_explanation_text(rides ? "small" : whys[why]);
    self->message.rule = self->rule;
    self->message.passed_over = self->passed_over;
    self->message.rule_count = (uint32_t)selection->rule_count;
}

/* A group of one rank has a backend of its own, which has nothing to choose. */
static void
write_self(wire_explanation *self, const tutti_selection *selection)
{
    const tutti_algorithm forced = selection->forced[self->query.kind];
    tutti_text text = tutti_text_in(self->passed_over, sizeof(self->passed_over));

    if (forced != TUTTI_ALGORITHM_NONE) {
        tutti_text_add(&text, "%s: needs two ranks", tutti_algorithm_name(forced));
    }
    self->message.algorithm = get_explanation_text(tutti_coll_self.name);
    self->message.why = get_explanation_text("one_rank");
    self->message.rule = self->rule;
    self->message.passed_over = self->passed_over;
    self->message.rule_count = (uint32_t)selection->rule_count;
}

static void
write_alternatives(wire_explanation *self)
{
    tutti_selection_model model;
    int i;

    tutti_selection_model_init(&model);
    for (i = 1; i < TUTTI_ALGORITHM_COUNT; i++) {
        const tutti_algorithm algorithm = (tutti_algorithm)i;
        Tutti__V1__Alternative *one = &self->alternatives[self->message.n_alternatives];
        const char *why_not = "";

        if (!tutti_algorithm_does(algorithm, self->query.kind)) {
            continue;
        }
        tutti__v1__alternative__init(one);
        one->algorithm = get_explanation_text(tutti_algorithm_name(algorithm));
        one->possible = tutti_algorithm_fits(algorithm, &self->query, &why_not);
        one->why_not = get_explanation_text(why_not);
        one->predicted_ns =
            one->possible ? tutti_selection_cost_ns(algorithm, &self->query, &model) : 0;
        one->keeps_order = tutti_algorithm_keeps_order(algorithm, self->query.kind);
        self->pointers[self->message.n_alternatives++] = one;
    }
    self->message.alternatives = self->pointers;
}

void
agent_on_explain(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    const Tutti__V1__ExplainRequest *request = tutti_rpc_call_request(call);
    const char *name = request->group[0] != '\0' ? request->group : "world";
    wire_explanation answer = {.message = TUTTI__V1__EXPLAIN_RESPONSE__INIT};
    const tutti_selection *selection = tutti_selector_current(agent->selector);
    const bool is_told = selection->rules != agent->first_selection->rules;
    tutti_error err;
    tutti_code code = read_question(request, &answer.query, &err);

    if (code == TUTTI_OK) {
        code = look_at_group(agent, name, request->host_count, &answer, &err);
    }
    if (code != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    answer.message.op = request->op;
    answer.message.group = get_explanation_text(name);
    answer.message.bytes = request->bytes;
    answer.message.rank_count = answer.query.ranks;
    answer.message.host_count = answer.query.hosts;
    answer.message.order_class =
        get_explanation_text(tutti_selection_class_name(answer.query.class_));
    answer.message.table =
        get_explanation_text(is_told                                 ? "told"
                             : agent->options->tune_table[0] != '\0' ? agent->options->tune_table
                                                                     : "shipped");
    if (answer.query.ranks == 1) {
        write_self(&answer, selection);
    } else {
        write_selection(&answer, selection);
        write_alternatives(&answer);
    }
    tutti_rpc_call_reply(call, &answer.message.base, NULL);
}

void
agent_on_set_algorithms(tutti_rpc_call *call, void *self)
{
    tutti_agent *agent = self;
    const Tutti__V1__SetAlgorithmsRequest *request = tutti_rpc_call_request(call);
    Tutti__V1__SetAlgorithmsResponse response = TUTTI__V1__SET_ALGORITHMS_RESPONSE__INIT;
    tutti_error err;

    if (agent_algorithms_set(agent, request->table, request->forced, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
        return;
    }
    response.rule_count = (uint32_t)tutti_selector_current(agent->selector)->rule_count;
    tutti_rpc_call_reply(call, &response.base, NULL);
}
