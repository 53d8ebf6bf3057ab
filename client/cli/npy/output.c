/* .npy files being written: as a whole, or not at all. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/npy/npy.h"
#include "client/cli/util/output.h"

/* ------------------------------------------------------------------------------ interrupted */

static const int ending[] = {SIGINT, SIGTERM, SIGHUP};
#define ENDING_COUNT (sizeof(ending) / sizeof(ending[0]))

/* The one file that is being written; the handler looks at it. */
static char pending[PATH_MAX];
static volatile sig_atomic_t is_pending;
static struct sigaction before[ENDING_COUNT];

/* Half a file is nobody's use. Then what would have been done without it. */
static void
on_signal(int number)
{
    size_t i;

    if (is_pending != 0) {
        (void)unlink(pending);
    }
    for (i = 0; i < ENDING_COUNT; i++) {
        if (ending[i] == number) {
            (void)sigaction(number, &before[i], NULL);
        }
    }
    (void)raise(number);
}

/* Signals come later instead of now; the caller gives back the mask of before. */
static void
hold_signals(sigset_t *ret_before)
{
    sigset_t all;
    size_t i;

    (void)sigemptyset(&all);
    for (i = 0; i < ENDING_COUNT; i++) {
        (void)sigaddset(&all, ending[i]);
    }
    (void)pthread_sigmask(SIG_BLOCK, &all, ret_before);
}

/*
 * [in] temporary  the name; only one file is watched at a time, a second one is left to its writer
 */
static void
watch_signals(const char *temporary)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    size_t i;

    if (is_pending != 0 || snprintf(pending, PATH_MAX, "%s", temporary) >= PATH_MAX) {
        return;
    }
    is_pending = 1;
    for (i = 0; i < ENDING_COUNT; i++) {
        (void)sigaction(ending[i], &action, &before[i]);
    }
}

/* Only the file that is watched releases the signals. */
static void
release_signals(const char *temporary)
{
    size_t i;

    if (is_pending == 0 || strcmp(pending, temporary) != 0) {
        return;
    }
    for (i = 0; i < ENDING_COUNT; i++) {
        (void)sigaction(ending[i], &before[i], NULL);
    }
    is_pending = 0;
}

/* ------------------------------------------------------------------------------ creating */

static mode_t
read_umask(void)
{
    const mode_t mask = umask(0);

    (void)umask(mask);
    return mask;
}

/*
 * What a path stands for: a file to be replaced as a whole (ret_file, where a link leads to), or
 * something to write into: standard output, a device, a pipe.
 */
static bool
is_stream(const char *path, char **ret_file)
{
    struct stat found;

    *ret_file = NULL;
    if (strcmp(path, "-") == 0) {
        return true;
    }
    if (stat(path, &found) != 0) {
        *ret_file = strdup(path);
        return false;
    }
    *ret_file = S_ISREG(found.st_mode) ? realpath(path, NULL) : strdup(path);
    return !S_ISREG(found.st_mode);
}

/* On disk the file has its whole size before a byte is written: no room is found out here. */
static tutti_code
make_file(const char *path, npy_output *output, tutti_error *err)
{
    sigset_t held;
    int descriptor;
    int failed;

    if (asprintf(&output->temporary, "%s.XXXXXX", path) < 0) {
        output->temporary = NULL;
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a name");
    }
    hold_signals(&held); /* there is no moment in which the file is there, and nobody unlinks it */
    descriptor = mkostemp(output->temporary, O_CLOEXEC);
    failed = errno;
    if (descriptor >= 0) {
        watch_signals(output->temporary);
    }
    (void)pthread_sigmask(SIG_SETMASK, &held, NULL);
    if (descriptor < 0) {
        free(output->temporary);
        output->temporary = NULL;
        return cli_fail_errno(err, failed, "could not write %s", path);
    }
    failed = posix_fallocate(descriptor, 0, (off_t)output->memory_size);
    if (failed == 0) {
        output->memory =
            mmap(NULL, output->memory_size, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
        output->mapped = output->memory != MAP_FAILED;
        failed = output->mapped ? 0 : errno;
        output->memory = output->mapped ? output->memory : NULL;
    }
    if (failed == 0 && fchmod(descriptor, 0666 & ~read_umask()) != 0) {
        failed = errno;
    }
    (void)close(descriptor);
    return failed == 0 ? TUTTI_OK : cli_fail_errno(err, failed, "could not write %s", path);
}

/*
 * The size is known before any data comes, so the header and the room are made at once, and data
 * goes straight into the mapping.
 */
tutti_code
npy_create_file(const char *path, const void *header, size_t header_size, uint64_t bytes,
                npy_output *ret_output, tutti_error *err)
{
    npy_output output = {.bytes = bytes};
    tutti_code code = TUTTI_OK;

    output.memory_size = header_size + (size_t)output.bytes;
    output.stream = is_stream(path, &output.path);
    if (output.stream) {
        output.memory = calloc(1, output.memory_size);
        code = output.memory != NULL
                   ? TUTTI_OK
                   : cli_fail(err, TUTTI_RESOURCE_EXHAUSTED,
                              "no memory for an array of %" PRIu64 " bytes", output.bytes);
    } else if (output.path == NULL) {
        code = cli_fail_errno(err, errno, "could not write %s", path);
    } else {
        code = make_file(output.path, &output, err);
    }
    if (code != TUTTI_OK) {
        npy_discard(&output);
        return code;
    }
    memcpy(output.memory, header, header_size);
    output.data = output.memory + header_size;
    *ret_output = output;
    return TUTTI_OK;
}

tutti_code
npy_create(const char *path, const tutti_spec *spec, npy_output *ret_output, tutti_error *err)
{
    char header[NPY_HEADER_MAX];
    const size_t header_size = npy_header_write(spec, header);
    uint64_t bytes;
    tutti_code code = tutti_spec_size(spec, NULL, &bytes, err);

    return code != TUTTI_OK ? code
                            : npy_create_file(path, header, header_size, bytes, ret_output, err);
}

/* ------------------------------------------------------------------------------ ending */

static tutti_code
write_stream(const npy_output *output, tutti_error *err)
{
    const char *name = output->path != NULL ? output->path : "standard output";
    FILE *file = output->path != NULL ? fopen(output->path, "we") : stdout;
    bool written;

    if (file == NULL) {
        return cli_fail_errno(err, errno, "could not open %s", name);
    }
    written = fwrite(output->memory, 1, output->memory_size, file) == output->memory_size &&
              fflush(file) == 0;
    if (file != stdout) {
        written = fclose(file) == 0 && written;
    }
    return written ? TUTTI_OK : cli_fail_errno(err, errno, "could not write to %s", name);
}

/* The rename is the moment in which the file appears. For a stream all is written here. */
tutti_code
npy_commit(npy_output *output, tutti_error *err)
{
    tutti_code code = TUTTI_OK;

    if (output->stream) {
        code = write_stream(output, err);
    } else if (rename(output->temporary, output->path) != 0) {
        code = cli_fail_errno(err, errno, "could not write %s", output->path);
    } else {
        release_signals(output->temporary);
        free(output->temporary);
        output->temporary = NULL;
    }
    npy_discard(output);
    return code;
}

/* Good for any state, also after npy_commit. */
void
npy_discard(npy_output *output)
{
    if (output->mapped) {
        (void)munmap(output->memory, output->memory_size);
    } else {
        free(output->memory);
    }
    if (output->temporary != NULL) {
        (void)unlink(output->temporary);
        release_signals(output->temporary);
    }
    free(output->temporary);
    free(output->path);
    *output = (npy_output){0};
}
