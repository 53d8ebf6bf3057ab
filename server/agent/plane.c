#include "server/agent/plane.h"

#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "base/log.h"
#include "coll/tcp/coll_tcp.h"
#include "coll/ucx/coll_ucx.h"
#include "server/agent/agent.h"

static bool
has_rdma(void)
{
    glob_t found = {0};
    const bool has = glob("/dev/infiniband/uverbs*", 0, NULL, &found) == 0;

    globfree(&found);
    return has;
}

const char *
tutti_agent_plane_name(const tutti_agent_options *options)
{
    const char *tls = getenv("UCX_TLS");

    if (options->transports[0] != '\0') {
        return options->transports;
    }
    return (tls != NULL && tls[0] != '\0') || has_rdma() ? "ucx" : "tcp";
}

static tutti_code
open_ucx(const tutti_agent_options *options, tutti_wire **ret_wire, tutti_error *err)
{
    const bool named = strcmp(tutti_agent_plane_name(options), "ucx") != 0;
    const tutti_wire_ucx_options ucx = {.transports = named ? options->transports : "",
                                        .devices = options->net_devices};

    if (options->data_port != 0) {
        return TUTTI_FAIL(err, TUTTI_INVALID_ARGUMENT,
                          "--data-port is for --transports tcp: UCX takes any port");
    }
    TUTTI_LOG("agent", INFO, "data goes between hosts by UCX");
    return tutti_wire_ucx_open(&ucx, ret_wire, err);
}

static tutti_code
open_tcp(const tutti_agent_options *options, tutti_wire **ret_wire, tutti_error *err)
{
    const tutti_wire_tcp_options tcp = {.devices = options->net_devices,
                                        .port = (uint16_t)options->data_port,
                                        .congestion = options->congestion};
    tutti_code code = tutti_wire_tcp_open(&tcp, ret_wire, err);

    if (code == TUTTI_OK) {
        char text[TUTTI_WIRE_TCP_TEXT_MAX];

        TUTTI_LOG("agent", INFO, "data goes between hosts by TCP: %s",
                  tutti_wire_tcp_describe(*ret_wire, text, sizeof(text)));
    }
    return code;
}

tutti_code
tutti_agent_plane_open(const tutti_agent_options *options, tutti_wire **ret_wire, tutti_error *err)
{
    return strcmp(tutti_agent_plane_name(options), "tcp") != 0 ? open_ucx(options, ret_wire, err)
                                                               : open_tcp(options, ret_wire, err);
}
