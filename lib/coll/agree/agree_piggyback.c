/* Riders: what travels with the signatures. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "coll/agree/agree.h"
#include "coll/agree/agree_private.h"
#include "coll/packet/packet.h"

void
tutti_agree_piggyback(tutti_coll_agree *agree, const void *bytes, size_t size)
{
    assert(size > 0 && size <= TUTTI_AGREE_PIGGYBACK_MAX && agree->riders == NULL);
    agree->riders = agree->size <= TUTTI_AGREE_RIDING_RANKS_MAX ? calloc(agree->size, size) : NULL;
    if (agree->riders != NULL) { /* else the op has rounds of its own */
        agree->piggyback_size = size;
        agree->all_piggyback = true;
        memcpy(agree->riders + agree->own * size, bytes, size);
    }
}

const unsigned char *
tutti_agree_riders(const tutti_coll_agree *agree, size_t *ret_size)
{
    *ret_size = agree->piggyback_size;
    return agree->all_piggyback ? agree->riders : NULL;
}

tutti_code
tutti_agree_write_riders(tutti_coll_agree *self, tutti_error *err)
{
    unsigned char head[RUN_BYTES] = {0};
    uint32_t i;

    tutti_packet_put_u32(head, (uint32_t)self->piggyback_size);
    TUTTI_TRY(tutti_buf_add(&self->out, head, sizeof(head), err));
    for (i = 0; i < self->size; i++) {
        if (self->of[i] != UNKNOWN) {
            TUTTI_TRY(tutti_buf_add(&self->out, self->riders + i * self->piggyback_size,
                                    self->piggyback_size, err));
        }
    }
    return TUTTI_OK;
}

bool
tutti_agree_read_riders(tutti_coll_agree *self, const unsigned char *runs,
                        const unsigned char *riders, size_t size)
{
    const unsigned char *const end = riders + size;
    const unsigned char *at = riders + RUN_BYTES;

    if (!self->all_piggyback || tutti_packet_get_u32(riders) != self->piggyback_size) {
        return false;
    }
    while (runs < riders) {
        const size_t bytes = (size_t)tutti_packet_get_u32(runs + 4) * self->piggyback_size;

        if ((size_t)(end - at) < bytes) {
            return false;
        }
        memcpy(self->riders + tutti_packet_get_u32(runs) * self->piggyback_size, at, bytes);
        at += bytes;
        runs += RUN_BYTES + runs[8];
    }
    return at == end;
}
