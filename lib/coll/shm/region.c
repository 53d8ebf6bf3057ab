/*
 * Regions: memory of single tensors, beside the memory that both sides map when they meet. The
 * process that exposes one sends its descriptor over the socket, once, before the record that names
 * it; so the process that takes that record finds the note in the socket. That a region is gone is
 * said likewise. Engine's thread on both sides.
 *
 * Two ways run side by side, the socket and the ring, and notes may be read before records that
 * were put earlier. That is why a region is taken back from a peer only when nothing that may name
 * it is out (make_room_region), and why a mapped region is counted: a rndv that points into it
 * keeps it when its note of the end comes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "coll/shm/shm_private.h"

#define NOTE 0x6e6f696765727474ULL
#define NOTE_PATIENCE_MS 1000 /* for a peer that does not read its notes */

typedef struct note {
    uint64_t magic;
    uint64_t size; /* 0 = it is gone */
    uint32_t id;
    uint32_t reserved;
} note;

/* --------------------------------------------------------------------- the process that exposes */

static bool
find_mapped_region(const transport_shm *self, const void *data, uint64_t size,
                   tutti_transport_shm_region *ret)
{
    return self->options.find_region != NULL &&
           self->options.find_region(self->options.arg, data, size, ret);
}

bool
tutti_shm_is_in_region(const transport_shm *self, const void *data, uint64_t size)
{
    tutti_transport_shm_region region;

    return find_mapped_region(self, data, size, &region);
}

static bool
is_in_arena(const transport_shm *self, const void *data)
{
    const uint64_t at = (uint64_t)((uintptr_t)data - (uintptr_t)self->options.base);

    return self->options.inside || at < self->options.size;
}

/*
 * A full socket means that the peer's engine does not run. Waiting stops all ops of this agent, so
 * it is bounded: a peer that reads nothing for NOTE_PATIENCE_MS is as good as dead, and its link
 * breaks.
 */
static bool
send_note(tutti_transport_conn *link, const note *it, int fd)
{
    struct pollfd room = {.fd = link->watch.fd, .events = POLLOUT};
    const size_t count = fd >= 0 ? 1 : 0;

    if (tutti_local_send(link->watch.fd, it, sizeof(*it), &fd, count)) {
        return true;
    }
    if (errno == EAGAIN && poll(&room, 1, NOTE_PATIENCE_MS) == 1 &&
        tutti_local_send(link->watch.fd, it, sizeof(*it), &fd, count)) {
        return true;
    }
    link->out.broken = true;
    return false;
}

/* The place is filled by the last one: the order of `told` means nothing. */
static bool
send_gone(tutti_transport_conn *link, uint32_t at)
{
    const note it = {.magic = NOTE, .id = link->told[at].id};

    link->told[at] = link->told[--link->told_count];
    return send_note(link, &it, -1);
}

/*
 * The peer maps SHM_REGIONS_MAX at once: one makes room, and is announced anew when it is exposed
 * again. Only while the peer has no message of ours that may name it: nothing is in `lent` but
 * `out` itself, whose other half is in region `keep`.
 */
static bool
make_room_region(tutti_transport_conn *link, const shm_out *out, uint32_t keep)
{
    const tutti_list_node *first = link->lent.next;
    const bool idle =
        first == &link->lent || (first == &out->link && link->lent.before == &out->link);

    return idle && send_gone(link, link->told[0].id == keep ? 1 : 0);
}

static bool
send_region(tutti_transport_conn *link, const shm_out *out,
            const tutti_transport_shm_region *region, uint32_t keep)
{
    const note it = {.magic = NOTE, .size = region->size, .id = region->id};
    uint32_t i;

    for (i = 0; i < link->told_count; i++) {
        if (link->told[i].id == region->id) {
            return true;
        }
    }
    if (link->told == NULL) {
        link->told = calloc(SHM_REGIONS_MAX, sizeof(*link->told));
    }
    if (link->told == NULL) {
        link->out.broken = true;
        return false;
    }
    if ((link->told_count == SHM_REGIONS_MAX && !make_room_region(link, out, keep)) ||
        !send_note(link, &it, region->fd)) {
        return false;
    }
    link->told[link->told_count++] = (shm_told){region->id, region->base};
    return true;
}

/* As the peer finds it: an offset in our common memory, or in a region it is told of. A false
 * result with the link whole means "not now": the message waits in the queue. */
static bool
place_region(tutti_transport_conn *link, const shm_out *out, tutti_bytes data, uint64_t *ret_at,
             uint32_t *ret_region, uint32_t keep)
{
    const transport_shm *self = link->transport;
    tutti_transport_shm_region region;

    *ret_at =
        data.data == NULL ? 0 : (uint64_t)((uintptr_t)data.data - (uintptr_t)self->options.base);
    *ret_region = 0;
    if (data.size == 0 || is_in_arena(self, data.data)) {
        return true;
    }
    if (!find_mapped_region(self, data.data, data.size, &region)) {
        link->out.broken = true; /* cannot be: it was asked for before */
        return false;
    }
    *ret_at = (uint64_t)((uintptr_t)data.data - (uintptr_t)region.base);
    *ret_region = region.id;
    return send_region(link, out, &region, keep);
}

