#include <assert.h>
#include <stddef.h>
#include <string.h>

#include "base/error/text.h"
#include "rpc/server.h"

#define AT(member) offsetof(tutti_rpc_server_options, member)
#define HOURS(n) ((uint64_t)(n)*3600u * 1000000000u)
#define DAY HOURS(24)

/* A copy goes to each target, with a default of its own for the first one. */
static const tutti_option table[TUTTI_RPC_SERVER_OPTION_COUNT] = {
    {"listen", TUTTI_OPTION_LIST, AT(listen), "", 0, 0, NULL,
     "addresses to serve on, comma-separated: host:port, [v6]:port, unix:/path; port 0 = any"},
    {"port-file", TUTTI_OPTION_FILE, AT(port_file), "", 0, 0, NULL,
     "file into which the addresses with their real ports are written once the server listens, one "
     "a line; fd:N = an open descriptor, which is then closed"},
    {"insecure", TUTTI_OPTION_BOOL, AT(insecure), "false", 0, 0, NULL,
     "serve other machines in plaintext and without credentials: only for networks where everybody "
     "is trusted"},
    {"tls-cert", TUTTI_OPTION_FILE, AT(tls_cert), "", 0, 0, NULL,
     "PEM file of the server's certificate and its chain; read again when it changes"},
    {"tls-key", TUTTI_OPTION_FILE, AT(tls_key), "", 0, 0, NULL,
     "PEM file of the server's private key"},
    {"tls-client-ca", TUTTI_OPTION_FILE, AT(tls_client_ca), "", 0, 0, NULL,
     "PEM file of the authorities that sign clients: every client then needs a certificate"},
    {"token-file", TUTTI_OPTION_FILE, AT(token_file), "", 0, 0, NULL,
     "file with the bearer token that every call must carry; read again when it changes"},
    {"reflection", TUTTI_OPTION_BOOL, AT(reflection), "true", 0, 0, NULL,
     "serve gRPC reflection, for grpcurl and the like"},
    {"receive-bytes-max", TUTTI_OPTION_BYTES, AT(receive_bytes_max), "8MiB", 1u << 16, 1u << 30,
     NULL, "largest message that is accepted"},
    {"memory-quota", TUTTI_OPTION_BYTES, AT(memory_quota), "0", 0, 1ULL << 50, NULL,
     "memory for the buffers of all connections; 0 = a quarter of what this process may use"},
    {"streams-max", TUTTI_OPTION_UINT, AT(streams_max), "100", 1, 1u << 30, NULL,
     "calls in flight on one connection"},
    {"handshake-timeout", TUTTI_OPTION_NS, AT(handshake_ns), "10s", 1000000, DAY, NULL,
     "close a connection whose handshake has not ended after this time"},
    {"keepalive", TUTTI_OPTION_NS, AT(keepalive_ns), "60s", 100000000, DAY, NULL,
     "how often clients are pinged"},
    {"keepalive-timeout", TUTTI_OPTION_NS, AT(keepalive_timeout_ns), "20s", 100000000, DAY, NULL,
     "close a connection whose client has not answered a ping after this time"},
    {"ping-interval-min", TUTTI_OPTION_NS, AT(ping_interval_min_ns), "3s", 1000000, DAY, NULL,
     "close the connection of a client that pings more often than this"},
    {"drain-grace", TUTTI_OPTION_NS, AT(grace_ns), "10s", 0, DAY, NULL,
     "how long a server that stops waits for calls in flight"},
    {"self-check", TUTTI_OPTION_NS, AT(self_check_ns), "15s", 0, DAY, NULL,
     "how often to check that the listeners still answer; when one does not, exit with code 70; 0 "
     "= never"},
};

tutti_option_set
tutti_rpc_server_option_set(tutti_rpc_server_options *target, const char *default_listen)
{
    memcpy(target->table, table, sizeof(table));
    target->table[0].fallback = default_listen;
    return (tutti_option_set){.title = "serving",
                              .options = target->table,
                              .count = TUTTI_RPC_SERVER_OPTION_COUNT,
                              .target = target};
}

/* The default of one option; the table's defaults are good, so nothing can fail. */
static void
set_default(tutti_rpc_server_options *options, const tutti_option *option)
{
    void *member = (char *)options + option->offset;
    tutti_code code = TUTTI_OK;

    if (tutti_option_is_text(option->kind)) {
        *(const char **)member = option->fallback;
    } else if (option->kind == TUTTI_OPTION_BOOL) {
        code = tutti_parse_bool(option->fallback, member, NULL);
    } else if (option->kind == TUTTI_OPTION_BYTES) {
        code = tutti_parse_bytes(option->fallback, member, NULL);
    } else if (option->kind == TUTTI_OPTION_NS) {
        code = tutti_parse_ns(option->fallback, member, NULL);
    } else {
        code = tutti_parse_uint(option->fallback, UINT64_MAX, member, NULL);
    }
    assert(code == TUTTI_OK);
    (void)code;
}

void
tutti_rpc_server_options_init(tutti_rpc_server_options *options, const char *listen)
{
    size_t i;

    (void)tutti_rpc_server_option_set(options, listen);
    for (i = 0; i < TUTTI_RPC_SERVER_OPTION_COUNT; i++) {
        set_default(options, &options->table[i]);
    }
}
