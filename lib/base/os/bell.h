/*
 * Bell: an eventfd that two processes have, by which one of them wakes the other. Any thread.
 *
 * Neither trusts the other. Whoever has an eventfd can fill its count and take O_NONBLOCK from it, as
 * that flag belongs to the open file, which all have: a write() would then block for ever, and a
 * read() where the count is 0. So a bell is never written and never read: it is rung by
 * tutti_bell_ring, which cannot block, and polled with EPOLLET, which tells of each ring. The most
 * that a peer can do is to take a wake-up away, from itself or from us for what it has to say.
 */
#ifndef TUTTI_BASE_OS_BELL_H
#define TUTTI_BASE_OS_BELL_H

#include <stdbool.h>

/* -1, and errno: no descriptors, or the system lets this process ring none. close() it. */
int tutti_bell_open(void);

/* Can bells be rung here? False, and errno: a sandbox forbids what ringing needs (io_submit). */
bool tutti_bell_can_ring(void);

/* Wake who polls it. What is no eventfd, or is closed, is let alone. */
void tutti_bell_ring(int bell);

#endif
