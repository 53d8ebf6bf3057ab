/* Testing: cmocka with the headers it wants before it, and the few words every test uses. */
#ifndef TUTTI_TESTS_TESTING_H
#define TUTTI_TESTS_TESTING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error/fail.h"

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* cmocka's skip() has no reason; ./run test takes it from this line. */
#define SKIP(reason) (print_message("# SKIP %s\n", (reason)), skip())

/* Fail with the error's own words. */
#define assert_ok(call)                                                                            \
    do {                                                                                           \
        if ((call) != TUTTI_OK) {                                                                  \
            fail_msg("%s: %s", #call, err.text);                                                   \
        }                                                                                          \
    } while (0)

#define assert_fails(call, wanted)                                                                 \
    do {                                                                                           \
        const tutti_code got_ = (call);                                                            \
        if (got_ != (wanted)) {                                                                    \
            fail_msg("%s: %s, wanted %s", #call, tutti_code_name(got_), tutti_code_name(wanted));  \
        }                                                                                          \
    } while (0)

#define assert_text_has(text, part)                                                                \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL) {                                                      \
            fail_msg("\"%s\" does not say \"%s\"", (text), (part));                                \
        }                                                                                          \
    } while (0)

#endif
