/*
 * Goal: whatever has become of packets on the way, whatever others say and whenever it comes, an engine uses nothing
 * that is freed, reads and writes inside of its memory alone, and ends each op once.
 * Method: two or three engines of one process, which are advanced by hand, over a transport and with algorithms that the
 * first byte of the input names. Around each transport stands somebody who changes, cuts, doubles, drops, and keeps packets, and makes up
 * packets and offers of his own. The rest of the input is steps: ops of all kinds, what happens to groups and ranks,
 * and time that passes.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "coll/coll.h"
#include "coll/engine/engine.h"
#include "coll/host/host.h"
#include "coll/packet/packet.h"
#include "coll/select/select.h"
#include "coll/self/self.h"
#include "coll/shm/shm.h"
#include "coll/state/engine.h"
#include "coll/tcp/tcp.h"
#include "coll/transport_auth/transport_auth.h"
#include "fuzz_coll_meddler.h"
#include "support/transport_fake.h"

#define JOB 77
#define RANKS 3
#define OPS_MAX 24
#define STEPS_MAX 200
#define LIST_MAX 4
#define ROOMS_MAX 64 /* of one op */
#define ADDRESS_MAX 4096
#define MADE_MAX (1U << 20) /* bytes of a result that is learnt */
#define META_BYTES 9000     /* more than comes with a header */
#define OP_NS (5 * TUTTI_NS_PER_S)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

void
fuzz_check(int holds)
{
    if (!holds) {
        abort();
    }
}

/* What ops are forced to; NULL = what is fast. */
static const char *const algorithms[] = {
    NULL,
    "all_reduce=ring,all_gather=ring,reduce_scatter=ring",
    "all_reduce=recursive_doubling,all_gather=recursive_doubling,reduce_scatter=recursive_halving",
    "all_reduce=rabenseifner,reduce_scatter=pairwise,all_to_all=pairwise",
    "all_reduce=hierarchical,all_gather=hierarchical,broadcast=hierarchical",
    "all_reduce=bruck,all_gather=bruck,all_to_all=bruck",
    "all_reduce=chain,broadcast=chain,reduce=chain",
    "broadcast=binomial,reduce=binomial,gather=binomial,scatter=binomial",
    "all_reduce=direct,all_gather=direct,reduce=direct,gather=direct,scatter=direct,"
    "reduce_scatter=direct,all_to_all=direct",
};

/* ------------------------------------------------------------------------------ the input */

/* When it is over, all is 0: packets pass as they are. */
typedef struct input {
    const uint8_t *at;
    size_t left;
} input;

/* ------------------------------------------------------------------------------ all of it */

typedef struct work {
    tutti_coll_op op;
    tutti_coll_tensor in[LIST_MAX];
    tutti_coll_tensor out[LIST_MAX * RANKS];
    int64_t send_splits[RANKS];
    int64_t recv_splits[RANKS];
    uint32_t to[RANKS];
    uint32_t rank;
    void *memory[ROOMS_MAX]; /* all that is freed in the end */
    size_t memory_count;
    bool refuses;
    atomic_uint done;
    atomic_uint released;
} work;

static struct {
    input in;
    uint32_t size; /* of the world */
    tutti_selector *selector;
    fake_network *network;
    meddler *meddlers[RANKS];
    tutti_coll_engine *engines[RANKS];
    tutti_coll_group *groups[RANKS][2]; /* the second one is opened by a step */
    bool closed[RANKS][2];
    unsigned char addresses[RANKS][ADDRESS_MAX];
    size_t address_sizes[RANKS];
    work *works[OPS_MAX];
    size_t work_count;
    offers offers;
    uint64_t epoch;
    bool calm; /* nobody meddles: the engines run by themselves */
} our;

uint64_t
fuzz_take(unsigned bytes)
{
    uint64_t number = 0;

    while (bytes-- > 0 && our.in.left > 0 && !our.calm) {
        number = number << 8 | *our.in.at++;
        our.in.left--;
    }
    return number;
}

void *
fuzz_copy(const void *data, size_t size)
{
    void *copy = malloc(size);

    fuzz_check(copy != NULL || size == 0);
    if (size > 0 && data != NULL) {
        memcpy(copy, data, size);
    } else if (size > 0) {
        memset(copy, 0x5a, size);
    }
    return copy;
}

/* ------------------------------------------------------------------------------ engines */

