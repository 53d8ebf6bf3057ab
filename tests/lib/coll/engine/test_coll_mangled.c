/*
 * Goal: what was changed on the way fails the op on every rank, whether its packet finds an op that waits for it or
 * waits for the op; nothing is used or freed twice, and the group goes on.
 * Method: the fake transport with somebody on the way, who writes over the data of one kind of packet.
 */
#include "support/testing.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/os/clock.h"
#include "coll/packet/packet.h"
#include "coll/transport_auth/transport_auth.h"
#include "support/world.h"

#define LONG_MS 15000
#define SHORT_MS 300
#define META_BYTES 20000 /* wait at their sender until they are fetched */
#define RANKS 2
#define COUNT 4096       /* too many to ride with a signature: no rank is done before the other */
#define STEP_ANNOUNCE 63 /* coll/state/op.h */

/* Whose packets are changed. */
typedef struct stroke {
    uint32_t from;
    tutti_packet_kind kind;
    uint32_t step;
    _Atomic uint32_t count; /* that were */
} stroke;

static int32_t numbers[RANKS][COUNT];

static void
scribble(void *arg, const void *header, unsigned char *data, size_t size)
{
    stroke *self = arg;
    tutti_packet packet;

    if (tutti_packet_read(header, TUTTI_PACKET_BYTES, &packet) && packet.from == self->from &&
        packet.kind == self->kind && packet.step == self->step) {
        memset(data, 0xff, size);
        (void)atomic_fetch_add(&self->count, 1);
    }
}

/* Where a list goes; what is in it is never looked at. */
static tutti_code
on_list(tutti_coll_op *op, const tutti_spec *specs, uint32_t count, tutti_error *err)
{
    static tutti_coll_tensor outputs[RANKS][RANKS];
    static int32_t room[RANKS][COUNT];
    const uint32_t rank = tutti_coll_group_rank(op->group);
    uint32_t i;

    (void)err;
    for (i = 0; i < count; i++) {
        outputs[rank][i] = (tutti_coll_tensor){.spec = specs[i], .data = room[rank]};
    }
    op->outputs = outputs[rank];
    return TUTTI_OK;
}

static run *
begin(world *w, uint32_t rank, const tutti_coll_args *args)
{
    run *self = run_new(args->kind);

    self->op.args = *args;
    self->op.on_list = on_list;
    numbers[rank][0] = 1;
    run_give(self, TUTTI_DTYPE_INT32, COUNT, numbers[rank], numbers[rank]);
    run_post(self, w->groups[rank], LONG_MS);
    return self;
}

/* Back when `to` has all that `from` sent before: the fake transport keeps the order. */
static void
hear(world *w, uint32_t from, uint32_t to)
{
    run *sent = begin(w, from, &(tutti_coll_args){.kind = TUTTI_COLL_SEND, .peer = to});
    run *got = begin(w, to, &(tutti_coll_args){.kind = TUTTI_COLL_RECV, .peer = from});

    assert_int_equal(run_wait(got), TUTTI_OK);
    assert_int_equal(run_wait(sent), TUTTI_OK);
    run_free(sent);
    run_free(got);
}

static void
check_works(world *w)
{
    const tutti_coll_args sum = {.kind = TUTTI_COLL_ALL_REDUCE, .reduce = TUTTI_REDUCE_SUM};
    run *runs[RANKS];
    uint32_t i;

    for (i = 0; i < RANKS; i++) {
        runs[i] = begin(w, i, &sum);
    }
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_OK);
        assert_int_equal(numbers[i][0], RANKS);
        run_free(runs[i]);
    }
}

/* Rank 0's packets of one step are changed; `parked`: they are there before rank 1 calls the op. */
static void
check_refused(const tutti_coll_args *args, tutti_packet_kind kind, uint32_t step, bool parked)
{
    stroke on_the_way = {.from = 0, .kind = kind, .step = step};
    run *runs[RANKS];
    world w;
    uint32_t i;

    world_open(&w, world_transport_fake, RANKS);
    hear(&w, 0, 1);
    fake_network_change(w.network, scribble, &on_the_way);
    runs[parked ? 0 : 1] = begin(&w, parked ? 0 : 1, args);
    if (parked) {
        hear(&w, 0, 1);
    }
    runs[parked ? 1 : 0] = begin(&w, parked ? 1 : 0, args);
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_INTERNAL);
        assert_text_has(runs[i]->err.text, "malformed");
        run_free(runs[i]);
    }
    assert_int_not_equal(atomic_load(&on_the_way.count), 0);
    fake_network_change(w.network, NULL, NULL);
    check_works(&w);
    world_close(&w);
}

static const tutti_coll_args all_reduce = {.kind = TUTTI_COLL_ALL_REDUCE,
                                           .reduce = TUTTI_REDUCE_SUM};
/* Shapes are told apart from the signatures, in a round of their own. */
static const tutti_coll_args all_gather = {.kind = TUTTI_COLL_ALL_GATHER, .form = TUTTI_FORM_LIST};

static void
test_signature__that_waited_for_its_op_and_was_changed_is_refused(void **state)
{
    (void)state;
    check_refused(&all_reduce, TUTTI_PACKET_AGREE, 0, true);
}

