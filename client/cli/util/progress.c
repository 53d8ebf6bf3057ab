/* How far it is, for those who look at a terminal. */
#include "client/cli/util/progress.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cli/cli.h"
#include "client/cli/util/values.h"

#define SHOW_AFTER_MS 400 /* what is over by then needs no bar */
#define DRAW_EVERY_MS 100
#define BAR_WIDTH 30

struct cli_bar {
    const cli *self;
    const char *what;
    uint64_t total_bytes;
    uint64_t began_ms;
    pthread_mutex_t lock; /* guards the rest */
    uint64_t done_bytes;
    uint64_t drawn_ms; /* 0 = never */
};

uint64_t
cli_now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

cli_bar *
cli_bar_new(const cli *self, const char *what, uint64_t total_bytes)
{
    cli_bar *bar = calloc(1, sizeof(*bar));

    if (bar == NULL) {
        abort();
    }
    bar->self = self;
    bar->what = what;
    bar->total_bytes = total_bytes;
    bar->began_ms = cli_now_ms();
    (void)pthread_mutex_init(&bar->lock, NULL);
    return bar;
}

/* With the lock held. "\033[K" removes what a longer line has left behind. */
static void
draw_progress(const cli_bar *bar, uint64_t now)
{
    const double part =
        bar->total_bytes == 0 ? 1 : (double)bar->done_bytes / (double)bar->total_bytes;
    const uint64_t spent_ms = now > bar->began_ms ? now - bar->began_ms : 1;
    const uint64_t speed = bar->done_bytes * 1000 / spent_ms;
    const int full = (int)(part * BAR_WIDTH);
    char done[CLI_WORD_SIZE];
    char rate[CLI_WORD_SIZE];
    char filled[BAR_WIDTH + 1];

    memset(filled, ' ', BAR_WIDTH);
    memset(filled, '#', (size_t)full);
    filled[BAR_WIDTH] = '\0';
    (void)fprintf(bar->self->err, "\r%.40s [%s] %3d%% %s %s/s\033[K", bar->what, filled,
                  (int)(part * 100), cli_format_size(bar->done_bytes, done),
                  cli_format_size(speed, rate));
    (void)fflush(bar->self->err);
}

/*
 * Called by several threads, each with its own part. Drawing is limited to ten times a second.
 * Always true: a bar never stops a transfer.
 */
bool
cli_bar_moved(void *arg, uint64_t done_bytes, uint64_t total_bytes)
{
    cli_bar_part *part = arg;
    cli_bar *bar = part->bar;
    const uint64_t now = cli_now_ms();

    (void)total_bytes;
    (void)pthread_mutex_lock(&bar->lock);
    bar->done_bytes += done_bytes - part->done_bytes;
    part->done_bytes = done_bytes;
    if (bar->self->progress && now - bar->began_ms >= SHOW_AFTER_MS &&
        now - bar->drawn_ms >= DRAW_EVERY_MS) {
        bar->drawn_ms = now;
        draw_progress(bar, now);
    }
    (void)pthread_mutex_unlock(&bar->lock);
    return true;
}

void
cli_bar_free(cli_bar *bar)
{
    if (bar->drawn_ms != 0) {
        cli_status_clear(bar->self);
    }
    (void)pthread_mutex_destroy(&bar->lock);
    free(bar);
}

void
cli_status_line(const cli *self, const char *format, ...)
{
    va_list args;

    if (!self->progress) {
        return;
    }
    (void)fputc('\r', self->err);
    va_start(args, format);
    (void)vfprintf(self->err, format, args);
    va_end(args);
    (void)fprintf(self->err, "\033[K");
    (void)fflush(self->err);
}

void
cli_status_clear(const cli *self)
{
    if (self->progress) {
        (void)fprintf(self->err, "\r\033[K");
        (void)fflush(self->err);
    }
}
