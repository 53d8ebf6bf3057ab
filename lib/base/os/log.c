/*
 * The log: one line for each message, to one descriptor, in one write(), so that lines of several
 * threads and processes do not mix.
 *
 * Levels, format and descriptor are set at the start, before there are threads, and are read
 * without a lock. Only the context (which rank this is) changes later, so only that has one.
 */
#include "base/os/log.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "base/data/utf8.h"
#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/clock.h"

#define ROOMS_MAX 32
#define LINE_MAX_BYTES 2048
#define CONTEXT_MAX_BYTES 256

typedef struct room_level {
    char room[32];
    tutti_log_level level;
} room_level;

static const char *const level_names[] = {"error", "warn", "info", "debug", "trace"};

static struct {
    tutti_log_level level;
    tutti_log_level most; /* of any room: the quick answer */
    room_level rooms[ROOMS_MAX];
    size_t room_count;
    tutti_log_format format;
    int descriptor;
    pthread_mutex_t lock; /* guards context */
    char context[CONTEXT_MAX_BYTES];
} state = {
    .level = TUTTI_LOG_INFO,
    .most = TUTTI_LOG_INFO,
    .descriptor = STDERR_FILENO,
    .lock = PTHREAD_MUTEX_INITIALIZER,
};

static tutti_code
parse_level(const char *name, tutti_log_level *ret, tutti_error *err)
{
    size_t i;

    for (i = 0; i < sizeof(level_names) / sizeof(level_names[0]); i++) {
        if (strcasecmp(name, level_names[i]) == 0) {
            *ret = (tutti_log_level)i;
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                          "log level \"%s\", need error, warn, info, debug or trace", name);
}

/* One "info" or "room=debug". A second level without a room replaces the first; rooms add up. */
static tutti_code
set_one(char *item, tutti_error *err)
{
    char *equals = strchr(item, '=');
    room_level *entry = &state.rooms[state.room_count];

    if (equals == NULL) {
        return parse_level(item, &state.level, err);
    }
    if (state.room_count == ROOMS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "log levels for more than %d rooms", ROOMS_MAX);
    }
    *equals = '\0';
    TUTTI_TRY(parse_level(equals + 1, &entry->level, err));
    (void)snprintf(entry->room, sizeof(entry->room), "%s", item);
    state.room_count++;
    return TUTTI_OK;
}

tutti_code
tutti_log_set_levels(const char *spec, tutti_error *err)
{
    char copy[512];
    char *rest = NULL;
    char *item;
    tutti_code code = TUTTI_OK;
    size_t i;

    if (strlen(spec) >= sizeof(copy)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "option --log: %zu bytes of levels, need at most %zu", strlen(spec),
                              sizeof(copy) - 1);
    }
    (void)snprintf(copy, sizeof(copy), "%s", spec);
    state.room_count = 0;
    state.level = TUTTI_LOG_INFO;
    for (item = strtok_r(copy, ",", &rest); item != NULL && code == TUTTI_OK;
         item = strtok_r(NULL, ",", &rest)) {
        code = set_one(item, err);
    }
    state.most = state.level;
    for (i = 0; i < state.room_count; i++) {
        if (state.rooms[i].level > state.most) {
            state.most = state.rooms[i].level;
        }
    }
    return code;
}

void
tutti_log_set_output(tutti_log_format format, int descriptor)
{
    state.format = format;
    if (descriptor >= 0) {
        state.descriptor = descriptor;
    }
}

tutti_code
tutti_log_set_format(const char *name, tutti_error *err)
{
    static const char *const names[] = {"people", "machine", "json"};
    size_t i;

    for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            tutti_log_set_output((tutti_log_format)i, -1);
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                          "option --log-format: \"%s\", need people, machine or json", name);
}

void
tutti_log_set_context(const char *words)
{
    (void)pthread_mutex_lock(&state.lock);
    (void)snprintf(state.context, sizeof(state.context), "%s", words);
    (void)pthread_mutex_unlock(&state.lock);
}

/* "rpc" covers "rpc/server", and the longest name wins. */
static bool
room_covers(const char *name, const char *room)
{
    const size_t size = strlen(name);

    return strncmp(name, room, size) == 0 && (room[size] == '\0' || room[size] == '/');
}

/* Most messages are below every level, so one comparison with `most` answers for them. */
bool
tutti_log_shows(const char *room, tutti_log_level level)
{
    tutti_log_level limit = state.level;
    size_t longest = 0;
    size_t i;

    if (level > state.most) {
        return false;
    }
    for (i = 0; i < state.room_count; i++) {
        const size_t size = strlen(state.rooms[i].room);

        if (size >= longest && room_covers(state.rooms[i].room, room)) {
            longest = size;
            limit = state.rooms[i].level;
        }
    }
    return level <= limit;
}

