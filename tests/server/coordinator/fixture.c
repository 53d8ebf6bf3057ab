#include "support/testing.h"

#include "server/coordinator/fixture.h"
#include "store/memory/memory.h"

#define WALL_OFFSET_NS (1700000000ULL * SECOND)

fixture fix;

void
fixture_options(tutti_coordinator_options *ret_options)
{
    const tutti_option_set set = tutti_coordinator_option_set(ret_options);
    char name[] = "test";
    char *argv[] = {name};
    tutti_config *config = NULL;
    tutti_config_wish wish;
    tutti_error err;

    *ret_options = (tutti_coordinator_options){0}; /* with what is not in the table */
    assert_ok(tutti_config_load(&set, 1, 1, argv, &config, &wish, &err));
    assert_ok(tutti_coordinator_options_check(ret_options, &err));
    tutti_config_free(config);
}

static void
on_note(void *arg, const char *sentence)
{
    fixture *at = arg;
    const size_t used = strlen(at->notes);

    (void)snprintf(at->notes + used, sizeof(at->notes) - used, "%s;", sentence);
}

static uint64_t before_alike; /* 0 = no message of this coordinator yet */

void
fixture_open(fixture *at, const tutti_coordinator_options *options)
{
    tutti_store_memory_options limits = {0};
    tutti_error err;

    *at = (fixture){.now_ns = START_NS};
    before_alike = 0;
    tutti_list_init(&at->lines);
    tutti_list_init(&at->watchers);
    if (options == NULL) {
        fixture_options(&at->options);
    } else {
        at->options = *options;
    }
    limits.bytes_max = at->options.store_bytes_limit;
    limits.keys_max = at->options.store_keys_limit;
    assert_ok(tutti_store_memory_open(&limits, &at->store, &err));
    assert_ok(tutti_coordinator_new(&at->options, at->store, &at->self, &err));
    tutti_coordinator_set_observer(at->self, on_note, at);
    tutti_coordinator_set_time(at->self, at->now_ns, at->now_ns + WALL_OFFSET_NS);
}

int
fixture_begin(void **state)
{
    (void)state;
    fixture_open(&fix, NULL);
    return 0;
}

int
fixture_begin_durable(void **state)
{
    tutti_coordinator_options options;

    (void)state;
    fixture_options(&options);
    options.durable = true;
    fixture_open(&fix, &options);
    return 0;
}

int
fixture_end(void **state)
{
    (void)state;
    fixture_close(&fix);
    return 0;
}

tutti_coordinator_key
key_of(const char *key)
{
    return (tutti_coordinator_key){NULL, tutti_bytes_of(key)};
}

/* Messages leave: tell the coordinator. Returns whether there were any. */
static bool
write_all(fixture *at)
{
    bool any = false;
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &at->lines)
    {
        line *one = tutti_container_of(link, line, link);

        if (one->in_flight && !one->stuck) {
            any = true;
            one->in_flight = false;
            tutti_coordinator_session_written(&one->session);
        }
    }
    tutti_list_each(link, spare, &at->watchers)
    {
        watcher *one = tutti_container_of(link, watcher, link);

        if (one->in_flight && !one->stuck) {
            any = true;
            one->in_flight = false;
            tutti_coordinator_watch_written(&one->watch);
        }
    }
    return any;
}

void
fixture_run(fixture *at, bool idle)
{
    while (tutti_coordinator_next(at->self) <= at->now_ns) {
        tutti_coordinator_run(at->self);
    }
    tutti_coordinator_turn(at->self, idle);
    while (idle && tutti_coordinator_busy(at->self)) {
        tutti_coordinator_turn(at->self, true);
    }
}

void
fixture_settle(fixture *at)
{
    do {
        fixture_run(at, true);
    } while (write_all(at));
}

static void
set_time(fixture *at, uint64_t now_ns)
{
    at->now_ns = now_ns;
    tutti_coordinator_set_time(at->self, now_ns, now_ns + WALL_OFFSET_NS);
}

