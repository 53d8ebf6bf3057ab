/* What tests of ops on the caller's memory say: bytes, and that nothing stays in the agent. */
#ifndef TUTTI_TESTS_CLIENT_BYTES_H
#define TUTTI_TESTS_CLIENT_BYTES_H

#include "client_rig.h"

#define MIB ((size_t)1 << 20)
#define LARGE (4 * MIB)

/* Of bytes; the agent will say so of its tensor as well. */
static inline tutti_spec
bytes_spec(client_rig *rig, size_t size)
{
    const tutti_spec spec = {TUTTI_DTYPE_UINT8, 1, {(int64_t)size}};

    rig->agent.script.spec = spec;
    return spec;
}

static inline unsigned char *
make_bytes(size_t size)
{
    unsigned char *bytes = malloc(size + 1);
    size_t i;

    assert_non_null(bytes);
    for (i = 0; i < size; i++) {
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    return bytes;
}

/* Every tensor that was made is gone, and no other was. */
static inline void
assert_clean(client_rig *rig)
{
    const unsigned made = atomic_load(&rig->agent.made_count);
    const unsigned deleted = atomic_load(&rig->agent.delete_count);
    unsigned i;
    unsigned k;

    for (i = 0; i < made; i++) {
        bool found = false;

        assert_text_has(rig->agent.made[i], "tutti.tmp/");
        for (k = 0; k < deleted; k++) {
            found = found || strcmp(rig->agent.made[i], rig->agent.deleted[k]) == 0;
        }
        if (!found) {
            fail_msg("%s was not deleted", rig->agent.made[i]);
        }
    }
}

#endif
