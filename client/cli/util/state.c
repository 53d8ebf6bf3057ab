/*
 * What is known of a local cluster: a folder with a file, sockets and logs. Commands that start
 * or stop a cluster hold its lock; those that only look do not.
 */
#include "client/cli/util/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client/cli/util/output.h"

#define FILE_NAME "cluster.json"
#define LONGEST_SOCKET "/coordinator.sock"

/* ------------------------------------------------------------------------------ folders */

static tutti_code
check_name(const char *name, tutti_error *err)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const size_t size = strlen(name);

    if (size == 0 || size > STATE_NAME_MAX || strspn(name, allowed) != size || name[0] == '.') {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "cluster name \"%.80s\": need 1 to %d letters, digits and . _ -, no dot in "
                        "front",
                        name, STATE_NAME_MAX);
    }
    return TUTTI_OK;
}

/*
 * Makes the folder above all clusters. In /tmp anybody could have made it first, so it must be a
 * folder and not a link, belong to this user, and be open to nobody else.
 */
static tutti_code
make_private(const char *folder, tutti_error *err)
{
    struct stat found;

    if (mkdir(folder, 0700) != 0 && errno != EEXIST) {
        return cli_fail_errno(err, errno,
                              "could not make %s, the folder of local clusters: set "
                              "XDG_RUNTIME_DIR or TMPDIR to a folder that you may write to",
                              folder);
    }
    if (lstat(folder, &found) != 0) {
        return cli_fail_errno(err, errno, "could not look at %s", folder);
    }
    if (!S_ISDIR(found.st_mode) || found.st_uid != geteuid() || (found.st_mode & 077) != 0) {
        return cli_fail(err, TUTTI_PERMISSION_DENIED,
                        "%s is not a folder of yours alone: remove it, or set XDG_RUNTIME_DIR "
                        "or TMPDIR",
                        folder);
    }
    return TUTTI_OK;
}

/* The folder above all clusters; its length is returned, which may be more than fits. */
static int
find_above(char ret[STATE_PATH_MAX])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const char *temporary = getenv("TMPDIR");

    if (runtime != NULL && runtime[0] == '/') {
        return snprintf(ret, STATE_PATH_MAX, "%s/tutti", runtime);
    }
    return snprintf(ret, STATE_PATH_MAX, "%s/tutti-%ld",
                    temporary != NULL && temporary[0] == '/' ? temporary : "/tmp", (long)geteuid());
}

/* Socket paths have about 100 bytes. So the length is checked here, before anything is made. */
tutti_code
state_init(state *self, const char *name, tutti_error *err)
{
    char above[STATE_PATH_MAX];
    int size;
    tutti_code code = check_name(name, err);

    *self = (state){.lock = -1};
    if (code != TUTTI_OK) {
        return code;
    }
    size = find_above(above);
    if (size < 0 || (size_t)size + strlen(name) + sizeof("/" LONGEST_SOCKET) >
                        sizeof(((struct sockaddr_un *)0)->sun_path)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "%.200s/%s is too long for sockets, whose paths have at most %zu bytes: "
                        "choose a shorter name, or set XDG_RUNTIME_DIR to a shorter folder",
                        above, name, sizeof(((struct sockaddr_un *)0)->sun_path) - 1);
    }
    (void)snprintf(self->name, sizeof(self->name), "%.*s", STATE_NAME_MAX, name);
    (void)snprintf(self->folder, sizeof(self->folder), "%.180s/%.*s", above, STATE_NAME_MAX, name);
    return make_private(above, err);
}

static void
free_options(state *self)
{
    size_t i;

    for (i = 0; self->options != NULL && self->options[i] != NULL; i++) {
        free(self->options[i]);
    }
    free(self->options);
    self->options = NULL;
}

void
state_set_options(state *self, char *const *options, size_t count)
{
    size_t i;

    free_options(self);
    self->options = calloc(count + 1, sizeof(*self->options));
    for (i = 0; self->options != NULL && i < count; i++) {
        self->options[i] = strdup(options[i]);
        if (self->options[i] == NULL) {
            abort();
        }
    }
    if (self->options == NULL) {
        abort();
    }
}

void
state_fini(state *self)
{
    if (self->lock >= 0) {
        (void)close(self->lock);
    }
    free_options(self);
    free(self->ranks);
    *self = (state){.lock = -1};
}

void
state_path(const state *self, const char *format, uint32_t rank, char ret[STATE_PATH_MAX])
{
    char name[64];

    /* The formats are ours: "agent-%u.sock". */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    (void)snprintf(name, sizeof(name), format, rank);
#pragma GCC diagnostic pop
    (void)snprintf(ret, STATE_PATH_MAX, "%.180s/%s", self->folder, name);
}

static void
lock_path(const state *self, char ret[STATE_PATH_MAX])
{
    (void)snprintf(ret, STATE_PATH_MAX, "%.240s.lock", self->folder);
}

