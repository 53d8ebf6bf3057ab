/*
 * Goal: a history is called broken if and only if no order of its ops explains it.
 * Method: histories by hand; small random ones, of which every order is tried by a second, slower checker with a model of its
 * own; large ones from a store that is right, and from one that errs once.
 */
#include "support/testing.h"

#include "linear.h"

#define WORDS 1000
#define OPS_MAX 400
#define KEYS 4 /* and a queue behind them */
#define QUEUE KEYS

static char words[WORDS];

static linear_verdict
check(const linear_op *ops, size_t count)
{
    words[0] = '\0';
    return linear_check(ops, count, words, sizeof(words));
}

/* ------------------------------------------------------------------------------ by hand */

#define OP(kind_, from, to, ...)                                                                   \
    {                                                                                              \
        .kind = LINEAR_##kind_, .key_count = 1, .begin = (from), .end = (to), __VA_ARGS__          \
    }
#define GIVES(...) .values = {__VA_ARGS__}
#define GETS(...) .results = {__VA_ARGS__}

#define assert_verdict(wanted, ...)                                                                \
    do {                                                                                           \
        const linear_op ops[] = {__VA_ARGS__};                                                     \
        assert_int_equal(check(ops, COUNT_OF(ops)), wanted);                                       \
        assert_true((words[0] != '\0') == ((wanted) == LINEAR_BROKEN));                            \
    } while (0)

static void
test_linear__lets_a_read_see_what_is_written_meanwhile(void **state)
{
    (void)state;
    assert_verdict(LINEAR_HOLDS, OP(SET, 1, 2, GIVES(5)), OP(GET, 3, 4, GETS(5)));
    assert_verdict(LINEAR_HOLDS, OP(SET, 1, 5, GIVES(5)), OP(GET, 2, 3, GETS(5)));
    assert_verdict(LINEAR_HOLDS, OP(SET, 1, 5, GIVES(5)), OP(GET, 2, 3, GETS(LINEAR_ABSENT)));
    assert_verdict(LINEAR_BROKEN, OP(SET, 1, 2, GIVES(5)), OP(GET, 3, 4, GETS(LINEAR_ABSENT)));
    assert_verdict(LINEAR_BROKEN, OP(SET, 1, 9, GIVES(5)), OP(GET, 2, 3, GETS(5)),
                   OP(GET, 4, 5, GETS(LINEAR_ABSENT))); /* back again */
}

static void
test_linear__lets_what_was_not_answered_happen_late_or_never(void **state)
{
    (void)state;
    assert_verdict(LINEAR_HOLDS, OP(SET, 1, LINEAR_OPEN, GIVES(5)),
                   OP(GET, 3, 4, GETS(LINEAR_ABSENT)), OP(GET, 8, 9, GETS(5)));
    assert_verdict(LINEAR_HOLDS, OP(SET, 1, LINEAR_OPEN, GIVES(5)),
                   OP(GET, 3, 4, GETS(LINEAR_ABSENT)));
    assert_verdict(LINEAR_BROKEN, OP(SET, 5, LINEAR_OPEN, GIVES(5)), OP(GET, 3, 4, GETS(5)));
    assert_verdict(LINEAR_BROKEN, OP(ADD, 1, LINEAR_OPEN, GIVES(1)), OP(GET, 3, 4, GETS(2)));
}

static void
test_linear__counts_a_token_once(void **state)
{
    const linear_op twice[] = {
        OP(ADD, 1, LINEAR_OPEN, GIVES(1), .token = 7),
        OP(ADD, 4, 5, GIVES(1), GETS(1), .token = 7),
        OP(GET, 6, 7, GETS(2)),
    };
    linear_op once[3];

    (void)state;
    assert_int_equal(check(twice, 3), LINEAR_BROKEN);
    memcpy(once, twice, sizeof(once));
    once[2].results[0] = 1;
    assert_int_equal(check(once, 3), LINEAR_HOLDS);
    once[2] = (linear_op)OP(GET, 2, 3, GETS(1)); /* since its first call */
    assert_int_equal(check(once, 3), LINEAR_HOLDS);
    once[0].end = 2;
    once[0].results[0] = 3;
    assert_int_equal(check(once, 3), LINEAR_BROKEN); /* two answers */
    assert_text_has(words, "token");
}

