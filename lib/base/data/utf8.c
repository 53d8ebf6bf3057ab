#include "base/data/utf8.h"

#include <stdint.h>
#include <string.h>

/*
 * Well-formed byte sequences of the Unicode standard, table 3-7: the second byte's range depends on
 * the first one, which excludes overlong forms (e0, f0), surrogates (ed) and numbers beyond
 * U+10FFFF (f4).
 */
size_t
tutti_utf8_size(const void *at, size_t left)
{
    const unsigned char *bytes = at;
    unsigned char low = 0x80;
    unsigned char high = 0xbf;
    size_t size;
    size_t i;

    if (left == 0 || bytes[0] < 0x80) {
        return left == 0 || bytes[0] == 0 ? 0 : 1;
    }
    size = bytes[0] >= 0xf0 ? 4 : bytes[0] >= 0xe0 ? 3 : 2;
    if (bytes[0] < 0xc2 || bytes[0] > 0xf4 || left < size) {
        return 0;
    }
    low = bytes[0] == 0xe0 ? 0xa0 : bytes[0] == 0xf0 ? 0x90 : low;
    high = bytes[0] == 0xed ? 0x9f : bytes[0] == 0xf4 ? 0x8f : high;
    if (bytes[1] < low || bytes[1] > high) {
        return 0;
    }
    for (i = 2; i < size; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return size;
}

/* Only what is looked for has to come out right: characters of two and three bytes. */
bool
tutti_utf8_steers(const void *at, size_t size)
{
    const unsigned char *bytes = at;
    uint32_t point;

    if (size == 1) {
        return bytes[0] < 0x20 || bytes[0] == 0x7f;
    }
    if (size == 2) {
        point = (bytes[0] & 0x1fU) << 6 | (bytes[1] & 0x3fU);
        return point < 0xa0 || point == 0x061c;
    }
    if (size != 3) {
        return false;
    }
    point = (bytes[0] & 0x0fU) << 12 | (bytes[1] & 0x3fU) << 6 | (bytes[2] & 0x3fU);
    return point == 0x200e || point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
           (point >= 0x2066 && point <= 0x2069);
}

size_t
tutti_utf8_clean(char *text)
{
    const char *from = text;
    char *to = text;
    size_t left = strlen(text);

    while (left > 0) {
        const size_t size = tutti_utf8_size(from, left);
        const size_t step = size == 0 ? 1 : size;

        if (size == 0 || tutti_utf8_steers(from, size)) {
            *to++ = size == 0 ? '?' : ' ';
        } else {
            memmove(to, from, size);
            to += size;
        }
        from += step;
        left -= step;
    }
    *to = '\0';
    return (size_t)(to - text);
}
