/*
 * Passing on what a program writes, line by line and with a prefix, so that lines of several
 * programs do not mix. A line that is too long for the buffer is passed on in pieces.
 */
#include "client/cli/util/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/*
 * The pipe's near end does not block, since one loop reads many of them. The far end does, as
 * programs expect that.
 */
bool
relay_open(relay *self, FILE *to, const char *prefix, int *ret_input)
{
    int ends[2];

    *self = (relay){.descriptor = -1, .to = to};
    (void)snprintf(self->prefix, sizeof(self->prefix), "%s", prefix);
    self->line = malloc(RELAY_LINE_MAX);
    if (self->line == NULL || pipe2(ends, O_CLOEXEC) != 0) {
        free(self->line);
        self->line = NULL;
        return false;
    }
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK); /* our end alone */
    self->descriptor = ends[0];
    *ret_input = ends[1];
    return true;
}

/* A line, or a piece of one. Nothing can be done about an output that takes nothing. */
static void
pass_on(relay *self, const char *bytes, size_t size)
{
    if (!self->cut) {
        (void)fputs(self->prefix, self->to);
    }
    (void)fwrite(bytes, 1, size, self->to);
    self->cut = bytes[size - 1] != '\n';
}

/* Without a prefix also the begin of a line is passed on at once, for prompts and dots. */
static void
pass_on_lines(relay *self)
{
    const char *at = self->line;
    const char *end = self->line + self->size;
    const char *newline;

    while (at < end && (newline = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        pass_on(self, at, (size_t)(newline + 1 - at));
        at = newline + 1;
    }
    if (at < end &&
        (self->prefix[0] == '\0' || (at == self->line && self->size == RELAY_LINE_MAX))) {
        pass_on(self, at, (size_t)(end - at));
        at = end;
    }
    self->size = (size_t)(end - at);
    memmove(self->line, at, self->size);
}

/*
 * Reads until there is nothing for now. At the end of the pipe it is closed; what is left of a
 * line waits for relay_close.
 */
void
relay_move(relay *self)
{
    ssize_t got = 1;

    while (self->descriptor >= 0 && got > 0) {
        got = read(self->descriptor, self->line + self->size, RELAY_LINE_MAX - self->size);
        if (got > 0) {
            self->size += (size_t)got;
            pass_on_lines(self);
        }
    }
    (void)fflush(self->to);
    if (self->descriptor >= 0 && (got == 0 || errno != EAGAIN)) {
        (void)close(self->descriptor);
        self->descriptor = -1;
    }
}

void
relay_close(relay *self)
{
    if (self->line == NULL) {
        return;
    }
    relay_move(self);
    if (self->size > 0) {
        pass_on(self, self->line, self->size);
    }
    if (self->cut && self->prefix[0] != '\0') {
        (void)fputc('\n', self->to); /* the next line is somebody else's */
    }
    (void)fflush(self->to);
    if (self->descriptor >= 0) {
        (void)close(self->descriptor);
    }
    free(self->line);
    *self = (relay){.descriptor = -1};
}
