/* What whoever has a bell can do to all who have it. */
#ifndef TUTTI_TESTS_HOSTILE_BELL_H
#define TUTTI_TESTS_HOSTILE_BELL_H

#include "support/testing.h"

#include <fcntl.h>
#include <stdint.h>
#include <unistd.h>

/* From here on a write() to it would block, whichever process makes it. */
static inline void
spoil_bell(int bell)
{
    const uint64_t most = UINT64_MAX - 1;
    uint64_t count;

    assert_int_equal(fcntl(bell, F_SETFL, O_NONBLOCK), 0);
    (void)!read(bell, &count, sizeof(count));
    assert_int_equal(write(bell, &most, sizeof(most)), sizeof(most));
    assert_int_equal(fcntl(bell, F_SETFL, 0), 0);
}

#endif
