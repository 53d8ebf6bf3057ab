/*
 * Which group a member's call is for: by name, by tag and ranks, or by its turn.
 *
 * Turns: members that create groups without name and tag do not tell each other which call is
 * which. The k-th call of each member for a list of ranks is for the k-th group of that list, so
 * the registry counts the calls of each member. A token makes a call that comes again count once.
 * A restarted process counts from one, as its program does.
 *
 * Nothing is made before all checks have passed, and a new group is recorded in the store before
 * anybody is told.
 */
#include "server/coordinator/group/claim.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/core/hooks.h"
#include "server/coordinator/group/group.h"
#include "server/coordinator/group/registry.h"
#include "server/coordinator/member/job.h"

static bool
same_ranks(const coord_group *group, const uint32_t *ranks, size_t count)
{
    uint32_t i;

    if (group->count != count) {
        return false;
    }
    if (group->ranks != NULL) {
        return memcmp(group->ranks, ranks, count * sizeof(*ranks)) == 0;
    }
    for (i = 0; i < count; i++) {
        if (ranks[i] != i) {
            return false;
        }
    }
    return true;
}

static tutti_code
fail_taken(const coord_group *group, tutti_error *err)
{
    char buffer[256];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));

    if (group->ranks == NULL) {
        tutti_text_add(&text, "all ranks in their order");
    } else {
        tutti_text_add(&text, "ranks ");
        tutti_text_add_ranks(&text, group->ranks, group->count, 16);
    }
    if (group->registry != NULL && coord_group_registry_tag(group->registry)[0] != '\0') {
        tutti_text_add(&text, ", tag %s", coord_group_registry_tag(group->registry));
    }
    (void)TUTTI_FAIL_FOR(
        err, TUTTI_ALREADY_EXISTS, "NAME_TAKEN",
        "group %s exists already, with %s: take another name, or the same ranks and tag",
        group->name, buffer);
    tutti_error_set_op(err, group->name, 0, TUTTI_ERROR_RANK_NONE);
    return TUTTI_ALREADY_EXISTS;
}

/* Make a group and put it where it is found: the job's map, the registry, the store. */
static tutti_code
make_group(const coord_claim *claim, const char *name, coord_group_registry *registry,
           uint64_t turn, coord_group **ret_group, tutti_error *err)
{
    coord_job *job = claim->agent->job;
    coord_group *group;
    tutti_code code;

    TUTTI_TRY(coord_group_check_limits(job, claim->count, err));
    group = coord_group_new(job, name, claim->count);
    if (group == NULL) {
        return coord_fail_memory(err, "a group");
    }
    code = coord_group_fill(group, claim->ranks, err);
    if (code == TUTTI_OK) {
        code = coord_group_check_alive(group, err);
    }
    if (code != TUTTI_OK) {
        coord_group_destroy(group);
        return code;
    }
    group->timeout_ms = claim->timeout_ms;
    group->made_ns = job->owner->now_ns;
    (void)snprintf(group->owner, sizeof(group->owner), "rank %" PRIu32 "%s%s", claim->agent->rank,
                   claim->caller == NULL ? "" : ": ", claim->caller == NULL ? "" : claim->caller);
    coord_group_add(group);
    if (registry != NULL) {
        coord_group_registry_add(registry, group, turn);
    }
    group->job->owner->hooks->record_group(group);
    *ret_group = group;
    return TUTTI_OK;
}

/* Draw a name. A client may have used one of this form, so it is looked up. */
static void
draw_claim_name(const coord_job *job, char *ret, size_t size)
{
    uint64_t number = job->group_ids;

    do {
        number++;
        (void)snprintf(ret, size, "unnamed/%" PRIu64, number);
    } while (tutti_map_find(&job->groups, tutti_bytes_of(ret)) != NULL);
}

/* ------------------------------------------------------------------------------ name, tag */

static tutti_code
check_found(const coord_claim *claim, const coord_group *group, tutti_error *err)
{
    const char *tag = group->registry == NULL ? "" : coord_group_registry_tag(group->registry);

    if (!same_ranks(group, claim->ranks, claim->count) || strcmp(tag, claim->tag) != 0 ||
        (claim->name[0] != '\0' && strcmp(group->name, claim->name) != 0)) {
        return fail_taken(group, err);
    }
    return coord_group_check_alive(group, err);
}

/*
 * The group that has the tag, or else the name. If both exist and differ, check_found refuses the
 * tagged one for its name.
 */
