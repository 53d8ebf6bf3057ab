#include "base/data/id.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/error/fail.h"

uint64_t
tutti_id_draw(void)
{
    uint64_t id = 0;

    /* 0 means "no id" everywhere. */
    while (id == 0) {
        if (getrandom(&id, sizeof(id), 0) != (ssize_t)sizeof(id)) {
            id = 0; /* interrupted before the pool was ready: once more */
        }
    }
    return id;
}

void
tutti_id_format(uint64_t id, char ret_text[TUTTI_ID_TEXT_SIZE])
{
    (void)snprintf(ret_text, TUTTI_ID_TEXT_SIZE, "%016" PRIx64, id);
}

/* Exactly the form of tutti_id_format is taken, so each id has one text only. */
tutti_code
tutti_id_parse(const char *text, uint64_t *ret_id, tutti_error *err)
{
    const size_t digits = strspn(text, "0123456789abcdef");
    uint64_t id;

    id = digits == 16 && text[16] == '\0' ? strtoull(text, NULL, 16) : 0;
    if (id == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_INVALID_ARGUMENT, "BAD_OPTION",
                              "\"%.32s\" is no id of 16 hex digits", text);
    }
    *ret_id = id;
    return TUTTI_OK;
}
