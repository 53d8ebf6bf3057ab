/*
 * The lock file of the folder: who has the folder open, and how it was left.
 *
 * Its mark has two lines. The first is empty if the folder was closed, or was open with nothing to
 * be told. "full" = it was open in such a way that the last change may be on the disk in part, and
 * was then not answered (docs/decisions/0044). Anything else is the life of the machine in which
 * it was open unsafely. The second line says that there is a store, so that a data.mdb which is
 * empty or gone is not taken for a new one. Older versions wrote the first line at most, and take
 * "full" for another life: they warn without need.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "store/lmdb/lmdb_private.h"

#define BOOT_BYTES 64
#define HOLDS "holds a store\n"
#define FULL "full"
#define MARK_BYTES (BOOT_BYTES + sizeof(HOLDS) + 2)

/*
 * Two coordinators on one folder would give the same numbers to different things. The lock is
 * flock's: the system drops it when the process dies, however it dies, so no stale lock has to be
 * removed by hand.
 */
tutti_code
store_lmdb_lock(store_lmdb *self, const char *path, tutti_error *err)
{
    char file[PATH_MAX];

    if ((size_t)snprintf(file, sizeof(file), "%s/tutti.lock", path) >= sizeof(file)) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_PATH",
                              "the store's path has %zu bytes, at most %d", strlen(path),
                              PATH_MAX - 16);
    }
    self->lock = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (self->lock < 0) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not open %s", file);
    }
    if (flock(self->lock, LOCK_EX | LOCK_NB) != 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_FAILED_PRECONDITION, "STORE_BUSY",
                              "another process has the store %s open: stop it, or give this one a "
                              "folder of its own",
                              path);
    }
    return TUTTI_OK;
}

static bool
write_mark(const store_lmdb *self, const char *first)
{
    char mark[MARK_BYTES];
    const int size = snprintf(mark, sizeof(mark), "%s\n%s", first, self->holds_store ? HOLDS : "");

    return pwrite(self->lock, mark, (size_t)size, 0) == size && ftruncate(self->lock, size) == 0;
}

/*
 * The system chooses a new id at each start of the machine. Where there is no such file the id is
 * empty, and the folder counts as safely left.
 */
static void
read_boot(char boot[BOOT_BYTES])
{
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    memset(boot, 0, BOOT_BYTES);
    if (file >= 0) {
        (void)!read(file, boot, BOOT_BYTES - 1);
        (void)close(file);
    }
    boot[strcspn(boot, "\n")] = '\0';
}

/*
 * A first line from another life of the machine means that changes which were answered may not
 * have reached the disk.
 */
void
store_lmdb_read_mark(store_lmdb *self)
{
    char before[MARK_BYTES] = "";
    char now[BOOT_BYTES];
    char *second;

    read_boot(now);
    (void)!pread(self->lock, before, sizeof(before) - 1, 0);
    second = strchr(before, '\n');
    if (second != NULL) {
        *second++ = '\0';
        self->holds_store = strcmp(second, HOLDS) == 0;
    }
    self->left_open = strcmp(before, FULL) == 0;
    self->was_cut = before[0] != '\0' && !self->left_open && strcmp(before, now) != 0;
}

/*
 * Without this mark a change that is on the disk in part would be taken for damage. So it has to be
 * on the disk before the first such change begins; and the changes so far as well, which may still
 * be with the system. If the mark cannot be written, each change waits twice, as LMDB does it.
 */
static tutti_code
begin_waiting_once(store_lmdb *self, tutti_error *err)
{
    const int code = mdb_env_sync(self->env, 1);

    if (code != MDB_SUCCESS) {
        return store_lmdb_fail(self, err, code, "write to");
    }
    self->waits_once = write_mark(self, FULL) && fdatasync(self->lock) == 0 &&
                       mdb_env_set_flags(self->env, MDB_NOSYNC, 1) == MDB_SUCCESS;
    return TUTTI_OK;
}

/*
 * Failures to write the other marks are passed over, as the store itself is whole. What is lost is
 * the warning after a crash of the machine, and that an empty data.mdb is refused.
 */
tutti_code
store_lmdb_take_mark(store_lmdb *self, const tutti_store_lmdb_options *options, tutti_error *err)
{
    char now[BOOT_BYTES];

    self->holds_store = true;
    if (options->deferred && options->sync == TUTTI_STORE_LMDB_FULL) {
        return begin_waiting_once(self, err);
    }
    read_boot(now);
    (void)write_mark(self, options->sync == TUTTI_STORE_LMDB_NONE ? now : "");
    return TUTTI_OK;
}

void
store_lmdb_clear_mark(store_lmdb *self)
{
    (void)write_mark(self, "");
}
