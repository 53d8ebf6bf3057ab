#include "linear.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 3000000
#define QUEUE_MAX 60
#define TABLE_FIRST 1024

/* ------------------------------------------------------------------------------ words */

static const char *const kind_names[LINEAR_KINDS] = {
    "get",    "set",  "add", "append", "swap",    "delete",  "take",
    "expire", "push", "pop", "length", "set_all", "get_all", "look",
};

static int
say_value(char *to, size_t size, int64_t value)
{
    return value == LINEAR_ABSENT ? snprintf(to, size, "none")
                                  : snprintf(to, size, "%lld", (long long)value);
}

static bool
has_results(const linear_op *op)
{
    return op->end != LINEAR_OPEN && op->kind != LINEAR_SET && op->kind != LINEAR_SET_ALL;
}

void
linear_say(const linear_op *op, char *ret_words, size_t size)
{
    char text[400];
    int at = snprintf(text, sizeof(text), "client %u %s(", op->client, kind_names[op->kind]);
    uint32_t i;

    for (i = 0; i < op->key_count && at < 300; i++) {
        at +=
            snprintf(text + at, sizeof(text) - (size_t)at, "%sk%u", i > 0 ? ", " : "", op->keys[i]);
        if (op->kind != LINEAR_GET && op->kind != LINEAR_GET_ALL && op->kind != LINEAR_LOOK) {
            text[at++] = '=';
            at += say_value(text + at, sizeof(text) - (size_t)at, op->values[i]);
        }
        if (has_results(op)) {
            at += snprintf(text + at, sizeof(text) - (size_t)at, ": ");
            at += say_value(text + at, sizeof(text) - (size_t)at, op->results[i]);
        }
        if (op->versions[i] != 0) {
            at += snprintf(text + at, sizeof(text) - (size_t)at, "@%llu",
                           (unsigned long long)op->versions[i]);
        }
    }
    (void)snprintf(ret_words, size, "%s)%s from %.6f to %.6f ms", text,
                   op->refused ? " refused" : "", (double)op->begin / 1e6,
                   op->end == LINEAR_OPEN ? -1 : (double)op->end / 1e6);
}

/* ------------------------------------------------------------------------------ one caller's store */

/* Of a key or a queue. */
typedef struct place {
    int64_t value;
    uint64_t lease;
    uint64_t version; /* 0 = not known */
    uint32_t length;
    int64_t items[QUEUE_MAX];
} place;

static bool
same_version(place *at, uint64_t told)
{
    if (told != 0 && at->version == 0) {
        at->version = told;
    }
    return told == 0 || at->version == told;
}

static void
put(place *at, int64_t value, uint64_t lease, uint64_t version)
{
    at->value = value;
    at->lease = lease;
    at->version = version;
}

static void
clear(place *at)
{
    put(at, LINEAR_ABSENT, 0, 0);
}

/* What is read has to be what is there. */
static bool
reads(place *at, const linear_op *op, uint32_t i)
{
    return op->end == LINEAR_OPEN ||
           (op->results[i] == at->value &&
            (at->value == LINEAR_ABSENT || same_version(at, op->versions[i])));
}

static bool
answers(const linear_op *op, int64_t result)
{
    return op->end == LINEAR_OPEN || op->results[0] == result;
}

static bool
step_add(place *at, const linear_op *op)
{
    const bool digits = op->kind == LINEAR_APPEND;
    const int64_t before = at->value == LINEAR_ABSENT ? 0 : at->value;
    const int64_t after =
        (int64_t)((uint64_t)before * (digits ? 10U : 1U) + (uint64_t)op->values[0]);

    put(at, after, at->lease, op->versions[0]);
    return digits || answers(op, after);
}

static bool
step_swap(place *at, const linear_op *op)
{
    const bool fits = at->value == op->expected;

    if (op->end != LINEAR_OPEN && op->refused) {
        return !fits && reads(at, op, 0);
    }
    if (fits) {
        put(at, op->values[0], op->lease, op->versions[0]);
    }
    return fits;
}

static bool
step_delete(place *at, const linear_op *op)
{
    const bool was = at->value != LINEAR_ABSENT;

    if (op->kind == LINEAR_TAKE && !reads(at, op, 0)) {
        return false;
    }
    if (op->kind == LINEAR_DELETE && !answers(op, was ? 1 : 0)) {
        return false;
    }
    if (op->kind == LINEAR_EXPIRE && at->lease != op->lease) {
        return false;
    }
    clear(at);
    return was || op->end != LINEAR_OPEN;
}