/* To that time, with every timer at its time. */
static void
advance_to(fixture *at, uint64_t until_ns, bool idle)
{
    while (tutti_coordinator_next(at->self) <= until_ns) {
        set_time(at, tutti_coordinator_next(at->self));
        fixture_run(at, idle);
        if (idle) {
            fixture_settle(at);
        }
    }
    set_time(at, until_ns);
}

void
fixture_advance(fixture *at, uint64_t wait_ns)
{
    fixture_settle(at);
    advance_to(at, at->now_ns + wait_ns, true);
}

void
fixture_hold(fixture *at, uint64_t wait_ns)
{
    advance_to(at, at->now_ns + wait_ns, false);
}

void
fixture_restart(fixture *at)
{
    tutti_error err;

    tutti_coordinator_drain(at->self);
    fixture_settle(at);
    tutti_coordinator_free(at->self);
    tutti_list_init(&at->lines);
    before_alike = 0;
    at->now_ns += SECOND;
    assert_ok(tutti_coordinator_new(&at->options, at->store, &at->self, &err));
    tutti_coordinator_set_observer(at->self, on_note, at);
    tutti_coordinator_set_time(at->self, at->now_ns, at->now_ns + WALL_OFFSET_NS);
    assert_ok(tutti_coordinator_restore(at->self, &err));
}

void
fixture_close(fixture *at)
{
    tutti_coordinator_drain(at->self);
    fixture_settle(at);
    assert_int_equal(tutti_coordinator_parked(at->self), 0);
    tutti_coordinator_free(at->self);
    tutti_store_close(at->store);
}

/* ------------------------------------------------------------------------------ joiners */

static void
on_progress(tutti_coordinator_join *join, const tutti_coordinator_progress *progress)
{
    joiner *one = tutti_container_of(join, joiner, join);

    one->progress_count++;
    one->progress = *progress;
}

static void
on_seat(tutti_coordinator_join *join, const tutti_coordinator_seat *seat, const tutti_error *err)
{
    joiner *one = tutti_container_of(join, joiner, join);

    one->answer_count++;
    one->failed = err != NULL;
    if (err != NULL) {
        one->err = *err;
    } else {
        one->seat = *seat;
    }
}

tutti_coordinator_join_request
join_request(const char *job, uint32_t world_size, uint32_t rank, uint64_t id)
{
    return (tutti_coordinator_join_request){
        .job = job,
        .world_size = world_size,
        .has_rank = rank != ANY_RANK,
        .rank = rank == ANY_RANK ? 0 : rank,
        .incarnation = id,
        .agent = {.host = "host", .pid = (uint32_t)id},
        .deadline_ns = TUTTI_TIMERS_NEVER,
    };
}

tutti_code
joiner_start(fixture *at, joiner *one, const tutti_coordinator_join_request *request,
             tutti_error *err)
{
    *one = (joiner){.join = {.on_progress = on_progress, .on_answer = on_seat}};
    return tutti_coordinator_join_start(at->self, request, &one->join, err);
}

void
joiner_must_start(fixture *at, joiner *one, uint32_t world_size, uint32_t rank, uint64_t id)
{
    const tutti_coordinator_join_request request = join_request(NULL, world_size, rank, id);
    tutti_error err;

    assert_ok(joiner_start(at, one, &request, &err));
}

void
form_world(fixture *at, uint32_t world_size)
{
    joiner *joiners = calloc(world_size, sizeof(*joiners));
    uint32_t rank;

    assert_non_null(joiners);
    for (rank = 0; rank < world_size; rank++) {
        joiner_must_start(at, &joiners[rank], world_size, rank, 100 + rank);
    }
    fixture_settle(at);
    for (rank = 0; rank < world_size; rank++) {
        assert_int_equal(joiners[rank].answer_count, 1);
        assert_false(joiners[rank].failed);
    }
    free(joiners);
}

tutti_coordinator_member
member_of(uint32_t rank)
{
    return (tutti_coordinator_member){.job = "default", .rank = rank, .incarnation = 100 + rank};
}

/* ------------------------------------------------------------------------------ sessions */

