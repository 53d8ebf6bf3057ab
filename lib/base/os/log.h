/*
 * Log: lines for people, key=value or JSON for machines, on one descriptor.
 *
 * Rooms return errors and log at DEBUG and below; the mains and the RPC boundary log at INFO and
 * above, so one failure is one line. ERROR: somebody must act. WARN: we went on. INFO: a life
 * event. DEBUG: per op. TRACE: per chunk. Any thread; a line is one write().
 */
#ifndef TUTTI_BASE_OS_LOG_H
#define TUTTI_BASE_OS_LOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/os/clock.h"
#include "tutti/error.h"

typedef enum tutti_log_level {
    TUTTI_LOG_ERROR = 0,
    TUTTI_LOG_WARN = 1,
    TUTTI_LOG_INFO = 2,
    TUTTI_LOG_DEBUG = 3,
    TUTTI_LOG_TRACE = 4,
} tutti_log_level;

/*
 * What to show: "info", "info,rpc=debug,coll/host=trace". A room that is not named has the level
 * without a name. Call before threads start.
 *
 * TUTTI_INVALID_ARGUMENT  no such level, too many rooms, or more than 511 bytes
 */
tutti_code tutti_log_set_levels(const char *spec, tutti_error *err);

typedef enum tutti_log_format {
    TUTTI_LOG_PEOPLE,
    TUTTI_LOG_MACHINE, /* key=value */
    TUTTI_LOG_JSON,    /* an object */
} tutti_log_format;

/*
 * What --log-format says: "people", "machine" or "json".
 *
 * TUTTI_INVALID_ARGUMENT  none of these
 */
tutti_code tutti_log_set_format(const char *name, tutti_error *err);

/* `descriptor` -1 keeps standard error. */
void tutti_log_set_output(tutti_log_format format, int descriptor);

/* Words that every line carries from now on, "rank=3 job=default". Copied. */
void tutti_log_set_context(const char *words);

bool tutti_log_shows(const char *room, tutti_log_level level);

void tutti_log_write(const char *room, tutti_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#define TUTTI_LOG_BURST_NS (10 * TUTTI_NS_PER_S)

/* A place from which many lines may come; zeroed at first. */
typedef struct tutti_log_burst {
    _Atomic uint64_t said_ns; /* 0 = never */
    _Atomic uint64_t more;    /* since then */
} tutti_log_burst;

/* A line once in TUTTI_LOG_BURST_NS at most; the next one has how many were left out. */
void tutti_log_write_often(tutti_log_burst *burst, const char *room, tutti_log_level level,
                           const char *format, ...) __attribute__((format(printf, 4, 5)));

/* For what a caller can bring about as often as it likes: one line for each burst of a place. */
#define TUTTI_LOG_OFTEN(room, level, ...)                                                          \
    do {                                                                                           \
        static tutti_log_burst burst_;                                                             \
        if (tutti_log_shows((room), TUTTI_LOG_##level)) {                                          \
            tutti_log_write_often(&burst_, (room), TUTTI_LOG_##level, __VA_ARGS__);                \
        }                                                                                          \
    } while (0)

/* The arguments are not evaluated when the level is not shown. */
#define TUTTI_LOG(room, level, ...)                                                                \
    do {                                                                                           \
        if (tutti_log_shows((room), TUTTI_LOG_##level)) {                                          \
            tutti_log_write((room), TUTTI_LOG_##level, __VA_ARGS__);                               \
        }                                                                                          \
    } while (0)

#endif
