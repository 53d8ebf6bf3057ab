/*
 * Goal: the store in etcd keeps the promises of every backend, finds again what was durable, whatever
 * size a batch had and wherever its writer stopped, and lets only one coordinator write.
 * Method: a real etcd of one member, started here; several connections to it in one process, each a
 * coordinator of its own. What a writer that died has left is written by hand.
 */
#include "support/testing.h"

#include <semaphore.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "rpc/loop.h"
#include "store/contract.h"
#include "store/etcd/etcd_private.h"
#include "support/etcd_process.h"

#define BYTES(text) ((tutti_bytes){(text), sizeof(text) - 1})
#define SKIPPED 77

static etcd_process process;
static int prefix_count;

/* ------------------------------------------------------------------ coordinators */

static tutti_etcd *
connect_to(const etcd_process *to, int prefix)
{
    char where[80];
    const tutti_etcd_options options = {.where = where, .lease_ns = 2 * TUTTI_NS_PER_S};
    tutti_etcd *etcd = NULL;
    tutti_error err;

    (void)snprintf(where, sizeof(where), "127.0.0.1:%u/test/%d", to->port, prefix);
    assert_ok(tutti_etcd_open(&options, &etcd, &err));
    return etcd;
}

static void
on_trouble(void *arg, const tutti_error *why)
{
    (void)arg;
    (void)printf("# %s\n", why->text);
}

static tutti_etcd *
lead_at(const etcd_process *to, int prefix)
{
    const tutti_etcd_events none = {.on_trouble = on_trouble};
    tutti_etcd *etcd = connect_to(to, prefix);
    tutti_error err;

    assert_ok(tutti_etcd_lead(etcd, "here:1", &none, &err));
    return etcd;
}

typedef struct coordinator {
    tutti_etcd *etcd;
    tutti_store *store;
} coordinator;

static coordinator
begin_at(const etcd_process *to, int prefix)
{
    coordinator self = {.etcd = lead_at(to, prefix)};
    const tutti_store_etcd_options options = {.etcd = self.etcd};
    tutti_error err;

    assert_ok(tutti_store_etcd_open(&options, &self.store, &err));
    return self;
}

static void
end(coordinator *self)
{
    tutti_store_close(self->store);
    tutti_etcd_close(self->etcd);
}

static void
set(tutti_store *store, const char *key, const char *value)
{
    tutti_error err;

    assert_ok(tutti_store_set(store, tutti_bytes_of(key), tutti_bytes_of(value), NULL, &err));
}

static void
assert_stored(tutti_store *store, const char *key, const char *value, uint64_t version)
{
    tutti_store_entry entry;
    tutti_error err;

    assert_ok(tutti_store_get(store, tutti_bytes_of(key), &entry, &err));
    assert_true(tutti_bytes_equal(entry.value, tutti_bytes_of(value)));
    assert_int_equal(entry.version, version);
}

static void
assert_absent(tutti_store *store, const char *key)
{
    tutti_store_entry entry;

    assert_int_equal(tutti_store_get(store, tutti_bytes_of(key), &entry, NULL), TUTTI_NOT_FOUND);
}

/* ------------------------------------------------------------------ the contract */

static tutti_etcd *contract_etcd;

/* Each time below a prefix of its own. */
static tutti_code
open_contract(tutti_store **ret_store, tutti_error *err)
{
    tutti_store_etcd_options options = {.bytes_max = STORE_CONTRACT_BYTES_MAX,
                                        .keys_max = STORE_CONTRACT_KEYS_MAX};

    tutti_etcd_close(contract_etcd);
    contract_etcd = lead_at(&process, ++prefix_count);
    options.etcd = contract_etcd;
    return tutti_store_etcd_open(&options, ret_store, err);
}

static const store_contract_backend backends[] = {{"store/etcd", open_contract, false}};

/* ------------------------------------------------------------------ what is found again */