static void
test_signature__that_comes_and_was_changed_is_refused(void **state)
{
    (void)state;
    check_refused(&all_reduce, TUTTI_PACKET_AGREE, 0, false);
}

static void
test_shapes__that_were_changed_are_refused(void **state)
{
    (void)state;
    check_refused(&all_gather, TUTTI_PACKET_DATA, STEP_ANNOUNCE, true);
    check_refused(&all_gather, TUTTI_PACKET_DATA, STEP_ANNOUNCE, false);
}

/* Somebody on the way has no key. */
static tutti_transport *
sealed(world *self)
{
    tutti_transport *transport = world_transport_fake(self);
    tutti_error err;

    assert_ok(
        tutti_transport_auth_open(transport, self->incarnations[self->opening], &transport, &err));
    return transport;
}

/* As if it had never come: the op ends at its deadline, and nothing of it was read. */
static void
test_signature__that_was_changed_and_has_a_seal_is_dropped(void **state)
{
    stroke on_the_way = {.from = 0, .kind = TUTTI_PACKET_AGREE};
    run *runs[RANKS];
    world w;
    uint32_t i;

    (void)state;
    world_open(&w, sealed, RANKS);
    fake_network_change(w.network, scribble, &on_the_way);
    for (i = 0; i < RANKS; i++) {
        runs[i] = run_new(TUTTI_COLL_ALL_REDUCE);
        run_give(runs[i], TUTTI_DTYPE_INT32, COUNT, numbers[i], numbers[i]);
        run_post(runs[i], w.groups[i], i == 0 ? LONG_MS : SHORT_MS);
    }
    for (i = 0; i < RANKS; i++) {
        assert_int_equal(run_wait(runs[i]), TUTTI_DEADLINE_EXCEEDED);
        run_free(runs[i]);
    }
    fake_network_change(w.network, NULL, NULL);
    check_works(&w);
    world_close(&w);
}

static void
test_words__that_were_changed_behind_their_packet_fail_the_op(void **state)
{
    stroke on_the_way = {.from = 0, .kind = TUTTI_PACKET_META};
    static unsigned char meta[META_BYTES];
    run *sent;
    run *got;
    world w;

    (void)state;
    world_open(&w, sealed, RANKS);
    fake_network_change(w.network, scribble, &on_the_way);
    sent =
        begin(&w, 0,
              &(tutti_coll_args){.kind = TUTTI_COLL_SEND, .peer = 1, .meta = {meta, sizeof(meta)}});
    got = begin(&w, 1, &(tutti_coll_args){.kind = TUTTI_COLL_RECV, .peer = 0});
    assert_int_equal(run_wait(got), TUTTI_INTERNAL);
    assert_text_has(got->err.text, "what rank 0 said was changed on the way");
    assert_int_equal(run_wait(sent), TUTTI_INTERNAL);
    fake_network_change(w.network, NULL, NULL);
    check_works(&w);
    run_free(sent);
    run_free(got);
    world_close(&w);
}

static void
note_end(tutti_transport_ticket *ticket, bool ok)
{
    (void)ticket;
    (void)ok;
}

static void
count_end(tutti_transport_ticket *ticket, bool ok)
{
    assert_true(ok);
    ticket->on_done = note_end;
}

/* A member that says more than its op needs. What it offers stays with it until somebody fetches or drops it. */
static void
test_packet__that_no_step_of_its_op_asks_for_is_forgotten_with_the_op(void **state)
{
    const uint64_t until_ns = tutti_clock_ns() + LONG_MS * TUTTI_NS_PER_MS;
    static unsigned char data[META_BYTES];
    tutti_transport_ticket ticket = {.on_done = count_end};
    unsigned char header[TUTTI_PACKET_BYTES];
    tutti_transport_conn *conn = NULL;
    tutti_transport *member;
    tutti_error err;
    world w;

    (void)state;
    world_open(&w, world_transport_fake, RANKS);
    tutti_packet_write(&(tutti_packet){.kind = TUTTI_PACKET_DATA,
                                       .step = STEP_ANNOUNCE,
                                       .job_id = 77,
                                       .incarnation = w.incarnations[0],
                                       .group = 1,
                                       .epoch = 1,
                                       .sequence = 1},
                       header);
    member = fake_transport_new(w.network);
    assert_ok(
        member->ops->connect(member, tutti_coll_engine_address(w.engines[1]), NULL, &conn, &err));
    assert_int_equal(member->ops->send(conn, header, sizeof(header), data, sizeof(data), &ticket),
                     TUTTI_TRANSPORT_LATER);
    check_works(&w);
    while (ticket.on_done == count_end) {
        assert_true(tutti_clock_ns() < until_ns);
        (void)member->ops->progress(member);
    }
    member->ops->disconnect(conn);
    world_close(&w);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_signature__that_waited_for_its_op_and_was_changed_is_refused),
        cmocka_unit_test(test_signature__that_comes_and_was_changed_is_refused),
        cmocka_unit_test(test_shapes__that_were_changed_are_refused),
        cmocka_unit_test(test_signature__that_was_changed_and_has_a_seal_is_dropped),
        cmocka_unit_test(test_words__that_were_changed_behind_their_packet_fail_the_op),
        cmocka_unit_test(test_packet__that_no_step_of_its_op_asks_for_is_forgotten_with_the_op),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
