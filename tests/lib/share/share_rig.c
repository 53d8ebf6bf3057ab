#include "share_rig.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "base/os/clock.h"
#include "base/os/local.h"

#define WAIT_NS (60 * TUTTI_NS_PER_S)

static void
on_over(void *owner)
{
    atomic_fetch_add((atomic_int *)owner, 1);
}

void
share_rig_open(share_rig *self, uint32_t shares_max, uint64_t patience_ns)
{
    const tutti_share_options options = {
        .shares_max = shares_max, .patience_ns = patience_ns, .on_over = on_over};
    tutti_error err;

    atomic_init(&self->over, 0);
    self->memory = tutti_local_create("test", RIG_BYTES, &self->fd);
    assert_non_null(self->memory);
    memset(self->memory, 7, RIG_BYTES);
    assert_ok(tutti_share_open(&options, &self->share, &err));
}

void
share_rig_close(share_rig *self)
{
    tutti_share_close(self->share);
    assert_int_equal(munmap(self->memory, RIG_BYTES), 0);
    assert_int_equal(close(self->fd), 0);
}

tutti_code
share_rig_offer(share_rig *self, bool writable, unsigned char *ret_token, tutti_error *err)
{
    const tutti_share_item item = {
        .fd = self->fd, .bytes = RIG_BYTES, .writable = writable, .owner = &self->over};

    return tutti_share_offer(self->share, &item, ret_token, err);
}

tutti_code
share_rig_take(const share_rig *self, const unsigned char *token, tutti_share_view *ret_view,
               tutti_error *err)
{
    return tutti_share_take(tutti_share_socket(self->share),
                            (tutti_bytes){token, TUTTI_SHARE_TOKEN_BYTES}, RIG_WAIT_MS, ret_view,
                            err);
}

/* The thread hears of it some time. */
void
share_rig_wait_over(share_rig *self, int count)
{
    const struct timespec pause = {.tv_nsec = TUTTI_NS_PER_MS};
    const uint64_t until_ns = tutti_clock_add(tutti_clock_ns(), WAIT_NS);

    while (atomic_load(&self->over) != count) {
        assert_true(tutti_clock_ns() < until_ns);
        (void)nanosleep(&pause, NULL);
    }
}