static void
test_store_etcd__finds_again_what_was_durable(void **state)
{
    const int prefix = ++prefix_count;
    coordinator one = begin_at(&process, prefix);
    const tutti_bytes key = BYTES("b\0\xff/");
    tutti_store_entry entry;
    tutti_error err;

    (void)state;
    set(one.store, "a", "first");
    assert_ok(tutti_store_set(one.store, key, BYTES("\0\x01"), NULL, &err));
    set(one.store, "gone", "x");
    set(one.store, "empty", "");
    assert_ok(tutti_store_settle(one.store, &err));
    set(one.store, "a", "second");
    assert_ok(tutti_store_delete(one.store, BYTES("gone"), NULL, NULL, &err));
    end(&one); /* closing writes what is left */

    one = begin_at(&process, prefix);
    assert_stored(one.store, "a", "second", 5);
    assert_stored(one.store, "empty", "", 4);
    assert_absent(one.store, "gone");
    assert_ok(tutti_store_get(one.store, key, &entry, &err));
    assert_true(tutti_bytes_equal(entry.value, BYTES("\0\x01")));
    assert_int_equal(tutti_store_version(one.store), 6);
    end(&one);
}

static tutti_code
count_row(void *arg, const etcd_row *row, tutti_error *err)
{
    (void)row;
    (void)err;
    ++*(int *)arg;
    return TUTTI_OK;
}

static int
count_log(tutti_etcd *etcd)
{
    unsigned char first[ETCD_KEY_MAX];
    unsigned char end_of[ETCD_KEY_MAX];
    etcd_range range = {.from = etcd_key(etcd, "log/", (tutti_bytes){0}, first)};
    tutti_error err;
    int count = 0;

    range.end = etcd_key_end(end_of, range.from);
    assert_ok(
        etcd_range_run(etcd, &range, TUTTI_TIMERS_NEVER, count_row, &count, NULL, NULL, &err));
    return count;
}

#define MANY 1500

static void
change_many(tutti_store *store, unsigned char fill)
{
    static unsigned char big[TUTTI_STORE_VALUE_MAX];
    static char names[MANY][16];
    static tutti_store_change changes[MANY];
    tutti_error err;
    int i;

    memset(big, fill, sizeof(big));
    for (i = 0; i < MANY; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "key/%d", i);
        changes[i] = (tutti_store_change){.key = tutti_bytes_of(names[i]),
                                          .value = {big, i % 300 == 7 ? sizeof(big) : 10}};
    }
    assert_ok(tutti_store_apply(store, changes, MANY, NULL, &err));
}

static void
assert_many(tutti_store *store, unsigned char fill)
{
    tutti_store_entry entry;
    tutti_store_stats stats;
    tutti_error err;
    char name[16];
    int i;

    tutti_store_stat(store, &stats);
    assert_int_equal(stats.key_count, MANY);
    for (i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof(name), "key/%d", i);
        assert_ok(tutti_store_get(store, tutti_bytes_of(name), &entry, &err));
        assert_int_equal(entry.value.size, i % 300 == 7 ? TUTTI_STORE_VALUE_MAX : 10);
        assert_int_equal(((const unsigned char *)entry.value.data)[entry.value.size - 1], fill);
    }
}

static void
test_store_etcd__takes_a_batch_larger_than_a_transaction(void **state)
{
    const int prefix = ++prefix_count;
    coordinator one = begin_at(&process, prefix);
    tutti_error err;

    (void)state;
    change_many(one.store, 'a');
    assert_ok(tutti_store_settle(one.store, &err));
    assert_int_equal(count_log(one.etcd), 0);
    change_many(one.store, 'b');
    assert_ok(tutti_store_settle(one.store, &err));
    end(&one);
    one = begin_at(&process, prefix);
    assert_many(one.store, 'b');
    assert_int_equal(tutti_store_version(one.store), 2);
    end(&one);
}

