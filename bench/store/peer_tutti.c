/* Tutti's store by libtutti. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/store/peer.h"
#include "tutti/tutti.h"

typedef struct tutti_peer {
    tutti_client *client;
    char key[64];
    char counter[72];
} tutti_peer;

static tutti_code
call_tutti(void *client, peer_op op, tutti_error *err)
{
    const tutti_peer *self = client;
    void *value = NULL;
    tutti_code code;

    switch (op) {
    case PEER_SET:
        return tutti_kv_set(self->client, self->key, strlen(self->key), PEER_VALUE,
                            sizeof(PEER_VALUE) - 1, err);
    case PEER_GET:
        code = tutti_kv_get(self->client, self->key, strlen(self->key), &value, NULL, err);
        tutti_free(value);
        return code;
    case PEER_ADD:
        break;
    }
    return tutti_kv_add(self->client, self->counter, strlen(self->counter), 1, NULL, err);
}

static tutti_code
open_tutti(const char *address, const char *key, void **ret_client, tutti_error *err)
{
    tutti_peer *self = calloc(1, sizeof(*self));
    tutti_client_options options;
    tutti_code code;

    tutti_client_options_init(&options);
    options.agent = "";
    options.coordinator = address;
    (void)snprintf(self->key, sizeof(self->key), "%s", key);
    (void)snprintf(self->counter, sizeof(self->counter), "%s.n", key);
    code = tutti_connect_with(&options, &self->client, err);
    if (code == TUTTI_OK) {
        code = call_tutti(self, PEER_SET, err);
    }
    *ret_client = self;
    return code;
}

static void
close_tutti(void *client)
{
    tutti_peer *self = client;

    tutti_close(self->client);
    free(self);
}

const peer peer_tutti = {
    .name = "tutti", .open = open_tutti, .call = call_tutti, .close = close_tutti};