static bool
step_pop(place *at, const linear_op *op)
{
    const int64_t first = at->length == 0 ? LINEAR_ABSENT : at->items[0];

    if (!answers(op, first) || (op->end == LINEAR_OPEN && first == LINEAR_ABSENT)) {
        return false;
    }
    if (at->length > 0) {
        at->length--;
        memmove(at->items, at->items + 1, at->length * sizeof(at->items[0]));
        at->items[at->length] = 0;
    }
    return true;
}

static bool
step_push(place *at, const linear_op *op)
{
    if (at->length == QUEUE_MAX) {
        return false;
    }
    at->items[at->length++] = op->values[0];
    return answers(op, at->length);
}

static bool
step_all(place **at, const linear_op *op)
{
    bool all = true;
    uint32_t i;

    for (i = 0; i < op->key_count; i++) {
        if (op->kind == LINEAR_SET_ALL) {
            put(at[i], op->values[i], op->lease, op->versions[i]);
        } else if (!op->refused && !reads(at[i], op, i)) {
            return false;
        }
        all = all && at[i]->value != LINEAR_ABSENT;
    }
    return op->kind != LINEAR_GET_ALL || op->end == LINEAR_OPEN || all != op->refused;
}

/* False: it cannot have been answered like this; or it has no answer, and would change nothing. */
static bool
step(place **at, const linear_op *op)
{
    switch (op->kind) {
    case LINEAR_GET:
        return op->end != LINEAR_OPEN && reads(at[0], op, 0);
    case LINEAR_SET:
        put(at[0], op->values[0], op->lease, op->versions[0]);
        return true;
    case LINEAR_ADD:
    case LINEAR_APPEND:
        return step_add(at[0], op);
    case LINEAR_SWAP:
        return step_swap(at[0], op);
    case LINEAR_DELETE:
    case LINEAR_TAKE:
    case LINEAR_EXPIRE:
        return step_delete(at[0], op);
    case LINEAR_PUSH:
        return step_push(at[0], op);
    case LINEAR_POP:
        return step_pop(at[0], op);
    case LINEAR_LENGTH:
        return op->end != LINEAR_OPEN && answers(op, at[0]->length);
    default:
        return (op->kind == LINEAR_SET_ALL || op->end != LINEAR_OPEN) && step_all(at, op);
    }
}

/* ------------------------------------------------------------------------------ what was tried */

/* The set of ops that are in order, and the state that they lead to, as one run of bytes. */
typedef struct table {
    unsigned char **slots;
    size_t capacity;
    size_t count;
    size_t bytes; /* of each */
} table;

static uint64_t
hash_of(const unsigned char *data, size_t size)
{
    uint64_t hash = 0xcbf29ce484222325ULL;
    size_t i;

    for (i = 0; i < size; i++) {
        hash = (hash ^ data[i]) * 0x100000001b3ULL;
    }
    return hash ^ hash >> 29;
}

static unsigned char **
find_slot(const table *self, const unsigned char *entry)
{
    size_t at = hash_of(entry, self->bytes) % self->capacity;

    while (self->slots[at] != NULL && memcmp(self->slots[at], entry, self->bytes) != 0) {
        at = (at + 1) % self->capacity;
    }
    return &self->slots[at];
}

static void
grow(table *self)
{
    table more = {.capacity = self->capacity == 0 ? TABLE_FIRST : 2 * self->capacity,
                  .count = self->count,
                  .bytes = self->bytes};
    size_t i;

    more.slots = calloc(more.capacity, sizeof(more.slots[0]));
    assert(more.slots != NULL);
    for (i = 0; i < self->capacity; i++) {
        if (self->slots[i] != NULL) {
            *find_slot(&more, self->slots[i]) = self->slots[i];
        }
    }
    free(self->slots);
    *self = more;
}

/* False: it was there. */
static bool
remember(table *self, const unsigned char *entry)
{
    unsigned char **slot;

    if (2 * self->count >= self->capacity) {
        grow(self);
    }
    slot = find_slot(self, entry);
    if (*slot != NULL) {
        return false;
    }
    *slot = malloc(self->bytes);
    assert(*slot != NULL);
    memcpy(*slot, entry, self->bytes);
    self->count++;
    return true;
}