static void
test_linear__gives_what_is_in_a_queue_once_and_in_order(void **state)
{
    (void)state;
    assert_verdict(LINEAR_HOLDS, OP(PUSH, 1, 2, GIVES(5), GETS(1)),
                   OP(PUSH, 3, 4, GIVES(6), GETS(2)), OP(POP, 5, 6, GETS(5)),
                   OP(LENGTH, 7, 8, GETS(1)), OP(POP, 9, 10, GETS(6)),
                   OP(POP, 11, 12, GETS(LINEAR_ABSENT)));
    assert_verdict(LINEAR_BROKEN, OP(PUSH, 1, 2, GIVES(5), GETS(1)), OP(POP, 3, 4, GETS(5)),
                   OP(POP, 5, 6, GETS(5)));
    assert_verdict(LINEAR_BROKEN, OP(PUSH, 1, 2, GIVES(5), GETS(1)),
                   OP(PUSH, 3, 4, GIVES(6), GETS(2)), OP(POP, 5, 6, GETS(6)));
    assert_verdict(LINEAR_HOLDS, OP(PUSH, 1, 2, GIVES(5), GETS(1)),
                   OP(POP, 3, LINEAR_OPEN, GIVES(0)), OP(POP, 5, 6, GETS(LINEAR_ABSENT)));
    assert_verdict(LINEAR_BROKEN, OP(PUSH, 1, 2, GIVES(5), GETS(1)),
                   OP(POP, 5, 6, GETS(LINEAR_ABSENT)));
}

static void
test_linear__swaps_what_is_expected_alone(void **state)
{
    (void)state;
    assert_verdict(LINEAR_HOLDS, OP(SWAP, 1, 2, GIVES(5), GETS(5), .expected = LINEAR_ABSENT),
                   OP(SWAP, 3, 4, GIVES(6), GETS(5), .expected = 4, .refused = true),
                   OP(SWAP, 5, 6, GIVES(6), GETS(6), .expected = 5), OP(GET, 7, 8, GETS(6)));
    assert_verdict(LINEAR_BROKEN, OP(SET, 1, 2, GIVES(5)),
                   OP(SWAP, 3, 4, GIVES(6), GETS(6), .expected = 4));
    assert_verdict(LINEAR_BROKEN, OP(SET, 1, 2, GIVES(5)),
                   OP(SWAP, 3, 4, GIVES(6), GETS(5), .expected = 5, .refused = true));
}

static void
test_linear__ends_a_lease_with_the_keys_that_still_have_it(void **state)
{
    (void)state;
    assert_verdict(LINEAR_HOLDS, OP(SET, 1, 2, GIVES(5), .lease = 9),
                   OP(EXPIRE, 3, LINEAR_OPEN, .lease = 9), OP(GET, 4, 5, GETS(LINEAR_ABSENT)));
    assert_verdict(LINEAR_BROKEN, OP(SET, 1, 2, GIVES(5), .lease = 9),
                   OP(EXPIRE, 6, LINEAR_OPEN, .lease = 9), OP(GET, 4, 5, GETS(LINEAR_ABSENT)));
    assert_verdict(LINEAR_BROKEN, OP(SET, 1, 2, GIVES(5), .lease = 9), OP(SET, 3, 4, GIVES(5)),
                   OP(EXPIRE, 5, LINEAR_OPEN, .lease = 9), OP(GET, 6, 7, GETS(LINEAR_ABSENT)));
    assert_verdict(LINEAR_HOLDS, OP(SET, 1, 2, GIVES(5), .lease = 9),
                   OP(ADD, 3, 4, GIVES(1), GETS(6)), OP(EXPIRE, 5, LINEAR_OPEN, .lease = 9),
                   OP(GET, 6, 7, GETS(LINEAR_ABSENT)));
}

static void
test_linear__sees_all_keys_of_a_call_at_one_moment(void **state)
{
    linear_op ops[] = {
        {.kind = LINEAR_SET_ALL, .keys = {0, 1}, .key_count = 2, GIVES(5, 5), .begin = 1, .end = 9},
        {.kind = LINEAR_LOOK,
         .keys = {0, 1},
         .key_count = 2,
         GETS(5, LINEAR_ABSENT),
         .begin = 2,
         .end = 3},
    };

    (void)state;
    assert_int_equal(check(ops, 2), LINEAR_BROKEN);
    ops[1].results[1] = 5;
    assert_int_equal(check(ops, 2), LINEAR_HOLDS);
    ops[1].kind = LINEAR_GET_ALL;
    assert_int_equal(check(ops, 2), LINEAR_HOLDS);
    ops[1].refused = true;
    assert_int_equal(check(ops, 2), LINEAR_HOLDS); /* before it */
    ops[1].begin = 10;
    ops[1].end = 11;
    assert_int_equal(check(ops, 2), LINEAR_BROKEN);
}