static tutti_transport *
meddle(tutti_transport *inner, uint32_t rank)
{
    our.meddlers[rank] = meddler_new(inner, &our.offers);
    return &our.meddlers[rank]->base;
}

static tutti_transport *
open_transport(unsigned kind, uint32_t rank)
{
    const tutti_transport_tcp_options tcp = {.devices = "lo"};
    tutti_transport_shm_options shm = {.host_id = "this host", .memory = -1, .inside = true};
    tutti_transport *inner = NULL;
    tutti_error err;

    if (kind == 1) {
        fuzz_check(tutti_transport_tcp_open(&tcp, &inner, &err) == TUTTI_OK);
        return meddle(inner, rank);
    }
    inner = fake_transport_new(our.network);
    if (kind == 2) {
        shm.inner = inner;
        fuzz_check(tutti_transport_shm_open(&shm, &inner, &err) == TUTTI_OK);
    }
    inner = meddle(inner, rank);
    if (kind == 3) {
        fuzz_check(tutti_transport_auth_open(inner, 100 + rank, &inner, &err) == TUTTI_OK);
    }
    return inner;
}

static void
tell_peer(tutti_coll_engine *engine, uint32_t rank, uint64_t incarnation)
{
    tutti_coll_set_peer(engine, rank, incarnation,
                        (tutti_bytes){our.addresses[rank], our.address_sizes[rank]});
}

static void
on_need_peers(void *arg, const uint32_t *ranks, size_t count)
{
    tutti_coll_engine **mine = arg;
    size_t i;

    for (i = 0; i < count; i++) {
        if (ranks[i] < our.size) {
            tell_peer(*mine, ranks[i], 100 + ranks[i]);
        } else {
            tutti_coll_lose_peer(*mine, ranks[i], 0, "no such rank");
        }
    }
}

static void
rekey(uint32_t rank, uint64_t epoch)
{
    const tutti_transport_key key = {.job_id = JOB, .epoch = epoch, .bytes = {(uint8_t)epoch}};

    tutti_coll_engine_rekey(our.engines[rank], &key);
}

static void
open_group(uint32_t rank, unsigned which)
{
    const uint32_t ranks[RANKS] = {0, 1, 2};
    tutti_error err;

    if (our.groups[rank][which] == NULL) {
        fuzz_check(tutti_coll_group_open(our.engines[rank], 1 + which,
                                         which == 0 ? "world" : "late", 1, ranks, our.size,
                                         &our.groups[rank][which], &err) == TUTTI_OK);
    }
}

static void
choose_algorithms(const char *forced)
{
    tutti_selection selection;
    tutti_error err;

    if (forced != NULL) {
        tutti_selection_init(&selection);
        fuzz_check(tutti_selection_force(&selection, forced, &err) == TUTTI_OK);
        fuzz_check(tutti_selector_new(&selection, true, &our.selector, &err) == TUTTI_OK);
    }
}

/* From here on this thread is the engine's: its own one sleeps, or waits for the lock. */
static void
open_engine(unsigned kind, uint32_t rank)
{
    const tutti_coll_engine_options options = {.transport = open_transport(kind, rank),
                                               .backend = &tutti_coll_host,
                                               .self_backend = &tutti_coll_self,
                                               .backend_arg = our.selector,
                                               .on_need_peers = on_need_peers,
                                               .arg = &our.engines[rank]};
    tutti_bytes address;
    tutti_error err;

    fuzz_check(tutti_coll_engine_start(&options, &our.engines[rank], &err) == TUTTI_OK);
    (void)pthread_mutex_lock(&our.engines[rank]->progress_lock);
    tutti_coll_engine_sit(our.engines[rank], JOB, rank, 100 + rank);
    rekey(rank, 1);
    address = tutti_coll_engine_address(our.engines[rank]);
    fuzz_check(address.size <= ADDRESS_MAX);
    memcpy(our.addresses[rank], address.data, address.size);
    our.address_sizes[rank] = address.size;
}

static void
advance(uint32_t rank)
{
    (void)tutti_coll_engine_step(our.engines[rank]);
}

static void
advance_all(unsigned turns)
{
    uint32_t i;

    while (turns-- > 0) {
        for (i = 0; i < our.size; i++) {
            advance(i);
        }
    }
}

/* ------------------------------------------------------------------------------ ops */

