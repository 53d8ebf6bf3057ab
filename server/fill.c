/*
 * All goes through a snapshot (store/store.h): of a file, or of the other store. The store that is filled
 * takes it as one batch, so it has all of it or nothing.
 *
 * Nobody may use either store meanwhile. Of a folder that is its lock, of etcd the leadership: this process
 * leads as long as it reads or writes there, without an address that anybody could be sent to.
 */
#include "server/fill.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error/fail.h"
#include "base/os/clock.h"
#include "base/os/log.h"
#include "store/backup/backup.h"
#include "store/lmdb/lmdb.h"

#define TELL_EVERY_NS (100 * TUTTI_NS_PER_MS)
#define PATH_BYTES 4096
#define AT(member) offsetof(server_fill_options, member)

static const tutti_option table[] = {
    {"restore", TUTTI_OPTION_FILE, AT(restore), "", 0, 0, NULL,
     "fill the empty store of --store from this backup, - is standard input, and end: tutti "
     "restore"},
    {"move-from", TUTTI_OPTION_WORD, AT(move_from), "", 0, 0, NULL,
     "fill the empty store of --store with all that this store has, \"lmdb:FOLDER\" or "
     "\"etcd:HOST:PORT,.../PREFIX\", and end: tutti store move"},
};

tutti_option_set
server_fill_option_set(server_fill_options *target)
{
    return (tutti_option_set){"fill", table, sizeof(table) / sizeof(table[0]), target};
}

bool
server_fill_wanted(const server_fill_options *options)
{
    return options->restore[0] != '\0' || options->move_from[0] != '\0';
}

/* ------------------------------------------------------------------ a store that nobody else uses */

typedef struct held_store {
    const char *where;
    tutti_store *store; /* [owned] */
    tutti_etcd *etcd;   /* [owned] NULL = it is not there */
    tutti_error why;    /* the election was given up because of this */
} held_store;

static void
close_held(held_store *self)
{
    tutti_store_close(self->store);
    tutti_etcd_close(self->etcd);
}

/* "lmdb:x" -> "x"; NULL: it is of another kind. */
static const char *
place_of(const char *where, const char *kind)
{
    const size_t size = strlen(kind);

    return strncmp(where, kind, size) == 0 && where[size] != '\0' ? where + size : NULL;
}

/* What is read has to be there: opening a folder makes it. */
static tutti_code
check_folder(const char *folder, tutti_error *err)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "%s/data.mdb", folder);
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_STORE",
                              "there is no store in %s: it has no data.mdb", folder);
    }
    return TUTTI_OK;
}

static tutti_code
open_folder(held_store *self, const char *folder, bool to_read, tutti_error *err)
{
    const tutti_store_lmdb_options options = {
        .path = folder, .sync = TUTTI_STORE_LMDB_FULL, .deferred = true};

    TUTTI_TRY(to_read ? check_folder(folder, err) : TUTTI_OK);
    TUTTI_TRY(tutti_store_lmdb_open(&options, &self->store, err));
    if (tutti_store_lmdb_was_cut(self->store)) {
        TUTTI_LOG("coordinator", WARN,
                  "the store %s was left open by a machine that has gone since: its last changes "
                  "may be missing",
                  folder);
    }
    return TUTTI_OK;
}

static void
on_other_leader(void *arg, const char *address)
{
    held_store *self = arg;

    (void)TUTTI_FAIL_FOR(&self->why, TUTTI_FAILED_PRECONDITION, "STORE_BUSY",
                         "%s leads on %.200s: stop all its coordinators first (one that was killed "
                         "counts until its --leader-lease is over)",
                         address[0] == '\0' ? "a process that restores or moves" : address,
                         self->where);
    tutti_etcd_stop(self->etcd);
}

static void
on_no_etcd(void *arg, const tutti_error *why)
{
    held_store *self = arg;

    self->why = *why;
    tutti_etcd_stop(self->etcd);
}

static tutti_code
open_etcd(held_store *self, const char *where, const tutti_etcd_options *etcd, tutti_error *err)
{
    const tutti_etcd_events events = {
        .on_follow = on_other_leader, .on_trouble = on_no_etcd, .arg = self};
    tutti_etcd_options options = *etcd;
    tutti_store_etcd_options stored = {0};
    tutti_code code;

    options.where = where;
    TUTTI_TRY(tutti_etcd_open(&options, &self->etcd, err));
    code = tutti_etcd_lead(self->etcd, "", &events, err);
    if (code == TUTTI_CANCELLED) {
        return tutti_error_pass(err, &self->why);
    }
    stored.etcd = self->etcd;
    return code == TUTTI_OK ? tutti_store_etcd_open(&stored, &self->store, err) : code;
}

