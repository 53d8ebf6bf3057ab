/*
 * The arena: chunks, each a tensor of bytes that is mapped, cut into spans. First fit in the order of
 * addresses; neighbours that are free become one. The lock guards chunks and spans, and is never held
 * while the agent is asked: a new chunk is made outside, so two threads may make one each.
 *
 * A program that dies must leave nothing of this in its agent, where nobody would know whose it is: chunks
 * are made under a lease of the arena, or of the client if it has one. If that of the arena breaks, the agent
 * deletes the chunks, which shows as revoked views; the next chunk opens another one.
 */
#include "client/tensor/arena.h"

#include <assert.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/data/list.h"
#include "base/error/fail.h"
#include "client/conn/client.h"
#include "client/tensor/lease.h"
#include "client/tensor/tensors.h"
#include "tutti/share.h"
#include "tutti/tensor.h"

#define ALIGN 64U
#define CHUNK_BYTES (64U << 20)
#define FIRST_CHUNK_BYTES                                                                          \
    (4U << 20) /* many clients only ever stage small arrays; it counts for --memory-limit */
#define IDLE_BYTES_MAX (256U << 20) /* of chunks in which nothing is used */
#define CLOSE_MS 1000               /* for the agent to hear of each chunk that goes */
#define NAME_PREFIX "tutti.arena/"
#define NAME_SIZE (sizeof(NAME_PREFIX) + 16)

typedef struct span {
    tutti_list_node link; /* in its chunk, by offset */
    uint64_t offset;
    uint64_t size;
    bool used;
    uint64_t doubt; /* not 0: used only because an op that has failed may write there still */
} span;

typedef struct chunk {
    tutti_list_node link;
    tutti_list_node spans;
    tutti_view *view; /* [owned] */
    unsigned char *data;
    uint64_t size;
    uint64_t used;
    uint64_t asked; /* in this round the agent was asked about it */
    uint64_t lease; /* of the client's, under which it was made; 0 = the arena's */
    char name[NAME_SIZE];
} chunk;

struct client_arena {
    client_ending ending;
    tutti_client *client;
    pthread_mutex_t lock;
    tutti_list_node chunks;
    uint64_t idle;   /* bytes of chunks in which nothing is used */
    uint64_t doubts; /* how many spans have ever been doubtful */
    uint64_t rounds; /* how often the agent was asked about such spans */
    atomic_bool refused;
    pthread_mutex_t lease_lock; /* guards what follows; held while the agent is asked for it */
    tutti_lease *lease;         /* [owned] NULL = none yet */
    uint64_t lease_number;
};

static void close_arena(tutti_client *client, client_ending *ending);
static void forget_arena(client_ending *ending);

/* NULL: there is none yet, or a child of fork, where a thread of the parent may have had the lock. */
static client_arena *
get_arena(tutti_client *client)
{
    client_ending *ending = atomic_load_explicit(&client->arena, memory_order_acquire);

    return ending == NULL || client->owner != getpid()
               ? NULL
               : tutti_container_of(ending, client_arena, ending);
}

/* Made at first use, under the client's own lock. NULL: no memory, or a child of fork. */
static client_arena *
need_arena(tutti_client *client)
{
    client_arena *self = get_arena(client);

    if (self != NULL || client->owner != getpid()) {
        return self;
    }
    (void)pthread_mutex_lock(&client->lock);
    self = get_arena(client);
    if (self == NULL) {
        self = calloc(1, sizeof(*self));
        if (self != NULL) {
            self->client = client;
            self->ending = (client_ending){.close = close_arena, .forget = forget_arena};
            (void)pthread_mutex_init(&self->lock, NULL);
            (void)pthread_mutex_init(&self->lease_lock, NULL);
            tutti_list_init(&self->chunks);
            atomic_store_explicit(&client->arena, &self->ending, memory_order_release);
        }
    }
    (void)pthread_mutex_unlock(&client->lock);
    return self;
}

