/*
 * Opening and finding the devices of --device. All of it is fixed once the agent is open, so the
 * functions that look things up may run on any thread without a lock.
 */
#include "server/agent/state/device.h"

#include <stdio.h>
#include <string.h>

#include "base/error/fail.h"
#include "base/error/text.h"
#include "base/os/log.h"
#include "coll/nccl/nccl.h"
#include "server/agent/state/state.h"
#include "tensor/space.h"

/* ------------------------------------------------------------------------------ opening */

static bool
has_device(const agent_devices *devices, int number)
{
    size_t i;

    for (i = 0; i < devices->count; i++) {
        if (devices->list[i].cuda.number == number) {
            return true;
        }
    }
    return false;
}

/* count grows last: agent_devices_close closes exactly the spaces that were opened. */
static tutti_code
open_cuda(tutti_agent *agent, int number, tutti_error *err)
{
    agent_devices *devices = &agent->devices;
    agent_device *device = &devices->list[devices->count];
    const tutti_space_cuda_options options = {.number = number,
                                              .limit_bytes = agent->options->device_memory_limit};

    TUTTI_TRY(tutti_cuda_find(number, &devices->cuda, &device->cuda, err));
    TUTTI_TRY(devices->cuda->open(&options, &device->space, err));
    devices->count++;
    TUTTI_LOG("agent", INFO, "cuda:%d is %s, %s", number, device->cuda.name, device->cuda.uuid);
    return TUTTI_OK;
}

/* The first device named is where tensors live when a call names none (home). */
static tutti_code
open_named(tutti_agent *agent, const char *name, tutti_error *err)
{
    agent_devices *devices = &agent->devices;
    const int number = tutti_cuda_parse(name);

    if (number < 0 && strcmp(name, "cpu") != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_DEVICE",
                              "device \"%.40s\": need cpu or cuda:N, or several by commas", name);
    }
    if (number >= 0 && (devices->count == AGENT_DEVICES_MAX || has_device(devices, number))) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_DEVICE",
                              "device %.40s: given twice, or more than %d devices are given", name,
                              AGENT_DEVICES_MAX);
    }
    if (number >= 0) {
        TUTTI_TRY(open_cuda(agent, number, err));
    }
    if (devices->home == NULL) {
        devices->home = number < 0 ? agent->space : devices->list[0].space;
    }
    return TUTTI_OK;
}

tutti_code
agent_devices_open(tutti_agent *agent, tutti_error *err)
{
    const char *at = agent->options->device;
    char name[64];
    tutti_code code = TUTTI_OK;

    while (code == TUTTI_OK) {
        const size_t size = strcspn(at, ",");

        (void)snprintf(name, sizeof(name), "%.*s", (int)(size < 60 ? size : 60), at);
        code = open_named(agent, name, err);
        if (at[size] == '\0') {
            break;
        }
        at += size + 1;
    }
    return code;
}

void
agent_devices_close(tutti_agent *agent)
{
    while (agent->devices.count > 0) {
        tutti_space_close(agent->devices.list[--agent->devices.count].space);
    }
}

/* ------------------------------------------------------------------------------ finding */

static tutti_code
fail_unknown(const tutti_agent *agent, const char *device, tutti_error *err)
{
    const agent_devices *devices = &agent->devices;
    char buffer[256];
    tutti_text text = tutti_text_in(buffer, sizeof(buffer));
    size_t i;

    tutti_text_add(&text, "cpu");
    for (i = 0; i < devices->count; i++) {
        tutti_text_add(&text, ", %s", tutti_space_device(devices->list[i].space));
    }
    return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "NO_DEVICE",
                          "this agent has no device \"%.40s\": it has %s (--device)", device,
                          buffer);
}

/* "cuda" alone is the first GPU; "cpu" is host memory also on an agent that did not name it. */
tutti_code
agent_devices_find(tutti_agent *agent, const char *device, tutti_space **ret_space,
                   tutti_error *err)
{
    const agent_devices *devices = &agent->devices;
    size_t i;

    if (device[0] == '\0' || strcmp(device, "cpu") == 0) {
        *ret_space = device[0] == '\0' ? devices->home : agent->space;
        return TUTTI_OK;
    }
    for (i = 0; i < devices->count; i++) {
        if (strcmp(device, "cuda") == 0 ||
            strcmp(device, tutti_space_device(devices->list[i].space)) == 0) {
            *ret_space = devices->list[i].space;
            return TUTTI_OK;
        }
    }
    return fail_unknown(agent, device, err);
}

/* A GPU without a backend stays usable for tensors, so this only warns. */
static void
open_backend(tutti_agent *agent, const tutti_nccl_module *module, size_t i,
             tutti_coll_backend **ret_backend)
{
    agent_device *device = &agent->devices.list[i];
    const tutti_coll_nccl_options options = {.device = device->cuda.number,
                                             .space = device->space,
                                             .follow = agent->devices.cuda->follow,
                                             .occupy = agent->devices.cuda->occupy,
                                             .vacate = agent->devices.cuda->vacate};
    tutti_error err;

    if (module->open(&options, ret_backend, &err) != TUTTI_OK) {
        TUTTI_LOG("agent", WARN, "no ops on %s: %s", tutti_space_device(device->space), err.text);
        return;
    }
    device->has_backend = true;
    TUTTI_LOG("agent", INFO, "ops on cuda:%d run on NCCL %d", options.device, module->version());
}

void
agent_devices_backends(tutti_agent *agent, tutti_coll_backend *ret_backends[AGENT_DEVICES_MAX])
{
    const tutti_nccl_module *module = NULL;
    tutti_error err;
    size_t i;

    if (agent->devices.count == 0) {
        return;
    }
    if (tutti_coll_nccl_load(&module, &err) != TUTTI_OK) {
        TUTTI_LOG("agent", WARN, "tensors on GPUs, but no ops there: %s", err.text);
        return;
    }
    for (i = 0; i < agent->devices.count; i++) {
        open_backend(agent, module, i, &ret_backends[i]);
    }
}

void
agent_devices_uuids(const tutti_agent *agent, char ret_uuids[AGENT_UUIDS_SIZE])
{
    tutti_text text = tutti_text_in(ret_uuids, AGENT_UUIDS_SIZE);
    size_t i;

    ret_uuids[0] = '\0';
    for (i = 0; i < agent->devices.count; i++) {
        tutti_text_add(&text, "%s%s", i == 0 ? "" : " ", agent->devices.list[i].cuda.uuid);
    }
}