static void *
room_for(work *self, const tutti_spec *spec)
{
    void *room = fuzz_copy(NULL, (size_t)tutti_spec_bytes(spec));

    fuzz_check(self->memory_count < ROOMS_MAX);
    self->memory[self->memory_count++] = room;
    return room;
}

static tutti_code
on_spec(tutti_coll_op *op, const tutti_spec *spec, tutti_error *err)
{
    work *self = tutti_container_of(op, work, op);

    fuzz_check(tutti_spec_check(spec, NULL, NULL, NULL) == TUTTI_OK);
    if (self->refuses || tutti_spec_bytes(spec) > MADE_MAX) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no room");
    }
    op->output = room_for(self, spec);
    return TUTTI_OK;
}

static tutti_code
on_list(tutti_coll_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    work *self = tutti_container_of(op, work, op);
    uint32_t i;

    for (i = 0; i < count; i++) {
        const bool none =
            specs[i].dtype == TUTTI_DTYPE_NONE; /* the root's, and this is another rank */

        fuzz_check(none || tutti_spec_check(&specs[i], NULL, NULL, NULL) == TUTTI_OK);
        if (self->refuses || count > LIST_MAX * RANKS ||
            (!none && tutti_spec_bytes(&specs[i]) > MADE_MAX)) {
            return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no room");
        }
        self->out[i] =
            (tutti_coll_tensor){.spec = specs[i], .data = none ? NULL : room_for(self, &specs[i])};
    }
    op->outputs = self->out;
    return TUTTI_OK;
}

static void
on_done(tutti_coll_op *op, const tutti_error *err)
{
    work *self = tutti_container_of(op, work, op);

    fuzz_check(atomic_fetch_add(&self->done, 1) == 0);
    fuzz_check(err == NULL || (err->code != TUTTI_OK && strlen(err->text) < sizeof(err->text)));
}

static void
on_released(tutti_coll_op *op)
{
    work *self = tutti_container_of(op, work, op);

    fuzz_check(atomic_load(&self->done) == 1 && atomic_fetch_add(&self->released, 1) == 0);
}

static void
free_work(work *self)
{
    while (self->memory_count > 0) {
        free(self->memory[--self->memory_count]);
    }
    free(self);
}

static tutti_spec
draw_spec(void)
{
    static const int64_t counts[] = {0, 1, 2, 3, 6, 12, 60, 3000};
    const unsigned how = (unsigned)fuzz_take(1);
    tutti_spec spec = {.dtype = how % 4 == 3 ? TUTTI_DTYPE_UINT8 : TUTTI_DTYPE_INT32,
                       .dim_count = 1 + how / 128,
                       .dims = {counts[how / 4 % 8], 6}};

    return spec;
}

static void
draw_list(work *self)
{
    tutti_coll_args *args = &self->op.args;
    uint32_t i;

    args->list_count = args->coalesced ? 1 + (uint32_t)fuzz_take(1) % LIST_MAX : our.size;
    for (i = 0; i < args->list_count; i++) {
        self->in[i].spec = draw_spec();
        self->in[i].data = room_for(self, &self->in[i].spec);
    }
    args->list = self->in;
    args->spec = self->in[0].spec;
    self->op.input = self->in[0].data;
}

static void
draw_splits(work *self)
{
    tutti_coll_args *args = &self->op.args;
    int64_t rows = 0;
    uint32_t i;

    for (i = 0; i < our.size; i++) {
        self->send_splits[i] = (int64_t)fuzz_take(1) % 4;
        self->recv_splits[i] = (int64_t)fuzz_take(1) % 4;
        rows += self->send_splits[i];
    }
    args->spec = (tutti_spec){.dtype = TUTTI_DTYPE_INT32, .dim_count = 1, .dims = {rows}};
    args->split_count = our.size;
    args->has_splits = args->kind == TUTTI_COLL_ALL_TO_ALL;
    args->send_splits = self->send_splits;
    args->recv_splits = self->recv_splits;
    args->root_splits = args->kind == TUTTI_COLL_SCATTER ? self->send_splits : NULL;
}

static bool
has_form(tutti_coll_kind kind)
{
    return kind == TUTTI_COLL_ALL_GATHER || kind == TUTTI_COLL_GATHER ||
           kind == TUTTI_COLL_SCATTER || kind == TUTTI_COLL_REDUCE_SCATTER ||
           kind == TUTTI_COLL_ALL_TO_ALL;
}