/* Is what we have locked still what others would open? state_remove takes it away. */
static bool
is_there(int descriptor, const char *path)
{
    struct stat ours;
    struct stat theirs;

    return fstat(descriptor, &ours) == 0 && lstat(path, &theirs) == 0 &&
           ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev;
}

/*
 * The one who stops a cluster removes the lock file too. So after locking it is checked that the
 * file is still the one in the folder; if not, this begins anew.
 */
tutti_code
state_lock(state *self, tutti_error *err)
{
    char path[STATE_PATH_MAX];

    lock_path(self, path);
    for (;;) {
        self->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (self->lock < 0) {
            return cli_fail_errno(err, errno, "could not open %s", path);
        }
        if (flock(self->lock, LOCK_EX | LOCK_NB) != 0) {
            return cli_fail(
                err, TUTTI_FAILED_PRECONDITION,
                "another command is starting or stopping cluster %s: try again when it has ended",
                self->name);
        }
        if (is_there(self->lock, path)) {
            return TUTTI_OK;
        }
        (void)close(self->lock);
    }
}

/* Only files are removed, and only in this folder: nothing is followed. */
static void
remove_folder(const state *self)
{
    const int folder = open(self->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    DIR *entries = folder < 0 ? NULL : fdopendir(folder);
    const struct dirent *entry;

    if (entries == NULL) {
        return;
    }
    while ((entry = readdir(entries)) != NULL) {
        (void)unlinkat(folder, entry->d_name, 0); /* "." and "..": they refuse */
    }
    (void)closedir(entries);
    (void)rmdir(self->folder);
}

/* What is left of a former cluster of that name is removed first. */
tutti_code
state_make(state *self, uint32_t rank_count, tutti_error *err)
{
    remove_folder(self);
    if (mkdir(self->folder, 0700) != 0) {
        return cli_fail_errno(err, errno, "could not make %s", self->folder);
    }
    free_options(self);
    free(self->ranks);
    self->coordinator = (state_process){0};
    self->ready = false;
    self->rank_count = 0;
    self->ranks = calloc(rank_count, sizeof(*self->ranks));
    if (self->ranks == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for %" PRIu32 " agents",
                        rank_count);
    }
    self->rank_count = rank_count;
    return TUTTI_OK;
}

void
state_remove(const state *self)
{
    char path[STATE_PATH_MAX];

    remove_folder(self);
    lock_path(self, path);
    (void)unlink(path);
}

/* ------------------------------------------------------------------------------ all of them */

static int
compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* Is there a state in it? */
static bool
is_cluster(const char *above, const char *name)
{
    char path[STATE_PATH_MAX];

    return check_name(name, NULL) == TUTTI_OK &&
           snprintf(path, sizeof(path), "%s/%s/" FILE_NAME, above, name) < (int)sizeof(path) &&
           access(path, F_OK) == 0;
}

tutti_code
state_names(char ***ret_names, size_t *ret_count, tutti_error *err)
{
    char above[STATE_PATH_MAX];
    const int size = find_above(above);
    const struct dirent *entry;
    char **names = NULL;
    size_t count = 0;
    DIR *entries = size > 0 && size < STATE_PATH_MAX ? opendir(above) : NULL;

    if (entries == NULL && size < STATE_PATH_MAX && errno != ENOENT) {
        return cli_fail_errno(err, errno, "could not read %s", above);
    }
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        if (is_cluster(above, entry->d_name)) {
            names = reallocarray(names, count + 1, sizeof(*names));
            if (names == NULL || (names[count] = strdup(entry->d_name)) == NULL) {
                abort();
            }
            count++;
        }
    }
    if (entries != NULL) {
        (void)closedir(entries);
    }
    if (count > 1) {
        qsort(names, count, sizeof(*names), compare_names);
    }
    *ret_names = names;
    *ret_count = count;
    return TUTTI_OK;
}

void
state_names_free(char **names, size_t count)
{
    size_t i;

    for (i = 0; i < count; i++) {
        free(names[i]);
    }
    free(names);
}

#define NAMES_SHOWN 8

/* "no cluster x here", and which there are. */
static tutti_code
fail_absent(const state *self, tutti_error *err)
{
    char words[(STATE_NAME_MAX + 2) * NAMES_SHOWN + 32] = "";
    char **names = NULL;
    size_t count = 0;
    size_t used = 0;
    size_t i;

    if (state_names(&names, &count, NULL) != TUTTI_OK) {
        count = 0;
    }
    for (i = 0; i < count && i < NAMES_SHOWN; i++) {
        used += (size_t)snprintf(words + used, sizeof(words) - used, "%s%s",
                                 i == 0 ? ", there is " : ", ", names[i]);
    }
    if (count == 0 || count > NAMES_SHOWN) {
        (void)snprintf(words + used, sizeof(words) - used, "%s",
                       count == 0 ? ", and no other" : ", ...");
    }
    state_names_free(names, count);
    return cli_fail(err, TUTTI_NOT_FOUND, "there is no cluster \"%s\" here%s", self->name, words);
}

