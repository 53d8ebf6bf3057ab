/* Rig: a fake agent, a client of it, and what tests of both say. */
#ifndef TUTTI_TESTS_CLIENT_RIG_H
#define TUTTI_TESTS_CLIENT_RIG_H

#include "client/conn/conn_pool.h"
#include "fake_agent.h"

typedef struct client_rig {
    fake_agent agent;
    tutti_client *client;
} client_rig;

/* For cmocka_run_group_tests: gRPC is there from the first test to the last. */
static inline int
client_rig_open(void **state)
{
    (void)state;
    (void)unsetenv("TUTTI_AGENT");
    (void)unsetenv("TUTTI_COORDINATOR");
    return client_library_enter(NULL) == TUTTI_OK ? 0 : -1;
}

static inline int
client_rig_close(void **state)
{
    (void)state;
    client_library_leave();
    return 0;
}

/* Setup and teardown for a test: the script may be changed afterwards. */
static inline int
client_rig_begin(void **state)
{
    client_rig *self = calloc(1, sizeof(*self));
    tutti_error err;

    assert_non_null(self);
    self->agent.script.spec = (tutti_spec){TUTTI_DTYPE_FP32, 2, {2, 3}};
    fake_agent_start(&self->agent, NULL);
    assert_ok(tutti_connect(fake_agent_address(&self->agent), &self->client, &err));
    *state = self;
    return 0;
}

static inline int
client_rig_end(void **state)
{
    client_rig *self = *state;

    tutti_close(self->client);
    fake_agent_stop(&self->agent);
    free(self);
    return 0;
}

#define client_test(name) cmocka_unit_test_setup_teardown(name, client_rig_begin, client_rig_end)

#endif
