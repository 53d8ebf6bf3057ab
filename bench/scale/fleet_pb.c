/*
 * What agents say is packed by protobuf-c. What they hear is read by hand: in a burst of deaths there
 * are ten million changes, and unpacking them would cost more than making them.
 */
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/os/clock.h"
#include "tutti/v1/coordinator_service.pb-c.h"

#define SWEEP_NS (20 * TUTTI_NS_PER_MS)
#define RANKS_OF_A_HOST 8
#define SERVICE "/tutti.v1.CoordinatorService/"
#define ADDRESS_BYTES 200 /* as UCX has them */

/* ------------------------------------------------------------------------------ reading */

typedef struct field {
    uint32_t number;
    uint64_t value; /* of a number */
    const uint8_t *data;
    size_t size; /* of a text or message */
} field;

static bool
read_varint(const uint8_t **at, const uint8_t *end, uint64_t *ret)
{
    int shift = 0;

    *ret = 0;
    while (*at < end && shift < 64) {
        const uint8_t byte = *(*at)++;

        *ret |= (uint64_t)(byte & 0x7f) << shift;
        if ((byte & 0x80) == 0) {
            return true;
        }
        shift += 7;
    }
    return false;
}

/* The next field of a message; false at its end. */
static bool
next_field(const uint8_t **at, const uint8_t *end, field *ret)
{
    uint64_t tag = 0;
    size_t size = 0;

    *ret = (field){0};
    if (*at >= end || !read_varint(at, end, &tag)) {
        return false;
    }
    ret->number = (uint32_t)(tag >> 3);
    switch (tag & 7) {
    case 0:
        return read_varint(at, end, &ret->value);
    case 1:
        size = 8;
        break;
    case 5:
        size = 4;
        break;
    default:
        if (!read_varint(at, end, &ret->value)) {
            return false;
        }
        ret->size = size = (size_t)ret->value;
        ret->data = *at;
    }
    if ((size_t)(end - *at) < size) {
        return false;
    }
    *at += size;
    return true;
}

