/*
 * Between lib/rpc, which knows calls, and lib/auth, which knows grants: the same facts in the
 * structs of either, so that neither includes the other. Its callbacks run on the loops of the
 * services, on several at once; a grant is counted by references.
 */
#include "server/guard.h"

#include "base/error/fail.h"
#include "base/os/log.h"
#include "base/os/process.h"

static tutti_code
admit_guard(void *arg, const tutti_rpc_visit *visit, void **ret_grant, const char **ret_identity,
            tutti_error *err)
{
    const tutti_auth_visit shown = {
        .method = visit->method, .token = visit->token, .certificate = visit->certificate};
    tutti_auth_grant *grant = NULL;

    TUTTI_TRY(tutti_auth_admit(arg, &shown, &grant, err));

    *ret_grant = grant;
    *ret_identity = grant == NULL ? NULL : grant->identity;
    return TUTTI_OK;
}

static tutti_code
check_call(const void *grant, const char *method, const tutti_rpc_subject *subject,
           tutti_error *err)
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
is_call_allowed(const void *grant, const char *method)
{
    return tutti_auth_may(grant, method);
}

static tutti_code
check_rank(const void *grant, uint32_t rank, tutti_error *err)
{
    return tutti_auth_check_rank(grant, rank, err);
}

static void
release_call(void *grant)
{
    tutti_auth_grant_unref(grant);
}

/* Any file of a private key, a secret or a token counts, whether or not it can be read. */
static bool
holds_keys(const tutti_auth_options *options, const tutti_rpc_server_options *serving,
           const char *const *more)
{
    bool holds =
        options->keys[0] != '\0' || serving->tls_key[0] != '\0' || serving->token_file[0] != '\0';

    for (; *more != NULL && !holds; more++) {
        holds = (*more)[0] != '\0';
    }
    return holds;
}

/* No core dumps and no ptrace by the same user, as either would show the keys. */
tutti_code
tutti_guard_hide_keys(const tutti_auth_options *options, const tutti_rpc_server_options *serving,
                      const char *const *more, tutti_error *err)
{
    if (options->core_dumps || !holds_keys(options, serving, more)) {
        return TUTTI_OK;
    }
    TUTTI_LOG("guard", DEBUG, "no core dumps and no debuggers: this process holds keys");
    return tutti_process_hide_memory(err);
}

/*
 * With keys nobody is let in without a token, so the server may also serve other hosts in the clear
 * where its options allow that (rpc/server.h).
 */
void
tutti_guard_serve(tutti_auth *auth, const tutti_auth_options *options, tutti_rpc_server *server)
{
    static const tutti_rpc_guard guard = {admit_guard, check_call, is_call_allowed, check_rank,
                                          release_call};

    tutti_rpc_server_guard(server, &guard, options->keys[0] != '\0', auth);
}
