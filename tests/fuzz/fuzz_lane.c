/*
 * Goal: whatever the other side writes into a lane's memory, nothing outside of it is read or
 * written, and a message that is taken is at most as long as the limit says.
 * Method: the input as steps of a hostile client: it puts messages, overwrites any place of the
 * memory, and meanwhile the server peeks, takes, answers and goes to sleep.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lane/lane.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint32_t
number_of(const uint8_t *data)
{
    uint32_t number;

    memcpy(&number, data, sizeof(number));
    return number;
}

/* Anywhere: positions and flags are in the first bytes, so half of the strokes go there. */
static void
scribble(tutti_lane *lane, const uint8_t *data)
{
    const uint32_t at = number_of(data + 1);
    const uint64_t bytes = (at & 1) != 0 ? tutti_lane_bytes() : 1024;

    memcpy((unsigned char *)lane->memory + (at >> 1) % (bytes - 4), data + 5, 4);
}

static void
hear(tutti_lane *lane)
{
    unsigned char *message;
    uint32_t kind;
    size_t bytes;

    if (tutti_lane_peek(lane, &bytes, &kind) != TUTTI_LANE_MESSAGE) {
        return;
    }
    if (bytes > TUTTI_LANE_MESSAGE_MAX) {
        abort();
    }
    message = malloc(bytes + 1);
    if (message == NULL) {
        abort();
    }
    tutti_lane_take(lane, message);
    free(message);
}

static void
step(tutti_lane *server, tutti_lane *client, const uint8_t *data)
{
    static const unsigned char text[TUTTI_LANE_MESSAGE_MAX];
    const tutti_bytes part = {text, number_of(data + 1) % (TUTTI_LANE_MESSAGE_MAX + 1)};

    switch (data[0] % 6) {
    case 0:
        (void)tutti_lane_put(client, &part, 1, data[5]);
        break;
    case 1:
        scribble(server, data);
        break;
    case 2:
        hear(server);
        break;
    case 3:
        if (!tutti_lane_is_crowded(server, part.size)) {
            (void)tutti_lane_put(server, &part, 1, data[5]);
        }
        break;
    case 4:
        (void)tutti_lane_may_sleep(server);
        break;
    default:
        (void)tutti_lane_is_closed(server);
        break;
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tutti_lane server;
    tutti_lane client;
    int fd = -1;

    if (tutti_lane_create(&server, 0, &fd, NULL) != TUTTI_OK) {
        abort();
    }
    if (tutti_lane_attach(&client, server.memory, tutti_lane_bytes(), dup(server.bell), NULL) !=
        TUTTI_OK) {
        abort();
    }
    for (; size >= 9; data += 9, size -= 9) {
        step(&server, &client, data);
    }
    tutti_lane_close(&client);
    tutti_lane_close(&server);
    (void)close(fd);
    return 0;
}