static void
draw_args(work *self, uint32_t rank)
{
    static const unsigned char meta[META_BYTES];
    tutti_coll_args *args = &self->op.args;
    const unsigned how = (unsigned)fuzz_take(1);
    const unsigned more = (unsigned)fuzz_take(1);
    uint32_t i;

    args->kind = 1 + (tutti_coll_kind)fuzz_take(1) % (TUTTI_COLL_KIND_COUNT - 1);
    args->reduce = tutti_coll_is_reduction(args->kind) ? 1 + how % 3 : TUTTI_REDUCE_NONE;
    args->root = how / 4 % our.size;
    args->peer = more % 8 == 7 ? TUTTI_COLL_ANY_SOURCE : (rank + 1 + more % 2) % our.size;
    args->tag = more / 8 % 2;
    args->form = has_form(args->kind) ? how / 16 % 4 : TUTTI_FORM_CONCAT;
    args->coalesced = how / 64 == 1;
    args->has_spec = true;
    args->spec = draw_spec();
    if (tutti_coll_is_from_root(args->kind) && args->root != rank) {
        args->has_spec = more / 16 % 4 == 3;
        args->coalesced = args->coalesced && !args->has_spec;
    } else if (args->coalesced ||
               (args->form == TUTTI_FORM_LIST &&
                (args->kind == TUTTI_COLL_SCATTER || args->kind == TUTTI_COLL_REDUCE_SCATTER ||
                 args->kind == TUTTI_COLL_ALL_TO_ALL))) {
        draw_list(self);
    } else if (more / 16 % 4 == 2 &&
               (args->kind == TUTTI_COLL_ALL_TO_ALL || args->kind == TUTTI_COLL_SCATTER)) {
        draw_splits(self);
    }
    if (args->kind == TUTTI_COLL_PERMUTE) {
        for (i = 0; i < our.size; i++) {
            self->to[i] = (i + 1) % our.size;
        }
        args->to = self->to;
        args->to_count = our.size;
    }
    if (args->kind == TUTTI_COLL_RECV || args->kind == TUTTI_COLL_BARRIER) {
        args->has_spec = false;
    }
    if ((args->kind == TUTTI_COLL_SEND || tutti_coll_is_from_root(args->kind)) &&
        (args->kind == TUTTI_COLL_SEND || args->root == rank) && more / 64 == 3) {
        args->meta = (tutti_bytes){meta, fuzz_take(1) % 2 == 0 ? 20 : META_BYTES};
    }
}

/* As an agent does before it posts. False: no group could run it. */
static bool
make_room(work *self, uint32_t rank)
{
    tutti_coll_op *op = &self->op;
    tutti_spec *specs = NULL;
    uint32_t count = 0;
    tutti_spec spec;
    tutti_error err;
    tutti_code code;

    op->on_spec = on_spec;
    op->on_list = on_list;
    if (op->args.has_spec && op->input == NULL) {
        op->input = room_for(self, &op->args.spec);
    }
    if (!tutti_coll_makes_list(&op->args)) {
        if (tutti_coll_infer(&op->args, our.size, rank, &spec, &err) != TUTTI_OK) {
            return false;
        }
        if (spec.dtype != TUTTI_DTYPE_NONE) {
            op->output = room_for(self, &spec);
        }
        return true;
    }
    if (!op->args.has_spec) {
        return true; /* on_list is told */
    }
    code = tutti_coll_infer_list(&op->args, our.size, rank, &specs, &count, &err);
    if (code == TUTTI_OK && op->args.coalesced && !tutti_coll_is_from_root(op->args.kind)) {
        code = on_list(op, specs, count, &err);
    }
    free(specs);
    return code == TUTTI_OK;
}

static void
post_one(uint32_t rank)
{
    const unsigned which = (unsigned)fuzz_take(1) % 8 == 7 && our.groups[rank][1] != NULL;
    work *self = our.work_count < OPS_MAX ? calloc(1, sizeof(*self)) : NULL;
    tutti_error err;

    if (self == NULL) {
        return;
    }
    draw_args(self, rank);
    self->rank = rank;
    self->refuses = our.closed[rank][which];
    self->op.deadline_ns = tutti_clock_ns() + OP_NS;
    self->op.on_done = on_done;
    self->op.on_released = on_released;
    if (our.closed[rank][which] || !make_room(self, rank) ||
        tutti_coll_post(our.groups[rank][which], &self->op, 0, &err) != TUTTI_OK) {
        free_work(self);
        return;
    }
    self->refuses = fuzz_take(1) % 16 == 15;
    our.works[our.work_count++] = self;
}

