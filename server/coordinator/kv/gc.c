/*
 * Keys and queues of a job that has ended go in slices, one removal at a time, so that a job with
 * a million keys stops nobody. Watches hear of each key. Nothing remembers how far it has come:
 * each step removes the first key that is left, so it may be interrupted anywhere; after a
 * restart of a durable coordinator, what was left stays until the job ends again.
 */
#include "server/coordinator/kv/gc.h"

#include <stdlib.h>
#include <string.h>

#include "server/coordinator/core/core.h"
#include "server/coordinator/kv/keys.h"
#include "server/coordinator/kv/keys_private.h"

/* What begins with one of these goes, one after the other. */
static const coord_tag tags[] = {COORD_TAG_NONE, COORD_TAG_QUEUE, COORD_TAG_VALUE};

#define TAG_COUNT (sizeof(tags) / sizeof(tags[0]))

typedef struct reap {
    tutti_list_node link;
    coord_full_key job; /* of a key of no byte */
    size_t tag;
} reap;

/* Remove the first key; false = there is none (or the store fails: it keeps the rest). */
static bool
remove_one(tutti_coordinator *self, const reap *one)
{
    unsigned char copy[TUTTI_STORE_KEY_MAX];
    tutti_store_entry entry;
    coord_news news = {.kind = TUTTI_COORDINATOR_DELETED, .job_size = one->job.job_size};
    coord_tagged_key prefix;

    coord_tagged_key_write(&prefix, tags[one->tag], &one->job);
    if (tutti_store_next(self->store, coord_tagged_key_bytes(&prefix), (tutti_bytes){0}, &entry,
                         NULL) != TUTTI_OK) {
        return false;
    }
    memcpy(copy, entry.key.data, entry.key.size);
    news.full = (tutti_bytes){copy, entry.key.size};
    if (tutti_store_delete(self->store, news.full, NULL, &news.version, NULL) != TUTTI_OK) {
        return false;
    }
    if (tags[one->tag] == COORD_TAG_NONE) {
        coord_key_tell(self, &news);
    }
    return true;
}

/* False = all has gone. */
static bool
resume_gc(tutti_coordinator *self, reap *one)
{
    while (one->tag < TAG_COUNT) {
        if (remove_one(self, one)) {
            return true;
        }
        one->tag++;
    }
    return false;
}

static void
finish_gc(tutti_coordinator *self, reap *one)
{
    while (resume_gc(self, one)) {
    }
    tutti_list_remove(&one->link);
    free(one);
}

static size_t
on_gc_task(coord_task *work, size_t budget)
{
    tutti_coordinator *self = tutti_container_of(work, tutti_coordinator, gc_task);
    size_t done = 0;

    while (done < budget && !tutti_list_empty(&self->reaping)) {
        reap *one = tutti_container_of(self->reaping.next, reap, link);

        if (!resume_gc(self, one)) {
            tutti_list_remove(&one->link);
            free(one);
        }
        done++;
    }
    if (!tutti_list_empty(&self->reaping)) {
        coord_defer(self, work);
    }
    return done;
}

void
coord_keys_forget(tutti_coordinator *self, const char *job)
{
    const tutti_coordinator_key none = {.job = job};
    reap at_once = {.tag = 0};
    reap *one = calloc(1, sizeof(*one));

    if (coord_full_key_write(self, &none, 0, &at_once.job, NULL) != TUTTI_OK) {
        free(one);
        return; /* a job's name is good */
    }
    /* No memory for doing it later: at once, however long it takes. */
    if (one == NULL) {
        while (resume_gc(self, &at_once)) {
        }
        return;
    }
    *one = at_once;
    tutti_list_add(&self->reaping, &one->link);
    coord_defer(self, &self->gc_task);
}

void
coord_gc_finish(tutti_coordinator *self, const coord_full_key *full)
{
    const tutti_bytes job = {full->data, full->job_size};
    tutti_list_node *link;
    tutti_list_node *spare;

    tutti_list_each(link, spare, &self->reaping)
    {
        reap *one = tutti_container_of(link, reap, link);

        if (tutti_bytes_equal(job, coord_full_key_bytes(&one->job))) {
            finish_gc(self, one);
        }
    }
}

void
coord_gc_init(tutti_coordinator *self)
{
    tutti_list_init(&self->reaping);
    coord_task_init(&self->gc_task, on_gc_task);
}

void
coord_gc_fini(tutti_coordinator *self)
{
    while (!tutti_list_empty(&self->reaping)) {
        finish_gc(self, tutti_container_of(self->reaping.next, reap, link));
    }
}
