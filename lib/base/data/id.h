/* Ids: random numbers that two processes never draw alike, and their text. Any thread. */
#ifndef TUTTI_BASE_DATA_ID_H
#define TUTTI_BASE_DATA_ID_H

#include <stdint.h>

#include "tutti/error.h"

#define TUTTI_ID_TEXT_SIZE 17 /* 16 hex digits and the NUL */

/* 64 random bits from the kernel, never 0. */
uint64_t tutti_id_draw(void);

void tutti_id_format(uint64_t id, char ret_text[TUTTI_ID_TEXT_SIZE]);

/* TUTTI_INVALID_ARGUMENT  not exactly 16 lower-case hex digits, or 0 */
tutti_code tutti_id_parse(const char *text, uint64_t *ret_id, tutti_error *err);

#endif
