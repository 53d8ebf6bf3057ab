/* Adds one to a counter for each line of its input, and says what it is then, or what went wrong.
 */
#include <inttypes.h>
#include <stdio.h>

#include "tutti/tutti.h"

static void
add_one(tutti_client *client)
{
    int64_t value = 0;
    tutti_error err;

    if (tutti_kv_add(client, "count", 5, 1, &value, &err) == TUTTI_OK) {
        (void)printf("%" PRId64 "\n", value);
    } else {
        (void)printf("%s\n", err.text);
    }
    (void)fflush(stdout);
}

int
main(int argc, char **argv)
{
    tutti_client *client = NULL;
    char line[64];
    tutti_error err;

    if (argc != 2 || tutti_connect(argv[1], &client, &err) != TUTTI_OK) {
        (void)printf("%s\n", argc != 2 ? "usage: patient_program AGENT" : err.text);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        add_one(client);
    }
    tutti_close(client);
    return 0;
}