/* The number in field `number` of a message; 0 = it is not there. */
static uint64_t
number_of(const field *message, uint32_t number)
{
    const uint8_t *at = message->data;
    field one;

    while (next_field(&at, message->data + message->size, &one)) {
        if (one.number == number) {
            return one.value;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------------------ saying */

static uint32_t
say(agent *self, const char *path, const ProtobufCMessage *message, uint32_t stream)
{
    const size_t size = protobuf_c_message_get_packed_size(message);
    uint8_t *data = malloc(size + 1);

    if (data == NULL) {
        abort();
    }
    (void)protobuf_c_message_pack(message, data);
    if (stream == 0) {
        stream =
            h2_call(self->wire->conn, path, data, size, strcmp(path, SERVICE "Session") != 0, self);
    } else {
        h2_send(self->wire->conn, stream, data, size, false);
    }
    free(data);
    return stream;
}

static void
join(agent *self)
{
    Tutti__V1__JoinRequest request = TUTTI__V1__JOIN_REQUEST__INIT;
    Tutti__V1__AgentInfo info = TUTTI__V1__AGENT_INFO__INIT;
    static uint8_t place[ADDRESS_BYTES];
    char host[32];
    char address[32];
    char *addresses[] = {address};

    (void)snprintf(host, sizeof(host), "host-%u", self->number / RANKS_OF_A_HOST);
    (void)snprintf(address, sizeof(address), "10.%u.%u.%u:29601", self->number >> 16,
                   self->number >> 8 & 255, self->number & 255);
    info.host = info.host_id = host;
    info.pid = self->number + 1;
    info.n_addresses = 1;
    info.addresses = addresses;
    info.device = "cpu";
    info.version = "0.1.0";
    info.local_rank = self->number % RANKS_OF_A_HOST;
    info.data_address = (ProtobufCBinaryData){sizeof(place), place};
    request.job = "default";
    request.world_size = self->owner->count;
    request.incarnation = self->incarnation;
    request.agent = &info;
    self->state = AGENT_JOINING;
    self->join = say(self, SERVICE "Join", &request.base, 0);
}

static Tutti__V1__Member
member_of(const agent *self)
{
    Tutti__V1__Member member = TUTTI__V1__MEMBER__INIT;

    member.job = "default";
    member.rank = self->rank;
    member.incarnation = self->incarnation;
    return member;
}

static void
open_session(agent *self)
{
    Tutti__V1__SessionRequest request = TUTTI__V1__SESSION_REQUEST__INIT;
    Tutti__V1__SessionOpen open = TUTTI__V1__SESSION_OPEN__INIT;
    Tutti__V1__Member member = member_of(self);

    open.member = &member;
    request.kind_case = TUTTI__V1__SESSION_REQUEST__KIND_OPEN;
    request.open = &open;
    self->state = AGENT_OPENING;
    self->session = say(self, SERVICE "Session", &request.base, 0);
}

static void
beat(agent *self)
{
    Tutti__V1__SessionRequest request = TUTTI__V1__SESSION_REQUEST__INIT;
    Tutti__V1__Heartbeat heartbeat = TUTTI__V1__HEARTBEAT__INIT;

    heartbeat.number = ++self->beats;
    request.kind_case = TUTTI__V1__SESSION_REQUEST__KIND_HEARTBEAT;
    request.heartbeat = &heartbeat;
    self->owner->beats++;
    (void)say(self, "", &request.base, self->session);
}

void
fleet_group(fleet *self, uint32_t number, const char *name)
{
    Tutti__V1__CreateGroupRequest request = TUTTI__V1__CREATE_GROUP_REQUEST__INIT;
    uint32_t span[] = {0, self->count, 1};
    agent *one = &self->agents[number];
    Tutti__V1__Member member = member_of(one);
    char copy[64];

    (void)snprintf(copy, sizeof(copy), "%s", name);
    request.member = &member;
    request.name = copy;
    request.n_spans = 3;
    request.spans = span;
    request.accept_spans = true;
    one->call = say(one, SERVICE "CreateGroup", &request.base, 0);
}

/* ------------------------------------------------------------------------------ hearing */

static void
note_trouble(fleet *self, const agent *one, const char *why)
{
    if (self->trouble[0] == '\0') {
        (void)snprintf(self->trouble, sizeof(self->trouble), "agent %u: %s", one->number, why);
    }
}

/* Agents beat apart from each other, as real ones do by the times at which they joined. */
static uint64_t
first_beat(const agent *self)
{
    const fleet *all = self->owner;

    return tutti_clock_ns() + all->interval_ns / all->count * (self->number % all->count);
}

static void
hear_join(agent *self, const field *result)
{
    fleet *all = self->owner;

    self->rank = (uint32_t)number_of(result, 1);
    all->interval_ns = number_of(result, 5) * TUTTI_NS_PER_MS;
    all->joined++;
    all->joined_ns = tutti_clock_ns();
    if (self->rank < all->count) {
        all->killed[self->rank] = false;
    }
    open_session(self);
}

static void
hear_loss(agent *self, const field *lost)
{
    fleet *all = self->owner;
    const uint64_t rank = number_of(lost, 1);

    self->losses++;
    if (rank < all->count && !all->killed[rank]) {
        all->false_losses++;
        note_trouble(all, self, "it was told of a rank that is alive");
    }
}

static void
hear_changes(agent *self, const field *changes)
{
    fleet *all = self->owner;
    const uint8_t *at = changes->data;
    const uint32_t before = self->losses + self->returns;
    field change;
    field what;

    while (next_field(&at, changes->data + changes->size, &change)) {
        const uint8_t *inner = change.data;

        if (change.size > 0 && next_field(&inner, change.data + change.size, &what)) {
            all->changes++;
            if (what.number == 1) {
                hear_loss(self, &what);
            } else if (what.number == 2) {
                self->returns++;
            }
        }
    }
    all->messages++;
    all->last_told_ns = tutti_clock_ns();
    all->first_told_ns = all->first_told_ns == 0 ? all->last_told_ns : all->first_told_ns;
    if (before < all->expected && self->losses + self->returns >= all->expected) {
        all->told++;
    }
}

static void
hear_session(agent *self, const field *event)
{
    if (event->number == 1 && self->state == AGENT_OPENING) {
        self->state = AGENT_ALIVE;
        self->owner->alive++;
        self->beat_ns = first_beat(self);
    } else if (event->number == 2) {
        hear_changes(self, event);
    }
}

static void
on_message(void *arg, uint32_t stream, const uint8_t *data, size_t size)
{
    agent *self = arg;
    const uint8_t *at = data;
    field one;

    if (stream == self->call) {
        self->owner->groups++;
        return;
    }
    while (next_field(&at, data + size, &one)) {
        if (stream == self->join && one.number == 2 && self->state == AGENT_JOINING) {
            hear_join(self, &one);
        } else if (stream == self->session) {
            hear_session(self, &one);
        }
    }
}

static agent *
agent_of(const wire *self, uint32_t place)
{
    const uint32_t number = self->first + place;

    return place < self->owner->share && number < self->owner->count ? &self->owner->agents[number]
                                                                     : NULL;
}

static void
on_open(void *arg)
{
    wire *self = arg;
    agent *one;
    uint32_t i;

    self->open = true;
    for (i = 0; (one = agent_of(self, i)) != NULL; i++) {
        if (one->state == AGENT_CONNECTING) {
            join(one);
        }
    }
}

static void
on_end(void *arg, uint32_t stream, const char *status)
{
    agent *self = arg;

    if (strcmp(status, "0") == 0 && stream != self->session) {
        return;
    }
    note_trouble(self->owner, self, status);
    if (stream == self->session && self->state == AGENT_ALIVE) {
        self->owner->false_losses++;
    }
}

static void connect_agent(agent *self);

/* As agents do: who had no seat yet tries again. */
static void
lose_connection(agent *self, const char *why)
{
    fleet *all = self->owner;
    const agent_state before = self->state;

    if (before == AGENT_DEAD) {
        return;
    }
    if (before <= AGENT_JOINING) {
        all->retries++;
        connect_agent(self);
        return;
    }
    note_trouble(all, self, why);
    self->state = AGENT_DEAD;
    if (before == AGENT_ALIVE) {
        all->alive--;
        all->false_losses++;
    }
}

static void
on_close(void *arg, const char *why)
{
    wire *self = arg;
    agent *one;
    uint32_t i;

    self->conn = NULL;
    self->open = false;
    for (i = 0; (one = agent_of(self, i)) != NULL; i++) {
        lose_connection(one, why);
    }
}

static void
connect_agent(agent *self)
{
    static const h2_events events = {on_open, on_message, on_end, on_close};
    wire *way = self->wire;

    self->state = AGENT_CONNECTING;
    if (way->open) {
        join(self);
    } else if (way->conn == NULL) {
        way->conn = h2_open(&self->owner->net, self->number, &events, way);
    }
    if (way->conn == NULL) {
        (void)fprintf(stderr, "bench_scale: agent %u gets no socket: raise ulimit -n\n",
                      self->number);
        exit(1);
    }
}

/* ------------------------------------------------------------------------------ the fleet */

void
fleet_init(fleet *self, const char *address, uint32_t count, uint32_t share)
{
    *self = (fleet){.count = count, .share = share, .interval_ns = TUTTI_NS_PER_S};
    self->agents = calloc(count, sizeof(*self->agents));
    self->wires = calloc(count / share + 1, sizeof(*self->wires));
    self->killed = calloc(count, sizeof(*self->killed));
    if (self->agents == NULL || self->wires == NULL || self->killed == NULL ||
        !h2_net_init(&self->net, address)) {
        (void)fprintf(stderr, "bench_scale: %s is no address\n", address);
        exit(1);
    }
}

static void
start_agent(fleet *self, uint32_t number)
{
    agent *one = &self->agents[number];
    const uint32_t rank = one->rank;
    wire *way = &self->wires[number / self->share];

    way->owner = self;
    way->first = number - number % self->share;
    *one = (agent){
        .owner = self, .wire = way, .number = number, .rank = rank, .incarnation = tutti_id_draw()};
    connect_agent(one);
}

void
fleet_start(fleet *self)
{
    uint32_t i;

    for (i = 0; i < self->count; i++) {
        start_agent(self, i);
    }
}

void
fleet_kill(fleet *self, uint32_t number)
{
    agent *one = &self->agents[number];

    self->killed[one->rank] = true;
    self->alive--;
    self->joined--;
    one->state = AGENT_DEAD;
    if (self->share > 1) {
        h2_cancel(one->wire->conn, one->session);
        return;
    }
    h2_close(one->wire->conn);
    one->wire->conn = NULL;
    one->wire->open = false;
}

void
fleet_revive(fleet *self, uint32_t number)
{
    start_agent(self, number);
}

void
fleet_forget_told(fleet *self, uint32_t expected)
{
    uint32_t i;

    self->expected = expected;
    self->told = 0;
    self->messages = self->changes = 0;
    self->first_told_ns = self->last_told_ns = 0;
    self->late_ns = 0;
    for (i = 0; i < self->count; i++) {
        self->agents[i].losses = self->agents[i].returns = 0;
    }
}

static void
send_beats(fleet *self)
{
    const uint64_t now_ns = tutti_clock_ns();
    uint32_t i;

    if (now_ns - self->sweep_ns < SWEEP_NS) {
        return;
    }
    if (self->sweep_ns != 0 && now_ns - self->sweep_ns > self->late_ns) {
        self->late_ns = now_ns - self->sweep_ns;
        self->latest_ns = self->late_ns > self->latest_ns ? self->late_ns : self->latest_ns;
    }
    self->sweep_ns = now_ns;
    for (i = 0; i < self->count; i++) {
        agent *one = &self->agents[i];

        if (one->state == AGENT_ALIVE && one->beat_ns <= now_ns) {
            one->beat_ns = now_ns + self->interval_ns;
            beat(one);
        }
    }
}

bool
fleet_run(fleet *self, uint64_t until_ns, bool (*done)(const fleet *self))
{
    while (tutti_clock_ns() < until_ns) {
        if (done != NULL && done(self)) {
            return true;
        }
        h2_turn(&self->net, 5);
        send_beats(self);
    }
    return done != NULL && done(self);
}