static void
on_accepted(tutti_coordinator_session *session, uint64_t epoch, const tutti_coordinator_event *lost,
            size_t lost_count)
{
    line *one = tutti_container_of(session, line, session);

    assert_false(one->in_flight);
    one->in_flight = true;
    one->accepted_count++;
    one->epoch = epoch;
    one->key = tutti_coordinator_session_key(session);
    one->lost_count = lost_count;
    one->lost_rank = lost_count > 0 ? lost[0].rank : ANY_RANK;
}

static void
keep_event(line *one, const tutti_coordinator_event *event)
{
    if (one->event_count < LINE_EVENTS_MAX) {
        one->events[one->event_count] = *event;
    }
    one->event_count++;
    if (event->kind == TUTTI_COORDINATOR_RANK_LOST) {
        (void)snprintf(one->reason, sizeof(one->reason), "%s", event->reason);
    } else if (event->kind == TUTTI_COORDINATOR_GROUP_DELETED) {
        (void)snprintf(one->group_name, sizeof(one->group_name), "%s", event->group_name);
    }
}

/* Of two messages in a row with one number the second says what the first said. */
static void
check_alike(const tutti_coordinator_event *changes, size_t count, uint64_t alike,
            tutti_coordinator_epoch_key key)
{
    static tutti_coordinator_event before[TUTTI_COORDINATOR_CHANGES_MAX];
    static tutti_coordinator_epoch_key before_key;
    static size_t before_count;
    size_t i;

    assert_true(alike > 0);
    if (alike == before_alike) {
        assert_int_equal(count, before_count);
        assert_memory_equal(key.bytes, before_key.bytes, sizeof(key.bytes));
        for (i = 0; i < count; i++) {
            assert_int_equal(changes[i].kind, before[i].kind);
            assert_int_equal(changes[i].rank, before[i].rank);
            assert_int_equal(changes[i].epoch, before[i].epoch);
            assert_int_equal(changes[i].group_id, before[i].group_id);
        }
    }
    memcpy(before, changes, count * sizeof(*changes));
    before_key = key;
    before_count = count;
    before_alike = alike;
}

static void
on_changes(tutti_coordinator_session *session, const tutti_coordinator_event *changes, size_t count,
           uint64_t alike)
{
    line *one = tutti_container_of(session, line, session);
    size_t i;

    assert_false(one->in_flight);
    assert_int_equal(one->accepted_count, 1);
    assert_in_range(count, 1, TUTTI_COORDINATOR_CHANGES_MAX);
    check_alike(changes, count, alike, tutti_coordinator_session_key(session));
    one->in_flight = true;
    one->message_count++;
    one->key = tutti_coordinator_session_key(session);
    for (i = 0; i < count; i++) {
        keep_event(one, &changes[i]);
    }
}

static void
on_heartbeat_ack(tutti_coordinator_session *session)
{
    line *one = tutti_container_of(session, line, session);

    assert_false(one->in_flight);
    one->in_flight = true;
    one->heard_count++;
}

static void
on_line_end(tutti_coordinator_session *session, const tutti_error *err)
{
    line *one = tutti_container_of(session, line, session);

    one->end_count++;
    one->failed = err != NULL;
    if (err != NULL) {
        one->err = *err;
    }
}

/* Take `link` out when it is in; it may have been in the list of an earlier fixture. */
static void
unlist(tutti_list_node *head, tutti_list_node *link)
{
    tutti_list_node *other;
    tutti_list_node *spare;

    tutti_list_each(other, spare, head)
    {
        if (other == link) {
            tutti_list_remove(link);
            return;
        }
    }
}

tutti_code
line_open(fixture *at, line *one, const tutti_coordinator_member *member, tutti_error *err)
{
    unlist(&at->lines, &one->link);
    *one = (line){.session = {.on_accepted = on_accepted,
                              .on_changes = on_changes,
                              .on_heartbeat_ack = on_heartbeat_ack,
                              .on_end = on_line_end}};
    tutti_list_add(&at->lines, &one->link);
    tutti_coordinator_session_start(at->self, &one->session);
    return tutti_coordinator_session_open(&one->session, member, err);
}

void
line_must_open(fixture *at, line *one, uint32_t rank)
{
    const tutti_coordinator_member member = member_of(rank);
    tutti_error err;

    assert_ok(line_open(at, one, &member, &err));
    fixture_settle(at);
    assert_int_equal(one->accepted_count, 1);
}

