#include "watches.h"

#include <stdio.h>
#include <string.h>

static void
say(const watches_change *change, char *ret_words, size_t size)
{
    if (change->kind == WATCHES_DELETED) {
        (void)snprintf(ret_words, size, "\"%s\" deleted at %llu", change->key,
                       (unsigned long long)change->version);
    } else {
        (void)snprintf(ret_words, size, "\"%s\" = %lld at %llu", change->key,
                       (long long)change->value, (unsigned long long)change->version);
    }
}

static bool
is_same(const watches_change *a, const watches_change *b)
{
    return a->kind == b->kind && a->version == b->version && strcmp(a->key, b->key) == 0 &&
           (a->kind == WATCHES_DELETED || a->value == b->value);
}

/* A walk through the changes under a prefix. */
typedef struct walk {
    const watches_change *changes;
    size_t count;
    size_t at;
    const char *prefix;
} walk;

/* NULL: that was the last. */
static const watches_change *
look(walk *self)
{
    while (self->at < self->count &&
           strncmp(self->changes[self->at].key, self->prefix, strlen(self->prefix)) != 0) {
        self->at++;
    }
    return self->at < self->count ? &self->changes[self->at] : NULL;
}

static void
begin_behind(walk *self, uint64_t version)
{
    self->at = 0;
    while (self->at < self->count && self->changes[self->at].version <= version) {
        self->at++;
    }
}

static bool
fail_told(const watches_change *wanted, const watches_change *told, char *ret_words, size_t size)
{
    char first[100] = "nothing";
    char second[100] = "nothing";

    if (wanted != NULL) {
        say(wanted, first, sizeof(first));
    }
    if (told != NULL) {
        say(told, second, sizeof(second));
    }
    (void)snprintf(ret_words, size, "a watch was told %s, and should have been told %s", second,
                   first);
    return false;
}

static bool
take_told(walk *self, const watches_change *told, bool *begun, char *ret_words, size_t size)
{
    const watches_change *wanted;

    if (told->kind == WATCHES_BEGUN && told->version < told->floor) {
        (void)snprintf(ret_words, size,
                       "a watch begins at version %llu, and %llu had been answered before",
                       (unsigned long long)told->version, (unsigned long long)told->floor);
        return false;
    }
    if (told->kind == WATCHES_BEGUN) {
        begin_behind(self, told->version);
        *begun = true;
        return true;
    }
    if (told->kind == WATCHES_RESUMED) {
        return true;
    }
    wanted = look(self);
    if (!*begun || wanted == NULL || !is_same(wanted, told)) {
        return fail_told(wanted, told, ret_words, size);
    }
    self->at++;
    return true;
}

bool
watches_check(const watches_change *changes, size_t change_count, const watches_change *told,
              size_t told_count, const char *prefix, bool complete, char *ret_words, size_t size)
{
    walk self = {.changes = changes, .count = change_count, .prefix = prefix};
    bool begun = false;
    size_t i;

    for (i = 0; i < told_count; i++) {
        if (!take_told(&self, &told[i], &begun, ret_words, size)) {
            return false;
        }
    }
    return !complete || !begun || look(&self) == NULL ||
           fail_told(look(&self), NULL, ret_words, size);
}
