/*
 * The rings, and who wakes whom.
 *
 * Memory order. A writer copies the message and then stores its tail (release); the reader loads
 * the tail (acquire) and then copies. The reader stores its head (release) behind the copy; the
 * writer loads it (acquire) before it writes over the bytes. Sleeping is Dekker's pattern: the
 * sleeper sets its flag and then looks at the ring, the writer writes the ring and then looks at
 * the flag. Both need a full fence in between, or each could miss the other.
 *
 * Positions count bytes and wrap at 2^32, of which RING_BYTES is a divisor. The own position is
 * kept in private memory as well: what the shared one says is never read back.
 */
#include "lane/lane.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/bell.h"
#include "base/os/clock.h"
#include "base/os/cpu.h"
#include "base/os/local.h"

#define MAGIC 0x31656e616c747474u /* "tttlane1" */
#define RING_BYTES 65536u
#define ALIGN 8u
#define LINE 64
#define BUSY_NS_MAX (10 * TUTTI_NS_PER_MS)
#define SLEEPS_IN_FUTEX 1u
#define SLEEPS_AT_BELL 2u /* of a client: its bell wakes it */

/* In front of each message, ALIGNed. */
typedef struct head {
    uint32_t bytes;
    uint32_t kind;
} head;

/* Positions and flags of one direction, each on a cache line of its own, as different processes
 * write them. */
typedef struct direction {
    _Alignas(LINE) _Atomic uint32_t tail;
    _Alignas(LINE) _Atomic uint32_t head;
    _Alignas(LINE) _Atomic uint32_t sleeps; /* its reader: other than 0 = it has to be woken */
    _Atomic uint32_t crowded;               /* its writer: 1 = wake it when there is room */
} direction;

struct tutti_lane_memory {
    uint64_t magic;
    uint64_t busy_ns;        /* as the server said at the beginning */
    _Atomic uint32_t closed; /* by either side */
    direction down;          /* from the client to the server */
    direction up;
    _Alignas(LINE) unsigned char down_bytes[RING_BYTES];
    unsigned char up_bytes[RING_BYTES];
};

/* docs/lanes.md says this to clients in other languages: another layout is another version. */
static_assert(offsetof(struct tutti_lane_memory, busy_ns) == 8 &&
                  offsetof(struct tutti_lane_memory, closed) == 16 &&
                  offsetof(struct tutti_lane_memory, down) == 64 &&
                  offsetof(struct tutti_lane_memory, up) == 256 &&
                  offsetof(struct tutti_lane_memory, down_bytes) == 448 &&
                  offsetof(struct tutti_lane_memory, up_bytes) == 65984 &&
                  sizeof(struct tutti_lane_memory) == 131520,
              "the layout of tttlane1");
static_assert(offsetof(direction, head) == 64 && offsetof(direction, sleeps) == 128 &&
                  offsetof(direction, crowded) == 132,
              "the layout of tttlane1");

uint64_t
tutti_lane_bytes(void)
{
    return sizeof(struct tutti_lane_memory);
}

/* ------------------------------------------------------------------ both ends of its life */

static tutti_lane_ring
ring_of(direction *way, unsigned char *bytes)
{
    return (tutti_lane_ring){.bytes = bytes, .tail = &way->tail, .head = &way->head};
}

static void
set_lane(tutti_lane *lane, struct tutti_lane_memory *memory, bool server, int bell)
{
    const tutti_lane_ring down = ring_of(&memory->down, memory->down_bytes);
    const tutti_lane_ring up = ring_of(&memory->up, memory->up_bytes);

    *lane = (tutti_lane){.memory = memory,
                         .server = server,
                         .bell = bell,
                         .client_bell = -1,
                         .out = server ? up : down,
                         .in = server ? down : up};
}

tutti_code
tutti_lane_create(tutti_lane *lane, uint64_t busy_ns, int *ret_fd, tutti_error *err)
{
    const int bell = tutti_bell_open();
    struct tutti_lane_memory *memory =
        bell < 0 ? NULL : tutti_local_create("tutti-lane", sizeof(*memory), ret_fd);

    if (memory == NULL) {
        const int number = errno;

        if (bell >= 0) {
            (void)close(bell);
        }
        return TUTTI_FAIL_ERRNO(err, number, "could not make the shared memory of a lane");
    }
    (void)madvise(memory, sizeof(*memory), MADV_DONTDUMP);
    memory->magic = MAGIC;
    memory->busy_ns = busy_ns;
    set_lane(lane, memory, true, bell);
    return TUTTI_OK;
}

tutti_code
tutti_lane_add_client_bell(tutti_lane *lane, tutti_error *err)
{
    lane->client_bell = tutti_bell_open();
    if (lane->client_bell < 0) {
        const int number = errno;

        return TUTTI_FAIL_ERRNO(err, number, "could not make a bell for a lane");
    }
    return TUTTI_OK;
}

