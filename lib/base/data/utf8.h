/*
 * UTF-8: where characters end, and which of them must not reach a terminal or a log. What others
 * have sent is cleaned by this one room, wherever it is shown. Pure; any thread.
 */
#ifndef TUTTI_BASE_DATA_UTF8_H
#define TUTTI_BASE_DATA_UTF8_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Bytes of the character that begins here, 1 to 4; 0 if there is none: NUL, bytes that are not
 * well-formed, or no bytes (left 0).
 */
size_t tutti_utf8_size(const void *at, size_t left);

/*
 * Does a character of so many bytes act on a terminal, or on how what is around it is shown?
 * Controls (C0, DEL, C1), ends of lines and paragraphs, and marks of writing direction.
 */
bool tutti_utf8_steers(const void *at, size_t size);

/*
 * Make one line of valid UTF-8 that shows as what it is: '?' for each byte that belongs to no
 * character, a space for each character that steers. In place; the text never gets longer. Returns
 * its bytes.
 */
size_t tutti_utf8_clean(char *text);

#endif
