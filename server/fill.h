/*
 * Fill: instead of serving, a process makes a store from a backup or from another store, and ends. The
 * program that serves does it because it has the options of all stores.
 */
#ifndef TUTTI_SERVER_FILL_H
#define TUTTI_SERVER_FILL_H

#include "base/config/config.h"
#include "store/etcd/etcd.h"

typedef struct server_fill_options {
    const char *restore;   /* a file, "-" = standard input; "" = none */
    const char *move_from; /* a store, as --store has it; "" = none */
} server_fill_options;

tutti_option_set server_fill_option_set(server_fill_options *target);

/* Is there something to be filled? */
bool server_fill_wanted(const server_fill_options *options);

/*
 * Fill the store `where`, which has to be empty, and tell of it on standard output: lines "progress: N
 * of M bytes", then "done: N keys, M bytes, version V".
 *
 * [in] where  of --store
 * [in] etcd   options of both stores, but for `where`
 *
 * TUTTI_INVALID_ARGUMENT     `where` or move_from is not a store that lasts; both wishes at once;
 *                            BACKUP_FORMAT: the file is no backup
 * TUTTI_FAILED_PRECONDITION  STORE_NOT_EMPTY; STORE_BUSY: a coordinator uses one of the stores;
 *                            STORE_FORMAT
 * TUTTI_NOT_FOUND            NO_STORE: there is nothing to be moved; no such file
 * TUTTI_DATA_LOSS            BACKUP_FORMAT, STORE_FORMAT: damaged
 * and what etcd, LMDB and the system say
 */
tutti_code server_fill_run(const server_fill_options *options, const char *where,
                           const tutti_etcd_options *etcd, tutti_error *err);

#endif
