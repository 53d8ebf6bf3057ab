/*
 * The terminal: another page of it, in raw mode, so that what was there comes back at the end. Only the few
 * codes are used that all terminals of today have (and the progress bars use); ncurses would bring no more
 * than these for lines that are written from the top.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "client/cli/diagnose/top.h"
#include "client/cli/util/output.h"
#include "client/cli/util/progress.h"

#define BEGIN_PAGE "\033[?1049h\033[?25l"
#define END_PAGE "\033[?25h\033[?1049l"
#define TO_BEGIN "\033[H"
#define CLEAR_LINE "\033[K"
#define CLEAR_REST "\033[J"
#define COLUMNS_DEFAULT 80
#define LINES_DEFAULT 24

static volatile sig_atomic_t is_over;
static volatile sig_atomic_t is_resized;

typedef struct screen {
    top *shown;
    const cli *how;
    struct termios before;
    struct winsize size;
    uint32_t rows; /* of ranks */
    uint32_t first;
} screen;

static void
on_terminal_signal(int number)
{
    if (number == SIGWINCH) {
        is_resized = 1;
    } else {
        is_over = 1;
    }
}

static void
take_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGWINCH};
    const struct sigaction action = {.sa_handler = on_terminal_signal}; /* calls are interrupted */
    size_t i;

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        (void)sigaction(numbers[i], &action, NULL);
    }
}

/* Ctrl-C stays a signal; Ctrl-Z would leave the terminal as it is now. */
static bool
open_screen(screen *self)
{
    struct termios raw;

    if (tcgetattr(STDIN_FILENO, &self->before) != 0) {
        return false;
    }
    raw = self->before;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    take_signals();
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) {
        return false;
    }
    (void)fputs(BEGIN_PAGE, self->how->out);
    return true;
}

static void
close_screen(screen *self)
{
    (void)fputs(END_PAGE, self->how->out);
    (void)fflush(self->how->out);
    (void)tcsetattr(STDIN_FILENO, TCSANOW, &self->before);
}

static void
look_at_size(screen *self)
{
    uint32_t others = top_other_lines(self->shown);

    is_resized = 0;
    if (ioctl(fileno(self->how->out), TIOCGWINSZ, &self->size) != 0 || self->size.ws_col == 0 ||
        self->size.ws_row == 0) {
        self->size.ws_col = COLUMNS_DEFAULT;
        self->size.ws_row = LINES_DEFAULT;
    }
    self->rows = self->size.ws_row > others + 2 ? self->size.ws_row - others - 2 : 1;
}

/* A line up to the width; codes for colours take no room, and all of them are passed on. */
static void
put_line(FILE *out, const char *line, size_t size, size_t width)
{
    size_t shown = 0;
    size_t i;

    for (i = 0; i < size; i++) {
        if (line[i] == '\033') {
            for (; i < size && line[i] != 'm'; i++) {
                (void)fputc(line[i], out);
            }
            (void)fputs(i < size ? "m" : "", out);
        } else if (shown < width) {
            (void)fputc(line[i], out);
            shown++;
        }
    }
}

static void
put_page(const screen *self, const char *text)
{
    FILE *out = self->how->out;
    uint32_t line = 0;

    (void)fputs(TO_BEGIN, out);
    while (*text != '\0' && line < self->size.ws_row) {
        const size_t size = strcspn(text, "\n");

        (void)fputs(line == 0 ? CLEAR_LINE : "\n" CLEAR_LINE, out);
        put_line(out, text, size, self->size.ws_col);
        text += size + (text[size] == '\n' ? 1 : 0);
        line++;
    }
    (void)fputs(CLEAR_REST, out);
    (void)fflush(out);
}

static void
draw_screen(screen *self)
{
    char *text = NULL;
    size_t size = 0;
    FILE *page = open_memstream(&text, &size);

    if (page == NULL) {
        abort();
    }
    look_at_size(self);
    top_draw(self->shown, self->how, page, self->rows);
    (void)fprintf(page,
                  "q ends; s sorts (now by %s); arrows, page keys and space show other ranks\n",
                  top_order_name(self->shown->order));
    if (fclose(page) != 0) {
        abort();
    }
    put_page(self, text);
    free(text);
}

static void
move_by(screen *self, int64_t by)
{
    const int64_t size = self->shown->job.world_size;
    const int64_t last = size > self->rows ? size - self->rows : 0;
    const int64_t wanted = (int64_t)self->first + by;

    self->first = (uint32_t)(wanted < 0 ? 0 : wanted > last ? last : wanted);
}

/* Whole sequences of keys; what is not known is passed over. */
static void
take_keys(screen *self, const char *keys)
{
    static const struct {
        const char *key;
        int by; /* 1, -1 = a line; 2, -2 = a page */
    } moves[] = {{"\033[A", -1},  {"\033[B", 1},  {"k", -1}, {"j", 1},
                 {"\033[5~", -2}, {"\033[6~", 2}, {" ", 2}};
    size_t i;

    if (strchr(keys, 'q') != NULL || strchr(keys, 'Q') != NULL) {
        is_over = 1;
    }
    if (strcmp(keys, "s") == 0) {
        self->shown->order = (top_order)((self->shown->order + 1) % TOP_ORDERS);
        self->first = 0;
    }
    for (i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
        if (strcmp(keys, moves[i].key) == 0) {
            move_by(self, abs(moves[i].by) == 1 ? moves[i].by : moves[i].by / 2 * (int)self->rows);
        }
    }
}

/* Until the time, or something is pressed, or the size has changed. True: draw again with a sample. */
static bool
wait_on_screen(screen *self, uint64_t until_ms)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    const uint64_t now_ms = cli_now_ms();
    char keys[16] = "";
    const uint32_t first = self->first;
    const top_order order = self->shown->order;
    ssize_t got;

    if (now_ms >= until_ms) {
        return true;
    }
    if (poll(&input, 1, (int)(until_ms - now_ms)) <= 0) {
        return cli_now_ms() >= until_ms;
    }
    got = read(STDIN_FILENO, keys, sizeof(keys) - 1);
    if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) {
        is_over = 1; /* the terminal is gone */
    }
    take_keys(self, keys);
    return self->first != first || self->shown->order != order;
}

int
top_run(top *self, const cli *how, uint32_t interval_ms)
{
    const uint64_t end_ms = how->timeout_ms == 0 ? UINT64_MAX : cli_now_ms() + how->timeout_ms;
    screen onto = {.shown = self, .how = how};

    if (!open_screen(&onto)) {
        return cli_failed(how, NULL,
                          &(tutti_error){.text = "this terminal cannot be used: --once"});
    }
    while (is_over == 0 && cli_now_ms() < end_ms) {
        uint64_t next_ms = cli_now_ms() + interval_ms;

        draw_screen(&onto);
        next_ms = next_ms < end_ms ? next_ms : end_ms;
        while (is_over == 0 && !wait_on_screen(&onto, next_ms)) {
            draw_screen(&onto); /* of another size */
        }
        if (is_over == 0) {
            /* In another order than that of ranks, all have to be there, as many as can be. */
            self->skipped = self->order == TOP_BY_RANK ? 0 : onto.first;
            (void)top_sample(self, onto.first - self->skipped, NULL);
        }
    }
    close_screen(&onto);
    return CLI_FINE;
}
