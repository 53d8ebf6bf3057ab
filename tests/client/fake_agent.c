#include "fake_agent.h"

#include "base/os/clock.h"

void
fake_agent_start(fake_agent *self, const char *listen)
{
    extern const unsigned char tutti_descriptor_set[];
    extern const size_t tutti_descriptor_set_size;
    const tutti_bytes descriptors = {tutti_descriptor_set, tutti_descriptor_set_size};
    tutti_error err;

    (void)pthread_mutex_init(&self->lock, NULL);
    (void)pthread_cond_init(&self->changed, NULL);
    tutti_rpc_server_options_init(&self->options, listen != NULL ? listen : "127.0.0.1:0");
    self->options.self_check_ns = 0;
    self->options.grace_ns = 100 * TUTTI_NS_PER_MS;
    self->options.memory_quota = 1ULL << 30;
    assert_ok(tutti_rpc_loop_new("fake", &self->loop, &err));
    assert_ok(tutti_rpc_loop_start(self->loop, &err));
    assert_ok(tutti_rpc_server_new(&self->options, descriptors, self->loop, &self->server, &err));
    fake_agent_add_services(self);
    assert_ok(tutti_rpc_server_start(self->server, &err));
    tutti_rpc_server_set_health(self->server, "", !self->script.not_serving);
}

static void
on_stopped(void *arg)
{
    fake_agent *self = arg;

    (void)pthread_mutex_lock(&self->lock);
    self->stopped = true;
    (void)pthread_cond_signal(&self->changed);
    (void)pthread_mutex_unlock(&self->lock);
}

void
fake_agent_stop(fake_agent *self)
{
    tutti_rpc_server_stop(self->server, on_stopped, self);
    (void)pthread_mutex_lock(&self->lock);
    while (!self->stopped) {
        (void)pthread_cond_wait(&self->changed, &self->lock);
    }
    (void)pthread_mutex_unlock(&self->lock);
    tutti_rpc_server_free(self->server);
    tutti_rpc_loop_stop(self->loop);
    tutti_rpc_loop_free(self->loop);
    (void)pthread_cond_destroy(&self->changed);
    (void)pthread_mutex_destroy(&self->lock);
    free(self->bytes);
}

const char *
fake_agent_address(const fake_agent *self)
{
    size_t count = 0;

    return tutti_rpc_server_addresses(self->server, &count)->text;
}

void
fake_agent_settle(fake_agent *self)
{
    const struct timespec shortly = {.tv_nsec = 1000000};

    while (atomic_load(&self->stream_count) > 0) {
        (void)nanosleep(&shortly, NULL);
    }
}
