#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/list.h"
#include "base/error/fail.h"
#include "coll/choose/choose.h"

#define CHOICES_MAX 4096
#define RULES_KEPT_MAX (16 * TUTTI_CHOICE_RULES_MAX)

typedef struct kept {
    tutti_link link;
    tutti_choice choice;
    tutti_choice_rule rules[]; /* those of a table of its own */
} kept;

struct tutti_choices {
    pthread_mutex_t lock;
    tutti_link all;
    const tutti_choice *now;
    size_t count;
    size_t rules;
};

/* The same once more: agents that are tuned are told few things many times. */
static const tutti_choice *
find_kept(const tutti_choices *self, const tutti_choice *choice)
{
    const tutti_link *link;

    for (link = self->all.next; link != &self->all; link = link->next) {
        const kept *one = tutti_container_of(link, kept, link);

        if (one->choice.rules == choice->rules && one->choice.rule_count == choice->rule_count &&
            memcmp(one->choice.forced, choice->forced, sizeof(choice->forced)) == 0) {
            return &one->choice;
        }
    }
    return NULL;
}

tutti_code
tutti_choices_put(tutti_choices *self, const tutti_choice *choice, bool own_rules, tutti_error *err)
{
    const size_t rules = own_rules ? choice->rule_count : 0;
    kept *one = calloc(1, sizeof(*one) + rules * sizeof(one->rules[0]));
    const tutti_choice *known;
    tutti_code code = TUTTI_OK;

    if (one == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %zu rules", rules);
    }
    one->choice = *choice;
    if (own_rules) {
        memcpy(one->rules, choice->rules, rules * sizeof(one->rules[0]));
        one->choice.rules = one->rules;
    }
    tutti_choice_seal(&one->choice);
    (void)pthread_mutex_lock(&self->lock);
    known = own_rules ? NULL : find_kept(self, choice);
    if (known != NULL) {
        self->now = known;
        free(one);
    } else if (self->count == CHOICES_MAX || self->rules + rules > RULES_KEPT_MAX) {
        code = TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "CHOICE_LIMIT",
                              "algorithms were set %zu times with %zu rules, the limits are %d and "
                              "%d: start the agent anew",
                              self->count, self->rules, CHOICES_MAX, RULES_KEPT_MAX);
        free(one);
    } else {
        tutti_list_add(&self->all, &one->link);
        self->now = &one->choice;
        self->count++;
        self->rules += rules;
    }
    (void)pthread_mutex_unlock(&self->lock);
    return code;
}

tutti_code
tutti_choices_new(const tutti_choice *first, bool own_rules, tutti_choices **ret, tutti_error *err)
{
    tutti_choices *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for rules");
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_list_init(&self->all);
    code = tutti_choices_put(self, first, own_rules, err);
    if (code != TUTTI_OK) {
        tutti_choices_free(self);
        return code;
    }
    *ret = self;
    return TUTTI_OK;
}

const tutti_choice *
tutti_choices_now(tutti_choices *self)
{
    const tutti_choice *now;

    (void)pthread_mutex_lock(&self->lock);
    now = self->now;
    (void)pthread_mutex_unlock(&self->lock);
    return now;
}

void
tutti_choices_free(tutti_choices *self)
{
    tutti_link *link;

    if (self == NULL) {
        return;
    }
    while ((link = tutti_list_pop(&self->all)) != NULL) {
        free(tutti_container_of(link, kept, link));
    }
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}