static void
test_linear__compares_versions(void **state)
{
    linear_op ops[] = {OP(SET, 1, 2, GIVES(5), .versions = {3}),
                       OP(SET, 3, 4, GIVES(5), .versions = {4}),
                       OP(GET, 5, 6, GETS(5), .versions = {4})};

    (void)state;
    assert_int_equal(check(ops, 3), LINEAR_HOLDS);
    assert_true(linear_check_versions(ops, 3, words, WORDS));
    ops[2].versions[0] = 3;
    assert_int_equal(check(ops, 3), LINEAR_BROKEN);
    ops[1].versions[0] = 2;
    assert_false(linear_check_versions(ops, 3, words, WORDS)); /* goes back */
    ops[1].versions[0] = 3;
    ops[1].begin = 1;
    assert_false(linear_check_versions(ops, 3, words, WORDS)); /* comes twice */
}

/* ------------------------------------------------------------------------------ chance */

static uint64_t seed;

static uint64_t
draw(uint64_t below)
{
    seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
    return (seed >> 33) % below;
}

/* ------------------------------------------------------------------------------ every order */

#define SMALL 5

/* A counter or a queue, by its own model. */
typedef struct thing {
    int64_t number;
    int64_t items[SMALL];
    int length;
} thing;

/* True: as it was answered. */
static bool
do_one(thing *self, const linear_op *op)
{
    const bool is_open = op->end == LINEAR_OPEN;
    int64_t got = self->number;

    switch (op->kind) {
    case LINEAR_SET:
        self->number = op->values[0];
        return true;
    case LINEAR_ADD:
        got = (got == LINEAR_ABSENT ? 0 : got) + op->values[0];
        self->number = got;
        break;
    case LINEAR_DELETE:
        got = got != LINEAR_ABSENT;
        self->number = LINEAR_ABSENT;
        break;
    case LINEAR_PUSH:
        self->items[self->length++] = op->values[0];
        got = self->length;
        break;
    case LINEAR_POP:
        got = self->length == 0 ? LINEAR_ABSENT : self->items[0];
        self->length -= self->length == 0 ? 0 : 1;
        memmove(self->items, self->items + 1, sizeof(self->items) - sizeof(self->items[0]));
        break;
    default:
        break;
    }
    return is_open || op->results[0] == got;
}

/* Is there an order that begins with those in `done`? */
static bool
any_order(const linear_op *ops, size_t count, unsigned done, thing now)
{
    bool all = true;
    size_t i;
    size_t k;

    for (i = 0; i < count; i++) {
        all = all && ((done >> i & 1) != 0 || ops[i].end == LINEAR_OPEN);
    }
    for (i = 0; i < count && !all; i++) {
        bool may = (done >> i & 1) == 0;
        thing then = now;

        for (k = 0; k < count; k++) {
            may = may && ((done >> k & 1) != 0 || ops[k].end >= ops[i].begin);
        }
        all = may && do_one(&then, &ops[i]) && any_order(ops, count, done | 1U << i, then);
    }
    return all;
}

static linear_op
draw_small(bool is_queue)
{
    static const linear_kind of_key[] = {LINEAR_GET, LINEAR_SET, LINEAR_ADD, LINEAR_DELETE};
    static const linear_kind of_queue[] = {LINEAR_PUSH, LINEAR_POP};
    const uint64_t begin = draw(12);
    linear_op op = {.kind = is_queue ? of_queue[draw(2)] : of_key[draw(4)],
                    .key_count = 1,
                    .begin = begin,
                    .end = draw(6) == 0 ? LINEAR_OPEN : begin + 1 + draw(4)};

    op.values[0] = 1 + (int64_t)draw(2);
    op.results[0] = draw(4) == 0 ? LINEAR_ABSENT : (int64_t)draw(4);
    return op;
}