static void
forget_all(table *self)
{
    size_t i;

    for (i = 0; i < self->capacity; i++) {
        free(self->slots[i]);
    }
    free(self->slots);
}

/* ------------------------------------------------------------------------------ the search */

/* A call, or an answer: in the order of their times, as a list from which what is in order is lifted. */
typedef struct event {
    uint64_t at;
    uint32_t op;
    bool is_call;
    struct event *before;
    struct event *next;
    struct event *answer; /* of a call; NULL = none */
} event;

/* Ops whose keys belong together. */
typedef struct part {
    const linear_op **ops;
    uint32_t count;
    const uint32_t *place_of; /* by key */
    uint32_t place_count;
    event *events;        /* the first is the list's head */
    unsigned char *done;  /* a bit for each op, then the places: what the table keeps */
    unsigned char *saved; /* `done` before each op that is in order */
    event **stack;
    uint32_t depth;
    uint32_t deepest;
    uint32_t stuck; /* the op that had been answered there and would not fit */
    size_t bytes;
    size_t bits;
    table tried;
} part;

static void
lift(event *call)
{
    call->before->next = call->next;
    if (call->next != NULL) {
        call->next->before = call->before;
    }
    if (call->answer != NULL) {
        call->answer->before->next = call->answer->next;
        if (call->answer->next != NULL) {
            call->answer->next->before = call->answer->before;
        }
    }
}

static void
put_back(event *call)
{
    if (call->answer != NULL) {
        call->answer->before->next = call->answer;
        if (call->answer->next != NULL) {
            call->answer->next->before = call->answer;
        }
    }
    call->before->next = call;
    if (call->next != NULL) {
        call->next->before = call;
    }
}

/* Calls before answers at the same time. */
static int
compare_events(const void *left, const void *right)
{
    const event *a = left;
    const event *b = right;

    if (a->at != b->at) {
        return a->at < b->at ? -1 : 1;
    }
    if (a->is_call != b->is_call) {
        return a->is_call ? -1 : 1;
    }
    return a->op < b->op ? -1 : a->op > b->op;
}

static void
link_events(part *self)
{
    event **calls = calloc(self->count, sizeof(calls[0]));
    uint32_t used = 1;
    uint32_t i;

    assert(calls != NULL);
    for (i = 0; i < self->count; i++) {
        self->events[used++] = (event){.at = self->ops[i]->begin, .op = i, .is_call = true};
        if (self->ops[i]->end != LINEAR_OPEN) {
            self->events[used++] = (event){.at = self->ops[i]->end, .op = i};
        }
    }
    qsort(self->events + 1, used - 1, sizeof(event), compare_events);
    for (i = 0; i < used; i++) {
        event *one = &self->events[i];

        one->before = i > 0 ? one - 1 : NULL;
        one->next = i + 1 < used ? one + 1 : NULL;
        if (i > 0 && one->is_call) {
            calls[one->op] = one;
        } else if (i > 0) {
            calls[one->op]->answer = one;
        }
    }
    free(calls);
}

static place *
places_of(part *self)
{
    return (place *)(void *)(self->done + self->bits);
}

/* Put the op behind those that are in order, if it fits and leads where nobody was. */
static bool
try_op(part *self, event *call)
{
    const linear_op *op = self->ops[call->op];
    unsigned char *before = self->saved + self->depth * self->bytes;
    place *at[LINEAR_KEYS_MAX];
    uint32_t i;

    memcpy(before, self->done, self->bytes);
    for (i = 0; i < op->key_count; i++) {
        at[i] = &places_of(self)[self->place_of[op->keys[i]]];
    }
    self->done[call->op / 8] |= (unsigned char)(1U << call->op % 8);
    if (!step(at, op) || !remember(&self->tried, self->done)) {
        memcpy(self->done, before, self->bytes);
        return false;
    }
    self->stack[self->depth++] = call;
    lift(call);
    return true;
}

