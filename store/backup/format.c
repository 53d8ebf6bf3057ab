/* Numbers and the digest of a backup. */
#include "store/backup/format.h"

/* For a given state two words never give the same one, so a single wrong word is always seen. */
static uint64_t
mix_digest(uint64_t state, uint64_t word)
{
    state = (state ^ word) * 0x9E3779B97F4A7C15U;
    return state ^ state >> 32;
}

/* The size is mixed in as well: bytes cannot move from one piece to the next unseen. */
void
backup_digest_add(backup_digest *digest, tutti_bytes bytes)
{
    const unsigned char *at = bytes.data;
    uint64_t state = mix_digest(digest->state, bytes.size + 1);
    size_t left = bytes.size;

    for (; left >= 8; left -= 8, at += 8) {
        state = mix_digest(state, backup_get(at, 8));
    }
    digest->state = left == 0 ? state : mix_digest(state, backup_get(at, left));
}

void
backup_put(unsigned char *to, uint64_t number, size_t bytes)
{
    size_t i;

    for (i = 0; i < bytes; i++) {
        to[i] = (unsigned char)(number >> 8 * i);
    }
}

uint64_t
backup_get(const unsigned char *from, size_t bytes)
{
    uint64_t number = 0;

    while (bytes-- > 0) {
        number = number << 8 | from[bytes];
    }
    return number;
}
