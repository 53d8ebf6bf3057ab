/* Numbers of registers. The last one that was dropped is given first, as workers of Disco do it:
 * a program that makes and drops in turn keeps to few numbers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error/fail.h"
#include "client/session/session.h"

#define WORD_BITS 64

void
session_registers_init(session_registers *self, uint32_t most)
{
    *self = (session_registers){.next = 1, .most = most};
}

void
session_registers_fini(session_registers *self)
{
    free(self->taken);
    free(self->dropped);
}

static bool
is_taken(const session_registers *self, uint32_t reg)
{
    return reg / WORD_BITS < self->word_count &&
           (self->taken[reg / WORD_BITS] >> (reg % WORD_BITS) & 1) != 0;
}

static bool
make_words(session_registers *self, uint32_t reg)
{
    const size_t needed = reg / WORD_BITS + 1;
    const size_t count = needed > self->word_count * 2 ? needed : self->word_count * 2;
    uint64_t *words;

    if (needed <= self->word_count) {
        return true;
    }
    words = realloc(self->taken, count * sizeof(*words));
    if (words == NULL) {
        return false;
    }
    memset(words + self->word_count, 0, (count - self->word_count) * sizeof(*words));
    self->taken = words;
    self->word_count = count;
    return true;
}

void
session_registers_mark(session_registers *self, uint32_t reg)
{
    if (reg != 0 && reg <= self->most && make_words(self, reg)) {
        self->taken[reg / WORD_BITS] |= (uint64_t)1 << (reg % WORD_BITS);
    }
}

tutti_code
session_registers_take(session_registers *self, uint32_t *ret_register, tutti_error *err)
{
    uint32_t reg = 0;

    while (reg == 0 && self->dropped_count > 0) { /* a program may have chosen one of them */
        reg = self->dropped[--self->dropped_count];
        reg = is_taken(self, reg) ? 0 : reg;
    }
    while (reg == 0 && self->next <= self->most) {
        reg = is_taken(self, self->next) ? 0 : self->next;
        self->next++;
    }
    if (reg == 0) {
        return TUTTI_FAIL_FOR(err, TUTTI_RESOURCE_EXHAUSTED, "REGISTER_LIMIT",
                              "all %" PRIu32 " registers of the session are taken (--registers-max "
                              "of the agents): drop some",
                              self->most);
    }
    session_registers_mark(self, reg);
    *ret_register = reg;
    return TUTTI_OK;
}

static bool
push(session_registers *self, uint32_t reg)
{
    const size_t capacity = self->dropped_capacity == 0 ? 64 : self->dropped_capacity * 2;
    uint32_t *dropped;

    if (self->dropped_count == self->dropped_capacity) {
        dropped = realloc(self->dropped, capacity * sizeof(*dropped));
        if (dropped == NULL) {
            return false;
        }
        self->dropped = dropped;
        self->dropped_capacity = capacity;
    }
    self->dropped[self->dropped_count++] = reg;
    return true;
}

/* A number that was not taken is in the list already, or still to come. */
void
session_registers_drop(session_registers *self, uint32_t reg)
{
    if (is_taken(self, reg)) {
        self->taken[reg / WORD_BITS] &= ~((uint64_t)1 << (reg % WORD_BITS));
        if (reg < self->next) {
            (void)push(self, reg);
        }
    }
}

void
session_registers_sort(session_registers *self)
{
    const uint64_t end = (uint64_t)self->word_count * WORD_BITS;
    uint64_t reg = end > (uint64_t)self->most + 1 ? (uint64_t)self->most + 1 : end;

    while (reg > 1 && !is_taken(self, (uint32_t)(reg - 1))) {
        reg--;
    }
    self->next = (uint32_t)(reg > 1 ? reg : 1);
    for (reg = self->next; reg-- > 1;) {
        if (!is_taken(self, (uint32_t)reg)) {
            (void)push(self, (uint32_t)reg);
        }
    }
}