/* What a writer leaves that dies in the middle of a large batch: pieces, and whether they count. */
static void
leave_log(tutti_etcd *etcd, bool counted)
{
    unsigned char piece[256];
    unsigned char keys[2][ETCD_KEY_MAX];
    const tutti_bytes version =
        BYTES("tutti store 1, version 9, log 1"); /* as older ones wrote it */
    const tutti_store_record kept = {
        .entry = {.key = BYTES("kept"), .value = BYTES("new"), .version = 9}};
    const tutti_store_record gone = {.entry = {.key = BYTES("gone"), .version = 9}, .remove = true};
    const size_t size = etcd_record_bytes(&kept);
    const etcd_op ops[2] = {{.kind = ETCD_PUT,
                             .key = etcd_key(etcd, "log/", BYTES("00000000000000000000"), keys[0]),
                             .value = {piece, size + etcd_record_bytes(&gone)}},
                            {.kind = ETCD_PUT,
                             .key = etcd_key(etcd, "version", (tutti_bytes){0}, keys[1]),
                             .value = version}};
    const etcd_txn txn = {.ops = ops, .op_count = counted ? 2 : 1};
    int64_t revision;
    tutti_error err;
    bool done;

    etcd_record_write(piece, &kept);
    etcd_record_write(piece + size, &gone);
    assert_ok(etcd_txn_run(etcd, &txn, TUTTI_TIMERS_NEVER, &done, &revision, &err));
    assert_true(done);
}

static void
check_left_log(bool counted)
{
    const int prefix = ++prefix_count;
    coordinator one = begin_at(&process, prefix);
    tutti_error err;

    set(one.store, "kept", "old");
    set(one.store, "gone", "x");
    assert_ok(tutti_store_settle(one.store, &err));
    leave_log(one.etcd, counted);
    end(&one);
    one = begin_at(&process, prefix);
    assert_stored(one.store, "kept", counted ? "new" : "old", counted ? 9 : 1);
    assert_int_equal(tutti_store_version(one.store), counted ? 9 : 2);
    if (counted) {
        assert_absent(one.store, "gone");
        assert_int_equal(count_log(one.etcd), 0);
    } else {
        assert_stored(one.store, "gone", "x", 2);
    }
    change_many(one.store, 'c'); /* pieces that do not count are in nobody's way */
    assert_ok(tutti_store_settle(one.store, &err));
    assert_int_equal(count_log(one.etcd), 0);
    end(&one);
}

static void
test_store_etcd__finishes_a_batch_whose_writer_died(void **state)
{
    (void)state;
    check_left_log(true);
}

static void
test_store_etcd__ignores_a_batch_that_was_not_all_written(void **state)
{
    (void)state;
    check_left_log(false);
}

/* ------------------------------------------------------------------ what is refused */

static void
put(tutti_etcd *etcd, const char *kind, tutti_bytes name, tutti_bytes value)
{
    unsigned char key[ETCD_KEY_MAX];
    const etcd_op op = {.kind = ETCD_PUT, .key = etcd_key(etcd, kind, name, key), .value = value};
    const etcd_txn txn = {.ops = &op, .op_count = 1};
    int64_t revision;
    tutti_error err;
    bool done;

    assert_ok(etcd_txn_run(etcd, &txn, TUTTI_TIMERS_NEVER, &done, &revision, &err));
}

static void
assert_not_opened(const char *kind, tutti_bytes name, tutti_bytes value, tutti_code code)
{
    tutti_etcd *etcd = lead_at(&process, ++prefix_count);
    const tutti_store_etcd_options options = {.etcd = etcd};
    tutti_store *store = NULL;
    tutti_error err;

    put(etcd, kind, name, value);
    assert_fails(tutti_store_etcd_open(&options, &store, &err), code);
    assert_string_equal(err.reason, "STORE_FORMAT");
    tutti_etcd_close(etcd);
}

static void
test_store_etcd_open__refuses_what_is_not_ours(void **state)
{
    (void)state;
    assert_not_opened("version", (tutti_bytes){0}, BYTES("hello"), TUTTI_DATA_LOSS);
    assert_not_opened("version", (tutti_bytes){0}, BYTES("tutti store 2, version 1, what 0"),
                      TUTTI_FAILED_PRECONDITION);
    assert_not_opened("version", (tutti_bytes){0}, BYTES("tutti store 1, version 3, log 2"),
                      TUTTI_DATA_LOSS);
    assert_not_opened("row/", BYTES("k"), BYTES("short"), TUTTI_DATA_LOSS);
    assert_not_opened("row/", BYTES("k"), BYTES("\x07\0\0\0\0\0\0\0value"), TUTTI_DATA_LOSS);
    assert_not_opened("row/", BYTES(""), BYTES("\0\0\0\0\0\0\0\0value"), TUTTI_DATA_LOSS);
}

