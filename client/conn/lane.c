/*
 * Lanes of this client (decision 0036). A lane that cannot be had is no error: the stream goes by
 * gRPC, as it does for agents on other machines. One thread, that which opens the stream; the flag is
 * an atomic.
 */
#include "client/conn/command_stream.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/error/fail.h"
#include "base/os/local.h"
#include "base/os/log.h"
#include "client/conn/call.h"
#include "client/conn/client.h"

#define LANE_MS 1000 /* for the agent to make a lane */

/* Who says so with the agent's own option has every client's calls go by gRPC: --no-lane. */
static bool
may_have_lane(const tutti_client *client)
{
    const char *off = getenv("TUTTI_NO_LANE");

    return (off == NULL || off[0] == '\0' || off[0] == '0') &&
           !atomic_load_explicit(&client->has_no_lane, memory_order_relaxed);
}

/* An agent that stands still must not hold up who only wanted to be faster. */
static uint32_t
lane_wait_ms(const tutti_client *client)
{
    return client->settings.timeout_ms < LANE_MS ? client->settings.timeout_ms : LANE_MS;
}

static tutti_code
take_lane(tutti_client *client, client_lane *self, tutti_error *err)
{
    char host_id[TUTTI_LOCAL_HOST_MAX + 1];
    const uint32_t wait_ms = lane_wait_ms(client);
    client_lane_offer offer;
    int bell;
    size_t i;

    tutti_local_host_id(getenv("TUTTI_HOST_ID"), host_id);
    TUTTI_TRY(client_wire_open_lane(client, host_id, wait_ms, &offer, err));
    TUTTI_TRY(tutti_share_take_two(offer.socket, (tutti_bytes){offer.token, sizeof(offer.token)},
                                   wait_ms, &self->view, err));
    for (i = 0; i < sizeof(offer.token); i++) {
        (void)snprintf(self->name + 2 * i, 3, "%02x", offer.token[i]);
    }
    bell = self->view.second;
    self->view.second = -1; /* the rings have it from here, or it is closed */
    return tutti_lane_attach(&self->rings, self->view.data, self->view.bytes, bell, err);
}

client_lane *
client_lane_open(tutti_client *client)
{
    client_lane *self = may_have_lane(client) ? calloc(1, sizeof(*self)) : NULL;
    tutti_error err;
    tutti_code code;

    if (self == NULL) {
        return NULL;
    }
    code = take_lane(client, self, &err);
    if (code == TUTTI_OK) {
        self->end = (tutti_rpc_lane_end){
            .lane = &self->rings, .name = self->name, .lease = self->view.lease};
        return self;
    }
    tutti_share_drop(&self->view);
    free(self);
    TUTTI_LOG("client", DEBUG, "calls go by gRPC, not through a lane: %s", err.text);
    atomic_store(&client->has_no_lane, true);
    return NULL;
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
