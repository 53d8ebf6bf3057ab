/*
 * Lanes of this client (decision 0036). A lane that cannot be had is no error: the stream goes by
 * gRPC, as it does for servers on other machines. One thread, that which opens the stream; the flag is
 * an atomic.
 */
#include "client/conn/command_stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/local.h"
#include "base/os/log.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "tutti/diagnose.h"

#define LANE_MS 1000                  /* for the server to make a lane */
#define AGAIN_NS (2 * TUTTI_NS_PER_S) /* until it is asked again, if that may help */

/* Who says so with the servers' own option has every client's calls go by gRPC: --no-lane. */
static tutti_code
check_wanted(tutti_error *err)
{
    const char *off = getenv("TUTTI_NO_LANE");

    if (off != NULL && off[0] != '\0' && off[0] != '0') {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "LANE_UNWANTED",
                              "TUTTI_NO_LANE=%.16s is in the environment of this process", off);
    }
    return TUTTI_OK;
}

bool
client_lane_may_ask(const tutti_client *client, const client_stream_service *service)
{
    const client_streams *streams = &client->streams[service->kind];
    const uint64_t again_ns = atomic_load_explicit(&streams->lane_again_ns, memory_order_relaxed);

    return again_ns == 0 || tutti_clock_ns() >= again_ns;
}

/*
 * Lanes of others end, servers come back, tokens are replaced. All else stays. An offer that was made for
 * nothing counts for 5 s, so who cannot reach the socket must not ask again.
 */
static uint64_t
when_to_ask_again(const tutti_error *err)
{
    const bool passes = err->code == TUTTI_RESOURCE_EXHAUSTED || err->code == TUTTI_UNAVAILABLE ||
                        err->code == TUTTI_DEADLINE_EXCEEDED || err->code == TUTTI_UNAUTHENTICATED;

    return passes && strcmp(err->reason, "NO_SHARE_SOCKET") != 0
               ? tutti_clock_add(tutti_clock_ns(), AGAIN_NS)
               : UINT64_MAX;
}

/* A server that stands still must not hold up who only wanted to be faster. */
static uint32_t
lane_wait_ms(const tutti_client *client)
{
    return client->settings.timeout_ms < LANE_MS ? client->settings.timeout_ms : LANE_MS;
}

static tutti_code
take_lane(tutti_client *client, const client_stream_service *service, client_lane *self,
          tutti_error *err)
{
    char host_id[TUTTI_LOCAL_HOST_MAX + 1];
    const uint32_t wait_ms = lane_wait_ms(client);
    client_lane_offer offer;
    int bell;
    size_t i;

    tutti_local_host_id(getenv("TUTTI_HOST_ID"), host_id);
    TUTTI_TRY(service->open_lane(client, host_id, wait_ms, &offer, err));
    TUTTI_TRY(tutti_share_take_two(offer.socket, (tutti_bytes){offer.token, sizeof(offer.token)},
                                   wait_ms, &self->view, err));
    for (i = 0; i < sizeof(offer.token); i++) {
        (void)snprintf(self->name + 2 * i, 3, "%02x", offer.token[i]);
    }
    bell = self->view.second;
    self->view.second = -1; /* the rings have it from here, or it is closed */
    return tutti_lane_attach(&self->rings, self->view.data, self->view.bytes, bell, err);
}

static tutti_code
new_lane(tutti_client *client, const client_stream_service *service, client_lane **ret_lane,
         tutti_error *err)
{
    client_lane *self;
    tutti_code code;

    TUTTI_TRY(check_wanted(err));
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for a lane");
    }
    code = take_lane(client, service, self, err);
    if (code != TUTTI_OK) {
        tutti_share_drop(&self->view);
        free(self);
        return code;
    }
    self->end =
        (tutti_rpc_lane_end){.lane = &self->rings, .name = self->name, .lease = self->view.lease};
    *ret_lane = self;
    return TUTTI_OK;
}

client_lane *
client_lane_open(tutti_client *client, const client_stream_service *service)
{
    client_lane *lane = NULL;
    tutti_error err;
    tutti_code code;

    if (!client_lane_may_ask(client, service)) {
        return NULL;
    }
    code = new_lane(client, service, &lane, &err);
    if (code != TUTTI_OK) {
        TUTTI_LOG("client", DEBUG, "calls go by gRPC, not through a lane: %s", err.text);
    }
    atomic_store(&client->streams[service->kind].lane_again_ns,
                 code == TUTTI_OK ? 0 : when_to_ask_again(&err));
    return lane;
}

void
client_lane_put_off(client_streams *streams)
{
    atomic_store(&streams->lane_again_ns, tutti_clock_add(tutti_clock_ns(), AGAIN_NS));
}

tutti_code
tutti_lane_check(tutti_client *client, tutti_error *err)
{
    TUTTI_NEED(client, err);

    client_lane *lane = NULL;

    TUTTI_TRY(new_lane(client, &client_commands, &lane, err));
    client_lane_close(lane);
    return TUTTI_OK;
}

void
client_lane_close(client_lane *lane)
{
    if (lane != NULL) {
        tutti_lane_close(&lane->rings);
        tutti_share_drop(&lane->view);
        free(lane);
    }
}
