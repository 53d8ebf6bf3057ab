#include "parker.h"

#include "rig.h"

static void
on_reply(void *arg, tutti_rpc_message *response, const tutti_error *err)
{
    parker *self = arg;

    (void)response;
    (void)atomic_fetch_add(&self->codes[err == NULL ? TUTTI_OK : err->code], 1);
    (void)atomic_fetch_add(&self->ended, 1);
}

static void
start_all(tutti_rpc_task *task)
{
    parker *self = tutti_container_of(task, parker, task);
    const echo_fields fields = {.text = "park"};
    echo_storage storage;
    size_t i;

    for (i = 0; i < self->wanted; i++) {
        if (tutti_rpc_request_start(self->channel, self->loop, self->stub,
                                    echo_request(&storage, &fields), NULL, on_reply, self, NULL,
                                    NULL) != TUTTI_OK) {
            abort();
        }
    }
}

void
parker_start(parker *self, const char *address, const tutti_rpc_stub *stub, size_t wanted)
{
    tutti_error err;

    *self = (parker){.stub = stub, .wanted = wanted, .task = {.on_run = start_all}};
    assert_ok(tutti_rpc_loop_new("parker", &self->loop, &err));
    assert_ok(tutti_rpc_loop_start(self->loop, &err));
    assert_ok(tutti_rpc_channel_open(address, NULL, &self->channel, &err));
    tutti_rpc_loop_post(self->loop, &self->task);
}

void
parker_stop(parker *self)
{
    tutti_rpc_loop_stop(self->loop);
    tutti_rpc_channel_close(self->channel);
    tutti_rpc_loop_free(self->loop);
}