static void
assert_refused(const char *where, const char *part)
{
    const tutti_etcd_options options = {.where = where};
    tutti_etcd *etcd = NULL;
    tutti_error err;

    assert_fails(tutti_etcd_open(&options, &etcd, &err), TUTTI_INVALID_ARGUMENT);
    assert_text_has(err.text, part);
}

static void
test_etcd_open__refuses_addresses_that_are_none(void **state)
{
    static char prefix[ETCD_PREFIX_MAX + 10];

    (void)state;
    memset(prefix, 'p', sizeof(prefix) - 1);
    memcpy(prefix, "h/", 2);
    assert_refused("", "HOST");
    assert_refused("/prefix", "HOST");
    assert_refused("host,,other/p", "HOST");
    assert_refused("host:port/p", "port");
    assert_refused("a,b,c,d,e,f,g,h,i,j", "1 to 9");
    assert_refused(prefix, "too long");
}

static void
test_etcd_lead__says_why_etcd_cannot_be_reached(void **state)
{
    const tutti_etcd_options options = {.where = "127.0.0.1:1,[::1]:1"};
    tutti_etcd *etcd = NULL;
    int64_t lease;
    uint64_t ttl_ns;
    tutti_error err;

    (void)state;
    assert_ok(tutti_etcd_open(&options, &etcd, &err));
    assert_fails(etcd_lease_grant(etcd, 1, &lease, &ttl_ns, &err), TUTTI_UNAVAILABLE);
    assert_string_equal(err.reason, "ETCD_LOST");
    tutti_etcd_close(etcd);
}

static void
test_store_etcd_flush__says_that_etcd_is_full(void **state)
{
    etcd_process small;
    coordinator one;
    tutti_code code = TUTTI_OK;
    tutti_error err = {0};
    int i;

    (void)state;
    etcd_process_start(&small, 4ul << 20);
    one = begin_at(&small, 0);
    for (i = 0; code == TUTTI_OK && i < 100; i++) {
        change_many(one.store, (unsigned char)i);
        code = tutti_store_settle(one.store, &err);
    }
    assert_int_equal(code, TUTTI_RESOURCE_EXHAUSTED);
    assert_string_equal(err.reason, "STORE_FULL");
    assert_text_has(err.text, "alarm disarm");
    end(&one);
    etcd_process_stop(&small);
}

/* ------------------------------------------------------------------ the election */

/* The key goes as if the lease were over, though its holder knows nothing of it. */
static void
take_leader_away(tutti_etcd *etcd)
{
    unsigned char key[ETCD_KEY_MAX];
    const etcd_op op = {.kind = ETCD_DELETE,
                        .key = etcd_key(etcd, "leader", (tutti_bytes){0}, key)};
    const etcd_txn txn = {.ops = &op, .op_count = 1};
    int64_t revision;
    tutti_error err;
    bool done;

    assert_ok(etcd_txn_run(etcd, &txn, TUTTI_TIMERS_NEVER, &done, &revision, &err));
}

static void
test_store_etcd__of_a_leader_that_was_followed_writes_nothing(void **state)
{
    const int prefix = ++prefix_count;
    coordinator old = begin_at(&process, prefix);
    coordinator next;
    tutti_error err;

    (void)state;
    set(old.store, "a", "one");
    assert_ok(tutti_store_settle(old.store, &err));
    take_leader_away(old.etcd);
    next = begin_at(&process, prefix);
    set(old.store, "a", "two");
    set(old.store, "b", "two");
    assert_fails(tutti_store_settle(old.store, &err), TUTTI_FAILED_PRECONDITION);
    assert_string_equal(err.reason, "NOT_LEADER");
    change_many(next.store, 'n');
    assert_ok(tutti_store_delete(next.store, BYTES("a"), NULL, NULL, &err));
    assert_ok(tutti_store_settle(next.store, &err));
    end(&old);
    end(&next);
    next = begin_at(&process, prefix);
    assert_many(next.store, 'n');
    end(&next);
}

