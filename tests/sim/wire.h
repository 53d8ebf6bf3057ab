/*
 * Wire: a transport between engines of the simulation. It keeps the promises of coll/transport.h:
 * packets arrive after a drawn time and overtake each other, large data waits at its sender, and
 * what a broken connection had on the way is lost.
 *
 * Processes of one host may share memory, as coll/shm has it: they expose regions, large data and regions stay
 * with their receiver when the connection breaks, and who sleeps is woken by the first packet alone.
 *
 * Not simulated: authentication.
 */
#ifndef TUTTI_TESTS_SIM_WIRE_H
#define TUTTI_TESTS_SIM_WIRE_H

#include "coll/transport.h"

#define WIRES_MAX 128

/* Forget all wires: they are closed. `holds`: can this memory of a process be exposed? */
void wire_open(bool (*holds)(uint32_t number, const void *data, uint64_t size));

/* The wire of a process: its number is the address. Host 0: one of its own, and it exposes nothing. */
tutti_transport *wire_new(uint32_t number, uint32_t host, bool shares);

/* Its process is dead. The others' connections break soon, or, if it is silent, say nothing; what it
 * had of others of its host comes back in any case. */
void wire_kill(uint32_t number, bool silent);

/* Has another process that lives a region of this memory, or is one on its way to it? */
bool wire_is_lent(const void *data, uint64_t size);
uint64_t wire_regions(void); /* that were ever exposed */
uint64_t wire_loans(void);   /* regions that are out, of processes that live */

/* What one rank sends another waits until the time; a way that is cut for longer than BREAK_NS
 * breaks, for both. */
void wire_cut(uint32_t from, uint32_t to, uint64_t until_ns);
#define BREAK_NS (2 * TUTTI_NS_PER_S)

/* Each packet takes this long at most, drawn. */
void wire_slow(uint64_t most_ns);

#endif
