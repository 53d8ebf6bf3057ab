/* GetGroup of a coordinator that is a part of the test. */
#include "base/data/spans.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/op/coordinator_fake.h"
#include "support/testing.h"
#include "tutti/v1/coordinator_service.pb-c.h"

static void
read_name(const struct ProtobufCMessage *message, char *ret_name)
{
    const Tutti__V1__GetGroupRequest *request = (const Tutti__V1__GetGroupRequest *)message;

    assert_ptr_equal(message->descriptor, &tutti__v1__get_group_request__descriptor);
    (void)snprintf(ret_name, TUTTI_NAME_MAX + 1, "%s", request->name);
}

void
fake_coordinator_init(fake_coordinator *self)
{
    *self = (fake_coordinator){.channel.read_name = read_name};
    fake_channel_init(&self->channel);
}

static fake_group *
find_group(fake_coordinator *self, const char *name)
{
    size_t i;

    for (i = 0; i < self->count; i++) {
        if (strcmp(self->groups[i].name, name) == 0) {
            return &self->groups[i];
        }
    }
    return NULL;
}

fake_group *
fake_coordinator_group(fake_coordinator *self, const char *name, const uint32_t *ranks,
                       uint32_t count)
{
    static uint64_t last_id;
    fake_group *group = find_group(self, name);

    if (group == NULL) {
        assert_true(self->count < FAKE_GROUPS_MAX);
        group = &self->groups[self->count++];
    }
    *group = (fake_group){.id = ++last_id, .epoch = 1, .count = count};
    (void)snprintf(group->name, sizeof(group->name), "%s", name);
    memcpy(group->ranks, ranks, count * sizeof(ranks[0]));
    return group;
}

static void
answer_group(const fake_coordinator *self, tutti_rpc_request *request, fake_group *group)
{
    Tutti__V1__GetGroupResponse response = TUTTI__V1__GET_GROUP_RESPONSE__INIT;
    Tutti__V1__Group found = TUTTI__V1__GROUP__INIT;
    uint32_t spans[TUTTI_SPAN_NUMBERS] = {group->ranks[0], group->count, 1};

    found.id = group->id;
    found.name = group->name;
    found.epoch = group->epoch;
    if (self->answers_spans) { /* its ranks follow one another */
        found.n_spans = TUTTI_SPAN_NUMBERS;
        found.spans = spans;
    } else {
        found.n_ranks = group->count;
        found.ranks = group->ranks;
    }
    response.group = self->answers_nothing ? NULL : &found;
    fake_request_end(request, &response, NULL);
}

static void
end_request(fake_coordinator *self, tutti_rpc_request *request)
{
    fake_group *group = find_group(self, request->name);
    tutti_error err;

    if (request->cancelled) {
        (void)TUTTI_FAIL(&err, TUTTI_CANCELLED, "the request was given up");
    } else if (self->holds) { /* its time is up */
        (void)TUTTI_FAIL(&err, TUTTI_DEADLINE_EXCEEDED, "the coordinator says nothing");
    } else if (self->refuses.code != TUTTI_OK) {
        err = self->refuses;
    } else if (group == NULL) {
        (void)TUTTI_FAIL_FOR(&err, TUTTI_NOT_FOUND, "NO_GROUP", "no group %s", request->name);
    } else {
        answer_group(self, request, group);
        return;
    }
    fake_request_end(request, NULL, &err);
}

unsigned
fake_coordinator_run(fake_coordinator *self)
{
    const uint64_t now_ns = tutti_clock_ns();
    tutti_list_node *link;
    tutti_list_node *spare;
    unsigned count = 0;

    tutti_list_each(link, spare, &self->channel.requests)
    {
        tutti_rpc_request *request = tutti_container_of(link, tutti_rpc_request, link);

        if (request->cancelled || !self->holds || request->deadline_ns <= now_ns) {
            end_request(self, request);
            count++;
        }
    }
    return count;
}
