/*
 * Ranks that leave, in two steps: an announcement (a new epoch and an event; the rank stays alive
 * and ends its ops), then the leave itself (as a loss, with the reason "left"). Decision 0014
 * says why.
 */
#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/member/events.h"
#include "server/coordinator/member/job.h"
#include "server/coordinator/member/members.h"
#include "server/coordinator/member/seats.h"
#include "server/coordinator/member/session.h"

/* The reason in words of the agent, made printable and cut: it goes into other agents' errors. */
static void
write_reason(const char *start, const char *said, char *ret_reason)
{
    tutti_text text = tutti_text_in(ret_reason, COORD_REASON_MAX);
    size_t i;

    tutti_text_add(&text, "%s", start);
    if (said == NULL || said[0] == '\0') {
        return;
    }
    tutti_text_add(&text, "%s", start[0] == '\0' ? "" : ": ");
    for (i = 0; said[i] != '\0' && !text.cut; i++) {
        tutti_text_add(&text, "%c", said[i] >= 0x20 && said[i] <= 0x7e ? said[i] : '?');
    }
}

tutti_code
tutti_coordinator_announce_leave(tutti_coordinator *self, const tutti_coordinator_member *member,
                                 const char *reason, tutti_coordinator_epoch_key *ret_key,
                                 tutti_error *err)
{
    char words[COORD_REASON_MAX];
    coord_agent *agent = NULL;

    TUTTI_TRY(coord_member_check(self, member, &agent, err));

    /* Said already: the call came twice, and changes nothing. */
    if (agent->reason[0] == '\0') {
        write_reason("", reason == NULL || reason[0] == '\0' ? "no reason given" : reason, words);
        coord_seat_announce(agent, words);
        coord_event_publish(agent->job, &agent->event);
    }
    *ret_key = coord_job_key(agent->job);
    return TUTTI_OK;
}

tutti_code
tutti_coordinator_leave(tutti_coordinator *self, const tutti_coordinator_member *member,
                        const char *reason, tutti_error *err)
{
    char words[COORD_REASON_MAX];
    coord_agent *agent = NULL;

    TUTTI_TRY(coord_member_check(self, member, &agent, err));

    write_reason(COORD_LEFT, reason, words);
    coord_agent_lose(agent, words, NULL);
    return TUTTI_OK;
}
