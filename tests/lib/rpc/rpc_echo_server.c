/* The echo service as a process of its own, for clients in other languages. Ends with SIGTERM. */
#include <signal.h>
#include <stdio.h>

#include "base/config/config.h"
#include "echo_server.h"

static int
serve(echo_server *self)
{
    tutti_error err;
    sigset_t wanted;
    int number = 0;

    if (echo_server_start(self, 2, &err) != TUTTI_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        echo_server_fini(self);
        return 1;
    }
    tutti_rpc_server_set_health(self->server, "", true);
    tutti_rpc_server_set_health(self->server, "rpctest.v1.EchoService", true);
    (void)sigemptyset(&wanted);
    (void)sigaddset(&wanted, SIGTERM);
    (void)sigaddset(&wanted, SIGUSR1);
    while (sigwait(&wanted, &number) == 0 && number != SIGTERM) {
        tutti_rpc_server_set_health(self->server, "rpctest.v1.EchoService", false);
    }
    echo_server_fini(self);
    return 0;
}

int
main(int argc, char **argv)
{
    echo_server self;
    tutti_option_set set;
    tutti_config *config = NULL;
    tutti_config_wish wish = TUTTI_CONFIG_RUN;
    tutti_error err;
    sigset_t all;
    int failed;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, NULL);
    echo_server_init(&self, "");
    set = tutti_rpc_server_option_set(&self.options, "127.0.0.1:0");
    if (tutti_config_load(&set, 1, argc, argv, &config, &wish, &err) != TUTTI_OK) {
        (void)fprintf(stderr, "%s\n", err.text);
        return 2;
    }
    tutti_rpc_init();
    failed = serve(&self);
    tutti_rpc_fini();
    tutti_config_free(config);
    return failed;
}
