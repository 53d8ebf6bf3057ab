/*
 * Goal: fault injection strikes where it is told to, once, and a transport around which it lies
 * keeps its contract: every ticket that is out comes back. Method: rules as text; and a transport
 * that counts what reaches it.
 */
#include "coll/packet/packet.h"
#include "support/testing.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "coll/fault_inject/fault_inject.h"

typedef struct counter {
    tutti_transport base;
    size_t sent;
    uint32_t last_step;
} counter;

struct tutti_transport_conn {
    counter *transport;
};

static void
count_listen(tutti_transport *transport, const tutti_transport_events *events, void *arg)
{
    (void)transport;
    (void)events;
    (void)arg;
}

static tutti_code
count_connect(tutti_transport *transport, tutti_bytes address, void *owner,
              tutti_transport_conn **ret_link, tutti_error *err)
{
    (void)address;
    (void)owner;
    (void)err;
    *ret_link = calloc(1, sizeof(**ret_link));
    (*ret_link)->transport = tutti_container_of(transport, counter, base);
    return TUTTI_OK;
}

static void
count_disconnect(tutti_transport_conn *link)
{
    free(link);
}

static tutti_transport_result
count_send(tutti_transport_conn *link, const void *header, size_t header_size, const void *data,
           size_t size, tutti_transport_ticket *ticket)
{
    tutti_packet packet;

    (void)data;
    (void)size;
    (void)ticket;
    assert_true(tutti_packet_read(header, header_size, &packet));
    link->transport->sent++;
    link->transport->last_step = packet.step;
    return TUTTI_TRANSPORT_DONE;
}

static unsigned
count_progress(tutti_transport *transport)
{
    (void)transport;
    return 0;
}

static bool
count_arm(tutti_transport *transport, bool idle)
{
    (void)idle;
    (void)transport;
    return true;
}

static void
count_close(tutti_transport *transport)
{
    (void)transport;
}

static const tutti_transport_ops count_ops = {.size = sizeof(count_ops),
                                              .listen = count_listen,
                                              .connect = count_connect,
                                              .disconnect = count_disconnect,
                                              .send = count_send,
                                              .progress = count_progress,
                                              .arm = count_arm,
                                              .close = count_close};

typedef struct fault_world {
    counter inner;
    tutti_transport *transport;
    tutti_transport_conn *conn;
    unsigned char header[TUTTI_PACKET_BYTES];
    tutti_transport_ticket ticket;
    size_t went, failed, broken;
} fault_world;

static void
on_done(tutti_transport_ticket *ticket, bool ok)
{
    fault_world *self = tutti_container_of(ticket, fault_world, ticket);

    *(ok ? &self->went : &self->failed) += 1;
}

static void
on_broken(void *arg, void *owner, const char *why)
{
    fault_world *self = arg;

    (void)why;
    assert_ptr_equal(owner, &self->went);
    self->broken++;
    self->transport->ops->disconnect(self->conn);
    self->conn = NULL;
}

static const tutti_transport_events events = {NULL, on_broken};

static void
open_world(fault_world *self, const char *rule)
{
    tutti_error err;

    memset(self, 0, sizeof(*self));
    self->inner.base.ops = &count_ops;
    self->ticket.on_done = on_done;
    assert_ok(tutti_fault_open(rule, &err));
    assert_true(tutti_fault_is_on());
    assert_ok(tutti_transport_fault_open(&self->inner.base, &self->transport, &err));
    self->transport->ops->listen(self->transport, &events, self);
    assert_ok(self->transport->ops->connect(self->transport, (tutti_bytes){"", 0}, &self->went,
                                            &self->conn, &err));
}

static void
close_world(fault_world *self)
{
    if (self->conn != NULL) {
        self->transport->ops->disconnect(self->conn);
    }
    self->transport->ops->close(self->transport);
    assert_false(tutti_fault_is_on());
}

static tutti_transport_result
send_one(fault_world *self, tutti_packet_kind kind, uint32_t step)
{
    const tutti_packet packet = {.kind = kind, .step = step};

    tutti_packet_write(&packet, self->header);
    return self->transport->ops->send(self->conn, self->header, sizeof(self->header), "data", 4,
                                      &self->ticket);
}

static void
test_chaos__rules_that_cannot_be_are_refused(void **state)
{
    static const char *const wrong[] = {"",
                                        "agree",
                                        "agree:",
                                        "nowhere:drop",
                                        "agree:dance",
                                        "agree:drop:0",
                                        "agree:drop:x",
                                        "agree:drop:",
                                        "agree:delay",
                                        "agree:delay=0",
                                        "agree:delay=60001",
                                        "agree:drop=3",
                                        "before-done:drop",
                                        "after-agree:duplicate",
                                        "agree:drop:99999999999"};
    tutti_fault_rule rule = {0};
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(wrong); i++) {
        assert_fails(tutti_fault_read_rule(wrong[i], &rule, &err), TUTTI_INVALID_ARGUMENT);
        assert_int_equal(rule.point, 0);
    }
    assert_text_has(err.text, "after-agree");
    assert_ok(tutti_fault_read_rule("mid-data:delay=250:3", &rule, &err));
    assert_int_equal(rule.point, TUTTI_FAULT_MID_DATA);
    assert_int_equal(rule.action, TUTTI_FAULT_DELAY);
    assert_int_equal(rule.delay_ms, 250);
    assert_int_equal(rule.nth, 3);
    assert_fails(tutti_fault_open("/nowhere/at/all", &err), TUTTI_NOT_FOUND);
    assert_ok(tutti_fault_open("20", &err)); /* delays of shared memory */
    assert_false(tutti_fault_is_on());
}

