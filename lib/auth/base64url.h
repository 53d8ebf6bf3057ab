/* base64url: RFC 4648 section 5 without padding, as JSON web tokens and keys have it. Any thread.
 */
#ifndef TUTTI_AUTH_BASE64URL_H
#define TUTTI_AUTH_BASE64URL_H

#include <stdbool.h>
#include <stddef.h>

/*
 * `size` characters into at most `most` bytes. False: a character that is none, a length that
 * cannot be, bits that should be 0, or more than `most` bytes.
 */
bool auth_base64url_decode(const char *text, size_t size, unsigned char *ret_bytes, size_t most,
                           size_t *ret_size);

#endif
