/*
 * A simulated etcd behind a server of lib/rpc: KV, Lease, Watch and Auth, as store/etcd calls them. With the simulated core
 * of gRPC (../core) it lives in virtual time.
 */
#ifndef TUTTI_TESTS_SIM_ETCD_ETCD_SERVER_H
#define TUTTI_TESTS_SIM_ETCD_ETCD_SERVER_H

#include "sim/etcd/etcd.h"

typedef struct sim_etcd_server sim_etcd_server;

/*
 * [in] etcd    borrowed for the server's life; its loop's thread calls it. Another one does so between enter and leave
 * [in] listen  "127.0.0.1:0"; static
 */
tutti_code sim_etcd_server_start(sim_etcd *etcd, const char *listen, sim_etcd_server **ret_server,
                                 tutti_error *err);

/* "127.0.0.1:2379". Borrowed for its life. */
const char *sim_etcd_server_address(const sim_etcd_server *self);

/* Be the only one who calls the etcd; leave tells watches of what has changed meanwhile. */
void sim_etcd_server_enter(sim_etcd_server *self);
void sim_etcd_server_leave(sim_etcd_server *self);

void sim_etcd_server_stop(sim_etcd_server *self); /* and free it */

#endif
