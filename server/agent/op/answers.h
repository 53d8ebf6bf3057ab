/*
 * Answers of ops whose calls have a token (OpOptions.token), kept for --retry-window: a call that
 * comes again with the token, because the answer was lost on its way, gets the answer of the first
 * one, and the op does not run twice. Control loop, except agent_answers_note. An op without a
 * token (kept_answer is NULL) passes through all of these functions unchanged.
 */
#ifndef TUTTI_SERVER_AGENT_OP_ANSWERS_H
#define TUTTI_SERVER_AGENT_OP_ANSWERS_H

#include "server/agent/agent.h"
#include "server/agent/state/request.h"
#include "server/agent/state/types.h"

void agent_answers_init(tutti_agent *agent);
void agent_answers_fini(tutti_agent *agent); /* before the table and the spaces close */

/*
 * Has a call of this caller with this token come before? Then this one is answered: with the same, or with ABORTED
 * TOKEN_IN_FLIGHT as long as the op runs. An op that failed is forgotten, and runs again.
 */
bool agent_answers_repeat(tutti_agent *agent, tutti_rpc_call *call, const agent_request *request,
                          agent_answer_fn answer);

/*
 * The op has a token: its answer will be kept, and until then a call that comes again is told
 * TOKEN_IN_FLIGHT. TUTTI_RESOURCE_EXHAUSTED: no memory; nothing is kept.
 */
tutti_code agent_answers_expect(agent_op *op, const tutti_rpc_call *call,
                                const agent_request *request, tutti_error *err);

/*
 * This is what the op's caller is told. Copies what `result` points to. Any thread, once for an op,
 * before agent_answers_settle. Without memory nothing is kept, and a repeated call runs anew.
 */
void agent_answers_note(agent_op *op, const agent_op_result *result);

/* The op has come to its end, or is async and has its place: from now on it can be repeated. */
void agent_answers_settle(agent_op *op);

/*
 * The op will be freed, its call is over. `reached`: its caller has the answer.
 *
 * Returns whether its new results stay, for a caller that comes again.
 */
bool agent_answers_release(agent_op *op, bool reached);

#endif