static void
test_drop__loses_the_nth_packet_of_its_kind_and_no_other(void **state)
{
    fault_world world;
    uint32_t i;

    (void)state;
    open_world(&world, "data:drop:2");
    assert_int_equal(send_one(&world, TUTTI_PACKET_AGREE, 0), TUTTI_TRANSPORT_DONE);
    for (i = 1; i <= 4; i++) {
        assert_int_equal(send_one(&world, TUTTI_PACKET_DATA, i), TUTTI_TRANSPORT_DONE);
        assert_int_equal(world.inner.sent, i < 2 ? 1 + i : i);
        assert_int_equal(world.inner.last_step, i == 2 ? 1 : i);
    }
    close_world(&world);
}

static void
test_duplicate__sends_it_twice_and_ends_it_once(void **state)
{
    fault_world world;

    (void)state;
    open_world(&world, "agree:duplicate");
    assert_int_equal(send_one(&world, TUTTI_PACKET_AGREE, 1), TUTTI_TRANSPORT_DONE);
    assert_int_equal(world.inner.sent, 2);
    assert_int_equal(send_one(&world, TUTTI_PACKET_AGREE, 2), TUTTI_TRANSPORT_DONE);
    assert_int_equal(world.inner.sent, 3);
    close_world(&world);
}

static void
test_delay__holds_it_until_its_time_and_the_engine_stays_awake(void **state)
{
    fault_world world;

    (void)state;
    open_world(&world, "agree:delay=1");
    assert_int_equal(send_one(&world, TUTTI_PACKET_AGREE, 1), TUTTI_TRANSPORT_LATER);
    while (world.went == 0) {
        assert_false(world.transport->ops->arm(world.transport, false));
        (void)world.transport->ops->progress(world.transport);
    }
    assert_int_equal(world.inner.sent, 1);
    assert_true(world.transport->ops->arm(world.transport, false));
    close_world(&world);
}

static void
test_cut__breaks_the_way_and_brings_back_the_ticket(void **state)
{
    fault_world world;

    (void)state;
    open_world(&world, "data:cut");
    assert_int_equal(send_one(&world, TUTTI_PACKET_DATA, 1), TUTTI_TRANSPORT_LATER);
    assert_false(world.transport->ops->arm(world.transport, false));
    (void)world.transport->ops->progress(world.transport);
    assert_int_equal(world.broken, 1);
    assert_int_equal(world.failed, 1);
    assert_int_equal(world.inner.sent, 0);
    close_world(&world);
}

static void
test_point_of_an_op__cuts_all_ways(void **state)
{
    fault_world world;

    (void)state;
    open_world(&world, "before-done:cut");
    tutti_fault_at(TUTTI_FAULT_AFTER_AGREE);
    assert_true(world.transport->ops->arm(world.transport, false));
    tutti_fault_at(TUTTI_FAULT_BEFORE_DONE);
    assert_false(world.transport->ops->arm(world.transport, false));
    (void)world.transport->ops->progress(world.transport);
    assert_int_equal(world.broken, 1);
    close_world(&world);
}

/* What tests/faults does: the rule of a process that runs is changed, and what it did is seen. */
static void
test_page__may_be_changed_and_counts_what_struck(void **state)
{
    char path[] = "/tmp/tutti-chaos-XXXXXX";
    const int file = mkstemp(path);
    tutti_fault_page *page;
    fault_world world;

    (void)state;
    assert_int_equal(ftruncate(file, sizeof(*page)), 0);
    page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_ptr_not_equal(page, MAP_FAILED);
    open_world(&world, path);
    (void)send_one(&world, TUTTI_PACKET_DATA, 1);
    (void)snprintf(page->rule, sizeof(page->rule), "data:drop");
    (void)atomic_fetch_add(&page->generation, 1);
    (void)send_one(&world, TUTTI_PACKET_DATA, 2);
    assert_int_equal(world.inner.sent, 1);
    assert_int_equal(atomic_load(&page->struck), 1);
    (void)snprintf(page->rule, sizeof(page->rule), "no rule at all");
    (void)atomic_fetch_add(&page->generation, 1);
    (void)send_one(&world, TUTTI_PACKET_DATA, 3);
    assert_int_equal(world.inner.sent, 2);
    close_world(&world);
    (void)munmap(page, sizeof(*page));
    (void)close(file);
    (void)unlink(path);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chaos__rules_that_cannot_be_are_refused),
        cmocka_unit_test(test_drop__loses_the_nth_packet_of_its_kind_and_no_other),
        cmocka_unit_test(test_duplicate__sends_it_twice_and_ends_it_once),
        cmocka_unit_test(test_delay__holds_it_until_its_time_and_the_engine_stays_awake),
        cmocka_unit_test(test_cut__breaks_the_way_and_brings_back_the_ticket),
        cmocka_unit_test(test_point_of_an_op__cuts_all_ways),
        cmocka_unit_test(test_page__may_be_changed_and_counts_what_struck),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
