/*
 * A call goes to one member after the other until one has answered it. An attempt has a deadline of
 * its own: a member that is stopped, or cut off from the others, does not refuse, it is silent.
 *
 * With users, etcd gives a token for a name and a password. It forgets it after some minutes, and
 * each member knows only those that the cluster has agreed on: then a call is refused with "invalid
 * auth token", and another token is asked for.
 */
#include "store/etcd/call_pb.h"

#include "base/error/fail.h"
#include "base/os/clock.h"

#define ATTEMPT_NS_MAX (2 * TUTTI_NS_PER_S) /* for one call of one member, ... */
#define ATTEMPTS 5                          /* ... and so many of them in the time of a lease */
#define ROUND_NS (250 * TUTTI_NS_PER_MS) /* at each member, once none could be reached; doubled */
#define TOKENS_MAX 3                     /* asked for in one call */

static const tutti_rpc_stub authenticate = {&etcdserverpb__auth__descriptor, "Authenticate"};

static tutti_code
ask_for_token(tutti_etcd *etcd, tutti_rpc_channel *member, const tutti_rpc_call_options *options,
              tutti_error *err)
{
    Etcdserverpb__AuthenticateRequest request = ETCDSERVERPB__AUTHENTICATE_REQUEST__INIT;
    const Etcdserverpb__AuthenticateResponse *response;
    tutti_rpc_message *message = NULL;

    request.name = etcd->user;
    request.password = etcd->password;
    TUTTI_TRY(tutti_rpc_invoke(member, &authenticate, &request.base, NULL, options, &message, err));
    response = tutti_rpc_message_get(message);
    etcd_token_set(etcd, response->token);
    tutti_rpc_message_free(message);
    return TUTTI_OK;
}

tutti_code
etcd_show_user(tutti_etcd *etcd, tutti_rpc_channel *member, char token[ETCD_TOKEN_MAX],
               tutti_rpc_call_options *options, tutti_error *err)
{
    if (etcd->user == NULL) {
        return TUTTI_OK;
    }
    etcd_token_get(etcd, token);
    if (token[0] == '\0') {
        TUTTI_TRY(ask_for_token(etcd, member, options, err));
        etcd_token_get(etcd, token);
    }
    options->extra[0] = (tutti_rpc_pair){"token", token};
    options->extra_count = 1;
    return TUTTI_OK;
}

/* At one member. The error is etcd's, or that of the way to it. */
static tutti_code
invoke_once(tutti_etcd *etcd, tutti_rpc_channel *member, const tutti_rpc_stub *stub,
            const struct ProtobufCMessage *request, tutti_rpc_call_options *options,
            tutti_rpc_message **ret_response, tutti_error *err)
{
    char token[ETCD_TOKEN_MAX];

    TUTTI_TRY(etcd_show_user(etcd, member, token, options, err));
    return tutti_rpc_invoke(member, stub, request, NULL, options, ret_response, err);
}

/* How far a call has come. */
typedef struct attempts {
    size_t failed; /* members that could not be reached */
    size_t tokens;
} attempts;

/*
 * A member that refuses is left at once in the first round, when others may be there. Later ones wait
 * for a connection: gRPC makes progress with one only while a call waits for it.
 */
static tutti_rpc_call_options
attempt_options(const tutti_etcd *etcd, const attempts *done, uint64_t until_ns)
{
    const size_t round = done->failed / etcd->member_count;
    const uint64_t share_ns = etcd->lease_ns / ATTEMPTS;
    const uint64_t longest_ns = share_ns < ATTEMPT_NS_MAX ? share_ns : ATTEMPT_NS_MAX;
    const uint64_t round_ns = round == 0 || round > 3 ? longest_ns : ROUND_NS << (round - 1);
    const uint64_t deadline_ns =
        tutti_clock_add(tutti_clock_ns(), round_ns < longest_ns ? round_ns : longest_ns);

    return (tutti_rpc_call_options){.deadline_ns = deadline_ns < until_ns ? deadline_ns : until_ns,
                                    .wait_for_ready = round > 0};
}

static uint64_t
end_of_attempts(tutti_etcd *etcd, uint64_t until_ns)
{
    return until_ns == ETCD_WHILE_LEADING ? tutti_etcd_leads_until(etcd) : until_ns;
}

/* Is it worth another attempt? */
static bool
may_repeat(tutti_etcd *etcd, attempts *done, tutti_code code, uint64_t until_ns)
{
    if (code == TUTTI_UNAUTHENTICATED && etcd->user != NULL) {
        etcd_token_set(etcd, "");
        return ++done->tokens < TOKENS_MAX;
    }
    done->failed++;
    return code == TUTTI_UNAVAILABLE && tutti_clock_ns() < until_ns &&
           !atomic_load(&etcd->stopping);
}

tutti_code
etcd_invoke(tutti_etcd *etcd, const tutti_rpc_stub *stub, const struct ProtobufCMessage *request,
            uint64_t until_ns, tutti_rpc_message **ret_response, tutti_error *err)
{
    attempts done = {0};
    tutti_error said = {0};
    tutti_code code;
    size_t number = 0;

    do {
        tutti_rpc_channel *member = etcd_member(etcd, &number);
        tutti_rpc_call_options options =
            attempt_options(etcd, &done, end_of_attempts(etcd, until_ns));

        code = invoke_once(etcd, member, stub, request, &options, ret_response, &said);
        if (code == TUTTI_OK) {
            return TUTTI_OK;
        }
        code = etcd_explain(&said, err);
        if (code == TUTTI_UNAVAILABLE) {
            etcd_member_failed(etcd, number);
        }
    } while (may_repeat(etcd, &done, code, end_of_attempts(etcd, until_ns)));
    return code;
}
