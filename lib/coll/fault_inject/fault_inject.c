/*
 * Rules of faults and the points that pass them. One state for the process, without a lock: it is
 * changed by the thread that does the engine's work, and by the control loop as it joins
 * (after-key), before ops run. Only tests turn it on. The page is written by another process: its
 * rule is copied before it is read, and taken again when `generation` has changed.
 */
#include "coll/fault_inject/fault_inject.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/packet/packet.h"

#define DELAY_MS_MAX 60000

static const char *const points[TUTTI_FAULT_POINTS] = {
    "",      "agree",   "data",        "abort",       "query",    "report",      "send",
    "taken", "refused", "retract",     "meta",        "leave",    "reset",       "unsent",
    "over",  "silent",  "after-agree", "before-data", "mid-data", "before-done", "after-key"};
static const char *const actions[] = {"", "delay", "drop", "duplicate", "cut", "kill", "stop"};

static struct {
    tutti_fault_page *page; /* NULL: off */
    tutti_fault_page own;   /* of a rule that stays */
    bool mapped;
    unsigned seen; /* generation of the rule */
    tutti_fault_rule rule;
    uint32_t passed;
    bool cut;
} fault;

/* ------------------------------------------------------------------------------ rules */

static uint32_t
find_word(const char *const *words, size_t count, const char *text, size_t size)
{
    uint32_t i;

    for (i = 1; i < count; i++) {
        if (strlen(words[i]) == size && memcmp(words[i], text, size) == 0) {
            return i;
        }
    }
    return 0;
}

/* A number up to `most` that ends at `end`; 0 when there is none. */
static uint32_t
read_fault_number(const char *text, const char *end, uint32_t most)
{
    uint64_t number = 0;

    for (; text < end && isdigit((unsigned char)*text) && number <= most; text++) {
        number = number * 10 + (uint64_t)(*text - '0');
    }
    return text == end && number <= most ? (uint32_t)number : 0;
}

static bool
read_action(const char *text, size_t size, tutti_fault_rule *rule)
{
    const char *value = memchr(text, '=', size);
    const size_t word = value == NULL ? size : (size_t)(value - text);

    rule->action =
        (tutti_fault_action)find_word(actions, sizeof(actions) / sizeof(actions[0]), text, word);
    if (rule->action == TUTTI_FAULT_DELAY) {
        rule->delay_ms =
            value == NULL ? 0 : read_fault_number(value + 1, text + size, DELAY_MS_MAX);
        return rule->delay_ms > 0;
    }
    if ((rule->action == TUTTI_FAULT_DROP || rule->action == TUTTI_FAULT_DUPLICATE) &&
        rule->point > TUTTI_PACKET_SILENT) {
        return false;
    }
    return rule->action != TUTTI_FAULT_NOTHING && value == NULL;
}

tutti_code
tutti_fault_read_rule(const char *text, tutti_fault_rule *ret_rule, tutti_error *err)
{
    const char *end = text + strlen(text);
    const char *action = strchr(text, ':');
    const char *count = action == NULL ? NULL : strchr(action + 1, ':');
    tutti_fault_rule rule = {.nth = 1};

    if (action != NULL) {
        rule.point = find_word(points, TUTTI_FAULT_POINTS, text, (size_t)(action - text));
        if (count != NULL) {
            rule.nth = read_fault_number(count + 1, end, UINT32_MAX);
        }
        if (rule.point != 0 && rule.nth != 0 &&
            read_action(action + 1, (size_t)((count == NULL ? end : count) - action - 1), &rule)) {
            *ret_rule = rule;
            return TUTTI_OK;
        }
    }
    return TUTTI_FAIL_FOR(
        err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
        "TUTTI_CHAOS=%.100s: need POINT:ACTION[:N], POINT agree, data, abort, query, "
        "report, send, taken, refused, retract, meta, leave, reset, unsent, over, silent, "
        "after-agree, "
        "before-data, mid-data, before-done or after-key, ACTION delay=MS (up to %d), cut, kill, "
        "stop, and "
        "for packets drop or duplicate",
        text, DELAY_MS_MAX);
}

/* ------------------------------------------------------------------------------ on and off */