/* ------------------------------------------------------------------------------ chunks */

static void
free_chunk(chunk *self)
{
    tutti_list_node *link;

    while ((link = tutti_list_pop(&self->spans)) != NULL) {
        free(tutti_container_of(link, span, link));
    }
    free(self);
}

/* The tensor is deleted as well as the agent lets us; its memory goes when it is unmapped. */
static void
drop_chunk(tutti_client *client, chunk *self)
{
    const char *name = self->name;

    tutti_tensor_unmap(self->view);
    (void)client_wire_delete(client, &name, 1, NULL);
    free_chunk(self);
}

/* The arena's lease; another one if it has that which is `over`. */
static tutti_code
need_lease(client_arena *self, uint64_t over, uint64_t *ret_number, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    (void)pthread_mutex_lock(&self->lease_lock);
    if (over != 0 && self->lease_number == over) {
        client_lease_drop(self->lease);
        self->lease = NULL;
    }
    if (self->lease == NULL) {
        code = client_lease_take(self->client, &self->lease, &self->lease_number, err);
    }
    *ret_number = self->lease_number;
    (void)pthread_mutex_unlock(&self->lease_lock);
    return code;
}

static tutti_code
create_chunk(client_arena *arena, chunk *self, tutti_error *err)
{
    const tutti_spec spec = {
        .dtype = TUTTI_DTYPE_UINT8, .dim_count = 1, .dims = {(int64_t)self->size}};
    tutti_error failed = {0};
    tutti_handle handle;
    uint64_t lease;
    tutti_code code;

    self->lease = atomic_load(&arena->client->lease);
    if (self->lease != 0) {
        return client_wire_create(arena->client, &spec, self->name, self->lease, &handle, err);
    }
    TUTTI_TRY(need_lease(arena, 0, &lease, err));
    code = client_wire_create(arena->client, &spec, self->name, lease, &handle, &failed);
    if (code != TUTTI_OK && strcmp(failed.reason, "LEASE_OVER") == 0) {
        TUTTI_TRY(need_lease(arena, lease, &lease, err));
        code = client_wire_create(arena->client, &spec, self->name, lease, &handle, &failed);
    }
    return code == TUTTI_OK ? code : tutti_error_pass(err, &failed);
}

static tutti_code
map_chunk(client_arena *arena, chunk *self, tutti_error *err)
{
    tutti_client *client = arena->client;
    const char *name = self->name;
    uint64_t number;
    tutti_code code;

    arc4random_buf(&number, sizeof(number));
    (void)snprintf(self->name, sizeof(self->name), NAME_PREFIX "%016" PRIx64, number);
    TUTTI_TRY(create_chunk(arena, self, err));
    code = tutti_tensor_map(client, self->name, TUTTI_MAP_WRITE, &self->view, err);
    if (code != TUTTI_OK) {
        (void)client_wire_delete(client, &name, 1, NULL);
        return code;
    }
    self->data = tutti_view_data(self->view);
    return TUTTI_OK;
}

static span *
new_span(uint64_t offset, uint64_t size)
{
    span *self = calloc(1, sizeof(*self));

    if (self != NULL) {
        tutti_list_init(&self->link);
        self->offset = offset;
        self->size = size;
    }
    return self;
}

static tutti_code
make_chunk(client_arena *arena, uint64_t bytes, uint64_t least, chunk **ret_chunk, tutti_error *err)
{
    chunk *self = calloc(1, sizeof(*self));
    span *all = new_span(0, bytes < least ? least : bytes);
    tutti_code code;

    if (self == NULL || all == NULL) {
        free(self);
        free(all);
        return TUTTI_FAIL_MEMORY(err, "no memory for the arena's bookkeeping");
    }
    tutti_list_init(&self->spans);
    tutti_list_init(&self->link);
    tutti_list_add(&self->spans, &all->link);
    self->size = all->size;
    code = map_chunk(arena, self, err);
    if (code != TUTTI_OK) {
        free_chunk(self);
        return code;
    }
    *ret_chunk = self;
    return TUTTI_OK;
}

