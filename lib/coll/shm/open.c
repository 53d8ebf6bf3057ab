#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/data/id.h"
#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/shm/fault.h"
#include "coll/shm/shm_private.h"

/* ------------------------------------------------------------------------------ closing */

static void
close_fd(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

static void
close_pulls(transport_shm *self)
{
    tutti_list_node *at;

    while ((at = tutti_list_pop(&self->pulls)) != NULL) {
        tutti_transport_rndv *rndv = tutti_container_of(at, tutti_transport_rndv, link);
        tutti_transport_ticket *ticket = rndv->ticket;

        tutti_shm_give_back(&self->base, rndv, false);
        ticket->on_done(ticket, false);
    }
}

static void
close_ways(transport_shm *self)
{
    close_pulls(self);
    while (!tutti_list_empty(&self->links)) {
        tutti_shm_link_free(tutti_container_of(self->links.next, tutti_transport_conn, link));
    }
    while (!tutti_list_empty(&self->sources)) {
        shm_source *source = tutti_container_of(self->sources.next, shm_source, link);

        source->met = false; /* nobody listens to last words any more */
        tutti_shm_source_gone(source);
    }
}

static void
close_own(transport_shm *self)
{
    close_fd(&self->listener.fd);
    close_fd(&self->doorbell);
    close_fd(&self->page_fd);
    close_fd(&self->poller);
    if (self->page != NULL && !self->options.inside) { /* else a peer may still ring */
        (void)munmap(self->page, sizeof(*self->page));
    }
    self->page = NULL;
}

void
tutti_shm_close(tutti_transport *transport)
{
    transport_shm *self = tutti_transport_shm_from(transport);

    close_ways(self);
    self->inner->ops->close(self->inner);
    close_own(self);
    free(self->address);
    free(self);
}

/* ------------------------------------------------------------------------------ opening */

static void
on_doorbell(shm_watch *watch)
{
    uint64_t count;
    const ssize_t got = read(watch->fd, &count, sizeof(count));

    (void)got;
}

/* It has work: progress does it. */
static void
on_inner(shm_watch *watch)
{
    (void)watch;
}

static bool
open_own(transport_shm *self, const unsigned char name[SHM_NAME_BYTES])
{
    self->poller = epoll_create1(EPOLL_CLOEXEC);
    self->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    self->page = tutti_local_create("tutti-page", sizeof(*self->page), &self->page_fd);
    self->listener = (shm_watch){.on_event = tutti_shm_on_knock,
                                 .fd = tutti_local_listen((tutti_bytes){name, SHM_NAME_BYTES})};
    self->doorbell_watch = (shm_watch){.on_event = on_doorbell, .fd = self->doorbell};
    self->inner_watch =
        (shm_watch){.on_event = on_inner, .fd = self->inner->ops->descriptor(self->inner)};
    return self->poller >= 0 && self->doorbell >= 0 && self->page != NULL &&
           self->listener.fd >= 0 && tutti_shm_watch(self, &self->listener) &&
           tutti_shm_watch(self, &self->doorbell_watch) &&
           (self->inner_watch.fd < 0 || tutti_shm_watch(self, &self->inner_watch));
}

static void
draw_shm_name(unsigned char ret_name[SHM_NAME_BYTES])
{
    char text[TUTTI_ID_TEXT_SIZE];
    char name[SHM_NAME_BYTES + 1];

    tutti_id_format(tutti_id_draw(), text);
    (void)snprintf(name, sizeof(name), "tutti-sh%s", text);
    memcpy(ret_name, name, SHM_NAME_BYTES);
}

static void
init_shm(transport_shm *self, const tutti_transport_shm_options *options)
{
    self->base.ops = &tutti_transport_shm_ops;
    self->options = *options;
    self->inner = options->inner;
    self->poller = -1;
    self->doorbell = -1;
    self->page_fd = -1;
    self->listener.fd = -1;
    self->secret[0] = tutti_id_draw();
    self->secret[1] = tutti_id_draw();
    (void)snprintf(self->host_id, sizeof(self->host_id), "%s",
                   options->host_id == NULL ? "" : options->host_id);
    tutti_list_init(&self->links);
    tutti_list_init(&self->sources);
    tutti_list_init(&self->pulls);
}

tutti_code
tutti_transport_shm_open(const tutti_transport_shm_options *options,
                         tutti_transport **ret_transport, tutti_error *err)
{
    transport_shm *self = calloc(1, sizeof(*self));
    unsigned char name[SHM_NAME_BYTES];
    tutti_code code;

    if (self == NULL) {
        options->inner->ops->close(options->inner);
        return TUTTI_FAIL(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for the data plane");
    }
    tutti_shm_fault_init();
    init_shm(self, options);
    draw_shm_name(name);
    self->on = !options->off && open_own(self, name);
    if (!self->on) {
        close_own(self);
    }
    if (!self->on && !options->off) {
        TUTTI_LOG("coll/shm", WARN, "no descriptors for shared memory: all goes by the network");
    }
    code = tutti_shm_address_make(self, name, err);
    if (code != TUTTI_OK) {
        tutti_shm_close(&self->base);
        return code;
    }
    *ret_transport = &self->base;
    return TUTTI_OK;
}
