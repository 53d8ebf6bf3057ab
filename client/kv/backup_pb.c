/* CoordinatorService.Backup: the store as a file, piece by piece. */
#include "tutti/store.h"

#include <inttypes.h>

#include "base/error/fail.h"
#include "client/conn/call.h"
#include "client/conn/client.h"
#include "client/conn/conn_pool.h"
#include "tutti/v1/coordinator_service.pb-c.h"

static const tutti_rpc_stub stub_backup = {&tutti__v1__coordinator_service__descriptor, "Backup"};

typedef struct backing_up {
    tutti_rpc_stream *stream;
    tutti_backup_fn on_data;
    void *arg;
    tutti_backup_info info;
    uint64_t got_bytes;
} backing_up;

static bool
take_piece(void *arg, const void *message)
{
    const Tutti__V1__BackupResponse *response = message;
    backing_up *self = arg;

    self->info = (tutti_backup_info){.version = response->version,
                                     .key_count = response->key_count,
                                     .bytes = response->bytes,
                                     .file_bytes = response->file_bytes};
    self->got_bytes += response->piece.len;
    return response->piece.len == 0 ||
           self->on_data(self->arg, &self->info, response->piece.data, response->piece.len);
}

static tutti_code
take_pieces(backing_up *self, tutti_error *err)
{
    const Tutti__V1__BackupRequest request = TUTTI__V1__BACKUP_REQUEST__INIT;
    bool enough;

    TUTTI_TRY(client_stream_hear(self->stream, &request.base, take_piece, self, &enough, err));
    if (enough) {
        return TUTTI_FAIL_FOR(err, TUTTI_CANCELLED, "GIVEN_UP", "the backup was given up");
    }
    if (self->got_bytes != self->info.file_bytes || self->got_bytes == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_DATA_LOSS, "BACKUP_FORMAT",
                              "the backup has %" PRIu64 " bytes, %" PRIu64
                              " were announced: make another one",
                              self->got_bytes, self->info.file_bytes);
    }
    return TUTTI_OK;
}

tutti_code
tutti_backup(tutti_client *client, uint32_t timeout_ms, tutti_backup_fn on_data, void *arg,
             tutti_backup_info *ret_info, tutti_error *err)
{
    TUTTI_NEED(client, err);
    TUTTI_NEED(on_data, err);

    const tutti_rpc_call_options options = {
        .deadline_ns = timeout_ms == 0 ? 0 : client_deadline(client, timeout_ms)};
    backing_up self = {.on_data = on_data, .arg = arg};
    uint64_t until_ns = options.deadline_ns;
    uint64_t pause_ns = 0;
    client_conn *conn = NULL;
    tutti_error why = {0};
    tutti_code code;

    TUTTI_TRY(client_conn_take(client, CLIENT_COORDINATOR, &conn, err));
    do {
        code = tutti_rpc_stream_open(conn->channel, &stub_backup, &options, &self.stream, &why);
        if (code == TUTTI_OK) {
            code = take_pieces(&self, &why);
        }
    } while (code != TUTTI_OK && self.got_bytes == 0 &&
             client_stream_again(client, conn, &why, &until_ns, &pause_ns));
    client_conn_give(client, conn);
    if (code != TUTTI_OK) {
        return tutti_error_pass(err, &why);
    }
    if (ret_info != NULL) {
        *ret_info = self.info;
    }
    return TUTTI_OK;
}