/* ------------------------------------------------------------------------------ spans */

/* Cut `size` bytes off the front of a free span. False: no memory for the rest's record. */
static bool
use_span(chunk *self, span *one, uint64_t size)
{
    span *rest = one->size == size ? NULL : new_span(one->offset + size, one->size - size);

    if (one->size != size && rest == NULL) {
        return false;
    }
    if (rest != NULL) { /* behind it: in front of its successor */
        tutti_list_add(one->link.next, &rest->link);
        one->size = size;
    }
    one->used = true;
    self->used += size;
    return true;
}

/* A tensor whose agent or lease has ended since is not used any more: ops would not find it. */
static bool
is_alive(const client_arena *arena, const chunk *self)
{
    return (self->lease == 0 || self->lease == atomic_load(&arena->client->lease)) &&
           !tutti_view_is_revoked(self->view);
}

static void *
take_from_chunk(client_arena *arena, chunk *self, uint64_t size)
{
    tutti_list_node *link;
    const bool idle = self->used == 0;

    for (link = self->spans.next; link != &self->spans; link = link->next) {
        span *one = tutti_container_of(link, span, link);

        if (!one->used && one->size >= size && is_alive(arena, self) && use_span(self, one, size)) {
            arena->idle -= idle ? self->size : 0;
            return self->data + one->offset;
        }
    }
    return NULL;
}

static void *
take_from_arena(client_arena *self, uint64_t size)
{
    tutti_list_node *link;
    void *memory = NULL;

    for (link = self->chunks.next; link != &self->chunks && memory == NULL; link = link->next) {
        memory = take_from_chunk(self, tutti_container_of(link, chunk, link), size);
    }
    return memory;
}

static void
join_next(chunk *self, span *one)
{
    span *next;

    if (one->link.next == &self->spans) {
        return;
    }
    next = tutti_container_of(one->link.next, span, link);
    if (!one->used && !next->used) {
        one->size += next->size;
        tutti_list_remove(&next->link);
        free(next);
    }
}

/* The span in which an address lies; NULL = none. */
static span *
find_span(chunk *self, const unsigned char *data)
{
    const uint64_t offset = (uint64_t)(data - self->data);
    tutti_list_node *link;

    for (link = self->spans.next; link != &self->spans; link = link->next) {
        span *one = tutti_container_of(link, span, link);

        if (offset >= one->offset && offset - one->offset < one->size) {
            return one;
        }
    }
    return NULL;
}

static chunk *
find_chunk(const client_arena *self, const unsigned char *data)
{
    tutti_list_node *link;

    for (link = self->chunks.next; link != &self->chunks; link = link->next) {
        chunk *one = tutti_container_of(link, chunk, link);

        if (data >= one->data && data < one->data + one->size) {
            return one;
        }
    }
    return NULL;
}

/* With the lock: the span becomes free. Returns a chunk to be dropped, out of the list; NULL = none. */
static chunk *
free_span(client_arena *self, chunk *home, span *one)
{
    one->used = false;
    one->doubt = 0;
    home->used -= one->size;
    join_next(home, one);
    if (one->link.before != &home->spans) {
        join_next(home, tutti_container_of(one->link.before, span, link));
    }
    if (home->used > 0) {
        return NULL;
    }
    self->idle += home->size;
    if (self->idle <= IDLE_BYTES_MAX) {
        return NULL;
    }
    self->idle -= home->size;
    tutti_list_remove(&home->link);
    return home;
}

/* With the lock. */
static chunk *
give_back(client_arena *self, unsigned char *data)
{
    chunk *home = find_chunk(self, data);
    span *one = home == NULL ? NULL : find_span(home, data);

    assert(one != NULL && one->used && home->data + one->offset == data);
    return free_span(self, home, one);
}

/* ------------------------------------------------------------------------------ doubt */

