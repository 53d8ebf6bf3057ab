/* tutti backup: all that the coordinator's store has, as a file. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "client/cli/cli.h"
#include "client/cli/connect/connect.h"
#include "client/cli/npy/npy.h"
#include "client/cli/parse/parse.h"
#include "client/cli/store/commands.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"
#include "client/cli/util/values.h"

typedef struct backing_up {
    const cli *self;
    const char *path;
    bool piped;
    npy_output output;
    cli_bar_part bar;
    uint64_t done_bytes;
    tutti_code code; /* of writing */
    tutti_error *err;
} backing_up;

/* How large the file will be is known with its first piece. */
static tutti_code
begin_output(backing_up *work, const tutti_backup_info *info)
{
    work->bar.bar = cli_bar_new(work->self, work->path, info->file_bytes);
    return work->piped
               ? TUTTI_OK
               : npy_create_file(work->path, "", 0, info->file_bytes, &work->output, work->err);
}

static tutti_code
write_piece_out(backing_up *work, const void *data, size_t size)
{
    if (!work->piped) {
        memcpy((char *)work->output.data + work->done_bytes, data, size);
    } else if (fwrite(data, 1, size, work->self->out) != size) {
        return cli_fail_errno(work->err, errno, "could not write to standard output");
    }
    return TUTTI_OK;
}

static bool
on_piece(void *arg, const tutti_backup_info *info, const void *data, size_t size)
{
    backing_up *work = arg;

    if (work->done_bytes == 0) {
        work->code = begin_output(work, info);
    }
    if (work->code == TUTTI_OK && size > info->file_bytes - work->done_bytes) {
        work->code = cli_fail(work->err, TUTTI_DATA_LOSS,
                              "the coordinator has sent more bytes than it announced");
    }
    if (work->code == TUTTI_OK) {
        work->code = write_piece_out(work, data, size);
    }
    work->done_bytes += size;
    (void)cli_bar_moved(&work->bar, work->done_bytes, info->file_bytes);
    return work->code == TUTTI_OK;
}

/* The file is on the disk before it gets its name. */
static tutti_code
end_output(backing_up *work)
{
    if (work->piped) {
        return fflush(work->self->out) == 0
                   ? TUTTI_OK
                   : cli_fail_errno(work->err, errno, "could not write to standard output");
    }
    if (work->output.mapped && msync(work->output.memory, work->output.memory_size, MS_SYNC) != 0) {
        return cli_fail_errno(work->err, errno, "could not write it");
    }
    return npy_commit(&work->output, work->err);
}

static tutti_code
back_up(cli *self, backing_up *work, tutti_backup_info *ret_info)
{
    tutti_client *client = NULL;
    tutti_error why = {0};
    tutti_code code = cli_connect_coordinator(self, &client, work->err);

    if (code != TUTTI_OK) {
        return code;
    }
    code = tutti_backup(client, self->timeout_ms, on_piece, work, ret_info, &why);
    tutti_close(client);
    if (work->code != TUTTI_OK) {
        return work->code; /* it says more than "given up" */
    }
    if (code != TUTTI_OK) {
        *work->err = why;
        return code;
    }
    return end_output(work);
}

static void
say_backup(const cli *self, const char *path, const tutti_backup_info *info)
{
    char size[CLI_WORD_SIZE];

    if (!cli_print_json(self,
                        json_pack("{s:s, s:I, s:I, s:I, s:I}", "file", path, "keys",
                                  (json_int_t)info->key_count, "bytes", (json_int_t)info->bytes,
                                  "version", (json_int_t)info->version, "file_bytes",
                                  (json_int_t)info->file_bytes))) {
        cli_say(self, "%s: %llu keys, %s, at version %llu", path,
                (unsigned long long)info->key_count, cli_format_size(info->bytes, size),
                (unsigned long long)info->version);
    }
}

int
cli_backup(cli *self)
{
    tutti_error err = {0};
    tutti_backup_info info = {0};
    backing_up work = {.self = self, .path = self->arguments[0], .err = &err};
    tutti_code code;

    work.piped = strcmp(work.path, "-") == 0;
    if (work.piped && self->json) {
        return cli_usage(self,
                         "--json and the backup would both go to standard output: name a file");
    }
    (void)umask(077); /* whoever reads the file knows the keys of all jobs */
    code = back_up(self, &work, &info);
    npy_discard(&work.output);
    if (work.bar.bar != NULL) {
        cli_bar_free(work.bar.bar);
    }
    if (code != TUTTI_OK) {
        return cli_failed(self, work.path, &err);
    }
    if (!work.piped) {
        say_backup(self, work.path, &info);
    }
    return CLI_FINE;
}