static tutti_code
open_page(const char *path, tutti_error *err)
{
    struct stat about = {0};
    void *page = MAP_FAILED;
    const int file = open(path, O_RDWR | O_CLOEXEC);

    if (file >= 0 && fstat(file, &about) == 0 && about.st_size >= (off_t)sizeof(tutti_fault_page)) {
        page = mmap(NULL, sizeof(tutti_fault_page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    if (file >= 0) {
        (void)close(file);
    }
    if (page == MAP_FAILED) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "BAD_OPTION",
                              "TUTTI_CHAOS=%s: need a file of %zu bytes or more", path,
                              sizeof(tutti_fault_page));
    }
    fault.page = page;
    fault.mapped = true;
    return TUTTI_OK;
}

tutti_code
tutti_fault_open(const char *text, tutti_error *err)
{
    tutti_fault_rule rule;
    tutti_code code = TUTTI_OK;

    assert(fault.page == NULL);
    if (text == NULL || text[strspn(text, "0123456789")] == '\0') {
        return TUTTI_OK;
    }
    if (text[0] == '/') {
        code = open_page(text, err);
    } else {
        code = tutti_fault_read_rule(text, &rule, err);
    }
    if (code != TUTTI_OK) {
        return code;
    }
    if (!fault.mapped) {
        fault.rule = rule;
        fault.page = &fault.own;
    }
    TUTTI_LOG("coll", WARN, "TUTTI_CHAOS=%s: this process spoils its own data plane", text);
    return TUTTI_OK;
}

bool
tutti_fault_is_on(void)
{
    return fault.page != NULL;
}

void
tutti_fault_close(void)
{
    if (fault.mapped) {
        (void)munmap(fault.page, sizeof(*fault.page));
    }
    memset(&fault, 0, sizeof(fault));
}

/* ------------------------------------------------------------------------------ passing */

/* The rule of the page, if it is another one. The process that writes it counts `generation` up
 * when the rule is complete; the load is seq_cst, hence an acquire for the rule. */
static void
look_again(void)
{
    const unsigned generation = atomic_load(&fault.page->generation);
    char text[TUTTI_FAULT_RULE_BYTES];
    tutti_error err;

    if (generation == fault.seen) {
        return;
    }
    fault.seen = generation;
    fault.passed = 0;
    memcpy(text, fault.page->rule, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    fault.rule = (tutti_fault_rule){0};
    if (text[0] != '\0' && tutti_fault_read_rule(text, &fault.rule, &err) != TUTTI_OK) {
        TUTTI_LOG("coll", WARN, "%s", err.text);
    }
}

/* `struck` is counted before the fault happens: kill does not return. */
static tutti_fault_action
pass_fault_point(uint32_t point)
{
    look_again();
    if (fault.rule.point != point || ++fault.passed != fault.rule.nth) {
        return TUTTI_FAULT_NOTHING;
    }
    (void)atomic_fetch_add(&fault.page->struck, 1);
    if (fault.rule.action == TUTTI_FAULT_KILL) {
        (void)kill(getpid(), SIGKILL);
    } else if (fault.rule.action == TUTTI_FAULT_STOP) {
        (void)kill(getpid(), SIGSTOP);
    }
    return fault.rule.action;
}

tutti_fault_action
tutti_fault_packet(tutti_packet_kind kind, uint32_t *ret_delay_ms)
{
    const tutti_fault_action action =
        fault.page == NULL ? TUTTI_FAULT_NOTHING : pass_fault_point(kind);

    *ret_delay_ms = fault.rule.delay_ms;
    return action;
}

void
tutti_fault_at(tutti_fault_point point)
{
    const tutti_fault_action action =
        fault.page == NULL ? TUTTI_FAULT_NOTHING : pass_fault_point(point);
    struct timespec time = {.tv_sec = (time_t)(fault.rule.delay_ms / 1000),
                            .tv_nsec = (long)(fault.rule.delay_ms % 1000) * 1000000};

    if (action == TUTTI_FAULT_DELAY) {
        while (nanosleep(&time, &time) != 0 && errno == EINTR) {
        }
    } else if (action == TUTTI_FAULT_CUT) {
        fault.cut = true;
    }
}

bool
tutti_fault_take_cut(void)
{
    const bool cut = fault.cut;

    fault.cut = false;
    return cut;
}