/* ------------------------------------------------------------------ an etcd that goes back */

static etcd_version
read_version(tutti_etcd *etcd)
{
    etcd_version version;
    tutti_error err;

    assert_ok(etcd_version_read(etcd, TUTTI_TIMERS_NEVER, &version, NULL, &err));
    return version;
}

static void
check_other_version(const char *text, uint64_t version_later)
{
    const int prefix = ++prefix_count;
    coordinator one = begin_at(&process, prefix);
    etcd_version first;
    tutti_error err;

    set(one.store, "a", "1");
    assert_ok(tutti_store_settle(one.store, &err));
    first = read_version(one.etcd);
    set(one.store, "b", "2");
    assert_ok(tutti_store_settle(one.store, &err));
    put(one.etcd, "version", (tutti_bytes){0}, tutti_bytes_of(text == NULL ? first.text : text));
    set(one.store, "c", "3");
    assert_fails(tutti_store_settle(one.store, &err), TUTTI_DATA_LOSS);
    assert_string_equal(err.reason, "STORE_WENT_BACK");
    assert_int_equal(tutti_store_durable(one.store), 2);
    assert_int_equal(read_version(one.etcd).version, version_later);
    end(&one);
}

static void
test_store_etcd__that_went_back_is_written_no_more(void **state)
{
    (void)state;
    check_other_version(NULL, 1);
}

/* Of the same version, and of a higher one, as another coordinator has written it elsewhere. */
static void
test_store_etcd__that_is_another_one_is_written_no_more(void **state)
{
    (void)state;
    check_other_version("tutti store 1, version 2, log 0, by 1.1", 2);
    check_other_version("tutti store 1, version 9, log 0", 9);
}

/* A snapshot that has some of its transactions would not be noticed otherwise. */
static void
test_store_etcd__writes_the_version_with_each_transaction_of_a_batch(void **state)
{
    coordinator one = begin_at(&process, ++prefix_count);
    tutti_error err;

    (void)state;
    change_many(one.store, 'a');
    assert_ok(tutti_store_settle(one.store, &err));
    assert_true(read_version(one.etcd).step > MANY / 127);
    end(&one);
}

static void
on_gone_back(void *arg, const tutti_error *why)
{
    assert_string_equal(why->reason, "STORE_WENT_BACK");
    (void)sem_post(arg);
}

static void
test_etcd_lead__tells_that_etcd_went_back_though_nothing_is_written(void **state)
{
    const tutti_etcd_events none = {0};
    coordinator one = {.etcd = connect_to(&process, ++prefix_count)};
    const tutti_store_etcd_options options = {.etcd = one.etcd};
    tutti_error err;
    sem_t told;

    (void)state;
    (void)sem_init(&told, 0, 0);
    tutti_etcd_on_lost(one.etcd, on_gone_back, &told);
    assert_ok(tutti_etcd_lead(one.etcd, "here:1", &none, &err));
    assert_ok(tutti_store_etcd_open(&options, &one.store, &err));
    set(one.store, "a", "1");
    assert_ok(tutti_store_settle(one.store, &err));
    put(one.etcd, "version", (tutti_bytes){0}, BYTES("tutti store 1, version 0, log 0"));
    (void)sem_wait(&told);
    end(&one);
    (void)sem_destroy(&told);
}

/* ------------------------------------------------------------------ who waits */

typedef struct follower {
    tutti_etcd *etcd;
    pthread_t thread;
    sem_t followed;
    char address[64];
    tutti_code code;
    int gone_back; /* how often it was told so */
} follower;