static void
test_linear__agrees_with_a_search_of_every_order(void **state)
{
    int verdicts[2] = {0, 0};
    int i;

    (void)state;
    for (i = 0; i < 200000; i++) {
        linear_op ops[SMALL];
        const size_t count = 1 + draw(SMALL);
        const bool is_queue = draw(2) == 0;
        const thing empty = {.number = LINEAR_ABSENT};
        bool holds;
        size_t k;

        for (k = 0; k < count; k++) {
            ops[k] = draw_small(is_queue);
        }
        holds = any_order(ops, count, 0, empty);
        verdicts[holds ? 1 : 0]++;
        if (check(ops, count) != (holds ? LINEAR_HOLDS : LINEAR_BROKEN)) {
            fail_msg("history %d: %s", i, words);
        }
    }
    assert_true(verdicts[0] > 20000 && verdicts[1] > 20000);
}

/* ------------------------------------------------------------------------------ large ones */

typedef enum fault {
    NO_FAULT,
    LOST_CHANGE, /* answered, and not done */
    STALE_READ,  /* of the value before */
    COUNTED_TWICE,
    GIVEN_TWICE, /* what is popped stays */
    BLIND_SWAP,
    HALF_SET_ALL,
    FAULTS,
} fault;

typedef struct store {
    int64_t now[KEYS];
    int64_t before[KEYS];
    int64_t items[OPS_MAX];
    size_t first;
    size_t next;
} store;

static void
write_key(store *self, uint32_t key, int64_t value)
{
    self->before[key] = self->now[key];
    self->now[key] = value;
}

static void
do_set(store *self, linear_op *op, fault now)
{
    uint32_t i;

    for (i = 0; i < op->key_count && now != LOST_CHANGE; i++) {
        if (i == 0 || now != HALF_SET_ALL) {
            write_key(self, op->keys[i], op->values[i]);
        }
    }
}

static void
do_read(const store *self, linear_op *op, fault now)
{
    uint32_t i;

    for (i = 0; i < op->key_count; i++) {
        op->results[i] = now == STALE_READ ? self->before[op->keys[i]] : self->now[op->keys[i]];
    }
}

static void
do_add(store *self, linear_op *op, fault now)
{
    const int64_t was = self->now[op->keys[0]] == LINEAR_ABSENT ? 0 : self->now[op->keys[0]];

    op->results[0] = was + op->values[0];
    if (now != LOST_CHANGE) {
        write_key(self, op->keys[0], was + op->values[0] * (now == COUNTED_TWICE ? 2 : 1));
    }
}

static void
do_swap(store *self, linear_op *op, fault now)
{
    op->refused = self->now[op->keys[0]] != op->expected && now != BLIND_SWAP;
    if (!op->refused) {
        write_key(self, op->keys[0], op->values[0]);
    }
    op->results[0] = self->now[op->keys[0]];
}

static void
do_queue(store *self, linear_op *op, fault now)
{
    if (op->kind == LINEAR_PUSH) {
        op->results[0] = (int64_t)(self->next - self->first) + 1;
        if (now != LOST_CHANGE) {
            self->items[self->next++] = op->values[0];
        }
    } else {
        op->results[0] = self->first == self->next ? LINEAR_ABSENT : self->items[self->first];
        self->first += self->first == self->next || now == GIVEN_TWICE ? 0 : 1;
    }
}

static void
do_large(store *self, linear_op *op, fault now)
{
    switch (op->kind) {
    case LINEAR_SET:
    case LINEAR_SET_ALL:
        do_set(self, op, now);
        break;
    case LINEAR_ADD:
        do_add(self, op, now);
        break;
    case LINEAR_SWAP:
        do_swap(self, op, now);
        break;
    case LINEAR_PUSH:
    case LINEAR_POP:
        do_queue(self, op, now);
        break;
    default:
        do_read(self, op, now);
        break;
    }
}

/* May this op err so that somebody sees it? */
static bool
can_err(const store *self, const linear_op *op, fault now)
{
    const uint32_t key = op->keys[0];

    switch (now) {
    case LOST_CHANGE:
        return op->kind == LINEAR_ADD || op->kind == LINEAR_SET || op->kind == LINEAR_PUSH;
    case STALE_READ:
        return op->kind == LINEAR_GET && self->before[key] != self->now[key];
    case COUNTED_TWICE:
        return op->kind == LINEAR_ADD;
    case GIVEN_TWICE:
        return op->kind == LINEAR_POP && self->first < self->next;
    case BLIND_SWAP:
        return op->kind == LINEAR_SWAP && self->now[key] != op->expected;
    case HALF_SET_ALL:
        return op->kind == LINEAR_SET_ALL;
    default:
        return false;
    }
}

