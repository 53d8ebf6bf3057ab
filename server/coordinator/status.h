/*
 * What the coordinator shows a person: the content of its status page, as JSON. On the core's
 * thread; nobody is asked for it, so it is what heartbeats have told so far.
 */
#ifndef TUTTI_SERVER_COORDINATOR_STATUS_H
#define TUTTI_SERVER_COORDINATOR_STATUS_H

#include "server/coordinator/coordinator.h"

#define TUTTI_COORDINATOR_STATUS_RANKS 500  /* of one tutti_coordinator_show_ranks */
#define TUTTI_COORDINATOR_STATUS_GROUPS 200 /* that are listed; more are counted */
#define TUTTI_COORDINATOR_STATUS_JOBS 200   /* likewise */
#define TUTTI_COORDINATOR_STATUS_STALLS 20  /* likewise */

/*
 * A job and the coordinator itself: {"jobs", "job", "states", "groups", "stalls", "notes", ...}.
 * "states" has a letter for each rank: f free, w waits for the world, a alive, g going, l lost.
 *
 * [in] job  empty or NULL = the first one. Of a job that is not there "job" is null
 */
void tutti_coordinator_show_state(tutti_coordinator *self, const char *job, tutti_page *page);

/* Of a process that waits to lead: {"standby": "ADDRESS"} of the one that leads, "" = nobody does. */
void tutti_coordinator_show_standby(const char *leader, tutti_page *page);

/* Ranks from `first` on: {"first", "ranks": [{"rank", "state", "host", "device", ...}]}. */
void tutti_coordinator_show_ranks(tutti_coordinator *self, const char *job, uint32_t first,
                                  tutti_page *page);

#endif
