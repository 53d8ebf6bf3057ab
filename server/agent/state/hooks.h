/*
 * What happens in a room of the agent and is acted upon in rooms above it: ops are recorded on
 * tapes, places in line are a Backward's, the last op lets an agent stop. agent.c fills the table,
 * so no room calls one above itself, and a test of a room fills it with what it likes.
 */
#ifndef TUTTI_SERVER_AGENT_STATE_HOOKS_H
#define TUTTI_SERVER_AGENT_STATE_HOOKS_H

#include "server/agent/agent.h"
#include "server/agent/state/request.h"
#include "server/agent/state/types.h"

/* All but record_unpack and record_computed are called on the control loop; those two on the thread
 * that runs the engine. Transfers' two on the bulk loop. None is NULL. */
struct agent_hooks {
    /* member: may a caller's op begin? */
    tutti_code (*check_begin)(const tutti_agent *agent, tutti_error *err);
    /* member: the coordinator should know now where the groups stand */
    void (*tell_progress)(tutti_agent *agent);

    /* op, for groups: its turn has come; it never becomes an op */
    void (*launch)(agent_op *op);
    void (*end_early)(agent_op *op, const tutti_error *err);

    /* autograd: see recording.h and backward.h */
    tutti_code (*record_take)(agent_op *op, const agent_request *request, tutti_error *err);
    tutti_code (*record_begin)(agent_op *op, const tutti_spec *result, tutti_error *err);
    tutti_code (*record_list)(agent_op *op, tutti_error *err);
    tutti_code (*record_pack)(agent_op *op, tutti_error *err);
    void (*record_unpack)(agent_op *op);
    void (*record_computed)(agent_op *op);
    void (*record_end)(agent_op *op);
    void (*op_ended)(agent_op *op);
    void (*place_reached)(agent_op *place);

    /* service: answers of transfers */
    void (*answer_upload)(agent_access *access, const tutti_tensor *tensor);
    void (*write_download)(agent_access *access, const tutti_tensor *tensor,
                           const tutti_rpc_blob *blob);

    /* the agent: it ends because of this; perhaps the last op is over; the others know that we
     * leave */
    void (*give_up)(tutti_agent *agent, const tutti_error *err);
    void (*op_over)(tutti_agent *agent);
    void (*announced)(tutti_agent *agent);

    /* session: a rank of the job is gone; this one is, for the coordinator */
    void (*rank_lost)(tutti_agent *agent, uint32_t rank, const char *reason);
    void (*seat_lost)(tutti_agent *agent, const tutti_error *err);
};

#endif
