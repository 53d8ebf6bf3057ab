#include "server/guard.h"

static tutti_code
admit(void *arg, const tutti_rpc_visit *visit, void **ret_grant, const char **ret_identity,
      tutti_error *err)
{
    const tutti_auth_visit shown = {
        .method = visit->method, .token = visit->token, .certificate = visit->certificate};
    tutti_auth_grant *grant = NULL;
    const tutti_code code = tutti_auth_admit(arg, &shown, &grant, err);

    if (code == TUTTI_OK) {
        *ret_grant = grant;
        *ret_identity = grant == NULL ? NULL : grant->identity;
    }
    return code;
}

static tutti_code
check(const void *grant, const char *method, const tutti_rpc_subject *subject, tutti_error *err)
{
    const tutti_auth_subject same = {.has_job = subject->has_job,
                                     .job = subject->job,
                                     .has_rank = subject->has_rank,
                                     .rank = subject->rank,
                                     .has_seat = subject->has_seat,
                                     .seat = subject->seat};

    return tutti_auth_check(grant, method, &same, err);
}

static bool
may(const void *grant, const char *method)
{
    return tutti_auth_may(grant, method);
}

static void
release(void *grant)
{
    tutti_auth_grant_unref(grant);
}

void
tutti_guard_serve(tutti_auth *auth, const tutti_auth_options *options, tutti_rpc_server *server)
{
    static const tutti_rpc_guard guard = {admit, check, may, release};

    tutti_rpc_server_guard(server, &guard, options->keys[0] != '\0', auth);
}
