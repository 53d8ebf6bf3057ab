/* Man pages, from the tables. */
#include "client/cli/main/man.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "client/cli/cli.h"
#include "client/cli/main/commands.h"
#include "client/cli/util/output.h"

/*
 * roff takes backslashes, and dots and quotes at the beginning of a line, for its own; and it
 * makes typography of '-'. All three are written so that the page shows them as they are.
 */
static void
print_text(const char *text, FILE *file)
{
    bool begins = true;

    for (; *text != '\0'; text++) {
        if (*text == '\\') {
            (void)fputs("\\e", file);
        } else if (*text == '-') {
            (void)fputs("\\-", file);
        } else {
            if (begins && (*text == '.' || *text == '\'')) {
                (void)fputs("\\&", file);
            }
            (void)fputc(*text, file);
        }
        begins = *text == '\n';
    }
}

static void
print_options(const char *title, const cli_option *options, FILE *file)
{
    (void)fprintf(file, ".SH %s\n", title);
    for (; options->name != NULL; options++) {
        (void)fputs(".TP\n", file);
        if (options->letter != 0) {
            (void)fprintf(file, "\\fB\\-%c\\fR, ", options->letter);
        }
        (void)fputs("\\fB\\-\\-", file);
        print_text(options->name, file);
        (void)fputs("\\fR", file);
        if (options->value != NULL) {
            (void)fprintf(file, " \\fI%s\\fR", options->value);
        }
        (void)fputc('\n', file);
        print_text(options->help, file);
        (void)fputs(".\n", file);
    }
}

/* "cluster start" as "cluster-start". */
static void
page_name(const cli_command *command, char ret[64])
{
    char *space;

    (void)snprintf(ret, 64, "tutti%s%s", command == NULL ? "" : "-",
                   command == NULL ? "" : command->name);
    while ((space = strchr(ret, ' ')) != NULL) {
        *space = '-';
    }
}

static void
print_head(const cli_command *command, const char *help, FILE *file)
{
    char name[64];

    page_name(command, name);
    (void)fputs(".TH ", file);
    print_text(name, file);
    (void)fprintf(file, " 1 \"\" \"tutti %s\" \"Tutti\"\n.SH NAME\n", tutti_version());
    print_text(name, file);
    (void)fputs(" \\- ", file);
    print_text(help, file);
    (void)fputc('\n', file);
}

/* The parts that are the same on all pages. */
static void
print_common(FILE *file)
{
    (void)fputs(
        ".SH EXIT STATUS\n0 when all went well, 1 when something failed, 2 when the command line "
        "was wrong.\n"
        ".SH ENVIRONMENT\n"
        ".TP\n.B TUTTI_AGENT\nThe agent to speak to, where neither \\-\\-agent nor \\-\\-cluster "
        "says it.\n"
        ".TP\n.B TUTTI_COORDINATOR\nThe coordinator, for commands about groups, keys and status.\n"
        ".TP\n.B TUTTI_JOB\nThe job, where only a coordinator is spoken to.\n"
        ".TP\n.BR TUTTI_TLS_CA \", \" TUTTI_TLS_CERT \", \" TUTTI_TLS_KEY\nPEM files: who signs "
        "the servers' certificates, and the client's own.\n"
        ".TP\n.B TUTTI_TLS_NAME\nWhat certificates say instead of addresses.\n"
        ".TP\n.B TUTTI_TOKEN_FILE\nA file with the bearer token to show.\n"
        ".TP\n.B TRACEPARENT\nThe W3C trace that ops are a part of, for their records.\n"
        ".TP\n.B TUTTI_LOG\nWhat the library logs: error (the default), "
        "info, info,rpc=debug.\n"
        ".TP\n.B NO_COLOR\nWhen it is set, no colours.\n"
        ".SH FILES\n"
        ".TP\n.IR $XDG_RUNTIME_DIR/tutti/NAME \", else \" $TMPDIR/tutti-UID/NAME \", else \" "
        "/tmp/tutti-UID/NAME\n"
        "State, logs and sockets of a local cluster; clusters of one name are apart where these "
        "folders are.\n",
        file);
}

static void
print_main_page(FILE *file)
{
    const cli_command *command;
    const char *section = "";
    char name[64];

    print_head(NULL, "collectives on tensors in agents", file);
    (void)fputs(".SH SYNOPSIS\n.B tutti\n.I COMMAND\n[arguments] [options]\n.SH COMMANDS\n", file);
    for (command = cli_commands; command->name != NULL; command++) {
        if (strcmp(section, command->section) != 0) {
            section = command->section;
            (void)fprintf(file, ".SS %s\n", section);
        }
        page_name(command, name);
        (void)fputs(".TP\n.BR ", file);
        print_text(name, file);
        (void)fputs(" (1)\n", file);
        print_text(command->help, file);
        (void)fputs(".\n", file);
    }
    print_options("OPTIONS OF ALL COMMANDS", cli_global_options, file);
    print_common(file);
}

void
cli_man_page(const cli_command *command, FILE *file)
{
    if (command == NULL) {
        print_main_page(file);
        return;
    }
    print_head(command, command->help, file);
    (void)fputs(".SH SYNOPSIS\n.B tutti ", file);
    print_text(command->name, file);
    (void)fputs("\n", file);
    print_text(command->synopsis, file);
    if (command->about != NULL) {
        (void)fputs("\n.SH DESCRIPTION\n", file);
        print_text(command->about, file);
    }
    (void)fputc('\n', file);
    if (command->options != NULL) {
        print_options("OPTIONS", command->options, file);
    }
    (void)fputs(
        ".SH OPTIONS OF ALL COMMANDS\n\\-\\-agent, \\-\\-timeout, \\-\\-json and others: see "
        "tutti (1).\n.SH EXAMPLES\n.nf\n",
        file);
    print_text(command->example, file);
    (void)fputs("\n.fi\n", file);
    print_common(file);
    (void)fputs(".SH SEE ALSO\n.BR tutti (1)\n", file);
}

/* ferror comes first, as fclose says nothing about writes that failed before. */
static tutti_code
write_page(const char *folder, const cli_command *command, tutti_error *err)
{
    char name[64];
    char path[4096];
    FILE *file;

    page_name(command, name);
    (void)snprintf(path, sizeof(path), "%s/%s.1", folder, name);
    file = fopen(path, "we");
    if (file == NULL) {
        return cli_fail_errno(err, errno, "could not open %s", path);
    }
    cli_man_page(command, file);
    if (ferror(file) != 0 || fclose(file) != 0) {
        return cli_fail_errno(err, errno, "could not write %s", path);
    }
    return TUTTI_OK;
}

tutti_code
cli_man_write(const char *folder, tutti_error *err)
{
    const cli_command *command;
    tutti_code code;

    if (mkdir(folder, 0777) != 0 && errno != EEXIST) {
        return cli_fail_errno(err, errno, "could not make %s", folder);
    }
    code = write_page(folder, NULL, err);
    for (command = cli_commands; command->name != NULL && code == TUTTI_OK; command++) {
        code = write_page(folder, command, err);
    }
    return code;
}