static void
on_follow(void *arg, const char *address)
{
    follower *self = arg;

    (void)snprintf(self->address, sizeof(self->address), "%s", address);
    (void)sem_post(&self->followed);
}

static void
on_gone_back_meanwhile(void *arg, const tutti_error *why)
{
    follower *self = arg;

    assert_string_equal(why->reason, "STORE_WENT_BACK");
    self->gone_back++;
}

static void *
run_follower(void *arg)
{
    follower *self = arg;
    const tutti_etcd_events events = {
        .on_follow = on_follow, .on_gone_back = on_gone_back_meanwhile, .arg = self};

    self->code = tutti_etcd_lead(self->etcd, "next:2", &events, NULL);
    return NULL;
}

static void
start_follower(follower *self, int prefix)
{
    memset(self, 0, sizeof(*self));
    self->etcd = connect_to(&process, prefix);
    (void)sem_init(&self->followed, 0, 0);
    assert_int_equal(pthread_create(&self->thread, NULL, run_follower, self), 0);
    (void)sem_wait(&self->followed);
}

static void
test_etcd_lead__waits_until_the_leader_goes(void **state)
{
    const int prefix = ++prefix_count;
    tutti_etcd *first = lead_at(&process, prefix);
    follower second;

    (void)state;
    assert_true(tutti_etcd_leads_until(first) > tutti_clock_ns());
    start_follower(&second, prefix);
    assert_string_equal(second.address, "here:1");
    assert_int_equal(tutti_etcd_leads_until(second.etcd), 0);
    tutti_etcd_close(first);
    (void)pthread_join(second.thread, NULL);
    assert_int_equal(second.code, TUTTI_OK);
    assert_true(tutti_etcd_leads_until(second.etcd) > tutti_clock_ns());
    tutti_etcd_close(second.etcd);
    (void)sem_destroy(&second.followed);
}

/* The leader's lease may have run out while etcd was away: then it tells nobody what it had written. */
static void
check_next_leader(const char *text, int told)
{
    const int prefix = ++prefix_count;
    coordinator first = begin_at(&process, prefix);
    follower second;
    tutti_error err;

    set(first.store, "a", "1");
    assert_ok(tutti_store_settle(first.store, &err));
    set(first.store, "b", "2");
    assert_ok(tutti_store_settle(first.store, &err));
    start_follower(&second, prefix);
    while (atomic_load(&second.etcd->written) < 2) { /* it has looked */
        (void)usleep(1000);
    }
    put(first.etcd, "version", (tutti_bytes){0}, tutti_bytes_of(text));
    end(&first);
    (void)pthread_join(second.thread, NULL);
    assert_int_equal(second.code, TUTTI_OK);
    assert_int_equal(second.gone_back, told);
    tutti_etcd_close(second.etcd);
    (void)sem_destroy(&second.followed);
}

static void
test_etcd_lead__tells_that_etcd_went_back_while_another_one_led(void **state)
{
    (void)state;
    check_next_leader("tutti store 1, version 1, log 0", 1);
    check_next_leader("tutti store 1, version 3, log 0", 0);
}

static void
test_etcd_stop__ends_the_wait(void **state)
{
    const int prefix = ++prefix_count;
    tutti_etcd *first = lead_at(&process, prefix);
    follower second;

    (void)state;
    start_follower(&second, prefix);
    tutti_etcd_stop(second.etcd);
    (void)pthread_join(second.thread, NULL);
    assert_int_equal(second.code, TUTTI_CANCELLED);
    tutti_etcd_close(second.etcd);
    tutti_etcd_close(first);
    (void)sem_destroy(&second.followed);
}

static void
on_lost(void *arg, const tutti_error *why)
{
    assert_string_equal(why->reason, "NOT_LEADER");
    (void)sem_post(arg);
}

