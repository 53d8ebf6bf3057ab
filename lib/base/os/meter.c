/*
 * Meters of durations, and the page of text in which Prometheus reads them. Adding to a meter is
 * two relaxed additions and no lock, since it is done for every call. Each bound is about four
 * times the one before, so that eleven of them reach from 25 us to a minute.
 */
#include "base/os/meter.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/data/utf8.h"
#include "base/os/clock.h"

#define LINE_BYTES_MAX (TUTTI_PAGE_LABELS_MAX + 256)
#define US(n) ((uint64_t)(n)*TUTTI_NS_PER_US)
#define MS(n) ((uint64_t)(n)*TUTTI_NS_PER_MS)

static const uint64_t bounds_ns[TUTTI_METER_BOUNDS] = {US(25),   US(100),   US(400),  US(1600),
                                                       MS(6),    MS(25),    MS(100),  MS(400),
                                                       MS(1600), MS(10000), MS(60000)};

/* The same for people: what `le` says. */
static const char *const bounds[TUTTI_METER_BOUNDS] = {
    "2.5e-05", "0.0001", "0.0004", "0.0016", "0.006", "0.025", "0.1", "0.4", "1.6", "10", "60"};

/*
 * Each bucket counts only its own part; the sums that Prometheus wants are made when the page is
 * written.
 */
void
tutti_meter_add(tutti_meter *meter, uint64_t duration_ns)
{
    size_t i = 0;

    while (i < TUTTI_METER_BOUNDS && duration_ns > bounds_ns[i]) {
        i++;
    }
    tutti_count(&meter->buckets[i], 1);
    tutti_count(&meter->sum_ns, duration_ns);
}

uint64_t
tutti_meter_count(const tutti_meter *meter)
{
    uint64_t count = 0;
    size_t i;

    for (i = 0; i <= TUTTI_METER_BOUNDS; i++) {
        count += atomic_load_explicit(&meter->buckets[i], memory_order_relaxed);
    }
    return count;
}

/* ------------------------------------------------------------------------------ the page */

void
tutti_page_init(tutti_page *page)
{
    tutti_buf_init(&page->buf, TUTTI_PAGE_BYTES_MAX);
    page->failed = false;
}

void
tutti_page_fini(tutti_page *page)
{
    tutti_buf_fini(&page->buf);
}

static void
add_to_sample(tutti_page *page, const char *text, size_t size)
{
    if (!page->failed && tutti_buf_add(&page->buf, text, size, NULL) != TUTTI_OK) {
        page->failed = true;
    }
}

/*
 * A page that failed once takes nothing more. `failed` is asked once at the end, and such a page
 * is never shown.
 */
void
tutti_page_family(tutti_page *page, const char *name, const char *type, const char *help)
{
    char text[LINE_BYTES_MAX];
    const int size =
        snprintf(text, sizeof(text), "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);

    add_to_sample(page, text, (size_t)size < sizeof(text) ? (size_t)size : sizeof(text) - 1);
}

/* [in] tail  "_sum", or "" */
static void
add_sample(tutti_page *page, const char *name, const char *tail, const char *labels,
           const char *value)
{
    char text[LINE_BYTES_MAX];
    const bool bare = labels[0] == '\0';
    const int size = snprintf(text, sizeof(text), "%s%s%s%s%s %s\n", name, tail, bare ? "" : "{",
                              labels, bare ? "" : "}", value);

    if ((size_t)size >= sizeof(text)) {
        page->failed = true;
        return;
    }
    add_to_sample(page, text, (size_t)size);
}

static void
add_number(tutti_page *page, const char *name, const char *tail, const char *labels, uint64_t value)
{
    char text[32];

    (void)snprintf(text, sizeof(text), "%" PRIu64, value);
    add_sample(page, name, tail, labels, text);
}

/* Written from whole numbers: a double would lose the nanoseconds after some months. */
static void
add_seconds(tutti_page *page, const char *name, const char *tail, const char *labels, uint64_t ns)
{
    char text[40];

    (void)snprintf(text, sizeof(text), "%" PRIu64 ".%09" PRIu64, (uint64_t)(ns / TUTTI_NS_PER_S),
                   (uint64_t)(ns % TUTTI_NS_PER_S));
    add_sample(page, name, tail, labels, text);
}

void
tutti_page_number(tutti_page *page, const char *name, const char *labels, uint64_t value)
{
    add_number(page, name, "", labels, value);
}

void
tutti_page_seconds(tutti_page *page, const char *name, const char *labels, uint64_t ns)
{
    add_seconds(page, name, "", labels, ns);
}

static void
add_bucket(tutti_page *page, const char *name, const char *labels, const char *bound,
           uint64_t count)
{
    char all[TUTTI_PAGE_LABELS_MAX + 32];

    (void)snprintf(all, sizeof(all), "%s%sle=\"%s\"", labels, labels[0] == '\0' ? "" : ",", bound);
    add_number(page, name, "_bucket", all, count);
}

/* The count is that of the buckets as they were read, so the two never differ. */
void
tutti_page_meter(tutti_page *page, const char *name, const char *labels, const tutti_meter *meter)
{
    uint64_t count = 0;
    size_t i;

    for (i = 0; i <= TUTTI_METER_BOUNDS; i++) {
        count += atomic_load_explicit(&meter->buckets[i], memory_order_relaxed);
        add_bucket(page, name, labels, i < TUTTI_METER_BOUNDS ? bounds[i] : "+Inf", count);
    }
    add_seconds(page, name, "_sum", labels,
                atomic_load_explicit(&meter->sum_ns, memory_order_relaxed));
    add_number(page, name, "_count", labels, count);
}

/* Backslash, quote and newline as the format has it; other control characters do not travel. */
static size_t
escape_sample(char *to, size_t room, const char *from)
{
    size_t used = 0;

    for (; *from != '\0' && used + 2 < room; from++) {
        if (*from == '\\' || *from == '"') {
            to[used++] = '\\';
        }
        to[used++] = *from;
    }
    to[used] = '\0';
    return tutti_utf8_clean(to);
}

/* Labels that do not fit are left out as pairs, so what is there is always well formed. */
void
tutti_page_labels(char ret_labels[TUTTI_PAGE_LABELS_MAX], const char *const *pairs)
{
    const size_t room = TUTTI_PAGE_LABELS_MAX - 2; /* the last quote and the NUL */
    size_t used = 0;

    ret_labels[0] = '\0';
    for (; pairs[0] != NULL; pairs += 2) {
        const size_t need = strlen(pairs[0]) + 4; /* comma, name, =, quotes */

        if (used + need >= room) {
            return;
        }
        used += (size_t)snprintf(ret_labels + used, room - used, "%s%s=\"", used == 0 ? "" : ",",
                                 pairs[0]);
        used += escape_sample(ret_labels + used, room - used, pairs[1]);
        ret_labels[used++] = '"';
        ret_labels[used] = '\0';
    }
}
