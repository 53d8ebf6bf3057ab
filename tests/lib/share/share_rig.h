/* Rig: memory of ours to share, and a counter of what came to its end. */
#ifndef TUTTI_TESTS_SHARE_RIG_H
#define TUTTI_TESTS_SHARE_RIG_H

#include <stdatomic.h>

#include "support/testing.h"

#include "share/share.h"

#define RIG_BYTES 10000
#define RIG_WAIT_MS 60000

typedef struct share_rig {
    tutti_share *share;
    unsigned char *memory; /* of sevens */
    int fd;
    atomic_int over;
} share_rig;

void share_rig_open(share_rig *self, uint32_t shares_max, uint64_t patience_ns);
void share_rig_close(share_rig *self);

tutti_code share_rig_offer(share_rig *self, bool writable, unsigned char *ret_token,
                           tutti_error *err);
tutti_code share_rig_take(const share_rig *self, const unsigned char *token,
                          tutti_share_view *ret_view, tutti_error *err);

/* The thread hears of an end some time. */
void share_rig_wait_over(share_rig *self, int count);

#endif
