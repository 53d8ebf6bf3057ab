/*
 * A channel: options, gRPC's channel, and the queues for blocking calls. Open and close belong to
 * one thread; rpc_channel_take_queue and give_queue are called by any.
 *
 * gRPC shares connections between channels of a process that have the same target and arguments,
 * unless `bulk` asks for one of its own. It connects with the first call and reconnects by
 * itself, with a backoff from BACKOFF_FIRST_MS on.
 */
#include <assert.h>
#include <grpc/grpc_security.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/clock.h"
#include "rpc/channel.h"
#include "rpc/channel/channel_private.h"
#include "rpc/util/process.h"
#include "tutti/version.h"

#define ARGS_MAX 20
#define BACKOFF_FIRST_MS 100
#define CONNECT_MS_MIN 5000 /* what one attempt to connect may take */
#define BACKOFF_MAX_NS_DEFAULT (5 * TUTTI_NS_PER_S)
/* Servers in Go, Python and C send clients away that ping more often than every five minutes. */
#define KEEPALIVE_NS_DEFAULT (330 * TUTTI_NS_PER_S)
#define KEEPALIVE_TIMEOUT_MS 20000
#define RECEIVE_BYTES_DEFAULT (8u << 20)

static const tutti_rpc_channel_options no_options;

static int
set_milliseconds(uint64_t ns)
{
    const uint64_t ms = ns / TUTTI_NS_PER_MS;

    return ms == 0 ? 1 : ms > INT_MAX ? INT_MAX : (int)ms;
}