tutti_code
tutti_lane_attach(tutti_lane *lane, void *data, uint64_t bytes, int bell, tutti_error *err)
{
    struct tutti_lane_memory *memory = data;

    if (bell < 0 || bytes != sizeof(*memory) || memory->magic != MAGIC) {
        if (bell >= 0) {
            (void)close(bell);
        }
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BAD_ANSWER",
                              "the agent sent %llu bytes for a lane that are none of this version",
                              (unsigned long long)bytes);
    }
    if (!tutti_bell_can_ring()) {
        const int number = errno;

        (void)close(bell);
        return TUTTI_FAIL_ERRNO(err, number, "this process cannot ring the bell of a lane");
    }
    set_lane(lane, memory, false, bell);
    return TUTTI_OK;
}

static direction *
in_of(const tutti_lane *lane)
{
    return lane->server ? &lane->memory->down : &lane->memory->up;
}

static direction *
out_of(const tutti_lane *lane)
{
    return lane->server ? &lane->memory->up : &lane->memory->down;
}

/* The kernel fails only for addresses and operations that are wrong, and for signals: who waits
 * looks again in any case. */
static void
call_futex(_Atomic uint32_t *word, int operation, uint32_t value, const struct timespec *time)
{
    (void)syscall(SYS_futex, word, operation, value, time, NULL, 0);
}

/* Behind what was written: wake the reader of this direction, if it has said that it sleeps. */
static void
wake_reader(const tutti_lane *lane, direction *way)
{
    uint32_t how;

    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&way->sleeps, memory_order_relaxed) == 0) {
        return;
    }
    how = atomic_exchange(&way->sleeps, 0);
    if (how != 0 && way == &lane->memory->down) {
        tutti_bell_ring(lane->bell);
    } else if (how == SLEEPS_AT_BELL && lane->client_bell >= 0) {
        tutti_bell_ring(lane->client_bell);
    } else if (how != 0) {
        call_futex(&way->sleeps, FUTEX_WAKE, 1, NULL);
    }
}

void
tutti_lane_shut(tutti_lane *lane)
{
    atomic_store(&lane->memory->closed, 1);
    wake_reader(lane, out_of(lane));
}

void
tutti_lane_close(tutti_lane *lane)
{
    if (lane->memory == NULL) {
        return;
    }
    tutti_lane_shut(lane);
    (void)close(lane->bell);
    if (lane->client_bell >= 0) {
        (void)close(lane->client_bell);
    }
    if (lane->server) {
        (void)munmap(lane->memory, sizeof(*lane->memory));
    }
    *lane = (tutti_lane){.bell = -1, .client_bell = -1};
}

bool
tutti_lane_is_closed(const tutti_lane *lane)
{
    return atomic_load_explicit(&lane->memory->closed, memory_order_acquire) != 0;
}

/* ------------------------------------------------------------------ messages */

static uint32_t
room_for(size_t bytes)
{
    return (uint32_t)((sizeof(head) + bytes + ALIGN - 1) / ALIGN * ALIGN);
}

/* A head that makes no sense (more in the ring than it holds) leaves no room. */
bool
tutti_lane_fits(const tutti_lane *lane, size_t bytes)
{
    const uint32_t used =
        lane->out.own - atomic_load_explicit(lane->out.head, memory_order_acquire);

    return bytes <= TUTTI_LANE_MESSAGE_MAX && used <= RING_BYTES &&
           room_for(bytes) <= RING_BYTES - used;
}