static void
test_etcd_lead__tells_when_its_lease_is_over(void **state)
{
    const tutti_etcd_events none = {0};
    tutti_etcd *etcd = connect_to(&process, ++prefix_count);
    uint64_t until_ns;
    tutti_error err;
    sem_t told;

    (void)state;
    (void)sem_init(&told, 0, 0);
    tutti_etcd_on_lost(etcd, on_lost, &told);
    assert_ok(tutti_etcd_lead(etcd, "here:1", &none, &err));
    until_ns = tutti_etcd_leads_until(etcd);
    while (tutti_etcd_leads_until(etcd) == until_ns) { /* it is kept */
        (void)usleep(1000);
    }
    etcd_lease_revoke(etcd, etcd->lease);
    (void)sem_wait(&told);
    tutti_etcd_close(etcd);
    (void)sem_destroy(&told);
}

/* As etcd 3.4 to 3.6 write them. */
static void
test_etcd_explain__says_what_to_do_when_etcd_refuses(void **state)
{
    static const struct {
        const char *etcd;
        tutti_code code;
        const char *ours;
    } cases[] = {
        {"etcdserver: authentication failed, invalid user ID or password", TUTTI_PERMISSION_DENIED,
         "--etcd-password-file"},
        {"etcdserver: user name is empty", TUTTI_PERMISSION_DENIED, "--etcd-cert"},
        {"etcdserver: permission denied", TUTTI_PERMISSION_DENIED, "grant it a role"},
        {"etcdserver: authentication is not enabled", TUTTI_PERMISSION_DENIED,
         "leave --etcd-user out"},
        {"etcdserver: invalid auth token", TUTTI_UNAUTHENTICATED, "the token of etcd is over"},
    };
    tutti_error said;
    tutti_error err;
    size_t i;

    (void)state;
    for (i = 0; i < COUNT_OF(cases); i++) {
        (void)TUTTI_FAIL(&said, TUTTI_INVALID_ARGUMENT, "%s", cases[i].etcd);
        assert_fails(etcd_explain(&said, &err), cases[i].code);
        assert_string_equal(err.reason, "ETCD_REFUSED");
        assert_text_has(err.text, cases[i].ours);
    }
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_store_etcd__finds_again_what_was_durable),
        cmocka_unit_test(test_store_etcd__takes_a_batch_larger_than_a_transaction),
        cmocka_unit_test(test_store_etcd__finishes_a_batch_whose_writer_died),
        cmocka_unit_test(test_store_etcd__ignores_a_batch_that_was_not_all_written),
        cmocka_unit_test(test_store_etcd_open__refuses_what_is_not_ours),
        cmocka_unit_test(test_etcd_open__refuses_addresses_that_are_none),
        cmocka_unit_test(test_etcd_explain__says_what_to_do_when_etcd_refuses),
        cmocka_unit_test(test_etcd_lead__says_why_etcd_cannot_be_reached),
        cmocka_unit_test(test_store_etcd_flush__says_that_etcd_is_full),
        cmocka_unit_test(test_store_etcd__of_a_leader_that_was_followed_writes_nothing),
        cmocka_unit_test(test_store_etcd__that_went_back_is_written_no_more),
        cmocka_unit_test(test_store_etcd__that_is_another_one_is_written_no_more),
        cmocka_unit_test(test_store_etcd__writes_the_version_with_each_transaction_of_a_batch),
        cmocka_unit_test(test_etcd_lead__tells_that_etcd_went_back_though_nothing_is_written),
        cmocka_unit_test(test_etcd_lead__waits_until_the_leader_goes),
        cmocka_unit_test(test_etcd_lead__tells_that_etcd_went_back_while_another_one_led),
        cmocka_unit_test(test_etcd_stop__ends_the_wait),
        cmocka_unit_test(test_etcd_lead__tells_when_its_lease_is_over),
    };
    int failed;

    if (!etcd_process_exists()) {
        (void)printf("1..0 # SKIP there is no etcd in PATH\n");
        return SKIPPED;
    }
    etcd_process_start(&process, 0);
    tutti_rpc_init();
    failed = store_contract_run(backends, COUNT_OF(backends));
    tutti_etcd_close(contract_etcd);
    failed += cmocka_run_group_tests_name("store/etcd", tests, NULL, NULL);
    tutti_rpc_fini();
    etcd_process_stop(&process);
    return failed;
}