static void
put_channel_arg(grpc_arg *args, size_t *count, const char *key, int value)
{
    assert(*count < ARGS_MAX);
    args[(*count)++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

static void
put_channel_arg_text(grpc_arg *args, size_t *count, const char *key, const char *value)
{
    assert(*count < ARGS_MAX);
    args[(*count)++] = (grpc_arg){.type = GRPC_ARG_STRING,
                                  .key = (char *)(uintptr_t)key,
                                  .value.string = (char *)(uintptr_t)value};
}

/*
 * Without an interval of the caller's, pings go out only while calls are in flight, and as seldom
 * as any server allows. A caller that gives an interval knows that the server allows it, and
 * wants idle connections watched as well.
 */
static void
put_keepalive(const tutti_rpc_channel_options *options, grpc_arg *args, size_t *count)
{
    const bool own = options->keepalive_ns != 0;

    if (options->keepalive_ns == TUTTI_TIMERS_NEVER) {
        return;
    }
    put_channel_arg(args, count, GRPC_ARG_KEEPALIVE_TIME_MS,
                    set_milliseconds(own ? options->keepalive_ns : KEEPALIVE_NS_DEFAULT));
    put_channel_arg(args, count, GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                    options->keepalive_timeout_ns == 0
                        ? KEEPALIVE_TIMEOUT_MS
                        : set_milliseconds(options->keepalive_timeout_ns));
    put_channel_arg(args, count, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, own ? 1 : 0);
    put_channel_arg(args, count, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
}

static pthread_once_t drawn = PTHREAD_ONCE_INIT;
static char agent_text[sizeof("tutti/" TUTTI_VERSION) + TUTTI_ID_TEXT_SIZE];

static void
draw_user_agent(void)
{
    char number[TUTTI_ID_TEXT_SIZE];

    tutti_id_format(tutti_id_draw(), number);
    (void)snprintf(agent_text, sizeof(agent_text), "tutti/%s %s", TUTTI_VERSION, number);
}

/*
 * The user agent, with a random number of this process: by it servers tell clients apart that
 * come from the same Unix socket, where there is no address.
 */
static const char *
user_agent(void)
{
    (void)pthread_once(&drawn, draw_user_agent);
    return agent_text;
}

static size_t
fill_args(const tutti_rpc_channel *channel, grpc_arg args[ARGS_MAX])
{
    const tutti_rpc_channel_options *options = &channel->options;
    const char *certified = rpc_channel_certified_name(channel);
    const uint64_t backoff =
        options->backoff_max_ns == 0 ? BACKOFF_MAX_NS_DEFAULT : options->backoff_max_ns;
    const uint64_t receive =
        options->receive_bytes_max == 0 ? RECEIVE_BYTES_DEFAULT : options->receive_bytes_max;
    size_t n = 0;

    /*
     * No proxy from the environment: agents talk to hosts of their own network. No service config
     * from DNS: it could change retries and timeouts. No compression: see docs/security.md.
     */
    put_channel_arg(args, &n, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    put_channel_arg(args, &n, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    put_channel_arg(args, &n, GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1);
    put_channel_arg(args, &n, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH,
                    receive > INT_MAX ? INT_MAX : (int)receive);
    put_channel_arg(args, &n, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, BACKOFF_FIRST_MS);
    put_channel_arg(args, &n, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_MS_MIN);
    put_channel_arg(args, &n, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS,
                    set_milliseconds(backoff < BACKOFF_FIRST_MS * TUTTI_NS_PER_MS
                                         ? BACKOFF_FIRST_MS * TUTTI_NS_PER_MS
                                         : backoff));
    put_keepalive(options, args, &n);
    put_channel_arg_text(args, &n, GRPC_ARG_PRIMARY_USER_AGENT_STRING, user_agent());
    /* A connection of its own: else all channels to one server share one, and its limit of calls. */
    put_channel_arg(args, &n, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    if (options->bulk) { /* gRPC would keep a copy of each message until it is answered */
        put_channel_arg(args, &n, GRPC_ARG_ENABLE_RETRIES, 0);
    }
    if (channel->spread) {
        put_channel_arg_text(args, &n, GRPC_ARG_LB_POLICY_NAME, "round_robin");
    }
    if (certified != NULL) {
        put_channel_arg_text(args, &n, GRPC_SSL_TARGET_NAME_OVERRIDE_ARG, certified);
    }
    return n;
}

tutti_code
rpc_channel_make(tutti_rpc_channel *channel, grpc_channel **ret_grpc, tutti_error *err)
{
    grpc_channel_credentials *credentials = NULL;
    grpc_arg args[ARGS_MAX];
    const grpc_channel_args all = {.num_args = fill_args(channel, args), .args = args};

    TUTTI_TRY(rpc_channel_credentials(channel, &credentials, err));
    *ret_grpc = grpc_channel_create(channel->address->text, credentials, &all);
    grpc_channel_credentials_release(credentials);
    return TUTTI_OK;
}

tutti_code
tutti_rpc_channel_open(const char *target, const tutti_rpc_channel_options *options,
                       tutti_rpc_channel **ret_channel, tutti_error *err)
{
    const tutti_rpc_channel_options *wanted = options == NULL ? &no_options : options;
    tutti_rpc_channel *self;
    tutti_code code;

    TUTTI_TRY(rpc_check_process(err));
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a channel");
    }
    (void)pthread_mutex_init(&self->lock, NULL);
    code = rpc_channel_targets_open(self, target, wanted->follow, err);
    code = code == TUTTI_OK ? rpc_channel_secrets_open(self, wanted, err) : code;
    code = code == TUTTI_OK ? rpc_channel_make(self, &self->grpc, err) : code;
    if (code != TUTTI_OK) {
        tutti_rpc_channel_close(self);
        return code;
    }
    *ret_channel = self;
    return TUTTI_OK;
}

static void
destroy_queue(grpc_completion_queue *queue)
{
    grpc_completion_queue_shutdown(queue); /* nothing is in it, so nothing is to be drained */
    grpc_completion_queue_destroy(queue);
}

void
tutti_rpc_channel_close(tutti_rpc_channel *channel)
{
    size_t i;

    if (channel == NULL) {
        return;
    }
    rpc_connections_close(channel);
    rpc_channel_secrets_close(channel);
    while (channel->idle_count > 0) {
        destroy_queue(channel->idle[--channel->idle_count]);
    }
    for (i = 0; i < channel->known_count; i++) {
        free(channel->known[i].path);
    }
    (void)pthread_mutex_destroy(&channel->lock);
    free(channel->targets);
    free(channel);
}

grpc_completion_queue *
rpc_channel_take_queue(tutti_rpc_channel *channel)
{
    grpc_completion_queue *queue = NULL;

    (void)pthread_mutex_lock(&channel->lock);
    if (channel->idle_count > 0) {
        queue = channel->idle[--channel->idle_count];
    }
    (void)pthread_mutex_unlock(&channel->lock);
    return queue != NULL ? queue : grpc_completion_queue_create_for_pluck(NULL);
}

void
rpc_channel_give_queue(tutti_rpc_channel *channel, grpc_completion_queue *queue)
{
    bool keep;

    (void)pthread_mutex_lock(&channel->lock);
    keep = channel->idle_count < TUTTI_RPC_IDLE_QUEUES_MAX;
    if (keep) {
        channel->idle[channel->idle_count++] = queue;
    }
    (void)pthread_mutex_unlock(&channel->lock);
    if (!keep) {
        destroy_queue(queue);
    }
}
