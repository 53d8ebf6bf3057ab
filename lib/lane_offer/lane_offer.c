#include "lane_offer/lane_offer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/local.h"
#include "base/os/log.h"
#include "lane/lane.h"
#include "rpc/lane.h"

/* A client takes its lane at once, or never: it waits for 1 s. Until then the offer counts towards --lanes-max, also
 * where the client runs as another user, or in another network namespace, and cannot take it. */
#define OFFER_NS (5 * TUTTI_NS_PER_S)

struct tutti_lane_offers {
    tutti_lane_offers_options options;
    char host_id[TUTTI_LOCAL_HOST_MAX + 1];
    tutti_share *share;     /* NULL = there are no lanes, and neither are ... */
    tutti_rpc_lanes *lanes; /* ... these */
};

static void
on_over(void *owner)
{
    tutti_rpc_lane_drop(owner);
}

/* The share first: it holds the lanes that no stream has. */
static void
close_parts(tutti_lane_offers *self)
{
    tutti_share_close(self->share);
    self->share = NULL;
    tutti_rpc_lanes_close(self->lanes);
    self->lanes = NULL;
}

static tutti_code
open_parts(tutti_lane_offers *self, tutti_rpc_loop *loop, tutti_error *err)
{
    const tutti_share_options share = {.shares_max = UINT32_MAX,
                                       .any_user = self->options.any_user,
                                       .patience_ns = OFFER_NS,
                                       .on_over = on_over};

    TUTTI_TRY(tutti_share_open(&share, &self->share, err));
    return tutti_rpc_lanes_open(loop, self->options.busy_poll_ns, &self->lanes, err);
}

tutti_lane_offers *
tutti_lane_offers_open(const tutti_lane_offers_options *options, tutti_rpc_loop *loop,
                       tutti_rpc_server *server)
{
    tutti_lane_offers *self = calloc(1, sizeof(*self));
    tutti_error err;

    if (self == NULL) {
        return NULL;
    }
    self->options = *options;
    tutti_local_host_id(options->host_id, self->host_id);
    if (options->off != NULL) {
        return self;
    }
    if (open_parts(self, loop, &err) != TUTTI_OK) {
        TUTTI_LOG("lane_offer", WARN, "clients of this %s have no lanes: %s", options->server,
                  err.text);
        close_parts(self);
        return self;
    }
    tutti_rpc_server_lanes(server, self->lanes);
    return self;
}

void
tutti_lane_offers_close(tutti_lane_offers *offers)
{
    if (offers != NULL) {
        close_parts(offers);
        free(offers);
    }
}

/* ------------------------------------------------------------------ one offer */

static tutti_code
fail_off(const tutti_lane_offers *offers, tutti_error *err)
{
    const char *server = offers == NULL ? "server" : offers->options.server;
    const char *off = offers == NULL ? NULL : offers->options.off;

    if (off == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "LANES_OFF",
                              "this %s makes no lanes, see its log: calls go by gRPC", server);
    }
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "LANES_OFF",
                          "this %s makes no lanes (%s): calls go by gRPC", server, off);
}

static tutti_code
check_offer(const tutti_lane_offers *offers, const char *host_id, tutti_error *err)
{
    if (offers == NULL || offers->lanes == NULL) {
        return fail_off(offers, err);
    }
    if (host_id[0] != '\0' && strcmp(host_id, offers->host_id) != 0) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_FAILED_PRECONDITION, "OTHER_HOST",
            "the %s is on host %.100s, the caller on %.100s: they share no memory",
            offers->options.server, offers->host_id, host_id);
    }
    if (tutti_rpc_lanes_count(offers->lanes) >= offers->options.lanes_max) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "LANE_LIMIT",
                              "%" PRIu64 " lanes exist, the limit: raise --lanes-max; the client's "
                              "calls go by gRPC meanwhile",
                              offers->options.lanes_max);
    }
    return TUTTI_OK;
}

/* [in] item  with the lane's memory and bell */
static tutti_code
offer_lane(tutti_lane_offers *offers, tutti_rpc_lane *lane, tutti_share_item *item, bool polls,
           tutti_lane_offer *ret_offer, tutti_error *err)
{
    item->bytes = tutti_lane_bytes();
    item->writable = true;
    item->owner = lane;
    if (polls) {
        TUTTI_TRY(tutti_rpc_lane_add_client_bell(lane, &item->third, err));
    }
    TUTTI_TRY(tutti_share_offer(offers->share, item, ret_offer->token, err));
    tutti_rpc_lane_name(lane, ret_offer->token);
    ret_offer->socket = tutti_share_socket(offers->share);
    ret_offer->bytes = item->bytes;
    return TUTTI_OK;
}

tutti_code
tutti_lane_offers_make(tutti_lane_offers *offers, const tutti_rpc_call *call, const char *host_id,
                       bool polls, tutti_lane_offer *ret_offer, tutti_error *err)
{
    tutti_rpc_lane *lane = NULL;
    tutti_share_item item = {.fd = -1};
    tutti_code code;

    TUTTI_TRY(check_offer(offers, host_id, err));
    TUTTI_TRY(tutti_rpc_lane_new(offers->lanes, tutti_rpc_call_identity(call), &item.fd,
                                 &item.second, &lane, err));
    code = offer_lane(offers, lane, &item, polls, ret_offer, err);
    (void)close(item.fd);
    if (code != TUTTI_OK) {
        tutti_rpc_lane_drop(lane);
    }
    return code;
}

uint64_t
tutti_lane_offers_count(const tutti_lane_offers *offers)
{
    return offers == NULL || offers->lanes == NULL ? 0 : tutti_rpc_lanes_count(offers->lanes);
}

uint64_t
tutti_lane_offers_messages(const tutti_lane_offers *offers)
{
    return offers == NULL || offers->lanes == NULL ? 0 : tutti_rpc_lanes_messages(offers->lanes);
}
