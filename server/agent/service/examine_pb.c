/*
 * DiagnosticsService.Examine: limits, addresses, and the ways to other ranks. The request and the
 * local facts are read on the control loop; the answer leaves from the thread that runs the engine,
 * when the probe has ended. The self_check belongs to the probe from tutti_coll_probe on.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "server/agent/record/progress.h"
#include "server/agent/state/data_plane.h"
#include "server/agent/state/device.h"
#include "server/agent/state/state.h"
#include "tutti/v1/diagnostics_service.pb-c.h"
#include "tutti/version.h"

#define RANKS_MAX 1024
#define WAIT_MS 2000
#define WAIT_MS_MAX 10000
#define RDMA_MAX 16
#define RDMA_NAME_SIZE 64

/* One answer with the memory that it points to. */
typedef struct self_check {
    tutti_agent *agent;
    tutti_rpc_call *call;
    Tutti__V1__ExamineResponse response;
    char kernel[160];
    char *addresses[TUTTI_ADDRESSES_MAX];
    char rdma[RDMA_MAX][RDMA_NAME_SIZE];
    char *rdma_pointers[RDMA_MAX];
    char gpus[AGENT_DEVICES_MAX][208];
    char *gpu_pointers[AGENT_DEVICES_MAX];
    Tutti__V1__Reach reaches[RANKS_MAX];
    Tutti__V1__Reach *pointers[RANKS_MAX];
} self_check;

static char *
get_self_check_text(const char *text)
{
    return (char *)(uintptr_t)text;
}

/* Entries of a folder that do not begin with a dot; their names are kept when there is room. */
static size_t
list_folder(const char *path, char (*ret_names)[RDMA_NAME_SIZE], size_t most)
{
    DIR *folder = opendir(path);
    const struct dirent *entry;
    size_t count = 0;

    if (folder == NULL) {
        return 0;
    }
    while ((entry = readdir(folder)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        if (ret_names != NULL && count < most) {
            (void)snprintf(ret_names[count], RDMA_NAME_SIZE, "%.63s", entry->d_name);
        }
        count++;
    }
    (void)closedir(folder);
    return count;
}

static uint64_t
limit_of(rlim_t limit)
{
    return limit == RLIM_INFINITY ? UINT64_MAX : limit;
}

static void
fill_limits(self_check *self)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        self->response.memlock_bytes = limit_of(limit.rlim_cur);
        self->response.memlock_max_bytes = limit_of(limit.rlim_max);
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        self->response.files = limit_of(limit.rlim_cur);
        self->response.files_max = limit_of(limit.rlim_max);
    }
    self->response.files_open = list_folder("/proc/self/fd", NULL, 0);
}

static void
fill_machine(self_check *self)
{
    struct utsname name;
    size_t count = list_folder("/sys/class/infiniband", self->rdma, RDMA_MAX);
    size_t i;

    if (uname(&name) == 0) {
        (void)snprintf(self->kernel, sizeof(self->kernel), "%s %s", name.sysname, name.release);
    }
    count = count < RDMA_MAX ? count : RDMA_MAX;
    for (i = 0; i < count; i++) {
        self->rdma_pointers[i] = self->rdma[i];
    }
    self->response.kernel = self->kernel;
    self->response.rdma_devices = self->rdma_pointers;
    self->response.n_rdma_devices = count;
}

static void
fill_gpus(self_check *self)
{
    const agent_devices *devices = &self->agent->devices;
    size_t i;

    for (i = 0; i < devices->count; i++) {
        (void)snprintf(self->gpus[i], sizeof(self->gpus[i]), "%s %s, %s",
                       tutti_space_device(devices->list[i].space), devices->list[i].cuda.name,
                       devices->list[i].cuda.uuid);
        self->gpu_pointers[i] = self->gpus[i];
    }
    self->response.gpus = self->gpu_pointers;
    self->response.n_gpus = devices->count;
}

