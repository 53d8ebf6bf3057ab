/*
 * Which transport carries data between hosts, and on which interfaces it listens. Runs once, when
 * the agent opens.
 *
 * An agent that listens for clients on this machine alone (the default) keeps its data plane to
 * loopback as well: packets of strangers are authenticated, but a port that nobody needs should not
 * be open. RDMA devices are reachable from other hosts, so they are not chosen by themselves then.
 */
#include "server/agent/state/data_plane.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/config/address.h"
#include "base/error/fail.h"
#include "base/os/log.h"
#include "coll/tcp/tcp.h"
#include "coll/ucx/ucx.h"
#include "server/agent/agent.h"

#define LOOPBACK "lo"

/* The kernel's device files, as libibverbs finds them; nothing is opened. */
static bool
has_rdma(void)
{
    glob_t found = {0};
    const bool has = glob("/dev/infiniband/uverbs*", 0, NULL, &found) == 0;

    globfree(&found);
    return has;
}

static bool
serves_others(const char *listen)
{
    tutti_address addresses[TUTTI_ADDRESSES_MAX];
    size_t count = 0;
    size_t i;

    if (tutti_address_parse_list(listen, addresses, &count, NULL) != TUTTI_OK) {
        return false;
    }
    for (i = 0; i < count && tutti_address_is_local(&addresses[i]); i++) {
    }
    return i < count;
}

const char *
tutti_agent_data_plane_devices(const tutti_agent_options *options, const char *listen)
{
    return options->net_devices[0] != '\0' || serves_others(listen) ? options->net_devices
                                                                    : LOOPBACK;
}

/* Kept to loopback because nothing says otherwise: neither --net-devices nor --listen. */
static bool
is_kept_here(const tutti_agent_options *options, const char *listen)
{
    return options->net_devices[0] == '\0' &&
           tutti_agent_data_plane_devices(options, listen)[0] != '\0';
}

const char *
tutti_agent_data_plane_name(const tutti_agent_options *options, const char *listen)
{
    const char *tls = getenv("UCX_TLS");

    if (options->transports[0] != '\0') {
        return options->transports;
    }
    return (tls != NULL && tls[0] != '\0') || (has_rdma() && !is_kept_here(options, listen))
               ? "ucx"
               : "tcp";
}

/* An agent whose coordinator is on another host was probably meant to work with other hosts. */
static void
warn_kept_here(const tutti_agent_options *options, const char *listen)
{
    tutti_address coordinator;

    if (is_kept_here(options, listen) &&
        tutti_address_parse(options->coordinator, &coordinator, NULL) == TUTTI_OK &&
        !tutti_address_is_local(&coordinator)) {
        TUTTI_LOG("agent", WARN,
                  "agents of other hosts cannot reach this one: its data plane uses loopback "
                  "alone, as --listen %s does; name other interfaces with --net-devices",
                  listen);
    }
}

static tutti_code
open_ucx(const tutti_agent_options *options, const char *listen, tutti_transport **ret_wire,
         tutti_error *err)
{
    const bool named = strcmp(tutti_agent_data_plane_name(options, listen), "ucx") != 0;
    const tutti_transport_ucx_options ucx = {.transports = named ? options->transports : "",
                                             .devices =
                                                 tutti_agent_data_plane_devices(options, listen)};

    if (options->data_port != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "--data-port is for --transports tcp: UCX takes any port");
    }
    TUTTI_LOG("agent", INFO, "data goes between hosts by UCX");
    return tutti_transport_ucx_open(&ucx, ret_wire, err);
}

static tutti_code
open_tcp(const tutti_agent_options *options, const char *listen, tutti_transport **ret_wire,
         tutti_error *err)
{
    const tutti_transport_tcp_options tcp = {.devices =
                                                 tutti_agent_data_plane_devices(options, listen),
                                             .port = (uint16_t)options->data_port,
                                             .congestion = options->congestion};
    tutti_code code = tutti_transport_tcp_open(&tcp, ret_wire, err);

    if (code == TUTTI_OK) {
        char text[TUTTI_TRANSPORT_TCP_TEXT_MAX];

        TUTTI_LOG("agent", INFO, "data goes between hosts by TCP: %s",
                  tutti_transport_tcp_describe(*ret_wire, text, sizeof(text)));
    }
    return code;
}

tutti_code
tutti_agent_data_plane_open(const tutti_agent_options *options, const char *listen,
                            tutti_transport **ret_wire, tutti_error *err)
{
    warn_kept_here(options, listen);
    return strcmp(tutti_agent_data_plane_name(options, listen), "tcp") != 0
               ? open_ucx(options, listen, ret_wire, err)
               : open_tcp(options, listen, ret_wire, err);
}