/* The same op on all ranks: most of what is drawn apart is refused. */
static void
post_all(void)
{
    const input begin = our.in;
    uint32_t i;

    for (i = 0; i < our.size; i++) {
        our.in = begin;
        post_one(i);
    }
}

/* ------------------------------------------------------------------------------ what others say */

static void
make_up(uint32_t to)
{
    tutti_packet packet = {.kind = 1 + (tutti_packet_kind)fuzz_take(1) % TUTTI_PACKET_SILENT,
                           .from = (uint32_t)fuzz_take(1) % (our.size + 1),
                           .tag = (uint32_t)fuzz_take(1) % 4,
                           .job_id = JOB,
                           .group = 1 + fuzz_take(1) % 3,
                           .epoch = 1 + fuzz_take(1) % 2,
                           .sequence = fuzz_take(1) % 8,
                           .extra = fuzz_take(1)};
    static const uint32_t steps[] = {0,  1,  2,  31, 32, 33, 62,       63,
                                     64, 65, 66, 67, 70, 80, 1U << 20, (1U << 20) + 64};
    unsigned char header[TUTTI_TRANSPORT_HEADER_MAX];
    size_t header_size = TUTTI_PACKET_BYTES;
    const uint8_t *data = NULL;
    tutti_spec spec;
    size_t size;

    packet.step = steps[fuzz_take(1) % (sizeof(steps) / sizeof(steps[0]))];
    packet.incarnation = 100 + packet.from;
    tutti_packet_write(&packet, header);
    size = (size_t)fuzz_take(1);
    if (packet.kind == TUTTI_PACKET_SEND) {
        spec = draw_spec();
        header_size += tutti_packet_write_spec(&spec, header + header_size);
        size = (size_t)tutti_spec_bytes(&spec);
    }
    if (fuzz_take(1) % 4 == 3) {
        tutti_transport_rndv *rndv = meddler_offer(our.meddlers[to]);

        if (rndv != NULL) {
            meddler_hand_on(our.meddlers[to], header, header_size, NULL, size * 100, rndv);
        }
        return;
    }
    if (packet.kind != TUTTI_PACKET_SEND) { /* before it is heard, which may take more */
        size = size < our.in.left ? size : our.in.left;
        data = our.in.at;
        our.in.at += size;
        our.in.left -= size;
    }
    meddler_hand_on(our.meddlers[to], header, header_size, data, size, NULL);
}

/* ------------------------------------------------------------------------------ what happens */

static void
on_probed(void *arg, const tutti_coll_reach *reaches, size_t count)
{
    (void)arg;
    fuzz_check(count == 1 && (reaches[0].reached || reaches[0].why[0] != '\0'));
}

static void
happen(uint32_t rank)
{
    const unsigned what = (unsigned)fuzz_take(1);
    const uint32_t other = what / 16 % our.size;
    tutti_error why;

    if (our.closed[rank][0]) {
        return;
    }
    (void)TUTTI_FAIL_FOR(&why, TUTTI_ABORTED, TUTTI_COLL_ABORTED, "somebody has asked for it");
    switch (what % 13) {
    case 0:
        if (our.work_count > 0) {
            const work *one = our.works[fuzz_take(1) % our.work_count];

            tutti_coll_cancel(our.engines[one->rank], one->op.id, &why);
        }
        break;
    case 1:
        tutti_coll_lose_peer(our.engines[rank], other, 0, "it was killed");
        break;
    case 2:
        tell_peer(our.engines[rank], other, 100 + other + fuzz_take(1) % 2);
        break;
    case 3:
        our.epoch++;
        tutti_coll_group_renew(our.groups[rank][0], our.epoch);
        break;
    case 4:
        tutti_coll_group_abort(our.groups[rank][0], &why, what >= 128);
        break;
    case 5:
        tutti_coll_group_leave(our.groups[rank][0], "it has had enough");
        break;
    case 6:
        tutti_coll_group_resync(our.groups[rank][0]);
        break;
    case 7:
        open_group(rank, 1);
        break;
    case 8:
        if (what >= 192) {
            our.closed[rank][0] = true;
            tutti_coll_group_close(our.groups[rank][0]);
        }
        break;
    case 9:
        rekey(rank, 1 + fuzz_take(1) % 4);
        break;
    case 10:
        (void)tutti_coll_refuse(our.groups[rank][0], 0, &why);
        break;
    case 11:
        (void)tutti_coll_probe(our.engines[rank], &other, 1, TUTTI_NS_PER_S, on_probed, NULL, &why);
        break;
    default:
        if (other != rank) {
            tutti_coll_refuse_send(our.groups[rank][0], other, what % 2, &why);
        }
    }
}

