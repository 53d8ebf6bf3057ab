#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/list.h"
#include "base/error/fail.h"
#include "coll/select/select.h"

#define SELECTORS_MAX 4096
#define RULES_KEPT_MAX (16 * TUTTI_SELECTION_RULES_MAX)

typedef struct kept {
    tutti_list_node link;
    tutti_selection selection;
    tutti_selection_rule rules[]; /* those of a table of its own */
} kept;

struct tutti_selector {
    pthread_mutex_t lock;
    tutti_list_node all;
    const tutti_selection *now;
    size_t count;
    size_t rules;
};

/* The same once more: agents that are tuned are told few things many times. */
static const tutti_selection *
find_kept(const tutti_selector *self, const tutti_selection *selection)
{
    const tutti_list_node *link;

    for (link = self->all.next; link != &self->all; link = link->next) {
        const kept *one = tutti_container_of(link, kept, link);

        if (one->selection.rules == selection->rules &&
            one->selection.rule_count == selection->rule_count &&
            memcmp(one->selection.forced, selection->forced, sizeof(selection->forced)) == 0) {
            return &one->selection;
        }
    }
    return NULL;
}

tutti_code
tutti_selector_put(tutti_selector *self, const tutti_selection *selection, bool own_rules,
                   tutti_error *err)
{
    const size_t rules = own_rules ? selection->rule_count : 0;
    kept *one = calloc(1, sizeof(*one) + rules * sizeof(one->rules[0]));
    const tutti_selection *known;
    tutti_code code = TUTTI_OK;

    if (one == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %zu rules", rules);
    }
    one->selection = *selection;
    if (own_rules) {
        memcpy(one->rules, selection->rules, rules * sizeof(one->rules[0]));
        one->selection.rules = one->rules;
    }
    tutti_selection_seal(&one->selection);
    (void)pthread_mutex_lock(&self->lock);
    known = own_rules ? NULL : find_kept(self, selection);
    if (known != NULL) {
        self->now = known;
        free(one);
    } else if (self->count == SELECTORS_MAX || self->rules + rules > RULES_KEPT_MAX) {
        code = TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "CHOICE_LIMIT",
                              "algorithms were set %zu times with %zu rules, the limits are %d and "
                              "%d: start the agent anew",
                              self->count, self->rules, SELECTORS_MAX, RULES_KEPT_MAX);
        free(one);
    } else {
        tutti_list_add(&self->all, &one->link);
        self->now = &one->selection;
        self->count++;
        self->rules += rules;
    }
    (void)pthread_mutex_unlock(&self->lock);
    return code;
}

tutti_code
tutti_selector_new(const tutti_selection *first, bool own_rules, tutti_selector **ret,
                   tutti_error *err)
{
    tutti_selector *self = calloc(1, sizeof(*self));
    tutti_code code;

    if (self == NULL) {
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for rules");
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_list_init(&self->all);
    code = tutti_selector_put(self, first, own_rules, err);
    if (code != TUTTI_OK) {
        tutti_selector_free(self);
        return code;
    }
    *ret = self;
    return TUTTI_OK;
}

const tutti_selection *
tutti_selector_current(tutti_selector *self)
{
    const tutti_selection *now;

    (void)pthread_mutex_lock(&self->lock);
    now = self->now;
    (void)pthread_mutex_unlock(&self->lock);
    return now;
}

void
tutti_selector_free(tutti_selector *self)
{
    tutti_list_node *link;

    if (self == NULL) {
        return;
    }
    while ((link = tutti_list_pop(&self->all)) != NULL) {
        free(tutti_container_of(link, kept, link));
    }
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}
