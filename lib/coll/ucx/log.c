#include "coll/ucx/log.h"

#include <pthread.h>
#include <stdio.h>
#include <ucs/debug/log_def.h>

#include "base/os/log.h"

/*
 * UCX writes what it meets to standard error, a refused connection too. What matters of that is in
 * our errors; the rest belongs into our log, at a level that does not say a failure twice.
 */
static ucs_log_func_rc_t
on_log(const char *file, unsigned line, const char *function, ucs_log_level_t level,
       const ucs_log_component_config_t *component, const char *format, va_list args)
{
    char text[512];

    (void)file;
    (void)line;
    (void)function;
    (void)component;
    (void)vsnprintf(text, sizeof(text), format, args);
    if (level == UCS_LOG_LEVEL_FATAL) {
        TUTTI_LOG("coll/ucx", ERROR, "%s", text);
    } else if (level <= UCS_LOG_LEVEL_WARN) {
        TUTTI_LOG("coll/ucx", DEBUG, "%s", text);
    } else {
        TUTTI_LOG("coll/ucx", TRACE, "%s", text);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

static void
push_handler(void)
{
    ucs_log_push_handler(on_log);
}

void
tutti_transport_ucx_take_log(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, push_handler);
}
