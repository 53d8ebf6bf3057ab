/*
 * Turns of bounded length for the connections of gRPC, and what else its core leaves open about
 * sockets.
 *
 * gRPC's core (1.51, and newer ones) reads a socket until it is empty, on the thread that found it
 * readable, and works on what it has read before it reads on. A client that sends what costs more
 * to work on than to send, and what flow control does not slow down (calls that are opened and
 * taken back, calls of no method, headers without an end), keeps its socket full, and so keeps that
 * thread: no timer, handler or other connection of its loop has a turn until the client stops. One
 * such client without a token made an agent miss its heartbeats: its rank was lost.
 *
 * It also keeps what a client does not read, without a limit, and works on what this client asks
 * further: complete calls whose answers stay unread filled gigabytes in seconds. And it gives a
 * listener up for good when one accept fails, as where no descriptor is left.
 *
 * recvmsg, sendmsg, accept4, epoll_ctl and close of this file are found before libc's, by the
 * program and by gRPC. They do what libc's do and, for plain reads (no flags) of sockets in an
 * edge-triggered epoll set, as all of gRPC's are:
 *
 * - One read takes no more than what can be worked on in FAIR_READS_READ_NS, judged by the reads
 *   before it; FAIR_READS_MIN bytes in any case, FAIR_READS_MAX at most.
 * - A socket that has had something to read for FAIR_READS_TURN_NS is said to be empty (EAGAIN).
 *   The kernel announces it again (EPOLL_CTL_MOD) behind all others that wait; where its bytes are
 *   costly, below FAIR_READS_CHEAP, only after FAIR_READS_PAUSE_NS, so that the threads can finish
 *   what they have of it.
 * - A client's socket that has no room for more answers is said to be empty, too, as long as the
 *   client takes nothing of what waits in it (SIOCOUTQ). After a time it is shut down.
 * - A listener of such a set accepts as many clients as leave a part of all descriptors
 *   (FAIR_READS_SPARE) to other files; further ones are closed at once, also those for which there
 *   is no descriptor. gRPC never sees that an accept has failed.
 * - Who connects to a Unix socket can send no descriptors, from Linux 6.16 on (base/os/local.h).
 *
 * A stream of tensors is never costly, nor are as many calls as a connection may have open
 * (--streams-max). What was measured: docs/decisions/0026-fair-reads.md.
 */
#ifndef TUTTI_SERVER_FAIR_READS_H
#define TUTTI_SERVER_FAIR_READS_H

#include <stdint.h>

#include "base/os/clock.h"
#include "tutti/error.h"

#define FAIR_READS_READ_NS (2 * TUTTI_NS_PER_MS)
#define FAIR_READS_TURN_NS (10 * TUTTI_NS_PER_MS)
#define FAIR_READS_PAUSE_NS (20 * TUTTI_NS_PER_MS)

#define FAIR_READS_MIN 2048u
#define FAIR_READS_FIRST 16384u /* of a connection that nothing is known of */
#define FAIR_READS_MAX (1u << 20)
#define FAIR_READS_CHEAP 8192u /* a limit from which on nothing pauses: 4 MB/s */
#define FAIR_READS_SPARE 4     /* a quarter of all descriptors is for others than clients */

/*
 * Begin; before, the five functions do only what libc's do. Once, after the limit of descriptors
 * has been raised and before gRPC starts. One thread is started, for as long as the process lives.
 * Descriptors above a million are left alone.
 *
 * stuck_ns  for how long a client may leave unread what was sent to it
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory for the table of descriptors, no thread
 */
tutti_code server_fair_reads_start(uint64_t stuck_ns, tutti_error *err);

#endif
