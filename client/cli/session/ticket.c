#include "client/cli/session/ticket.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/util/output.h"

#define HEX_BYTES (2 * TUTTI_SESSION_SECRET_BYTES)

/* ------------------------------------------------------------------------------ reading */

static int
digit_of(char letter)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = letter == '\0' ? NULL : strchr(digits, letter);

    return found == NULL ? -1 : (int)(found - digits);
}

static bool
read_first_line(const char *line, ticket *ret)
{
    const char *dot = strchr(line, '.');
    const size_t size = dot == NULL ? 0 : (size_t)(dot - line);
    size_t i;

    if (size == 0 || size > TUTTI_SESSION_ID_MAX || strcspn(dot + 1, "\r\n") != HEX_BYTES) {
        return false;
    }
    memcpy(ret->id, line, size);
    ret->id[size] = '\0';
    for (i = 0; i < TUTTI_SESSION_SECRET_BYTES; i++) {
        const int high = digit_of(dot[1 + 2 * i]);
        const int low = digit_of(dot[2 + 2 * i]);

        if (high < 0 || low < 0) {
            return false;
        }
        ret->secret[i] = (unsigned char)(high * 16 + low);
    }
    return true;
}

/* "x 1" */
static bool
read_register_name(const char *line, shell_variable *ret)
{
    const size_t size = strcspn(line, " ");
    unsigned long reg;
    char *end;

    if (size > SHELL_NAME_MAX || line[size] == '\0') {
        return false;
    }
    memcpy(ret->name, line, size);
    ret->name[size] = '\0';
    reg = strtoul(line + size + 1, &end, 10);
    ret->reg = (uint32_t)reg;
    return shell_is_name(ret->name) && reg > 0 && reg <= UINT32_MAX &&
           end[strspn(end, "\r\n")] == '\0';
}

static tutti_code
add_name(shell *self, const char *line, const char *path, tutti_error *err)
{
    shell_variable one;
    shell_variable *more;

    if (line[0] == '\0' || line[0] == '\n') {
        return TUTTI_OK;
    }
    if (!read_register_name(line, &one) || shell_find(self, one.name) != NULL) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "%.200s is no ticket: \"%.60s\" is no name and register", path, line);
    }
    more = realloc(self->variables, (self->variable_count + 1) * sizeof(*more));
    if (more == NULL) {
        return cli_fail(err, TUTTI_RESOURCE_EXHAUSTED, "no memory for a variable");
    }
    self->variables = more;
    more[self->variable_count++] = one;
    return TUTTI_OK;
}

static tutti_code
check_private(FILE *file, const char *path, tutti_error *err)
{
    struct stat found;

    if (fstat(fileno(file), &found) != 0 || !S_ISREG(found.st_mode)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT, "%.200s is no file", path);
    }
    if ((found.st_mode & 077) != 0) {
        return cli_fail(err, TUTTI_FAILED_PRECONDITION,
                        "%.200s can be read by others, who could take the session over: chmod 600 "
                        "%.200s, and open another session if they may have",
                        path, path);
    }
    return TUTTI_OK;
}

static tutti_code
read_ticket_lines(FILE *file, const char *path, shell *self, ticket *ret, tutti_error *err)
{
    char line[SHELL_NAME_MAX + 64];
    tutti_code code = TUTTI_OK;

    if (fgets(line, sizeof(line), file) == NULL || !read_first_line(line, ret)) {
        return cli_fail(err, TUTTI_INVALID_ARGUMENT,
                        "%.200s is no ticket of a session: its first line is to be ID.SECRET, with "
                        "%d hex digits behind the dot",
                        path, HEX_BYTES);
    }
    while (code == TUTTI_OK && fgets(line, sizeof(line), file) != NULL) {
        code = add_name(self, line, path, err);
    }
    return code;
}

tutti_code
ticket_read(const char *path, shell *self, ticket *ret, tutti_error *err)
{
    FILE *file = fopen(path, "re");
    tutti_code code;

    if (file == NULL) {
        return cli_fail_errno(err, errno, "could not open %.200s, the ticket of a session", path);
    }
    code = check_private(file, path, err);
    if (code == TUTTI_OK) {
        code = read_ticket_lines(file, path, self, ret, err);
    }
    (void)fclose(file);
    return code;
}

/* ------------------------------------------------------------------------------ writing */

static bool
write_lines(const shell *self, FILE *file)
{
    const tutti_session_info *info = tutti_session_describe(self->session);
    size_t i;

    (void)fprintf(file, "%s.", info->id);
    for (i = 0; i < info->secret_bytes; i++) {
        (void)fprintf(file, "%02x", info->secret[i]);
    }
    (void)fputc('\n', file);
    for (i = 0; i < self->variable_count; i++) {
        (void)fprintf(file, "%s %" PRIu32 "\n", self->variables[i].name, self->variables[i].reg);
    }
    return fflush(file) == 0 && ferror(file) == 0;
}

/* A file that was there may be open to others; this one never is. */
tutti_code
ticket_write(const shell *self, tutti_error *err)
{
    char fresh[PATH_MAX + 8];
    FILE *file;
    bool well;
    int fd;

    (void)snprintf(fresh, sizeof(fresh), "%s.new", self->ticket);
    (void)unlink(fresh);
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    file = fd < 0 ? NULL : fdopen(fd, "w");
    if (file == NULL) {
        const int number = errno;

        if (fd >= 0) {
            (void)close(fd);
        }
        return cli_fail_errno(err, number, "could not write %.200s, the ticket of the session",
                              self->ticket);
    }
    well = write_lines(self, file);
    well = fclose(file) == 0 && well;
    if (!well || rename(fresh, self->ticket) != 0) {
        const int number = errno;

        (void)unlink(fresh);
        return cli_fail_errno(err, number, "could not write %.200s, the ticket of the session",
                              self->ticket);
    }
    return TUTTI_OK;
}

tutti_code
ticket_default_path(const char *id, char ret[PATH_MAX], tutti_error *err)
{
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    const bool stated = state != NULL && state[0] == '/';
    int size = -1;

    if (stated) {
        size = snprintf(ret, PATH_MAX, "%s", state);
    } else if (home != NULL && home[0] == '/') {
        size = snprintf(ret, PATH_MAX, "%s/.local/state", home);
    }
    if (size < 0 || size > PATH_MAX - 64) {
        return cli_fail(err, TUTTI_FAILED_PRECONDITION,
                        "no folder for the ticket of the session: give --ticket FILE, or set HOME");
    }
    (void)mkdir(ret, 0700);
    (void)strcat(ret, "/tutti");
    (void)mkdir(ret, 0700);
    (void)snprintf(ret + strlen(ret), 56, "/session-%.32s", id);
    return TUTTI_OK;
}
