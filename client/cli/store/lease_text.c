#include "client/cli/store/lease_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
lease_format(uint64_t lease, char ret_text[LEASE_TEXT_SIZE])
{
    (void)snprintf(ret_text, LEASE_TEXT_SIZE, "%016" PRIx64, lease);
}

bool
lease_parse(const char *text, uint64_t *ret_lease)
{
    if (strlen(text) != LEASE_TEXT_SIZE - 1 ||
        strspn(text, "0123456789abcdef") != LEASE_TEXT_SIZE - 1) {
        return false;
    }
    *ret_lease = strtoull(text, NULL, 16);
    return *ret_lease != 0;
}
