/* The number of a lease as people see it: 16 hex digits. */
#ifndef TUTTI_CLIENT_CLI_STORE_LEASE_TEXT_H
#define TUTTI_CLIENT_CLI_STORE_LEASE_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#define LEASE_TEXT_SIZE 17 /* with the NUL */
#define LEASE_WANTED                                                                               \
    "\"%s\" is no lease: write its 16 hex digits, as \"store lease grant\" prints them"

void lease_format(uint64_t lease, char ret_text[LEASE_TEXT_SIZE]);

/* False: not exactly 16 hex digits, or 0. */
bool lease_parse(const char *text, uint64_t *ret_lease);

#endif
