/*
 * The abort of a group: its members hear of it by their sessions, and end its ops. The first abort
 * counts, so all ranks read the same words, however many ask at once. It stays with the group: an
 * agent that asks for the group later is told with the answer.
 *
 * The coordinator and not the data plane carries the news: a rank that is lost or stopped cannot
 * hold it up, and a rank that has never used the group cannot miss it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/groups.h"
#include "server/coordinator/group/rank_list.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/job.h"

#define ABORT_TEXT_MAX 700 /* a name, an identity, and a reason of which some bytes are escaped */
#define IDENTITY_MAX 96

static tutti_code
find_to_abort(const coord_agent *agent, const tutti_coordinator_abort_request *request,
              coord_group **ret_group, tutti_error *err)
{
    coord_group *group = NULL;
    uint32_t position;

    TUTTI_TRY(coord_group_find(agent->job, request->name, agent->rank, &group, err));
    if (request->id != 0 && group->id != request->id) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_GROUP",
                              "group %s has id %" PRIu64 " now, the group with id %" PRIu64
                              " was deleted",
                              group->name, group->id, request->id);
    }
    if (!coord_group_position(group, agent->rank, &position)) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_IN_GROUP",
                              "rank %" PRIu32 " is not in group %s: only members may abort it",
                              agent->rank, group->name);
    }
    *ret_group = group;
    return TUTTI_OK;
}

static char *
word_abort(const coord_group *group, uint32_t rank, const tutti_coordinator_abort_request *request)
{
    const char *reason = request->reason == NULL ? "" : request->reason;
    const char *identity = request->identity == NULL ? "" : request->identity;
    char *text = malloc(ABORT_TEXT_MAX);
    char why[TUTTI_COORDINATOR_REASON_MAX * 4 + 1];
    char who[IDENTITY_MAX * 4 + 8] = "";

    coord_quote(tutti_bytes_of(reason), TUTTI_COORDINATOR_REASON_MAX, why, sizeof(why));
    coord_quote(tutti_bytes_of(identity), IDENTITY_MAX, who, sizeof(who));
    if (text != NULL) {
        tutti_text out = tutti_text_in(text, ABORT_TEXT_MAX);

        tutti_text_add(&out, "group %s was aborted by rank %" PRIu32, group->name, rank);
        if (who[0] != '\0') {
            tutti_text_add(&out, " (%s)", who);
        }
        tutti_text_add(&out, ": %s", why[0] == '\0' ? "no reason was given" : why);
    }
    return text;
}

tutti_code
coord_group_abort(coord_group *group, uint32_t rank, const tutti_coordinator_abort_request *request,
                  tutti_error *err)
{
    char *text = word_abort(group, rank, request);

    if (text == NULL) {
        return coord_fail_memory(err, "the abort of a group");
    }
    coord_group_forget_abort(group); /* of an older epoch of "world" */
    group->abort = (tutti_coordinator_abort){text, rank, coord_group_epoch(group)};
    group->abort_event.of_group = true;
    group->abort_event.abort = &group->abort;
    group->abort_event.group_id = group->id;
    group->abort_event.group_name = group->name;
    coord_event_publish(group->job, &group->abort_event);
    coord_note(group->job->owner, "job %s: %s", group->job->name, text);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_group_abort(tutti_coordinator *self,
                              const tutti_coordinator_abort_request *request,
                              const tutti_coordinator_abort **ret_abort, bool *ret_new,
                              tutti_error *err)
{
    const size_t length = request->reason == NULL ? 0 : strlen(request->reason);
    coord_agent *agent = NULL;
    coord_group *group = NULL;

    TUTTI_TRY(coord_member_check(self, &request->member, &agent, err));
    if (length > TUTTI_COORDINATOR_REASON_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "REASON_LIMIT",
                              "reason of %zu bytes, at most %d", length,
                              TUTTI_COORDINATOR_REASON_MAX);
    }
    TUTTI_TRY(find_to_abort(agent, request, &group, err));
    *ret_new = coord_group_abort_of(group) == NULL;
    if (*ret_new) {
        TUTTI_TRY(coord_group_abort(group, agent->rank, request, err));
    }
    *ret_abort = &group->abort;
    return TUTTI_OK;
}
