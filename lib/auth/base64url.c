/*
 * base64url is decoded strictly: of all texts that would mean the same bytes only one is taken. A
 * signature covers the text and not the bytes, so a second text for the same token would
 * otherwise be a second token to everything that compares texts.
 */
#include "auth/base64url.h"

#include <stdint.h>

/* 0 to 63, or -1. */
static int
get_base64url_value(char character)
{
    if (character >= 'A' && character <= 'Z') {
        return character - 'A';
    }
    if (character >= 'a' && character <= 'z') {
        return character - 'a' + 26;
    }
    if (character >= '0' && character <= '9') {
        return character - '0' + 52;
    }
    return character == '-' ? 62 : character == '_' ? 63 : -1;
}

bool
auth_base64url_decode(const char *text, size_t size, unsigned char *ret_bytes, size_t most,
                      size_t *ret_size)
{
    const size_t bytes = size / 4 * 3 + (size % 4 == 0 ? 0 : size % 4 - 1);
    uint32_t bits = 0;
    unsigned held = 0;
    size_t done = 0;
    size_t i;

    if (size % 4 == 1 || bytes > most) {
        return false;
    }
    for (i = 0; i < size; i++) {
        const int value = get_base64url_value(text[i]);

        if (value < 0) {
            return false;
        }
        bits = (bits << 6 | (uint32_t)value) & 0xffff;
        held += 6;
        if (held >= 8) {
            held -= 8;
            ret_bytes[done++] = (unsigned char)(bits >> held);
        }
    }
    *ret_size = done;
    /* The bits that are left over must be 0. */
    return (bits & ((1u << held) - 1)) == 0;
}