static linear_op
draw_large(uint64_t at)
{
    static const linear_kind kinds[] = {LINEAR_GET, LINEAR_GET,     LINEAR_SET,
                                        LINEAR_ADD, LINEAR_SWAP,    LINEAR_PUSH,
                                        LINEAR_POP, LINEAR_SET_ALL, LINEAR_LOOK};
    linear_op op = {.kind = kinds[draw(COUNT_OF(kinds))], .key_count = 1};
    const bool is_queue = op.kind == LINEAR_PUSH || op.kind == LINEAR_POP;
    const bool is_many = op.kind == LINEAR_SET_ALL || op.kind == LINEAR_LOOK;
    uint32_t i;

    op.key_count = is_many ? 2 : 1;
    op.keys[0] = is_queue ? QUEUE : is_many ? 0 : (uint32_t)draw(KEYS);
    op.keys[1] = 1;
    for (i = 0; i < 2; i++) {
        op.values[i] = op.kind == LINEAR_ADD ? 1 + (int64_t)draw(3) : (int64_t)(1000 * at + i);
    }
    op.expected = draw(2) == 0 ? LINEAR_ABSENT : (int64_t)draw(20);
    op.begin = at * 10 - (at == 0 ? 0 : draw(25 < at * 10 ? 25 : at * 10));
    op.end = at * 10 + draw(25);
    op.client = (uint32_t)draw(4);
    return op;
}

/* Returns how many ops there are. `now` befalls one of them, the n-th that it can. */
static size_t
play_large(linear_op *ops, fault now, uint64_t chosen)
{
    store self = {.first = 0};
    size_t count;
    uint32_t i;

    for (i = 0; i < KEYS; i++) {
        self.now[i] = LINEAR_ABSENT;
        self.before[i] = LINEAR_ABSENT;
    }
    for (count = 0; count < OPS_MAX - KEYS - 1; count++) {
        linear_op *op = &ops[count];
        const bool errs = can_err(&self, (*op = draw_large(count), op), now) && chosen-- == 0;

        do_large(&self, op, errs ? now : NO_FAULT);
        if (!errs && draw(15) == 0) {
            op->end = LINEAR_OPEN;
        }
    }
    for (i = 0; i <= KEYS; i++, count++) {
        ops[count] = (linear_op){.kind = i < KEYS ? LINEAR_GET : LINEAR_POP,
                                 .keys = {i},
                                 .key_count = 1,
                                 .begin = 100000,
                                 .end = 100001};
        do_large(&self, &ops[count], NO_FAULT);
    }
    return count;
}

static int
count_broken(fault now, int histories)
{
    static linear_op ops[OPS_MAX];
    int broken = 0;
    int i;

    for (i = 0; i < histories; i++) {
        const size_t count = play_large(ops, now, draw(10));
        const linear_verdict verdict = check(ops, count);

        assert_int_not_equal(verdict, LINEAR_TOO_HARD);
        broken += verdict == LINEAR_BROKEN ? 1 : 0;
    }
    return broken;
}

static void
test_linear__finds_nothing_in_histories_of_a_store_that_is_right(void **state)
{
    (void)state;
    assert_int_equal(count_broken(NO_FAULT, 500), 0);
}

/* What nobody reads before it is written again cannot be found. */
static void
test_linear__finds_the_op_that_erred(void **state)
{
    int kind;

    (void)state;
    for (kind = NO_FAULT + 1; kind < FAULTS; kind++) {
        const int found = count_broken((fault)kind, 100);

        print_message("# fault %d: %d of 100\n", kind, found);
        assert_true(found >= 30);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_linear__lets_a_read_see_what_is_written_meanwhile),
        cmocka_unit_test(test_linear__lets_what_was_not_answered_happen_late_or_never),
        cmocka_unit_test(test_linear__counts_a_token_once),
        cmocka_unit_test(test_linear__gives_what_is_in_a_queue_once_and_in_order),
        cmocka_unit_test(test_linear__swaps_what_is_expected_alone),
        cmocka_unit_test(test_linear__ends_a_lease_with_the_keys_that_still_have_it),
        cmocka_unit_test(test_linear__sees_all_keys_of_a_call_at_one_moment),
        cmocka_unit_test(test_linear__compares_versions),
        cmocka_unit_test(test_linear__agrees_with_a_search_of_every_order),
        cmocka_unit_test(test_linear__finds_nothing_in_histories_of_a_store_that_is_right),
        cmocka_unit_test(test_linear__finds_the_op_that_erred),
    };

    return cmocka_run_group_tests_name("sim/linear", tests, NULL, NULL);
}