bool
tutti_shm_place(tutti_transport_conn *link, const shm_out *out, shm_record *record)
{
    const tutti_bytes input = {out->rma.input, (size_t)out->rma.input_size};
    const tutti_bytes output = {out->rma.output, (size_t)out->rma.output_size};

    record->input_size = input.size;
    record->output_size = output.size;
    return place_region(link, out, input, &record->input, &record->input_region, 0) &&
           place_region(link, out, output, &record->output, &record->output_region,
                        record->input_region);
}

/* A region's number is never used again, so memory that is mapped anew at the same address is told
 * from the old one by its id. */
static void
forget_of(tutti_transport_conn *link)
{
    tutti_transport_shm_region region;
    uint32_t i = 0;

    while (i < link->told_count && !link->out.broken) {
        if (find_mapped_region(link->transport, link->told[i].base, 1, &region) &&
            region.id == link->told[i].id) {
            i++;
        } else {
            (void)send_gone(link, i);
        }
    }
}

/* Without this, peers would keep freed tensors mapped, and their pages allocated. A counter says
 * cheaply that nothing has gone. */
void
tutti_shm_forget_gone(transport_shm *self)
{
    const uint64_t gone =
        self->options.regions_gone == NULL ? 0 : self->options.regions_gone(self->options.arg);
    tutti_list_node *at;

    if (gone == self->gone_seen) {
        return;
    }
    self->gone_seen = gone;
    for (at = self->links.next; at != &self->links; at = at->next) {
        tutti_transport_conn *link = tutti_container_of(at, tutti_transport_conn, link);

        if (link->state == SHM_SAME_HOST && !link->broken) {
            forget_of(link);
        }
    }
}

/* ------------------------------------------------------------------------ the process that maps */

void
tutti_shm_region_drop(shm_region *region)
{
    if (region == NULL || --region->refs > 0) {
        return;
    }
    (void)munmap(region->data, (size_t)region->size);
    free(region);
}

static shm_region *
find_known_region(const shm_source *source, uint32_t id)
{
    tutti_list_node *at;

    for (at = source->regions.next; at != &source->regions; at = at->next) {
        shm_region *region = tutti_container_of(at, shm_region, link);

        if (region->id == id) {
            return region;
        }
    }
    return NULL;
}

static void
take_gone(shm_source *source, uint32_t id)
{
    shm_region *region = find_known_region(source, id);

    if (region != NULL) {
        tutti_list_remove(&region->link);
        source->region_count--;
        tutti_shm_region_drop(region); /* rendezvous messages may still be in it */
    }
}

/* The peer's number of regions is bounded here too: its promise to tell at most SHM_REGIONS_MAX is
 * not trusted. tutti_local_map refuses descriptors that are not sealed. */
static bool
take_new(shm_source *source, const note *it, int fd)
{
    shm_region *region = NULL;

    if (source->region_count < SHM_REGIONS_MAX && it->id != 0 &&
        find_known_region(source, it->id) == NULL) {
        region = calloc(1, sizeof(*region));
    }
    if (region == NULL) {
        return false;
    }
    *region = (shm_region){.id = it->id, .refs = 1, .size = it->size};
    region->data = tutti_local_map(fd, it->size);
    if (region->data == NULL) {
        free(region);
        return false;
    }
    tutti_list_init(&region->link);
    tutti_list_add(&source->regions, &region->link);
    source->region_count++;
    return true;
}

void
tutti_shm_hold_spare(transport_shm *self)
{
    if (self->spare < 0) {
        self->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    }
}

static void
give_spare(transport_shm *self)
{
    if (self->spare >= 0) {
        (void)close(self->spare);
        self->spare = -1;
    }
}

/*
 * A descriptor that finds no place is lost, and its region with it, for as long as both processes
 * live. It is needed for a moment only, until it is mapped, so a place for one is kept.
 *
 * Returns 1 = one was taken, 0 = none there yet, -1 = the end, or no note.
 */
static int
take_note(shm_source *source)
{
    int fds[TUTTI_LOCAL_FDS_MAX];
    size_t count = 0;
    note it = {0};
    long size;
    bool good;

    give_spare(source->transport);
    size = tutti_local_receive(source->watch.fd, &it, sizeof(it), fds, &count);
    good = size == sizeof(it) && it.magic == NOTE && count == (it.size > 0 ? 1 : 0);
    if (size < 0) {
        tutti_shm_hold_spare(source->transport);
        return 0;
    }
    if (good && it.size > 0) {
        good = take_new(source, &it, fds[0]);
    } else if (good) {
        take_gone(source, it.id);
    }
    tutti_local_close_all(fds, count);
    tutti_shm_hold_spare(source->transport);
    return good ? 1 : -1;
}

bool
tutti_shm_hear_notes(shm_source *source)
{
    int got;

    do {
        got = take_note(source);
    } while (got == 1);
    return got == 0;
}

/* The note was sent before the record that names the region, but perhaps not read yet: the record
 * came by the ring, faster. */
shm_region *
tutti_shm_region_get(shm_source *source, uint32_t id)
{
    shm_region *region = find_known_region(source, id);

    while (region == NULL && take_note(source) == 1) {
        region = find_known_region(source, id);
    }
    if (region != NULL) {
        region->refs++;
    }
    return region;
}

void
tutti_shm_regions_close(shm_source *source)
{
    while (!tutti_list_empty(&source->regions)) {
        take_gone(source, tutti_container_of(source->regions.next, shm_region, link)->id);
    }
}