static tutti_code
open_held(held_store *self, const char *option, const tutti_etcd_options *etcd, bool to_read,
          tutti_error *err)
{
    const char *folder = place_of(self->where, "lmdb:");
    const char *members = place_of(self->where, "etcd:");

    if (folder != NULL) {
        return open_folder(self, folder, to_read, err);
    }
    if (members != NULL) {
        return open_etcd(self, members, etcd, err);
    }
    return TUTTI_FAIL_FOR(
        err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
        "option --%s: \"%s\", need lmdb:FOLDER or etcd:HOST:PORT,.../PREFIX: what is "
        "kept in memory ends with its process",
        option, self->where);
}

/* ------------------------------------------------------------------ filling */

typedef struct telling {
    uint64_t total;
    uint64_t told_ns;
} telling;

static void
on_taken(void *arg, uint64_t bytes)
{
    telling *self = arg;
    const uint64_t now_ns = tutti_clock_ns();

    if (now_ns - self->told_ns >= TELL_EVERY_NS) {
        self->told_ns = now_ns;
        (void)printf("progress: %" PRIu64 " of %" PRIu64 " bytes\n", bytes, self->total);
        (void)fflush(stdout);
    }
}

static tutti_code
fill_store(tutti_store *store, tutti_store_snapshot *from, tutti_error *err)
{
    const tutti_store_moment *moment = tutti_store_snapshot_moment(from);
    telling tell = {.total = moment->stats.used_bytes, .told_ns = tutti_clock_ns()};

    TUTTI_TRY(tutti_store_take(store, from, on_taken, &tell, err));
    TUTTI_TRY(tutti_store_settle(store, err));
    (void)printf("done: %" PRIu64 " keys, %" PRIu64 " bytes, version %" PRIu64 "\n",
                 moment->stats.key_count, moment->stats.used_bytes, moment->version);
    (void)fflush(stdout);
    return TUTTI_OK;
}

/* ------------------------------------------------------------------ from where */

/* The source is looked at before the other store is made. */
static tutti_code
fill_held(held_store *to, tutti_store_snapshot *from, const tutti_etcd_options *etcd,
          tutti_error *err)
{
    TUTTI_TRY(open_held(to, "store", etcd, false, err));
    return fill_store(to->store, from, err);
}

static tutti_code
restore_open(held_store *to, FILE *file, const char *name, const tutti_etcd_options *etcd,
             tutti_error *err)
{
    tutti_store_snapshot *from = NULL;
    tutti_code code;

    TUTTI_TRY(tutti_store_backup_open(file, name, &from, err));
    code = fill_held(to, from, etcd, err);
    tutti_store_snapshot_free(from);
    return code;
}

static tutti_code
restore_file(held_store *to, const char *path, const tutti_etcd_options *etcd, tutti_error *err)
{
    const bool piped = strcmp(path, "-") == 0;
    FILE *file = piped ? stdin : fopen(path, "rbe");
    tutti_code code;

    if (file == NULL) {
        return TUTTI_FAIL_ERRNO(err, errno, "could not open the backup %s", path);
    }
    code = restore_open(to, file, piped ? "on standard input" : path, etcd, err);
    if (!piped) {
        (void)fclose(file);
    }
    return code;
}

static tutti_code
move_held(held_store *to, held_store *from, const tutti_etcd_options *etcd, tutti_error *err)
{
    tutti_store_snapshot *snapshot = NULL;
    tutti_code code;

    if (tutti_store_version(from->store) == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_NOT_FOUND, "NO_STORE",
                              "there is nothing to be moved in %.200s: is that its place?",
                              from->where);
    }
    TUTTI_TRY(tutti_store_snapshot_new(from->store, &snapshot, err));
    code = fill_held(to, snapshot, etcd, err);
    tutti_store_snapshot_free(snapshot);
    return code;
}

static tutti_code
move_store(held_store *to, const char *where, const tutti_etcd_options *etcd, tutti_error *err)
{
    held_store from = {.where = where};
    tutti_code code = open_held(&from, "move-from", etcd, true, err);

    if (code == TUTTI_OK) {
        code = move_held(to, &from, etcd, err);
    }
    close_held(&from);
    return code;
}

tutti_code
server_fill_run(const server_fill_options *options, const char *where,
                const tutti_etcd_options *etcd, tutti_error *err)
{
    held_store to = {.where = where};
    tutti_code code;

    if (options->restore[0] != '\0' && options->move_from[0] != '\0') {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "options --restore and --move-from: need one of them, not both");
    }
    code = options->restore[0] != '\0' ? restore_file(&to, options->restore, etcd, err)
                                       : move_store(&to, options->move_from, etcd, err);
    close_held(&to);
    return code;
}
