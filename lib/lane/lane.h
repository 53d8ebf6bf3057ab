/*
 * Lane: messages between two processes of one machine, through memory that both have mapped.
 *
 * A lane has two rings, one for each direction, and each has one writer and one reader. A message
 * is bytes with a kind; it is copied into the ring by its writer and out of it by its reader.
 * The reader that sleeps says so first, so that a system call is made only for a reader that
 * sleeps: the server's side is woken by a bell (base/os/bell.h: an eventfd, which it can poll together
 * with others), the client's side by a futex in the memory, or by a bell of its own if it has asked for
 * one. The rings are as those of io_uring: positions only grow, the writer owns one and the reader the
 * other, and an entry is copied before it is looked at. docs/lanes.md has the layout, for clients in other
 * languages.
 *
 * Neither side trusts the other. Positions that make no sense, and messages that do not fit, are
 * reported as TUTTI_LANE_BROKEN; nothing outside of the memory is touched, and a writer that goes
 * on changing a message changes only the bytes that its reader copies. Nothing here waits for the
 * other side, but tutti_lane_sleep and tutti_lane_watch, which have a time.
 *
 * One thread at a time for each direction of each side. tutti_lane_wake_self may be called by any
 * thread.
 */
#ifndef TUTTI_LANE_LANE_H
#define TUTTI_LANE_LANE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "tutti/error.h"

#define TUTTI_LANE_MESSAGE_MAX 16384u /* bytes of one message */
#define TUTTI_LANE_LOOKS 16           /* at rings, with a pause behind each, for one sched_yield */

struct tutti_lane_memory;

/* What one side writes, or reads. */
typedef struct tutti_lane_ring {
    unsigned char *bytes; /* in the memory */
    _Atomic uint32_t *tail;
    _Atomic uint32_t *head;
    uint32_t own;  /* our position: of the writer the tail, of the reader the head */
    uint32_t next; /* of the reader: bytes of the message that was peeked; 0 = none was */
} tutti_lane_ring;

typedef struct tutti_lane {
    struct tutti_lane_memory *memory; /* NULL = the lane is closed */
    bool server;
    int bell;        /* [owned] wakes the server's side */
    int client_bell; /* [owned] the server's; wakes a client that polls; -1 = there is none */
    tutti_lane_ring out;
    tutti_lane_ring in;
} tutti_lane;

/* ------------------------------------------------------------------ both ends of its life */

/*
 * The server's side: make the memory, which is sealed against shrinking, and the bell.
 *
 * [in]         busy_ns what the client's tutti_lane_watch takes
 * [out, owned] lane    tutti_lane_close it
 * [out, owned] ret_fd  of the memory, for the client; close() it when it was sent
 *
 * TUTTI_RESOURCE_EXHAUSTED, ...  from the system: no memory, no descriptors, no bells
 */
tutti_code tutti_lane_create(tutti_lane *lane, uint64_t busy_ns, int *ret_fd, tutti_error *err);

/*
 * The server's side, before the client has the lane: a bell that wakes a client that asks for it by its
 * flag (docs/lanes.md), instead of the futex. It is in lane->client_bell.
 *
 * TUTTI_RESOURCE_EXHAUSTED, ...  from the system: no descriptors
 */
tutti_code tutti_lane_add_client_bell(tutti_lane *lane, tutti_error *err);

/* How many bytes the memory has. */
uint64_t tutti_lane_bytes(void);

/*
 * The client's side, over memory that is mapped already.
 *
 * [in]        data   `bytes` of it, mapped for writing; stays the caller's, and longer than the lane
 * [in, moved] bell   also on failure
 *
 * TUTTI_DATA_LOSS  it is no memory of a lane, or of another version
 * TUTTI_RESOURCE_EXHAUSTED, ...  from the system: this process can ring no bells
 */
tutti_code tutti_lane_attach(tutti_lane *lane, void *data, uint64_t bytes, int bell,
                             tutti_error *err);

/* Tell the other side that nothing more will be written, and wake it. The memory stays. Any
 * thread. */
void tutti_lane_shut(tutti_lane *lane);

/* The same, and let the memory and the bell go. Zeroed is fine. */
void tutti_lane_close(tutti_lane *lane);

/* Has either side closed or shut it? */
bool tutti_lane_is_closed(const tutti_lane *lane);

/* ------------------------------------------------------------------ messages */

/* Is there room for a message of this size? False for now, or (above TUTTI_LANE_MESSAGE_MAX) for
 * ever. */
bool tutti_lane_fits(const tutti_lane *lane, size_t bytes);

/* The same, for who will wait if it does not fit: true, and this side is woken (as by a message)
 * when there is more room. */
bool tutti_lane_is_crowded(tutti_lane *lane, size_t bytes);

/*
 * Write one message, and wake the other side if it sleeps.
 *
 * [in] parts  of the message, in their order
 * [in] kind   the writer's, for the reader
 *
 * Returns false if there is no room.
 */
bool tutti_lane_put(tutti_lane *lane, const tutti_bytes *parts, size_t count, uint32_t kind);

typedef enum tutti_lane_found {
    TUTTI_LANE_NOTHING,
    TUTTI_LANE_MESSAGE,
    TUTTI_LANE_BROKEN, /* the other side has written what makes no sense: close the lane */
} tutti_lane_found;

/* The next message: its size and kind. It stays until tutti_lane_take. */
tutti_lane_found tutti_lane_peek(tutti_lane *lane, size_t *ret_bytes, uint32_t *ret_kind);

/* Behind a peek that found a message: copy it, and make room for others. [out] dest  its bytes */
void tutti_lane_take(tutti_lane *lane, void *dest);

/* Does a message wait, without looking at it? Cheap. */
bool tutti_lane_has_some(const tutti_lane *lane);

/* ------------------------------------------------------------------ sleeping */

/*
 * Say that this side will sleep. True: it may, and is woken by the next message; the server's side
 * polls its bell. False: a message is there already, or the lane is closed. The flag stays set
 * until the other side takes it.
 */
bool tutti_lane_may_sleep(tutti_lane *lane);

/* Say that this side does not sleep (any more). */
void tutti_lane_stay_awake(tutti_lane *lane);

/*
 * Look for a message for as long as the server said when it made the lane (0 = not at all; 10 ms at
 * most), without sleeping, so that the writer need not wake. True: there is one.
 */
bool tutti_lane_watch(const tutti_lane *lane, uint64_t until_ns);

/*
 * The client's side, behind a tutti_lane_may_sleep that was true: sleep until the other side or
 * tutti_lane_wake_self wakes it, but not longer than `until_ns` (clock of tutti_clock_ns).
 */
void tutti_lane_sleep(tutti_lane *lane, uint64_t until_ns);

/* Wake who sleeps on our side; any thread. */
void tutti_lane_wake_self(tutti_lane *lane);

#endif
