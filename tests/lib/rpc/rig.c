#include "rig.h"
#include "rpc/loop/loop_private.h"
#include "rpc/util/process.h"

#include <dirent.h>
#include <grpc/grpc.h>
#include <time.h>
#include <unistd.h>

#include "rpc/channel/channel_private.h"
#include "rpc/message/message.h"

/* Debian's c-ares forgets the name of every host that gRPC looks up: ten bytes, not ours. */
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void);

const char *
__lsan_default_suppressions(void)
{
    return "leak:libcares.so\n";
}

void
rig_start(rig *self, size_t loop_count, const tutti_rpc_channel_options *options)
{
    tutti_error err;

    assert_ok(echo_server_start(&self->server, loop_count, &err));
    assert_ok(
        tutti_rpc_channel_open(echo_server_address(&self->server), options, &self->channel, &err));
}

void
rig_stop(rig *self)
{
    tutti_rpc_channel_close(self->channel);
    self->channel = NULL;
    echo_server_fini(&self->server);
    rig_await(self->server.released, self->server.made); /* by a thread of gRPC's, behind the end */
}

int
rig_begin(void **state)
{
    rig *self = calloc(1, sizeof(*self));

    assert_non_null(self);
    echo_server_init(&self->server, "127.0.0.1:0");
    rig_start(self, 2, NULL);
    *state = self;
    return 0;
}

int
rig_end(void **state)
{
    rig_stop(*state);
    free(*state);
    return 0;
}

tutti_code
rig_call(tutti_rpc_channel *channel, const tutti_rpc_stub *stub, const echo_fields *request,
         tutti_rpc_message **ret_response, tutti_error *err)
{
    const tutti_rpc_call_options options = {.deadline_ns = tutti_clock_ns() + 20 * TUTTI_NS_PER_S};
    echo_storage storage;

    return tutti_rpc_invoke(channel, stub, echo_request(&storage, request), NULL, &options,
                            ret_response, err);
}

tutti_code
rig_ask(tutti_rpc_channel *channel, const char *text, char *ret_text, tutti_error *err)
{
    const echo_fields request = {.text = text};
    tutti_rpc_message *response = NULL;
    const tutti_code code = rig_call(channel, &echo_unary, &request, &response, err);

    if (code == TUTTI_OK && ret_text != NULL) {
        (void)snprintf(ret_text, 256, "%s",
                       echo_response_fields(tutti_rpc_message_get(response)).text);
    }
    tutti_rpc_message_free(response);
    return code;
}

tutti_code
rig_ask_with(const rig *self, const tutti_rpc_channel_options *options, const char *text,
             char *ret_text, tutti_error *err)
{
    tutti_rpc_channel *channel = NULL;
    tutti_code code =
        tutti_rpc_channel_open(echo_server_address(&self->server), options, &channel, err);

    if (code == TUTTI_OK) {
        code = rig_ask(channel, text, ret_text, err);
        tutti_rpc_channel_close(channel);
    }
    return code;
}

rig_bare
rig_call_bare(tutti_rpc_channel *channel, const char *method, const void *wire, size_t size,
              const char *key, const char *value)
{
    grpc_completion_queue *queue = rpc_channel_take_queue(channel);
    grpc_call *call = grpc_channel_create_call(
        channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, queue, grpc_slice_from_static_string(method),
        NULL, rpc_time_to(tutti_clock_ns() + 10 * TUTTI_NS_PER_S), NULL);
    grpc_slice slice = grpc_slice_from_copied_buffer(wire == NULL ? "" : wire, size);
    grpc_byte_buffer *message = grpc_raw_byte_buffer_create(&slice, 1);
    grpc_byte_buffer *received = NULL;
    grpc_metadata metadata = {0};
    rig_bare result = {0};
    rpc_outcome outcome;
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}};
    size_t count = 1;

    rpc_outcome_init(&outcome, channel);
    if (key != NULL) {
        metadata.key = grpc_slice_from_static_string(key);
        metadata.value = grpc_slice_from_static_string(value);
        ops[0].data.send_initial_metadata.count = 1;
        ops[0].data.send_initial_metadata.metadata = &metadata;
    }
    if (wire != NULL) {
        ops[count].op = GRPC_OP_SEND_MESSAGE;
        ops[count++].data.send_message.send_message = message;
    }
    ops[count++].op = GRPC_OP_SEND_CLOSE_FROM_CLIENT;
    ops[count++] = rpc_outcome_initial_op(&outcome);
    ops[count].op = GRPC_OP_RECV_MESSAGE;
    ops[count++].data.recv_message.recv_message = &received;
    ops[count++] = rpc_outcome_status_op(&outcome);
    rpc_batch_start(call, ops, count, &outcome);
    (void)rpc_channel_pluck(queue, &outcome);
    result.status = (tutti_code)outcome.status;
    (void)snprintf(result.text, sizeof(result.text), "%.*s", (int)GRPC_SLICE_LENGTH(outcome.text),
                   (const char *)GRPC_SLICE_START_PTR(outcome.text));
    if (received != NULL) {
        tutti_rpc_message *response = NULL;

        assert_int_equal(rpc_unpack(echo_response_type(), received, false, &response, NULL),
                         TUTTI_OK);
        (void)snprintf(result.text, sizeof(result.text), "%s",
                       echo_response_fields(tutti_rpc_message_get(response)).text);
        tutti_rpc_message_free(response);
    }
    grpc_byte_buffer_destroy(message);
    grpc_slice_unref(slice);
    rpc_outcome_fini(&outcome);
    grpc_call_unref(call);
    rpc_channel_give_queue(channel, queue);
    return result;
}

void
rig_pause(void)
{
    const struct timespec one = {.tv_nsec = 1000000};

    (void)nanosleep(&one, NULL);
}

static size_t
read_status(const char *key)
{
    char line[256];
    size_t value = 0;
    FILE *file = fopen("/proc/self/status", "re");

    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            value = strtoul(line + strlen(key) + 1, NULL, 10);
        }
    }
    (void)fclose(file);
    return value;
}

size_t
rig_memory(void)
{
    return read_status("VmRSS") * 1024;
}

size_t
rig_memory_peak(void)
{
    return read_status("VmHWM") * 1024;
}

void
rig_memory_reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "we");

    assert_non_null(file);
    (void)fputs("5", file);
    (void)fclose(file);
}

size_t
rig_threads(void)
{
    return read_status("Threads");
}

size_t
rig_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    size_t count = 0;

    assert_non_null(folder);
    while (readdir(folder) != NULL) {
        count++;
    }
    (void)closedir(folder);
    return count - 3; /* ".", ".." and the folder itself */
}

const char *
rig_folder_make(char path[64])
{
    (void)snprintf(path, 64, "/tmp/tutti-rpc-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

void
rig_folder_remove(const char *path)
{
    char one[512];
    struct dirent *entry;
    DIR *folder = opendir(path);

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        (void)snprintf(one, sizeof(one), "%s/%s", path, entry->d_name);
        (void)unlink(one);
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    (void)rmdir(path);
}