void
line_beat(line *one)
{
    tutti_error err;

    assert_ok(tutti_coordinator_session_heartbeat(&one->session, &err));
}

/* ------------------------------------------------------------------------------ others */

static void
on_values(tutti_coordinator_meet *meet, const tutti_bytes *values, size_t count,
          const tutti_error *err)
{
    meeter *one = tutti_container_of(meet, meeter, meet);
    size_t i;

    one->answer_count++;
    one->failed = err != NULL;
    one->value_count = count;
    if (err != NULL) {
        one->err = *err;
    }
    for (i = 0; i < count && strlen(one->values) + values[i].size + 2 < sizeof(one->values); i++) {
        if (values[i].size > 0) {
            (void)strncat(one->values, values[i].data, values[i].size);
        }
        (void)strcat(one->values, ",");
    }
}

tutti_code
meeter_start(fixture *at, meeter *one, tutti_coordinator_meet_request *request, tutti_error *err)
{
    *one = (meeter){.meet = {.on_answer = on_values}};
    return tutti_coordinator_meet_start(at->self, request, &one->meet, err);
}

static void
on_keys(tutti_coordinator_key_wait *wait, uint64_t version, const tutti_error *err)
{
    waiter *one = tutti_container_of(wait, waiter, wait);

    one->answer_count++;
    one->version = version;
    one->failed = err != NULL;
    if (err != NULL) {
        one->err = *err;
    }
}

tutti_code
waiter_start(fixture *at, waiter *one, const tutti_coordinator_wait_request *request,
             tutti_error *err)
{
    *one = (waiter){.wait = {.on_answer = on_keys}};
    return tutti_coordinator_key_wait_start(at->self, request, &one->wait, err);
}

static void
on_number(tutti_coordinator_count *count, uint64_t number, const tutti_error *err)
{
    counter *one = tutti_container_of(count, counter, count);

    one->answer_count++;
    one->number = number;
    one->failed = err != NULL;
    if (err != NULL) {
        one->err = *err;
    }
}

tutti_code
counter_start(fixture *at, counter *one, const tutti_coordinator_key *prefix, tutti_error *err)
{
    *one = (counter){.count = {.on_answer = on_number}};
    return tutti_coordinator_count_start(at->self, prefix, &one->count, err);
}

static void
on_change(tutti_coordinator_watch *watch, tutti_coordinator_change_kind kind,
          const tutti_store_entry *entry)
{
    static const char *const words[] = {"", "begun", "set ", "deleted "};
    watcher *one = tutti_container_of(watch, watcher, watch);
    const size_t used = strlen(one->text);

    assert_false(one->in_flight);
    one->in_flight = true;
    one->change_count++;
    one->version = entry->version;
    (void)snprintf(one->text + used, sizeof(one->text) - used, "%s%.*s%s%.*s,", words[kind],
                   (int)entry->key.size, entry->key.size == 0 ? "" : (const char *)entry->key.data,
                   kind == TUTTI_COORDINATOR_SET ? "=" : "", (int)entry->value.size,
                   entry->value.size == 0 ? "" : (const char *)entry->value.data);
}

static void
on_watch_end(tutti_coordinator_watch *watch, const tutti_error *err)
{
    watcher *one = tutti_container_of(watch, watcher, watch);

    one->end_count++;
    one->err = *err;
}

tutti_code
watcher_start_at(fixture *at, watcher *one, const char *job, const char *prefix,
                 const tutti_coordinator_watch_place *place, tutti_error *err)
{
    const tutti_coordinator_key key = {job, tutti_bytes_of(prefix)};

    unlist(&at->watchers, &one->link);
    *one = (watcher){.watch = {.on_change = on_change, .on_end = on_watch_end}};
    tutti_list_add(&at->watchers, &one->link);
    return tutti_coordinator_watch_start(at->self, &key, place, &one->watch, err);
}

tutti_code
watcher_start(fixture *at, watcher *one, const char *job, const char *prefix, tutti_error *err)
{
    return watcher_start_at(at, one, job, prefix, NULL, err);
}