static tutti_code
find_known(const coord_claim *claim, coord_group_registry *registry, coord_group **ret_group,
           tutti_error *err)
{
    coord_job *job = claim->agent->job;
    coord_group *tagged = registry == NULL ? NULL : coord_group_registry_find(registry, 0);
    coord_group *named = NULL;

    if (claim->name[0] != '\0') {
        named = coord_group_from(tutti_map_find(&job->groups, tutti_bytes_of(claim->name)));
    }
    *ret_group = tagged != NULL ? tagged : named;
    return *ret_group == NULL ? TUTTI_OK : check_found(claim, *ret_group, err);
}

static tutti_code
claim_known(const coord_claim *claim, coord_group **ret_group, bool *ret_created, tutti_error *err)
{
    coord_job *job = claim->agent->job;
    coord_group_registry *registry = NULL;
    char drawn[TUTTI_NAME_MAX + 1];
    tutti_code code = TUTTI_OK;

    if (claim->tag[0] != '\0') {
        code = coord_group_registry_of(job, claim->tag, claim->ranks, claim->count, true, &registry,
                                       err);
    }
    if (code == TUTTI_OK) {
        code = find_known(claim, registry, ret_group, err);
    }
    if (code == TUTTI_OK && *ret_group == NULL) {
        draw_claim_name(job, drawn, sizeof(drawn));
        *ret_created = true;
        code = make_group(claim, claim->name[0] == '\0' ? drawn : claim->name, registry, 0,
                          ret_group, err);
    }
    if (registry != NULL) {
        coord_group_registry_settle(registry);
    }
    return code;
}

/* ------------------------------------------------------------------------------ turns */

/* The turns of the process that calls: a fresh one has had none. */
static coord_turns *
turns_of(const coord_claim *claim, coord_group_registry *registry)
{
    coord_turns *turns;
    uint32_t i = 0;

    while (claim->ranks[i] != claim->agent->rank) {
        i++;
    }
    turns = &registry->turns[i];
    if (turns->incarnation != claim->agent->incarnation) {
        *turns = (coord_turns){.incarnation = claim->agent->incarnation};
    }
    return turns;
}

static tutti_code
take_turn(const coord_claim *claim, coord_group_registry *registry, uint64_t turn,
          coord_group **ret_group, bool *ret_created, tutti_error *err)
{
    char name[TUTTI_NAME_MAX + 1];
    tutti_code code;

    if (turn > registry->turn_count) {
        draw_claim_name(claim->agent->job, name, sizeof(name));
        code = make_group(claim, name, registry, turn, ret_group, err);
        registry->turn_count += code == TUTTI_OK ? 1 : 0;
        *ret_created = true;
        return code;
    }
    *ret_group = coord_group_registry_find(registry, turn);
    if (*ret_group == NULL) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_NOT_FOUND, "NO_GROUP",
            "group number %" PRIu64
            " of these ranks without name and tag was deleted before rank %" PRIu32 " asked for it",
            turn, claim->agent->rank);
    }
    return coord_group_check_alive(*ret_group, err);
}

static tutti_code
claim_turn(const coord_claim *claim, coord_group **ret_group, bool *ret_created, tutti_error *err)
{
    coord_group_registry *registry = NULL;
    coord_turns *turns;
    bool again;
    tutti_code code;

    TUTTI_TRY(coord_group_registry_of(claim->agent->job, "", claim->ranks, claim->count, true,
                                      &registry, err));
    turns = turns_of(claim, registry);
    again = claim->token != 0 && claim->token == turns->token;
    code = take_turn(claim, registry, turns->count + (again ? 0 : 1), ret_group, ret_created, err);
    /*
     * A call for a deleted group has counted, too: the next one is for the next group. A call
     * that was refused for another reason (a lost rank, a limit) has not, and may be made again.
     */
    if (code == TUTTI_OK || code == TUTTI_NOT_FOUND) {
        turns->count += again ? 0 : 1;
        turns->token = claim->token;
        registry->job->owner->hooks->record_registry(registry, (uint32_t)(turns - registry->turns));
    }
    coord_group_registry_settle(registry);
    return code;
}

tutti_code
coord_group_claim(const coord_claim *claim, coord_group **ret_group, bool *ret_created,
                  tutti_error *err)
{
    *ret_created = false;
    return claim->name[0] == '\0' && claim->tag[0] == '\0'
               ? claim_turn(claim, ret_group, ret_created, err)
               : claim_known(claim, ret_group, ret_created, err);
}