/*
 * An op that has failed may still be written by another rank: the agent reports it, and keeps its
 * memory locked until the others have let go (a stopped process: never). Blocks of the program are
 * the program's to judge, by the error's text; a block of ours must not be handed out again before
 * the agent says that nothing writes its tensor. It is asked only when there is no other room.
 */
void
client_arena_doubt(tutti_client *client, void *block)
{
    client_arena *self = get_arena(client);
    chunk *home;

    if (block == NULL || self == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&self->lock);
    home = find_chunk(self, block);
    assert(home != NULL);
    find_span(home, block)->doubt = ++self->doubts;
    (void)pthread_mutex_unlock(&self->lock);
}

static span *
find_doubtful(const chunk *self, uint64_t last)
{
    tutti_list_node *link;

    for (link = self->spans.next; link != &self->spans; link = link->next) {
        span *one = tutti_container_of(link, span, link);

        if (one->doubt != 0 && one->doubt <= last) {
            return one;
        }
    }
    return NULL;
}

/* With the lock: a chunk with doubtful spans of which the agent was not asked in this round. */
static chunk *
next_doubtful(client_arena *self, uint64_t last)
{
    tutti_list_node *link;

    for (link = self->chunks.next; link != &self->chunks; link = link->next) {
        chunk *one = tutti_container_of(link, chunk, link);

        if (one->asked != self->rounds && find_doubtful(one, last) != NULL) {
            one->asked = self->rounds;
            return one;
        }
    }
    return NULL;
}

/* With the lock. Returns the chunk if it is to be dropped. */
static chunk *
free_doubtful(client_arena *self, const char *name, uint64_t last)
{
    tutti_list_node *link;
    chunk *drop = NULL;
    span *one;

    for (link = self->chunks.next; link != &self->chunks; link = link->next) {
        chunk *home = tutti_container_of(link, chunk, link);

        if (strcmp(home->name, name) == 0) {
            while (drop == NULL && (one = find_doubtful(home, last)) != NULL) {
                drop = free_span(self, home, one);
            }
            break;
        }
    }
    return drop;
}