/* ------------------------------------------------------------------------------ the file */

static json_t *
pack_process(const state_process *process)
{
    return json_pack("{s:I, s:I, s:s, s:s, s:s, s:s}", "pid", (json_int_t)process->pid, "started",
                     (json_int_t)process->started, "address", process->address, "socket",
                     process->socket, "log", process->log, "device", process->device);
}

/* Written aside and renamed, so that a reader never sees half a file. */
tutti_code
state_write(const state *self, tutti_error *err)
{
    char path[STATE_PATH_MAX];
    char temporary[STATE_PATH_MAX];
    json_t *ranks = json_array();
    json_t *options = json_array();
    json_t *document;
    int failed;
    uint32_t i;

    for (i = 0; i < self->rank_count; i++) {
        (void)json_array_append_new(ranks, pack_process(&self->ranks[i]));
    }
    for (i = 0; self->options != NULL && self->options[i] != NULL; i++) {
        (void)json_array_append_new(options, json_string(self->options[i]));
    }
    document =
        json_pack("{s:i, s:s, s:s, s:b, s:b, s:o, s:o, s:o}", "version", 1, "name", self->name,
                  "job", self->job, "ready", (int)self->ready, "tcp", (int)self->tcp, "options",
                  options, "coordinator", pack_process(&self->coordinator), "ranks", ranks);
    state_path(self, FILE_NAME, 0, path);
    state_path(self, FILE_NAME ".new", 0, temporary);
    failed = json_dump_file(document, temporary, JSON_INDENT(2));
    json_decref(document);
    if (failed != 0 || rename(temporary, path) != 0) {
        return cli_fail_errno(err, errno, "could not write %s", path);
    }
    return TUTTI_OK;
}

static bool
unpack_text(json_t *object, const char *key, char *ret, size_t size)
{
    const char *text = json_string_value(json_object_get(object, key));

    return text != NULL && snprintf(ret, size, "%s", text) < (int)size;
}

/* The pid may be sent a signal later, so only numbers that can be one are taken. */
static bool
unpack_process(json_t *object, state_process *ret)
{
    const json_int_t pid = json_integer_value(json_object_get(object, "pid"));

    ret->pid = (pid_t)pid;
    ret->started = (uint64_t)json_integer_value(json_object_get(object, "started"));
    (void)unpack_text(object, "device", ret->device, sizeof(ret->device));
    return pid >= 0 && pid < (1 << 30) &&
           unpack_text(object, "address", ret->address, sizeof(ret->address)) &&
           unpack_text(object, "socket", ret->socket, sizeof(ret->socket)) &&
           unpack_text(object, "log", ret->log, sizeof(ret->log));
}

static void
unpack_options(json_t *list, state *self)
{
    const size_t count = json_array_size(list);
    size_t i;

    self->options = calloc(count + 1, sizeof(*self->options));
    for (i = 0; self->options != NULL && i < count; i++) {
        const char *word = json_string_value(json_array_get(list, i));

        self->options[i] = strdup(word != NULL ? word : "");
    }
}

/*
 * The file is the user's own but may be of an older version or damaged: anything that does not
 * fit refuses all of it.
 */
static bool
unpack_state(json_t *document, state *self)
{
    json_t *ranks = json_object_get(document, "ranks");
    const size_t count = json_array_size(ranks);
    size_t i;

    if (count > STATE_RANKS_MAX || json_integer_value(json_object_get(document, "version")) != 1 ||
        !unpack_text(document, "job", self->job, sizeof(self->job)) ||
        !unpack_process(json_object_get(document, "coordinator"), &self->coordinator)) {
        return false;
    }
    self->ready = json_is_true(json_object_get(document, "ready"));
    self->tcp = json_is_true(json_object_get(document, "tcp"));
    unpack_options(json_object_get(document, "options"), self);
    self->ranks = calloc(count + 1, sizeof(*self->ranks));
    if (self->ranks == NULL) {
        return false;
    }
    for (i = 0; i < count; i++) {
        if (!unpack_process(json_array_get(ranks, i), &self->ranks[i])) {
            return false;
        }
    }
    self->rank_count = (uint32_t)count;
    return true;
}

tutti_code
state_read(state *self, tutti_error *err)
{
    char path[STATE_PATH_MAX];
    json_error_t reason;
    json_t *document;
    bool good;

    state_path(self, FILE_NAME, 0, path);
    if (access(path, F_OK) != 0) {
        return fail_absent(self, err);
    }
    document = json_load_file(path, JSON_REJECT_DUPLICATES, &reason);
    good = document != NULL && unpack_state(document, self);
    json_decref(document);
    return good ? TUTTI_OK
                : cli_fail(err, TUTTI_DATA_LOSS, "%s is damaged: %s", path,
                           document == NULL ? reason.text
                                            : "an entry is missing or has the wrong type");
}