/* The answer of an op comes, and it is in no order: take the last one back. NULL: there is none. */
static event *
take_back(part *self, const event *answer)
{
    event *call;

    if (self->depth >= self->deepest) {
        self->deepest = self->depth;
        self->stuck = answer->op;
    }
    if (self->depth == 0) {
        return NULL;
    }
    call = self->stack[--self->depth];
    memcpy(self->done, self->saved + self->depth * self->bytes, self->bytes);
    put_back(call);
    return call->next;
}

static linear_verdict
search(part *self, uint32_t answered)
{
    event *at = self->events[0].next;
    uint64_t steps = 0;

    while (answered > 0) {
        if (steps++ > STEPS_MAX) {
            return LINEAR_TOO_HARD;
        }
        if (!at->is_call) {
            const uint32_t depth = self->depth;

            at = take_back(self, at);
            if (at == NULL && depth == 0) {
                return LINEAR_BROKEN;
            }
            answered += self->stack[self->depth]->answer != NULL ? 1 : 0;
        } else if (try_op(self, at)) {
            answered -= at->answer != NULL ? 1 : 0;
            at = self->events[0].next;
        } else {
            at = at->next;
        }
    }
    return LINEAR_HOLDS;
}

static void
say_broken(const part *self, char *ret_words, size_t size)
{
    char words[500];

    linear_say(self->ops[self->stuck], words, sizeof(words));
    (void)snprintf(
        ret_words, size,
        "no order fits: of %u ops on its keys %u are in one, and then there is no place for %s",
        self->count, self->deepest, words);
}

static linear_verdict
check_part(part *self, char *ret_words, size_t size)
{
    linear_verdict verdict;
    uint32_t answered = 0;
    uint32_t i;

    self->bits = (self->count / 8 + 8) / 8 * 8;
    self->bytes = self->bits + self->place_count * sizeof(place);
    self->tried.bytes = self->bytes;
    self->events = calloc(2 * self->count + 1, sizeof(event));
    self->done = calloc(1, self->bytes);
    self->saved = calloc(self->count + 1, self->bytes);
    self->stack = calloc(self->count + 1, sizeof(event *));
    assert(self->events != NULL && self->done != NULL && self->saved != NULL &&
           self->stack != NULL);
    for (i = 0; i < self->place_count; i++) {
        clear(&places_of(self)[i]);
    }
    for (i = 0; i < self->count; i++) {
        answered += self->ops[i]->end != LINEAR_OPEN ? 1 : 0;
    }
    link_events(self);
    verdict = search(self, answered);
    if (verdict == LINEAR_BROKEN) {
        say_broken(self, ret_words, size);
    }
    forget_all(&self->tried);
    free(self->events);
    free(self->done);
    free(self->saved);
    free(self->stack);
    return verdict;
}

/* ------------------------------------------------------------------------------ tokens */

static bool
same_answer(const linear_op *a, const linear_op *b)
{
    return a->refused == b->refused &&
           memcmp(a->results, b->results, a->key_count * sizeof(a->results[0])) == 0 &&
           memcmp(a->versions, b->versions, a->key_count * sizeof(a->versions[0])) == 0;
}

/* Calls with one token become the first of them. False: they were answered differently. */
static bool
join_calls(linear_op *ops, size_t *count, char *ret_words, size_t size)
{
    size_t used = 0;
    size_t i;
    size_t k;

    for (i = 0; i < *count; i++) {
        for (k = 0; k < used && (ops[i].token == 0 || ops[k].token != ops[i].token); k++) {
        }
        if (k == used) {
            ops[used++] = ops[i];
            continue;
        }
        if (ops[k].end != LINEAR_OPEN && ops[i].end != LINEAR_OPEN &&
            !same_answer(&ops[k], &ops[i])) {
            char words[500];

            linear_say(&ops[i], words, sizeof(words));
            (void)snprintf(ret_words, size, "a call with a token was answered before, and else: %s",
                           words);
            return false;
        }
        if (ops[i].end < ops[k].end) {
            const uint64_t begin = ops[k].begin;

            ops[k] = ops[i];
            ops[k].begin = begin;
        }
        ops[k].begin = ops[i].begin < ops[k].begin ? ops[i].begin : ops[k].begin;
    }
    *count = used;
    return true;
}

/* ------------------------------------------------------------------------------ parts */

static uint32_t
root_of(uint32_t *parents, uint32_t key)
{
    while (parents[key] != key) {
        parents[key] = parents[parents[key]];
        key = parents[key];
    }
    return key;
}

