#include "support/sweep.h"

#include <stdlib.h>

/* The linker leads malloc to __wrap_malloc and __real_malloc to malloc. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool armed;
static bool once;
static bool failed;
static size_t left;
static bool (*counts)(void);

void
sweep_fail_at(size_t number)
{
    armed = true;
    once = false;
    failed = false;
    left = number;
}

void
sweep_fail_once(size_t number)
{
    sweep_fail_at(number);
    once = true;
}

void
sweep_only(bool (*which)(void))
{
    counts = which;
}

bool
sweep_stop(void)
{
    armed = false;
    return failed;
}

static bool
fails_now(void)
{
    if (!armed || (counts != NULL && !counts())) {
        return false;
    }
    if (left > 0) {
        left--;
        return false;
    }
    failed = true;
    armed = !once;
    return true;
}

void *
__wrap_malloc(size_t size)
{
    return fails_now() ? NULL : __real_malloc(size);
}

void *
__wrap_calloc(size_t count, size_t size)
{
    return fails_now() ? NULL : __real_calloc(count, size);
}

void *
__wrap_realloc(void *old, size_t size)
{
    return fails_now() ? NULL : __real_realloc(old, size);
}
