/*
 * gRPC's locks are Abseil's. Debian builds Abseil with its deadlock detection on: each lock that is
 * taken while another is held is looked up in a graph of all locks, which takes a third of the CPU
 * of a server of thousands of connections. It reports and ends the process on a cycle, and gRPC's
 * order of locks is not ours to mend: servers turn it off. The clients leave it to the process that
 * they are a part of.
 */
#ifndef TUTTI_SERVER_ABSEIL_H
#define TUTTI_SERVER_ABSEIL_H

#ifdef __cplusplus
extern "C" {
#endif

/* Turn it off, before gRPC begins. Without TUTTI_ABSEIL nothing happens. */
#ifdef TUTTI_ABSEIL
void server_abseil_init(void);
#else
static inline void
server_abseil_init(void)
{
}
#endif

#ifdef __cplusplus
}
#endif

#endif
