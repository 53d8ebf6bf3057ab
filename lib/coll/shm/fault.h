/*
 * Private to coll/shm: delays where the other side could come between. With TUTTI_CHAOS=N in the
 * environment, about one in N passes sleeps a moment or gives up the processor; else nothing.
 */
#ifndef TUTTI_COLL_SHM_FAULT_H
#define TUTTI_COLL_SHM_FAULT_H

void tutti_shm_fault_init(void); /* reads the environment; any thread */
void tutti_shm_fault(void);

#endif
