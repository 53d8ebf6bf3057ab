/* A question from one of HTTP's threads to the loop. Whoever of the two is last frees it: a loop
 * that comes too late finds nobody waiting. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/os/clock.h"
#include "base/os/thread.h"
#include "metrics/metrics_private.h"

#define OK 200
#define UNAVAILABLE 503
#define WHY_BYTES 256

/*
 * `status` and `page` are the loop's until it has set `answered`; then they are the waiter's. So the
 * page is written without the lock, and who waits can leave in the middle. The source is a copy:
 * the loop may come to the question when the metrics are gone.
 */
typedef struct question {
    tutti_rpc_task task;
    tutti_metrics_source source;
    metrics_request request;
    pthread_mutex_t lock; /* guards what is below */
    pthread_cond_t changed;
    bool answered;
    bool left; /* nobody waits any more */
    unsigned status;
    tutti_page page;
} question;

static void
free_question(question *self)
{
    tutti_page_fini(&self->page);
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    free(self);
}

static void
write_query_answer(tutti_page *page, const char *words)
{
    if (tutti_buf_add(&page->buf, words, strlen(words), NULL) != TUTTI_OK) {
        page->failed = true;
    }
}

static void
answer_readiness(question *self)
{
    char words[WHY_BYTES];
    tutti_text why = tutti_text_in(words, sizeof(words));

    if (self->source.on_ready(self->source.arg, &why)) {
        write_query_answer(&self->page, "ready\n");
        return;
    }
    tutti_text_add(&why, "\n");
    write_query_answer(&self->page, words);
    self->status = UNAVAILABLE;
}

static void
answer_wish(question *self)
{
    const tutti_metrics_wish wish = {.job = self->request.job,
                                     .ranks = self->request.topic == METRICS_RANKS,
                                     .first = self->request.first};

    self->source.on_wish(self->source.arg, &wish, &self->page);
}

static void
answer_query(question *self)
{
    self->status = OK;
    switch (self->request.topic) {
    case METRICS_HEALTH:
        write_query_answer(&self->page, "ok\n");
        break;
    case METRICS_READINESS:
        answer_readiness(self);
        break;
    case METRICS_NUMBERS:
        self->source.on_page(self->source.arg, &self->page);
        break;
    case METRICS_HTML:
    case METRICS_STATE:
    case METRICS_RANKS:
    case METRICS_EVENTS:
        answer_wish(self);
        break;
    }
}

static bool
is_left(question *self)
{
    bool left;

    (void)pthread_mutex_lock(&self->lock);
    left = self->left;
    (void)pthread_mutex_unlock(&self->lock);
    return left;
}

/* False: nobody waits for the answer any more. */
static bool
hand_over(question *self)
{
    bool waits;

    (void)pthread_mutex_lock(&self->lock);
    waits = !self->left;
    self->answered = waits;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
    return waits;
}

/* Runs on the loop. */
static void
run_question(tutti_rpc_task *task)
{
    question *self = tutti_container_of(task, question, task);
    bool taken = false;

    if (!is_left(self)) {
        answer_query(self);
        taken = hand_over(self);
    }
    if (!taken) {
        free_question(self);
    }
}

static question *
new_question(const tutti_metrics_source *source, const metrics_request *request)
{
    question *self = calloc(1, sizeof(*self));

    if (self == NULL) {
        return NULL;
    }
    self->task.on_run = run_question;
    self->source = *source;
    self->request = *request;
    tutti_page_init(&self->page);
    (void)pthread_mutex_init(&self->lock, NULL);
    tutti_cond_init(&self->changed);
    return self;
}

/*
 * Returns whether the question was answered; it is then the caller's to free. When it was not, it
 * is the loop's from here on, and this thread must not touch it again.
 */
static bool
wait_for_answer(question *self)
{
    const uint64_t until =
        tutti_clock_add(tutti_clock_ns(), TUTTI_METRICS_WAIT_MS * TUTTI_NS_PER_MS);
    bool answered;
    bool early = true;

    (void)pthread_mutex_lock(&self->lock);
    while (!self->answered && early) {
        early = tutti_cond_wait_until(&self->changed, &self->lock, until);
    }
    answered = self->answered;
    self->left = !answered;
    (void)pthread_mutex_unlock(&self->lock);
    return answered;
}

/*
 * What the process shows is added on this thread, since it needs nothing of the loop's and reads
 * files.
 */
unsigned
metrics_ask(const tutti_metrics_source *source, const metrics_request *request, tutti_page *page)
{
    question *self = new_question(source, request);
    unsigned status;

    if (self == NULL) {
        write_query_answer(page, "no memory for a question\n");
        return UNAVAILABLE;
    }
    tutti_rpc_loop_post(source->loop, &self->task);
    if (!wait_for_answer(self)) {
        write_query_answer(page, "the loop of this server did not answer within 2 s\n");
        return UNAVAILABLE;
    }
    /* The page changes hands as a whole; nothing is copied. */
    tutti_page_fini(page);
    *page = self->page;
    tutti_page_init(&self->page);
    status = self->status;
    free_question(self);
    if (status == OK && request->topic == METRICS_NUMBERS) {
        metrics_add_process(page, source->program);
    }
    return page->failed ? UNAVAILABLE : status;
}
