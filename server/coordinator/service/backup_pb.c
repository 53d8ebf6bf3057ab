/*
 * CoordinatorService.Backup: the store as the pieces of a file. The next piece is made when the last one
 * has been written, so a slow reader delays nobody: what changes meanwhile is kept by the snapshot, at
 * most as much as the store had when the backup began. Hence the limit on their number.
 */
#include <stdlib.h>

#include "base/error/fail.h"
#include "server/coordinator/core/core.h"
#include "server/coordinator/service/coordinator_pb.h"
#include "server/coordinator/service/member_pb.h"
#include "server/coordinator/service/service_loop.h"
#include "store/backup/backup.h"
#include "tutti/v1/coordinator_service.pb-c.h"

#define BACKUPS_MAX 4

typedef struct backup_call {
    tutti_store_backup *backup; /* [owned] */
    tutti_coordinator *core;
    bool finished;
} backup_call;

static void
end_backup(tutti_rpc_call *call, const tutti_error *err)
{
    backup_call *self = tutti_rpc_call_user(call);

    self->finished = true;
    tutti_rpc_call_finish(call, err);
}

static void
write_piece(tutti_rpc_call *call, tutti_bytes piece)
{
    backup_call *self = tutti_rpc_call_user(call);
    const tutti_store_moment *moment = tutti_store_backup_moment(self->backup);
    Tutti__V1__BackupResponse response = TUTTI__V1__BACKUP_RESPONSE__INIT;

    response.version = moment->version;
    response.key_count = moment->stats.key_count;
    response.bytes = moment->stats.used_bytes;
    response.file_bytes = tutti_store_backup_bytes(moment);
    response.piece = bytes_to_wire(piece);
    tutti_rpc_call_write(call, &response.base, NULL);
}

static void
send_next(tutti_rpc_call *call)
{
    backup_call *self = tutti_rpc_call_user(call);
    tutti_bytes piece = {0};
    tutti_error err = {0};

    if (self->finished) {
        return;
    }
    if (tutti_store_backup_next(self->backup, &piece, &err) != TUTTI_OK) {
        end_backup(call, &err);
    } else if (piece.size > 0) {
        write_piece(call, piece);
    } else {
        end_backup(call, NULL);
    }
}

/* on_end frees the struct, also when the backup could not begin. */
static tutti_code
begin_backup(tutti_rpc_call *call, tutti_coordinator *core, tutti_error *err)
{
    backup_call *self = NULL;

    if (core->backup_count >= BACKUPS_MAX) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "BACKUP_LIMIT",
                              "%zu backups are being made, at most %d: wait until one has ended",
                              core->backup_count, BACKUPS_MAX);
    }
    self = calloc(1, sizeof(*self));
    if (self == NULL) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "NO_MEMORY", "no memory for a backup");
    }
    self->core = core;
    core->backup_count++;
    tutti_rpc_call_set_user(call, self);
    return tutti_store_backup_new(core->store, &self->backup, err);
}

static void
on_backup_open(tutti_rpc_call *call, void *arg)
{
    tutti_error err;

    if (begin_backup(call, service_loop_enter(arg), &err) == TUTTI_OK) {
        send_next(call);
    } else {
        tutti_rpc_call_finish(call, &err);
    }
    service_loop_leave(arg);
}

static void
on_backup_written(tutti_rpc_call *call, void *arg)
{
    (void)service_loop_enter(arg);
    send_next(call);
    service_loop_leave(arg);
}

static void
on_backup_cancel(tutti_rpc_call *call, void *arg)
{
    const backup_call *self = tutti_rpc_call_user(call);
    tutti_error err;

    if (self != NULL && self->backup != NULL && !self->finished) {
        (void)service_loop_enter(arg);
        end_backup(call, service_loop_say_gone(call, &err));
        service_loop_leave(arg);
    }
}

static void
on_backup_end(tutti_rpc_call *call, void *arg)
{
    backup_call *self = tutti_rpc_call_user(call);

    (void)arg;
    if (self != NULL) {
        self->core->backup_count--;
        tutti_store_backup_free(self->backup);
        free(self);
    }
}

const tutti_rpc_stream_ops coord_backup_stream = {
    .on_open = on_backup_open,
    .on_written = on_backup_written,
    .on_cancel = on_backup_cancel,
    .on_end = on_backup_end,
};
