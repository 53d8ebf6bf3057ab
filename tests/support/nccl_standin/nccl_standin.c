/* Settings, errors, ids. */
#include "nccl_standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

typedef struct settings {
    char fail_call[64];
    uint64_t fail_at;
    uint64_t fail_count;
    uint64_t hang_at;
    uint64_t async_at;
    uint64_t groups;
    uint64_t init_at;
    uint64_t inits;
    unsigned abort_ms;
} settings;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t started = PTHREAD_ONCE_INIT;
static settings now; /* under the lock */
static uint64_t group_count;
static int64_t comms_left;
static uint64_t aborts;
static _Thread_local char last[256];

static void
read_setting(char *setting)
{
    char *value = strchr(setting, ':');
    char *more;

    if (value == NULL) {
        return;
    }
    *value++ = '\0';
    if (strcmp(setting, "hang") == 0) {
        now.hang_at = strtoull(value, NULL, 10);
    } else if (strcmp(setting, "async") == 0) {
        now.async_at = strtoull(value, NULL, 10);
    } else if (strcmp(setting, "init") == 0) {
        now.init_at = strtoull(value, NULL, 10);
    } else if (strcmp(setting, "abort") == 0) {
        now.abort_ms = (unsigned)strtoull(value, NULL, 10);
    } else if (strcmp(setting, "fail") == 0 && (more = strchr(value, ':')) != NULL) {
        *more = '\0';
        (void)snprintf(now.fail_call, sizeof(now.fail_call), "%.60s", value);
        now.fail_at = strtoull(more + 1, NULL, 10);
    }
}

static void
read_settings(const char *given)
{
    char text[512];
    char *rest = text;
    char *setting;

    (void)snprintf(text, sizeof(text), "%.500s", given == NULL ? "" : given);
    (void)pthread_mutex_lock(&lock);
    now = (settings){0};
    while ((setting = strsep(&rest, ",")) != NULL) {
        read_setting(setting);
    }
    (void)pthread_mutex_unlock(&lock);
}

static void
start(void)
{
    read_settings(getenv("TUTTI_STANDIN_NCCL"));
}

void
tutti_standin_nccl_set(const char *given)
{
    (void)pthread_once(&started, start);
    read_settings(given);
}

bool
standin_fails(const char *call)
{
    bool fails = false;

    (void)pthread_once(&started, start);
    (void)pthread_mutex_lock(&lock);
    if (now.fail_at != 0 && strcmp(call, now.fail_call) == 0) {
        fails = ++now.fail_count == now.fail_at;
    }
    (void)pthread_mutex_unlock(&lock);
    if (fails) {
        standin_say("%s: as it was asked to", call);
    }
    return fails;
}

standin_fate
standin_next_group(void)
{
    standin_fate fate;

    (void)pthread_mutex_lock(&lock);
    now.groups++;
    group_count++;
    fate = now.groups == now.hang_at    ? STANDIN_FATE_HANG
           : now.groups == now.async_at ? STANDIN_FATE_ASYNC
                                        : STANDIN_FATE_NONE;
    (void)pthread_mutex_unlock(&lock);
    return fate;
}

bool
standin_init_fails(void)
{
    bool fails;

    (void)pthread_mutex_lock(&lock);
    fails = ++now.inits == now.init_at;
    (void)pthread_mutex_unlock(&lock);
    return fails;
}

unsigned
standin_abort_ms(void)
{
    unsigned ms;

    (void)pthread_mutex_lock(&lock);
    ms = now.abort_ms;
    (void)pthread_mutex_unlock(&lock);
    return ms;
}

void
standin_count_comm(int by, bool aborted)
{
    (void)pthread_mutex_lock(&lock);
    comms_left += by;
    aborts += aborted ? 1 : 0;
    (void)pthread_mutex_unlock(&lock);
}

uint64_t
tutti_standin_nccl_groups(void)
{
    uint64_t count;

    (void)pthread_mutex_lock(&lock);
    count = group_count;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

int64_t
tutti_standin_nccl_left(void)
{
    int64_t count;

    (void)pthread_mutex_lock(&lock);
    count = comms_left;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

uint64_t
tutti_standin_nccl_aborts(void)
{
    uint64_t count;

    (void)pthread_mutex_lock(&lock);
    count = aborts;
    (void)pthread_mutex_unlock(&lock);
    return count;
}

/* ------------------------------------------------------------------------------ words */

void
standin_say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(last, sizeof(last), format, args);
    va_end(args);
}

STANDIN_API const char *
ncclGetErrorString(ncclResult_t result)
{
    static const char *const texts[] = {
        [ncclSuccess] = "no error",
        [ncclUnhandledCudaError] = "unhandled cuda error",
        [ncclSystemError] = "unhandled system error",
        [ncclInternalError] = "internal error",
        [ncclInvalidArgument] = "invalid argument",
        [ncclInvalidUsage] = "invalid usage",
        [ncclRemoteError] = "remote process exited or there was a network error",
        [ncclInProgress] = "NCCL operation in progress",
    };

    return (size_t)result < sizeof(texts) / sizeof(texts[0]) ? texts[result] : "unknown result";
}

STANDIN_API const char *
ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return last;
}

STANDIN_API ncclResult_t
ncclGetVersion(int *version)
{
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

STANDIN_API ncclResult_t
ncclGetUniqueId(ncclUniqueId *id)
{
    uint64_t words[2];

    if (standin_fails(__func__)) {
        return ncclSystemError;
    }
    memset(id, 0, sizeof(*id));
    if (getrandom(words, sizeof(words), 0) != (ssize_t)sizeof(words)) {
        return ncclSystemError;
    }
    (void)snprintf(id->internal, sizeof(id->internal), "tutti-nccl-%016llx%016llx",
                   (unsigned long long)words[0], (unsigned long long)words[1]);
    return ncclSuccess;
}