bool
tutti_lane_is_crowded(tutti_lane *lane, size_t bytes)
{
    if (tutti_lane_fits(lane, bytes)) {
        return false;
    }
    atomic_store_explicit(&out_of(lane)->crowded, 1, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return !tutti_lane_fits(lane, bytes);
}

/* In at most two pieces: the ring ends, and begins again. */
static void
copy_in(const tutti_lane_ring *ring, uint32_t at, tutti_bytes part)
{
    const uint32_t from = at % RING_BYTES;
    const size_t first = part.size < RING_BYTES - from ? part.size : RING_BYTES - from;

    if (part.size > 0) {
        memcpy(ring->bytes + from, part.data, first);
        memcpy(ring->bytes, (const unsigned char *)part.data + first, part.size - first);
    }
}

static void
copy_out(const tutti_lane_ring *ring, uint32_t at, void *dest, size_t bytes)
{
    const uint32_t from = at % RING_BYTES;
    const size_t first = bytes < RING_BYTES - from ? bytes : RING_BYTES - from;

    memcpy(dest, ring->bytes + from, first);
    memcpy((unsigned char *)dest + first, ring->bytes, bytes - first);
}

bool
tutti_lane_put(tutti_lane *lane, const tutti_bytes *parts, size_t count, uint32_t kind)
{
    tutti_lane_ring *ring = &lane->out;
    uint32_t at = ring->own + (uint32_t)sizeof(head);
    size_t bytes = 0;
    head said;
    size_t i;

    for (i = 0; i < count; i++) {
        bytes += parts[i].size;
    }
    if (!tutti_lane_fits(lane, bytes)) {
        return false;
    }
    said = (head){.bytes = (uint32_t)bytes, .kind = kind};
    copy_in(ring, ring->own, (tutti_bytes){&said, sizeof(said)});
    for (i = 0; i < count; i++) {
        copy_in(ring, at, parts[i]);
        at += (uint32_t)parts[i].size;
    }
    ring->own += room_for(bytes);
    atomic_store_explicit(ring->tail, ring->own, memory_order_release);
    wake_reader(lane, out_of(lane));
    return true;
}

bool
tutti_lane_has_some(const tutti_lane *lane)
{
    return atomic_load_explicit(lane->in.tail, memory_order_acquire) != lane->in.own;
}

/* The size is read once, into memory of ours, and all that follows uses that. */
tutti_lane_found
tutti_lane_peek(tutti_lane *lane, size_t *ret_bytes, uint32_t *ret_kind)
{
    tutti_lane_ring *ring = &lane->in;
    const uint32_t used = atomic_load_explicit(ring->tail, memory_order_acquire) - ring->own;
    head said;

    if (used == 0) {
        return TUTTI_LANE_NOTHING;
    }
    if (used > RING_BYTES || used % ALIGN != 0) {
        return TUTTI_LANE_BROKEN;
    }
    copy_out(ring, ring->own, &said, sizeof(said));
    if (said.bytes > TUTTI_LANE_MESSAGE_MAX || room_for(said.bytes) > used) {
        return TUTTI_LANE_BROKEN;
    }
    ring->next = said.bytes + (uint32_t)sizeof(head);
    *ret_bytes = said.bytes;
    *ret_kind = said.kind;
    return TUTTI_LANE_MESSAGE;
}

void
tutti_lane_take(tutti_lane *lane, void *dest)
{
    tutti_lane_ring *ring = &lane->in;
    const size_t bytes = ring->next - sizeof(head);

    assert(ring->next != 0);
    copy_out(ring, ring->own + (uint32_t)sizeof(head), dest, bytes);
    ring->own += room_for(bytes);
    ring->next = 0;
    atomic_store_explicit(ring->head, ring->own, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&in_of(lane)->crowded, memory_order_relaxed) != 0 &&
        atomic_exchange(&in_of(lane)->crowded, 0) != 0) {
        wake_reader(lane, out_of(lane));
    }
}

/* ------------------------------------------------------------------ sleeping */

bool
tutti_lane_may_sleep(tutti_lane *lane)
{
    atomic_store_explicit(&in_of(lane)->sleeps, SLEEPS_IN_FUTEX, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return !tutti_lane_has_some(lane) && !tutti_lane_is_closed(lane);
}

void
tutti_lane_stay_awake(tutti_lane *lane)
{
    atomic_store_explicit(&in_of(lane)->sleeps, 0, memory_order_relaxed);
}

/*
 * Between two system calls: a message that comes is seen after some 20 ns, not behind a sched_yield. Where another
 * thread waits for this core, it waits half a microsecond longer.
 */
static bool
look_some_times(const tutti_lane *lane)
{
    int looks;

    for (looks = 0; looks < TUTTI_LANE_LOOKS; looks++) {
        if (tutti_lane_has_some(lane)) {
            return true;
        }
        tutti_cpu_pause();
    }
    return false;
}

bool
tutti_lane_watch(const tutti_lane *lane, uint64_t until_ns)
{
    const uint64_t busy_ns =
        lane->memory->busy_ns < BUSY_NS_MAX ? lane->memory->busy_ns : BUSY_NS_MAX;
    const uint64_t end_ns = tutti_clock_ns() + busy_ns;

    while (busy_ns > 0 && !look_some_times(lane)) {
        const uint64_t now_ns = tutti_clock_ns();

        if (now_ns >= end_ns || now_ns >= until_ns || tutti_lane_is_closed(lane)) {
            return false;
        }
        (void)sched_yield();
    }
    return busy_ns > 0;
}

void
tutti_lane_sleep(tutti_lane *lane, uint64_t until_ns)
{
    const uint64_t now_ns = tutti_clock_ns();
    const uint64_t wait_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    const struct timespec time = {.tv_sec = (time_t)(wait_ns / TUTTI_NS_PER_S),
                                  .tv_nsec = (long)(wait_ns % TUTTI_NS_PER_S)};

    assert(!lane->server);
    call_futex(&in_of(lane)->sleeps, FUTEX_WAIT, SLEEPS_IN_FUTEX, &time);
}

void
tutti_lane_wake_self(tutti_lane *lane)
{
    wake_reader(lane, in_of(lane));
}
