/*
 * References as text: KIND:RANK.INCARNATION.NUMBER. They are parsed and formatted in every call
 * that names a tensor or a work, so this is written by hand and without printf and scanf.
 */
#include "base/data/ref.h"

#include <assert.h>
#include <string.h>

#define HEX_DIGITS 16

/* Decimal digits up to `end`, which is skipped; false: another form, or more than `most`. */
static bool
take_decimal(const char **at, uint64_t most, char end, uint64_t *ret_number)
{
    const char *digit = *at;
    uint64_t number = 0;

    /* A leading zero is refused: each reference has one text only. */
    if (*digit == '0' && digit[1] != end) {
        return false;
    }
    for (; *digit >= '0' && *digit <= '9'; digit++) {
        const uint64_t value = (uint64_t)(*digit - '0');

        /* number * 10 + value would pass `most` */
        if (number > (most - value) / 10) {
            return false;
        }
        number = number * 10 + value;
    }
    if (digit == *at || *digit != end) {
        return false;
    }
    *at = digit + 1;
    *ret_number = number;
    return true;
}

/* Exactly 16 digits, in small letters, as they are written. */
static bool
take_hex(const char **at, char end, uint64_t *ret_number)
{
    uint64_t number = 0;
    int i;

    for (i = 0; i < HEX_DIGITS; i++) {
        const char digit = (*at)[i];

        if (digit >= '0' && digit <= '9') {
            number = number << 4 | (uint64_t)(digit - '0');
        } else if (digit >= 'a' && digit <= 'f') {
            number = number << 4 | (uint64_t)(digit - 'a' + 10);
        } else {
            return false;
        }
    }
    if ((*at)[HEX_DIGITS] != end) {
        return false;
    }
    *at += HEX_DIGITS + 1;
    *ret_number = number;
    return true;
}

bool
tutti_ref_parse(const char *text, const char *kind, tutti_ref *ret_ref)
{
    const size_t length = strlen(kind);
    const char *at = text + length + 1;
    uint64_t rank;
    tutti_ref ref;

    if (strncmp(text, kind, length) != 0 || text[length] != ':' ||
        !take_decimal(&at, UINT32_MAX, '.', &rank) || !take_hex(&at, '.', &ref.incarnation) ||
        ref.incarnation == 0 || !take_decimal(&at, UINT64_MAX, '\0', &ref.number)) {
        return false;
    }
    ref.rank = (uint32_t)rank;
    *ret_ref = ref;
    return true;
}

/* Digits of `number`, at least `least` of them, in front of `end`. Returns the first one. */
static char *
put_digits(char *end, uint64_t number, unsigned base, int least)
{
    for (; number > 0 || least > 0; least--) {
        *--end = "0123456789abcdef"[number % base];
        number /= base;
    }
    return end;
}

/*
 * Digits are written from the end of a buffer towards its start, as they come out in that order.
 */
void
tutti_ref_format(const tutti_ref *ref, const char *kind, char *ret_text, size_t size)
{
    const size_t length = strlen(kind);
    char text[TUTTI_REF_SIZE];
    char *const end = text + sizeof(text) - 1;
    char *at = end;
    size_t used;

    assert(size > 0 && length <= TUTTI_REF_KIND_MAX);
    *end = '\0';
    at = put_digits(at, ref->number, 10, 1);
    *--at = '.';
    at = put_digits(at, ref->incarnation, 16, HEX_DIGITS);
    *--at = '.';
    at = put_digits(at, ref->rank, 10, 1);
    *--at = ':';
    at -= length;
    memcpy(at, kind, length);
    used = (size_t)(end - at) < size ? (size_t)(end - at) : size - 1;
    memcpy(ret_text, at, used);
    ret_text[used] = '\0';
}
