/*
 * Service loop: the coordinator on a loop, with a clock, a timer and its gRPC services.
 *
 * All state belongs to the loop's thread: handlers of the services run there, tell the core what
 * time it is, call it, and let it run what is due. Here, and only here, the room meets gRPC.
 */
#ifndef TUTTI_SERVER_COORDINATOR_SERVICE_SERVICE_LOOP_H
#define TUTTI_SERVER_COORDINATOR_SERVICE_SERVICE_LOOP_H

#include "rpc/server.h"
#include "server/coordinator/coordinator.h"

typedef struct tutti_service_loop tutti_service_loop;

/*
 * [in] options  borrowed for the service loop's life
 * [in] store    borrowed, likewise; NULL = a standby: it refuses all calls with NOT_LEADER until
 *               tutti_service_loop_begin
 * [in] loop     borrowed, likewise; it does not run yet
 *
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 * and what tutti_coordinator_restore says
 */
tutti_code tutti_service_loop_new(const tutti_coordinator_options *options, tutti_store *store,
                                  tutti_rpc_loop *loop, tutti_service_loop **ret_loop,
                                  tutti_error *err);

/*
 * A standby leads from now on. Loop's thread, once.
 *
 * [in] store        borrowed for the service loop's life
 * [in] leads_until  any thread: nothing may be answered behind this time, on tutti_clock_ns(). NULL =
 *                   for ever. What waits then waits until the process ends
 *
 * As tutti_service_loop_new.
 */
tutti_code tutti_service_loop_begin(tutti_service_loop *service_loop, tutti_store *store,
                                    uint64_t (*leads_until)(void *arg), void *arg,
                                    tutti_error *err);

/* Of one of several: who leads, to be told to callers; "" = nobody does. Before it begins itself its own address. Any thread. */
void tutti_service_loop_follow(tutti_service_loop *service_loop, const char *leader);

/* The server has been freed, and the loop is about to be stopped: the store's thread posts nothing
 * to it any more when this returns. Any thread; NULL is fine. */
void tutti_service_loop_end(tutti_service_loop *service_loop);

/* The server has stopped, and so has the loop. NULL is fine. */
void tutti_service_loop_free(tutti_service_loop *service_loop);

/* Add the services, and drain with the server. Before the server starts. */
void tutti_service_loop_serve(tutti_service_loop *service_loop, tutti_rpc_server *server);

/*
 * Lanes for clients of this machine, as the options say. Before the server starts; without it clients
 * have none. They are closed when the server has been freed, and before the loop is.
 */
void tutti_service_loop_open_lanes(tutti_service_loop *service_loop, tutti_rpc_server *server);
void tutti_service_loop_close_lanes(tutti_service_loop *service_loop); /* NULL is fine */

/* What those see who watch it, for tutti_metrics_source. Loop's thread. */
void tutti_service_loop_expose(tutti_service_loop *service_loop, tutti_page *page);

/* Likewise for its page for people: JSON. */
void tutti_service_loop_show(tutti_service_loop *service_loop, const char *job, bool ranks,
                             uint32_t first, tutti_page *page);

/* Health of all services; of the server as a whole. Any thread. */
void tutti_service_loop_set_health(tutti_rpc_server *server, bool serving);

/* ------------------------------------------------------------ for the *_pb.c files of this folder
 */

/* The core, with the time told. Each handler begins with this and ends with service_loop_leave. */
tutti_coordinator *service_loop_enter(tutti_service_loop *service_loop);
void service_loop_leave(tutti_service_loop *service_loop);

/* A message that several sessions in a row are told, packed once. Loop's thread. */
typedef struct service_loop_kept {
    uint64_t alike; /* 0 = none */
    tutti_rpc_packed *packed;
} service_loop_kept;

service_loop_kept *service_loop_kept_of(tutti_service_loop *service_loop);

/* Until when a call may wait. */
uint64_t service_loop_deadline(const tutti_service_loop *service_loop, const tutti_rpc_call *call,
                               uint32_t timeout_ms);

/* Why a parked call ends whose caller went away, or that is drained. Returns `err`. */
const tutti_error *service_loop_say_gone(const tutti_rpc_call *call, tutti_error *err);

/* From whom clients get lanes; NULL = from nobody. */
struct tutti_lane_offers *service_loop_lanes(const tutti_service_loop *service_loop);

/* Does this process lead? TUTTI_UNAVAILABLE  NOT_LEADER. For tutti_rpc_service.admit. */
tutti_code service_loop_admit(void *service_loop, tutti_error *err);

/* By which address the others tell this one, if it is one of several, and leads; else "". Loop's thread. */
const char *service_loop_own_address(const tutti_service_loop *service_loop);

/* services.c: a service whose handlers get the service loop; and draining with the server. */
void service_loop_add(tutti_service_loop *service_loop, tutti_rpc_server *server,
                      const tutti_rpc_service *service);
void service_loop_drain_with(tutti_service_loop *service_loop, tutti_rpc_server *server);

extern const tutti_rpc_service coord_coordinator_service;
extern const tutti_rpc_service coord_mesh_service;
extern const tutti_rpc_service coord_metadata_service;
extern const tutti_rpc_service coord_store_service;
extern const tutti_rpc_service coord_rendezvous_service;

#endif