/* `last`: spans that become doubtful after the agent was asked are left for the next round. */
static void
settle_doubts(tutti_client *client, client_arena *self)
{
    tutti_tensor_info info;
    char name[NAME_SIZE];
    uint64_t last;
    chunk *home;

    (void)pthread_mutex_lock(&self->lock);
    self->rounds++;
    last = self->doubts;
    while ((home = next_doubtful(self, last)) != NULL) {
        memcpy(name, home->name, sizeof(name));
        (void)pthread_mutex_unlock(&self->lock);
        home = NULL;
        if (tutti_tensor_stat(client, name, &info, NULL) == TUTTI_OK && !info.pending) {
            (void)pthread_mutex_lock(&self->lock);
            home = free_doubtful(self, name, last);
            (void)pthread_mutex_unlock(&self->lock);
        }
        if (home != NULL) {
            drop_chunk(client, home);
        }
        (void)pthread_mutex_lock(&self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
}

/* Its agent is not asked any more, and no op finds it: nobody reads what is written there still. */
static bool
is_abandoned(const client_arena *arena, const chunk *self)
{
    const tutti_list_node *link;

    for (link = self->spans.next; link != &self->spans; link = link->next) {
        const span *one = tutti_container_of(link, span, link);

        if (one->used && one->doubt == 0) {
            return false;
        }
    }
    return !is_alive(arena, self);
}

/* With the lock: a chunk that is of no use any more, out of the list; NULL = none. */
static chunk *
take_dead(client_arena *self)
{
    tutti_list_node *link;

    for (link = self->chunks.next; link != &self->chunks; link = link->next) {
        chunk *one = tutti_container_of(link, chunk, link);

        if (is_abandoned(self, one)) {
            self->idle -= one->used == 0 ? one->size : 0;
            tutti_list_remove(&one->link);
            return one;
        }
    }
    return NULL;
}

static void
drop_dead(tutti_client *client, client_arena *self)
{
    chunk *one;

    do {
        (void)pthread_mutex_lock(&self->lock);
        one = take_dead(self);
        (void)pthread_mutex_unlock(&self->lock);
        if (one != NULL) {
            drop_chunk(client, one);
        }
    } while (one != NULL);
}

/* A part of what is there; NULL: there is no room. */
static void *
take_room(tutti_client *client, client_arena *self, uint64_t size)
{
    void *memory;
    bool doubtful;

    (void)pthread_mutex_lock(&self->lock);
    memory = take_from_arena(self, size);
    doubtful = memory == NULL && self->doubts > 0;
    (void)pthread_mutex_unlock(&self->lock);
    if (memory == NULL) {
        drop_dead(client, self); /* first: the agent need not be asked about them */
    }
    if (doubtful) {
        settle_doubts(client, self);
        (void)pthread_mutex_lock(&self->lock);
        memory = take_from_arena(self, size);
        (void)pthread_mutex_unlock(&self->lock);
    }
    return memory;
}

static uint64_t
choose_chunk_bytes(client_arena *self)
{
    bool first;

    (void)pthread_mutex_lock(&self->lock);
    first = tutti_list_empty(&self->chunks);
    (void)pthread_mutex_unlock(&self->lock);
    return first ? FIRST_CHUNK_BYTES : CHUNK_BYTES;
}

/* ------------------------------------------------------------------------------ the door */

tutti_code
tutti_alloc(tutti_client *client, uint64_t bytes, void **ret_memory, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(ret_memory, err);

    const uint64_t size = bytes == 0 ? ALIGN : (bytes + ALIGN - 1) / ALIGN * ALIGN;
    client_arena *self = need_arena(client);
    void *memory;
    chunk *made = NULL;

    if (client->owner != getpid()) {
        return TUTTI_FAIL_FOR(
            err, TUTTI_FAILED_PRECONDITION, "FORKED",
            "this process is a fork of the one that has connected: connect again");
    }
    if (self == NULL || bytes > INT64_MAX) {
        return TUTTI_FAIL_MEMORY(err, "no memory of %" PRIu64 " bytes", bytes);
    }
    TUTTI_TRY(client_check_member(client, err));
    memory = take_room(client, self, size);
    if (memory == NULL) {
        TUTTI_TRY(make_chunk(self, size, choose_chunk_bytes(self), &made, err));
        (void)pthread_mutex_lock(&self->lock);
        tutti_list_add(&self->chunks, &made->link);
        self->idle += made->size;
        memory = take_from_chunk(self, made, size);
        (void)pthread_mutex_unlock(&self->lock);
    }
    if (memory == NULL) {
        return TUTTI_FAIL_MEMORY(err, "no memory for the arena's bookkeeping");
    }
    *ret_memory = memory;
    return TUTTI_OK;
}

void
tutti_free_memory(tutti_client *client, void *memory)
{
    client_arena *self = get_arena(client);
    chunk *drop;

    if (memory == NULL) {
        return;
    }
    if (self == NULL) { /* a child of fork: it all goes with tutti_close */
        return;
    }
    (void)pthread_mutex_lock(&self->lock);
    drop = give_back(self, memory);
    (void)pthread_mutex_unlock(&self->lock);
    if (drop != NULL) {
        drop_chunk(client, drop);
    }
}

void
tutti_arena_stat(tutti_client *client, tutti_arena_stats *ret_stats)
{
    client_arena *self = get_arena(client);
    tutti_arena_stats stats = {0};
    tutti_list_node *link;

    stats.copied_bytes = atomic_load_explicit(&client->copied_bytes, memory_order_relaxed);
    if (self != NULL) {
        (void)pthread_mutex_lock(&self->lock);
        for (link = self->chunks.next; link != &self->chunks; link = link->next) {
            stats.mapped_bytes += tutti_container_of(link, chunk, link)->size;
            stats.used_bytes += tutti_container_of(link, chunk, link)->used;
        }
        (void)pthread_mutex_unlock(&self->lock);
    }
    *ret_stats = stats;
}

/* ------------------------------------------------------------------------------ for ops */

bool
client_arena_find(tutti_client *client, const void *data, const tutti_spec *spec,
                  char ret_text[TUTTI_RANGE_MAX + 1])
{
    client_arena *self = get_arena(client);
    uint64_t bytes = 0;
    const span *one = NULL;
    chunk *home;
    uint64_t offset;

    if (self == NULL || data == NULL || tutti_spec_size(spec, NULL, &bytes, NULL) != TUTTI_OK ||
        bytes == 0) {
        return false;
    }
    (void)pthread_mutex_lock(&self->lock);
    home = find_chunk(self, data);
    if (home != NULL) {
        one = find_span(home, data);
        offset = (uint64_t)((const unsigned char *)data - home->data);
        if (one == NULL || !one->used || bytes > one->size - (offset - one->offset) ||
            offset % tutti_dtype_bytes(spec->dtype) != 0 || !is_alive(self, home)) {
            one = NULL; /* its agent or lease has ended: memory like any other */
        } else {
            (void)tutti_range_format(home->name, offset, spec, ret_text, NULL);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
    return one != NULL;
}

/* Where tensors of this client lie on a GPU, staging on the host would be another op. */
static bool
may_stage(tutti_client *client)
{
    const client_arena *self = get_arena(client);
    const char *device = client->device[0] != '\0' ? client->device : client->agent.device;

    return strncmp(device, "cpu", 3) == 0 &&
           (self == NULL || !atomic_load_explicit(&self->refused, memory_order_relaxed));
}

/* If there was no tensor of the arena ever, the agent lends none: it is not asked again. */
static void
note_refused(tutti_client *client)
{
    client_arena *self = get_arena(client);

    if (self != NULL) {
        (void)pthread_mutex_lock(&self->lock);
        if (tutti_list_empty(&self->chunks)) {
            atomic_store_explicit(&self->refused, true, memory_order_relaxed);
        }
        (void)pthread_mutex_unlock(&self->lock);
    }
}

bool
client_arena_stage(tutti_client *client, uint64_t bytes, const tutti_spec *spec, void **ret_block,
                   char ret_text[TUTTI_RANGE_MAX + 1])
{
    if (!may_stage(client)) {
        return false;
    }
    if (tutti_alloc(client, bytes, ret_block, NULL) != TUTTI_OK) {
        note_refused(client);
        return false;
    }
    return client_arena_find(client, *ret_block, spec, ret_text);
}

void
client_arena_count_copy(tutti_client *client, uint64_t bytes)
{
    atomic_fetch_add_explicit(&client->copied_bytes, bytes, memory_order_relaxed);
}

/* ------------------------------------------------------------------------------ the end */

static void
close_arena(tutti_client *client, client_ending *ending)
{
    client_arena *arena = tutti_container_of(ending, client_arena, ending);
    tutti_list_node *link;

    client->settings.timeout_ms = CLOSE_MS; /* nobody calls any more: for the deletions alone */
    while ((link = tutti_list_pop(&arena->chunks)) != NULL) {
        drop_chunk(client, tutti_container_of(link, chunk, link));
    }
    client_lease_drop(arena->lease);
    (void)pthread_mutex_destroy(&arena->lock);
    (void)pthread_mutex_destroy(&arena->lease_lock);
    free(arena);
}

/* The views have descriptors and mappings of the parent's, which go with the child; the lease has a connection of the
 * parent's. */
static void
forget_arena(client_ending *ending)
{
    client_arena *arena = tutti_container_of(ending, client_arena, ending);
    tutti_list_node *link;

    while ((link = tutti_list_pop(&arena->chunks)) != NULL) {
        free_chunk(tutti_container_of(link, chunk, link));
    }
    free(arena);
}
