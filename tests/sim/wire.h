/*
 * Wire: a transport between engines of the simulation. It keeps the promises of coll/transport.h:
 * packets arrive after a drawn time and overtake each other, large data waits at its sender, and
 * what a broken connection had on the way is lost.
 *
 * Not simulated yet: memory that is exposed to other ranks of a host, and authentication.
 */
#ifndef TUTTI_TESTS_SIM_WIRE_H
#define TUTTI_TESTS_SIM_WIRE_H

#include "coll/transport.h"

#define WIRES_MAX 128

void wire_open(void); /* forget all wires: they are closed */
tutti_transport *wire_new(uint32_t rank);

/* Its process is dead. The others' connections break soon, or, if it is silent, say nothing. */
void wire_kill(uint32_t rank, bool silent);

/* What one rank sends another waits until the time; a way that is cut for longer than BREAK_NS
 * breaks, for both. */
void wire_cut(uint32_t from, uint32_t to, uint64_t until_ns);
#define BREAK_NS (2 * TUTTI_NS_PER_S)

/* Each packet takes this long at most, drawn. */
void wire_slow(uint64_t most_ns);

#endif
