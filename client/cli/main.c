/* tutti: the command for people. */
#include <errno.h>
#include <malloc.h>
#include <signal.h>

#include "client/cli/cli.h"

int
main(int argc, char **argv)
{
    cli self = {.out = stdout, .err = stderr};
    int exit_code = CLI_FINE;

    (void)signal(SIGPIPE, SIG_IGN);            /* a write that fails says so */
    (void)mallopt(M_TRIM_THRESHOLD, 1 << 30);  /* as agents do: tensors come and go, with */
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20); /* bench --inline a thousand times */
    if (cli_parse(&self, argc, argv, &exit_code)) {
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
