#include "server/agent/function/python_environment.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rpc/server.h"
#include "server/agent/state/state.h"

extern char **environ;

#define OWN_COUNT 7

/* A variable, as "NAME=value". */
typedef struct own_variable {
    const char *name;
    const char *value;
} own_variable;

static const char *
first_given(const char *one, const char *other)
{
    return one[0] != '\0' ? one : other;
}

/*
 * The agent trusts for its own certificate whom it trusts for those of its peers, and the process
 * shows the certificate that the agent itself shows as a client: whoever runs code beside the agent,
 * as its user, has its files anyway.
 */
static void
list_variables(const tutti_agent *agent, const char *key, const char *address,
               own_variable ret[OWN_COUNT])
{
    const tutti_rpc_server_options *server = agent->server_options;
    const tutti_agent_options *own = agent->options;
    const bool tls = server->tls_cert[0] != '\0' && strncmp(address, "unix:", 5) != 0;
    const bool certificate = tls && server->tls_client_ca[0] != '\0';
    const bool other = own->tls_cert[0] != '\0';

    ret[0] = (own_variable){"TUTTI_HOST_KEY", key};
    ret[1] =
        (own_variable){"TUTTI_TLS_CA", tls ? first_given(own->tls_ca, server->tls_client_ca) : ""};
    ret[2] = (own_variable){"TUTTI_TLS_CERT", !certificate ? ""
                                              : other      ? own->tls_cert
                                                           : server->tls_cert};
    ret[3] = (own_variable){"TUTTI_TLS_KEY", !certificate ? ""
                                             : other      ? own->tls_key
                                                          : server->tls_key};
    ret[4] = (own_variable){"TUTTI_TOKEN_FILE", first_given(own->python_token, server->token_file)};
    ret[5] = (own_variable){"TUTTI_TLS_NAME", ""};
    ret[6] = (own_variable){"TUTTI_AGENT", address};
}

/* "NAME=value", on the heap; NULL: no memory. */
static char *
join_variable(const own_variable *one)
{
    const size_t size = strlen(one->name) + 1 + strlen(one->value) + 1;
    char *text = malloc(size);

    if (text != NULL) {
        (void)snprintf(text, size, "%s=%s", one->name, one->value);
    }
    return text;
}

/* Is a variable of the agent one of those that are the process's own? */
static bool
is_own(const own_variable own[OWN_COUNT], const char *variable)
{
    size_t i;

    for (i = 0; i < OWN_COUNT; i++) {
        const size_t size = strlen(own[i].name);

        if (strncmp(variable, own[i].name, size) == 0 && variable[size] == '=') {
            return true;
        }
    }
    return false;
}

char **
agent_python_environment(const tutti_agent *agent, const char *key, const char *address)
{
    own_variable own[OWN_COUNT];
    size_t count = 0;
    size_t used = 0;
    char **ret;
    size_t i;

    while (environ[count] != NULL) {
        count++;
    }
    ret = calloc(OWN_COUNT + count + 1, sizeof(*ret));
    list_variables(agent, key, address, own);
    for (i = 0; ret != NULL && i < OWN_COUNT; i++) {
        ret[used] = join_variable(&own[i]);
        if (ret[used++] == NULL) {
            agent_python_environment_free(ret);
            return NULL;
        }
    }
    for (i = 0; ret != NULL && i < count; i++) {
        if (!is_own(own, environ[i])) {
            ret[used++] = environ[i];
        }
    }
    return ret;
}

void
agent_python_environment_free(char **environment)
{
    size_t i;

    for (i = 0; environment != NULL && i < OWN_COUNT; i++) {
        free(environment[i]);
    }
    free(environment);
}
