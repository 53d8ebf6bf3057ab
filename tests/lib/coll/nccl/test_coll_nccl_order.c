/*
 * Goal: agents launch in one order, whatever comes first where. Method: lines of several agents by
 * hand, with the messages between them in all orders.
 */
#include "support/testing.h"

#include "coll/nccl/order.h"

static nccl_place
place_of(uint64_t group)
{
    return (nccl_place){.group = group, .sequence = 1};
}

static void
test_line__lets_nobody_go_before_its_ticket_is_known(void **state)
{
    nccl_place one = place_of(1);
    nccl_line line;

    (void)state;
    tutti_nccl_line_init(&line);
    assert_null(tutti_nccl_line_head(&line));
    tutti_nccl_line_propose(&line, &one);
    assert_null(tutti_nccl_line_head(&line));
    tutti_nccl_line_settle(&line, &one, 5);
    assert_ptr_equal(tutti_nccl_line_head(&line), &one);
    tutti_nccl_line_leave(&one);
    tutti_nccl_line_leave(&one); /* twice is fine */
    assert_null(tutti_nccl_line_head(&line));
}

static void
test_line__waits_for_one_that_may_still_be_earlier(void **state)
{
    nccl_place unexpected = place_of(1);
    nccl_place late = place_of(2);
    nccl_line line;

    (void)state;
    tutti_nccl_line_init(&line);
    tutti_nccl_line_propose(&line, &unexpected); /* 1 */
    tutti_nccl_line_propose(&line, &late);       /* 2 */
    tutti_nccl_line_settle(&line, &late, 2);
    assert_null(tutti_nccl_line_head(&line));
    tutti_nccl_line_settle(&line, &unexpected, 7);
    assert_ptr_equal(tutti_nccl_line_head(&line), &late);
    tutti_nccl_line_leave(&late);
    assert_ptr_equal(tutti_nccl_line_head(&line), &unexpected);
}

static void
test_line__that_loses_one_that_failed_goes_on(void **state)
{
    nccl_place dead = place_of(1);
    nccl_place next = place_of(2);
    nccl_line line;

    (void)state;
    tutti_nccl_line_init(&line);
    tutti_nccl_line_propose(&line, &dead);
    tutti_nccl_line_propose(&line, &next);
    tutti_nccl_line_settle(&line, &next, 2);
    tutti_nccl_line_leave(&dead);
    assert_ptr_equal(tutti_nccl_line_head(&line), &next);
}

static void
test_clock__is_never_behind_a_ticket_that_was_heard(void **state)
{
    nccl_place one = place_of(1);
    nccl_place two = place_of(2);
    nccl_line line;

    (void)state;
    tutti_nccl_line_init(&line);
    tutti_nccl_line_propose(&line, &one);
    tutti_nccl_line_settle(&line, &one, 100);
    tutti_nccl_line_propose(&line, &two);
    assert_int_equal(two.ticket, 101);
}

static uint32_t
draw(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

enum {
    LINES = 3,
    OPS = 12
};

/* One world: every op is on two or three lines, and told in an order drawn for each. */
typedef struct trial {
    nccl_line lines[LINES];
    nccl_place places[LINES][OPS];
    bool member[LINES][OPS];
    bool proposed[LINES][OPS];
    uint64_t ticket[OPS];
    uint32_t left[OPS]; /* members that have not proposed */
    bool settled[LINES][OPS];
    int launched[LINES][OPS]; /* the how-manieth there, from 1 */
    int count[LINES];
} trial;

static void
set_up(trial *self, uint32_t *seed)
{
    int line;
    int op;

    *self = (trial){0};
    for (line = 0; line < LINES; line++) {
        tutti_nccl_line_init(&self->lines[line]);
    }
    for (op = 0; op < OPS; op++) {
        const uint32_t without = draw(seed) % (LINES + 1);

        for (line = 0; line < LINES; line++) {
            self->member[line][op] = (uint32_t)line != without;
            self->left[op] += self->member[line][op] ? 1 : 0;
            self->places[line][op] = place_of((uint64_t)op);
            tutti_list_init(&self->places[line][op].link);
        }
    }
}

static void
launch_all(trial *self, int line)
{
    nccl_place *head;

    while ((head = tutti_nccl_line_head(&self->lines[line])) != NULL) {
        self->launched[line][head->group] = ++self->count[line];
        tutti_nccl_line_leave(head);
    }
}

/* Anything that can happen now, drawn: a proposal, or hearing the ticket. */
static void
step(trial *self, int line, int op)
{
    nccl_place *place = &self->places[line][op];

    if (!self->member[line][op]) {
        return;
    }
    if (!self->proposed[line][op]) {
        self->proposed[line][op] = true;
        tutti_nccl_line_propose(&self->lines[line], place);
        self->ticket[op] = place->ticket > self->ticket[op] ? place->ticket : self->ticket[op];
        self->left[op]--;
    } else if (self->left[op] == 0 && !self->settled[line][op]) {
        self->settled[line][op] = true;
        tutti_nccl_line_settle(&self->lines[line], place, self->ticket[op]);
        launch_all(self, line);
    }
}

static void
check(const trial *self)
{
    int line;
    int one;
    int other;

    for (line = 1; line < LINES; line++) {
        for (one = 0; one < OPS; one++) {
            assert_true(self->member[line][one] == (self->launched[line][one] > 0));
            for (other = 0; other < OPS; other++) {
                const bool both = self->member[0][one] && self->member[0][other] &&
                                  self->member[line][one] && self->member[line][other];

                if (both) {
                    assert_int_equal(self->launched[0][one] < self->launched[0][other],
                                     self->launched[line][one] < self->launched[line][other]);
                }
            }
        }
    }
}

static void
test_lines__launch_what_they_share_in_the_same_order(void **state)
{
    uint32_t seed = 7;
    int round;
    int k;
    static trial self;

    (void)state;
    for (round = 0; round < 500; round++) {
        set_up(&self, &seed);
        for (k = 0; k < 40 * LINES * OPS; k++) {
            step(&self, (int)(draw(&seed) % LINES), (int)(draw(&seed) % OPS));
        }
        check(&self);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line__lets_nobody_go_before_its_ticket_is_known),
        cmocka_unit_test(test_line__waits_for_one_that_may_still_be_earlier),
        cmocka_unit_test(test_line__that_loses_one_that_failed_goes_on),
        cmocka_unit_test(test_clock__is_never_behind_a_ticket_that_was_heard),
        cmocka_unit_test(test_lines__launch_what_they_share_in_the_same_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