static linear_verdict
check_parts(const linear_op *ops, size_t count, uint32_t *parents, uint32_t key_count,
            char *ret_words, size_t size)
{
    uint32_t *place_of = calloc(key_count + 1, sizeof(place_of[0]));
    const linear_op **chosen = calloc(count + 1, sizeof(chosen[0]));
    linear_verdict worst = LINEAR_HOLDS;
    uint32_t root;

    assert(place_of != NULL && chosen != NULL);
    for (root = 0; root < key_count && worst != LINEAR_BROKEN; root++) {
        part self = {.ops = chosen, .place_of = place_of};
        linear_verdict verdict;
        uint32_t key;
        size_t i;

        for (key = 0; key < key_count; key++) {
            if (root_of(parents, key) == root) {
                place_of[key] = self.place_count++;
            }
        }
        for (i = 0; i < count; i++) {
            if (root_of(parents, ops[i].keys[0]) == root) {
                chosen[self.count++] = &ops[i];
            }
        }
        verdict = self.count == 0 ? LINEAR_HOLDS : check_part(&self, ret_words, size);
        worst = verdict == LINEAR_HOLDS ? worst : verdict;
    }
    free(place_of);
    free(chosen);
    return worst;
}

linear_verdict
linear_check(const linear_op *ops, size_t count, char *ret_words, size_t size)
{
    linear_op *own = calloc(count + 1, sizeof(own[0]));
    linear_verdict verdict = LINEAR_BROKEN;
    uint32_t key_count = 0;
    uint32_t *parents;
    size_t i;
    uint32_t k;

    assert(own != NULL);
    memcpy(own, ops, count * sizeof(own[0]));
    for (i = 0; i < count; i++) {
        for (k = 0; k < ops[i].key_count; k++) {
            key_count = ops[i].keys[k] >= key_count ? ops[i].keys[k] + 1 : key_count;
        }
    }
    parents = calloc(key_count + 1, sizeof(parents[0]));
    assert(parents != NULL);
    for (k = 0; k < key_count; k++) {
        parents[k] = k;
    }
    for (i = 0; i < count; i++) {
        for (k = 1; k < ops[i].key_count; k++) {
            parents[root_of(parents, ops[i].keys[k])] = root_of(parents, ops[i].keys[0]);
        }
    }
    if (join_calls(own, &count, ret_words, size)) {
        verdict = check_parts(own, count, parents, key_count, ret_words, size);
    }
    free(parents);
    free(own);
    return verdict;
}

/* ------------------------------------------------------------------------------ versions */

/* Of the change that the op made; 0 = none, or it was not told. */
static uint64_t
version_made(const linear_op *op)
{
    switch (op->kind) {
    case LINEAR_SET:
    case LINEAR_ADD:
    case LINEAR_APPEND:
    case LINEAR_PUSH:
    case LINEAR_SET_ALL:
        return op->versions[0];
    case LINEAR_SWAP:
        return op->refused ? 0 : op->versions[0];
    default:
        return 0;
    }
}

static uint64_t
version_seen(const linear_op *op)
{
    uint64_t highest = 0;
    uint32_t i;

    for (i = 0; i < op->key_count; i++) {
        highest = op->versions[i] > highest ? op->versions[i] : highest;
    }
    return highest;
}

static bool
fits_versions(const linear_op *before, const linear_op *op)
{
    const uint64_t made = version_made(op);

    if (made == 0 || before == op || (op->token != 0 && before->token == op->token)) {
        return true;
    }
    return version_made(before) != made &&
           (before->end >= op->begin || version_seen(before) < made);
}

bool
linear_check_versions(const linear_op *ops, size_t count, char *ret_words, size_t size)
{
    size_t i;
    size_t k;

    for (i = 0; i < count; i++) {
        for (k = 0; k < count && ops[i].end != LINEAR_OPEN; k++) {
            if (ops[k].end != LINEAR_OPEN && !fits_versions(&ops[k], &ops[i])) {
                char first[500];
                char words[500];

                linear_say(&ops[k], first, sizeof(first));
                linear_say(&ops[i], words, sizeof(words));
                (void)snprintf(ret_words, size, "the version of %s, and before that %s", words,
                               first);
                return false;
            }
        }
    }
    return true;
}