static void
fill_self_check(self_check *self)
{
    tutti_agent *agent = self->agent;
    const char *listen = agent->server_options->listen;
    Tutti__V1__ExamineResponse *response = &self->response;

    tutti__v1__examine_response__init(response);
    response->rank = agent->rank;
    response->host = agent->host;
    response->pid = (uint32_t)getpid();
    response->version = get_self_check_text(TUTTI_VERSION);
    response->device = get_self_check_text(agent->options->device);
    response->addresses = self->addresses;
    response->n_addresses = agent_addresses(agent, self->addresses);
    response->transports = get_self_check_text(tutti_agent_data_plane_name(agent->options, listen));
    response->net_devices =
        get_self_check_text(tutti_agent_data_plane_devices(agent->options, listen));
    fill_limits(self);
    fill_machine(self);
    fill_gpus(self);
}

/*
 * The thread that runs the engine, once. `reaches` is borrowed until this returns, and the response
 * is packed before that.
 */
static void
on_probed(void *arg, const tutti_coll_reach *reaches, size_t count)
{
    self_check *self = arg;
    size_t i;

    for (i = 0; i < count; i++) {
        tutti__v1__reach__init(&self->reaches[i]);
        self->reaches[i].rank = reaches[i].rank;
        self->reaches[i].reached = reaches[i].reached;
        self->reaches[i].trip_us = reaches[i].trip_ns / TUTTI_NS_PER_US;
        self->reaches[i].why = get_self_check_text(reaches[i].why);
        self->pointers[i] = &self->reaches[i];
    }
    self->response.reaches = self->pointers;
    self->response.n_reaches = count;
    tutti_rpc_call_reply(self->call, &self->response.base, NULL);
    tutti_rpc_call_unref(self->call);
    free(self);
}

static tutti_code
check_self_check(const tutti_agent *agent, const Tutti__V1__ExamineRequest *request,
                 tutti_error *err)
{
    size_t i;

    if (agent->state != AGENT_JOINED) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NOT_JOINED",
                              "this agent has not joined its job yet: wait until it serves");
    }
    if (request->wait_ms > WAIT_MS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_WAIT", "wait_ms of %u, at most %d",
                              request->wait_ms, WAIT_MS_MAX);
    }
    if (request->n_ranks > RANKS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "LOOKUP_LIMIT",
                              "%zu ranks at once, at most %d", request->n_ranks, RANKS_MAX);
    }
    for (i = 0; i < request->n_ranks; i++) {
        if (request->ranks[i] >= agent->world_size) {
            return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "RANK_RANGE",
                                  "rank %u in a world of %u, need a rank below the world size",
                                  request->ranks[i], agent->world_size);
        }
    }
    return TUTTI_OK;
}

static tutti_code
start_self_check(tutti_agent *agent, tutti_rpc_call *call, tutti_error *err)
{
    const Tutti__V1__ExamineRequest *request = tutti_rpc_call_request(call);
    const uint64_t wait_ms = request->wait_ms == 0 ? WAIT_MS : request->wait_ms;
    uint32_t ranks[RANKS_MAX];
    size_t count = 0;
    size_t i;
    tutti_code code = check_self_check(agent, request, err);
    self_check *self = code == TUTTI_OK ? calloc(1, sizeof(*self)) : NULL;

    if (self == NULL) {
        return code != TUTTI_OK ? code : TUTTI_FAIL_MEMORY(err, "no memory for an answer");
    }
    for (i = 0; i < request->n_ranks; i++) {
        if (request->ranks[i] != agent->rank) {
            ranks[count++] = request->ranks[i];
        }
    }
    self->agent = agent;
    self->call = call;
    fill_self_check(self);
    tutti_rpc_call_ref(call);
    code = tutti_coll_probe(agent->engine, ranks, count, wait_ms * TUTTI_NS_PER_MS, on_probed, self,
                            err);
    if (code != TUTTI_OK) {
        tutti_rpc_call_unref(call);
        free(self);
    }
    return code;
}

void
agent_on_examine(tutti_rpc_call *call, void *self)
{
    tutti_error err;

    if (start_self_check(self, call, &err) != TUTTI_OK) {
        tutti_rpc_call_fail(call, &err);
    }
}