static void
add_time(tutti_text *line)
{
    const uint64_t now = tutti_clock_wall_ns();
    const time_t seconds = (time_t)(now / TUTTI_NS_PER_S);
    struct tm parts;
    char stamp[32];

    (void)gmtime_r(&seconds, &parts);
    (void)strftime(stamp, sizeof(stamp), "%Y-%m-%dT%H:%M:%S", &parts);
    tutti_text_add(line, "%s.%03uZ", stamp, (unsigned)(now % TUTTI_NS_PER_S / TUTTI_NS_PER_MS));
}

/* The words of the context, "rank=3 job=a", as members of an object. */
static void
add_json_context(tutti_text *line)
{
    const char *at = state.context;

    while (*at != '\0') {
        const size_t key = strcspn(at, "=");
        const size_t value = strcspn(at + key, " ");

        if (at[key] == '\0' || value == 0) {
            return;
        }
        tutti_text_add(line, ",\"%.*s\":\"%.*s\"", (int)key, at, (int)(value - 1), at + key + 1);
        at += key + value;
        at += *at == ' ' ? 1 : 0;
    }
}

static void
add_log_head(tutti_text *line, const char *room, tutti_log_level level)
{
    bool has;

    (void)pthread_mutex_lock(&state.lock);
    has = state.context[0] != '\0';
    if (state.format == TUTTI_LOG_JSON) {
        tutti_text_add(line, "{\"time\":\"");
        add_time(line);
        tutti_text_add(line, "\",\"level\":\"%s\",\"room\":\"%s\"", level_names[level], room);
        add_json_context(line);
        tutti_text_add(line, ",\"message\":\"");
    } else if (state.format == TUTTI_LOG_MACHINE) {
        tutti_text_add(line, "time=");
        add_time(line);
        tutti_text_add(line, " level=%s room=%s%s%s message=\"", level_names[level], room,
                       has ? " " : "", state.context);
    } else {
        add_time(line);
        tutti_text_add(line, " %-5s %s%s%s%s: ", level_names[level], room, has ? " [" : "",
                       state.context, has ? "]" : "");
    }
    (void)pthread_mutex_unlock(&state.lock);
}

/* What a stranger sent may stand in a message: nothing of it acts on a terminal. Returns its bytes. */
static size_t
make_printable(char *text, bool machine)
{
    const size_t size = tutti_utf8_clean(text);

    for (; machine && *text != '\0'; text++) {
        *text = *text == '"' ? '\'' : *text;
    }
    return size;
}

/* A text in quotes, cut so that what ends the object has room. */
static void
add_json_message(tutti_text *line, char *message)
{
    const char *at = message;
    const char *end = message + make_printable(message, false);
    size_t size;

    while ((size = tutti_utf8_size(at, (size_t)(end - at))) > 0 &&
           line->used < LINE_MAX_BYTES - 16) {
        tutti_text_add(line, "%s%.*s", *at == '"' || *at == '\\' ? "\\" : "", (int)size, at);
        at += size;
    }
    tutti_text_add(line, "\"}");
}

/*
 * The line is put together on the stack: the log must work when there is no memory. A message
 * that is too long is cut.
 */
static void
write_line(const char *room, tutti_log_level level, uint64_t more, const char *format, va_list args)
{
    char line[LINE_MAX_BYTES];
    tutti_text text = tutti_text_in(line, sizeof(line) - 2); /* room for the quote and newline */
    char message[LINE_MAX_BYTES];
    tutti_text words = tutti_text_in(message, sizeof(message));
    tutti_text *into = state.format == TUTTI_LOG_JSON ? &words : &text;
    size_t head;
    ssize_t written;

    add_log_head(&text, room, level);
    head = text.used;
    tutti_text_add_args(into, format, args);
    if (more > 0) {
        tutti_text_add(into, " (and %" PRIu64 " more like this)", more);
    }
    if (state.format == TUTTI_LOG_JSON) {
        add_json_message(&text, message);
    } else {
        text.used = head + make_printable(line + head, state.format == TUTTI_LOG_MACHINE);
    }
    if (state.format == TUTTI_LOG_MACHINE) {
        line[text.used++] = '"';
    }
    line[text.used++] = '\n';
    written = write(state.descriptor, line, text.used);
    (void)written; /* a log that cannot be written has nobody to tell */
}

void
tutti_log_write(const char *room, tutti_log_level level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    write_line(room, level, 0, format, args);
    va_end(args);
}

/* Of threads that come at once one writes, and the others count. */
void
tutti_log_write_often(tutti_log_burst *burst, const char *room, tutti_log_level level,
                      const char *format, ...)
{
    const uint64_t now_ns = tutti_clock_ns();
    uint64_t said_ns = atomic_load(&burst->said_ns);
    va_list args;

    if ((said_ns != 0 && now_ns - said_ns < TUTTI_LOG_BURST_NS) ||
        !atomic_compare_exchange_strong(&burst->said_ns, &said_ns, now_ns)) {
        (void)atomic_fetch_add(&burst->more, 1);
        return;
    }
    va_start(args, format);
    write_line(room, level, atomic_exchange(&burst->more, 0), format, args);
    va_end(args);
}
