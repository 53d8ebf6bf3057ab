/* tutti: the command for people. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/main/commands.h"
#include "client/cli/parse/parse.h"

static char goodbye[128];
static size_t goodbye_size;

/* Commands that have more to do at the end take the signal themselves. SA_RESETHAND: raised again,
 * it ends the process as it would have. */
static void
on_interrupt(int number)
{
    if (write(STDERR_FILENO, goodbye, goodbye_size) < 0) {
        /* Nobody reads it. */
    }
    (void)raise(number);
}

/* An interrupted command says so, behind the ^C of a terminal. */
static void
announce_interrupts(const char *command)
{
    const struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND};
    const int size = snprintf(goodbye, sizeof(goodbye), "%stutti: %s: interrupted\n",
                              isatty(STDERR_FILENO) == 1 ? "\n" : "", command);

    goodbye_size = (size_t)size < sizeof(goodbye) ? (size_t)size : sizeof(goodbye) - 1;
    (void)sigaction(SIGINT, &action, NULL);
}

int
main(int argc, char **argv)
{
    cli self = {.syntax = &cli_all_syntax, .out = stdout, .err = stderr};
    int exit_code = CLI_FINE;

    (void)signal(SIGPIPE, SIG_IGN);            /* a write that fails says so */
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);  /* as agents do: tensors come and go, with */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20); /* bench --inline a thousand times */
    if (cli_parse(&self, argc, argv, &exit_code)) {
        announce_interrupts(self.command->name);
        exit_code = self.command->run(&self);
    }
    if (fflush(stdout) != 0 || ferror(stdout) != 0) {
        if (errno != EPIPE) { /* `tutti list | head` is nothing to complain about */
            (void)fprintf(stderr, "tutti: could not write to standard output\n");
        }
        exit_code = exit_code == CLI_FINE ? CLI_FAILED : exit_code;
    }
    return exit_code;
}