/* For the timers alone. */
static void
pass_time(uint32_t rank)
{
    static const uint64_t spans_ms[] = {100, 400, 1100, 3000, 6000, 20000};
    tutti_coll_engine *engine = our.engines[rank];

    engine->now_ns = tutti_clock_ns() + spans_ms[fuzz_take(1) % 6] * TUTTI_NS_PER_MS;
    tutti_timers_run(&engine->timers, engine->now_ns);
    advance(rank);
}

static void
step(void)
{
    const unsigned what = (unsigned)fuzz_take(1);
    const uint32_t rank = what / 16 % our.size;

    switch (what % 12) {
    case 0:
        post_one(rank);
        break;
    case 1:
    case 2:
        post_all();
        break;
    case 3:
    case 4:
        advance(rank);
        break;
    case 5:
        advance_all(1 + what / 16);
        break;
    case 6:
    case 7:
        make_up(rank);
        break;
    case 8:
        happen(rank);
        break;
    case 9:
        if (our.meddlers[rank]->held_count > 0) {
            meddler_let_go(our.meddlers[rank], fuzz_take(1) % our.meddlers[rank]->held_count);
        }
        break;
    case 10:
        if (our.offers.count > 0) {
            offer *it = &our.offers.list[fuzz_take(1) % our.offers.count];

            meddler_end_fetch(it->owner == our.meddlers[rank] ? it : &(offer){.ticket = NULL},
                              what < 128);
        }
        break;
    default:
        pass_time(rank);
    }
}

/* ------------------------------------------------------------------------------ from begin to end */

static void
begin(unsigned kind)
{
    uint32_t i;

    our.size = 2 + kind / 4 % 2;
    our.epoch = 1;
    our.network = fake_network_new();
    fake_network_hosts(our.network, 2);
    choose_algorithms(algorithms[kind / 8 % (sizeof(algorithms) / sizeof(algorithms[0]))]);
    for (i = 0; i < our.size; i++) {
        open_engine(kind % 4, i);
    }
    for (i = 0; i < our.size; i++) {
        open_group(i, 0);
    }
    advance_all(4);
}

/* All run by themselves again while one after the other stops. */
static void
end(void)
{
    uint32_t i;
    size_t k;

    advance_all(4);
    our.calm = true;
    for (k = 0; k < our.offers.count; k++) {
        meddler_end_fetch(&our.offers.list[k], false);
    }
    for (i = 0; i < our.size; i++) {
        (void)pthread_mutex_unlock(&our.engines[i]->progress_lock);
        tutti_coll_engine_refuse(our.engines[i]);
    }
    for (i = 0; i < our.size; i++) {
        tutti_coll_engine_stop(our.engines[i]);
    }
    fake_network_free(our.network);
    tutti_selector_free(our.selector);
    for (k = 0; k < our.work_count; k++) {
        fuzz_check(atomic_load(&our.works[k]->done) == 1 &&
                   atomic_load(&our.works[k]->released) == 1);
        free_work(our.works[k]);
    }
    for (k = 0; k < our.offers.count; k++) {
        fuzz_check(!our.offers.list[k].out);
    }
    for (i = 0; i < our.size; i++) {
        free(our.meddlers[i]);
    }
    memset(&our, 0, sizeof(our));
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned steps = 0;
    tutti_error err;

    if (size == 0) {
        return 0;
    }
    fuzz_check(tutti_log_set_levels("error", &err) == TUTTI_OK);
    our.in = (input){data + 1, size - 1};
    begin(data[0]);
    while (our.in.left > 0 && steps++ < STEPS_MAX) {
        step();
    }
    end();
    return 0;
}
