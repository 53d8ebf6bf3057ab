/*
 * The store in memory with a copy in etcd, and the election of the coordinator that may write it.
 *
 * etcd is reached by several addresses of one cluster. Whoever wants to write has to lead: it holds a
 * lease of etcd and has created the key PREFIX/leader with it. Each transaction compares that key's
 * create revision, so that a coordinator whose lease is over changes nothing, whatever it believes.
 */
#ifndef TUTTI_STORE_ETCD_H
#define TUTTI_STORE_ETCD_H

#include "store/store.h"

typedef struct tutti_etcd tutti_etcd;

typedef struct tutti_etcd_options {
    const char *where;         /* "HOST[:PORT],HOST[:PORT]/PREFIX"; without a prefix: "tutti" */
    const char *user;          /* "" or NULL = none; etcd then asks for no password */
    const char *password_file; /* its first line; looked at only with a user */
    const char *tls_ca;        /* PEM file; "" or NULL = plaintext */
    const char *tls_cert;      /* the client's own, with its key; "" or NULL = none */
    const char *tls_key;
    const char *tls_name; /* in the members' certificates, when it is not their address */
    uint64_t lease_ns;    /* of the leader, in whole seconds and at least 2; 0 = 5 s */
} tutti_etcd_options;

/*
 * Connects to nobody yet; the first call does.
 *
 * [in] options  copied
 *
 * TUTTI_INVALID_ARGUMENT  an address, the prefix, the lease, a user without a password
 * TUTTI_NOT_FOUND, ...    a file cannot be read
 * TUTTI_RESOURCE_EXHAUSTED  no memory
 */
tutti_code tutti_etcd_open(const tutti_etcd_options *options, tutti_etcd **ret_etcd,
                           tutti_error *err);

/* Gives up the leadership, if it has it: another one may lead at once. NULL is fine. The store must
 * be closed before. */
void tutti_etcd_close(tutti_etcd *etcd);

/* What an election tells. On the thread of tutti_etcd_lead; each may be NULL. */
typedef struct tutti_etcd_events {
    /* Another one leads; `address` is what it said of itself. Told once for each leader. */
    void (*on_follow)(void *arg, const char *address);
    /* No member of etcd can be asked; told once, until one can be. */
    void (*on_trouble)(void *arg, const tutti_error *why);
    /* This process leads, and etcd has an older version than while it waited: STORE_WENT_BACK. */
    void (*on_gone_back)(void *arg, const tutti_error *why);
    void *arg;
} tutti_etcd_events;

/*
 * Wait until this process leads: blocks as long as another one does, and while etcd cannot be
 * reached. From then on the lease is kept by a thread of its own. Once.
 *
 * [in] address  where clients find this process; the others tell it to those who ask them
 *
 * TUTTI_CANCELLED          tutti_etcd_stop was called
 * TUTTI_PERMISSION_DENIED  ETCD_REFUSED: user, password, or what the user may do
 */
tutti_code tutti_etcd_lead(tutti_etcd *etcd, const char *address, const tutti_etcd_events *events,
                           tutti_error *err);

/* Let tutti_etcd_lead return. Any thread. */
void tutti_etcd_stop(tutti_etcd *etcd);

/*
 * Until when this process certainly leads, on tutti_clock_ns(): it must answer nothing after that.
 * It is earlier than the end of the lease, and it grows as long as etcd confirms the lease. Any
 * thread.
 */
uint64_t tutti_etcd_leads_until(tutti_etcd *etcd);

/*
 * Call `on_lost` once when the lease is over or about to be, or the store has gone back (STORE_WENT_BACK):
 * on a thread of etcd's. `why` is borrowed. Before tutti_etcd_lead.
 */
void tutti_etcd_on_lost(tutti_etcd *etcd, void (*on_lost)(void *arg, const tutti_error *why),
                        void *arg);

typedef struct tutti_store_etcd_options {
    tutti_etcd *etcd;   /* [borrowed] it leads */
    uint64_t bytes_max; /* of keys and values together; 0 = 256 MiB */
    uint64_t keys_max;  /* 0 = 1 000 000 */
} tutti_store_etcd_options;

/*
 * Load what is stored below the prefix. Changes are made durable as store/commit does it: a change
 * is in etcd when tutti_store_durable says so. A transaction that fails is repeated as long as this
 * process leads; then flush fails for good.
 *
 * TUTTI_UNAVAILABLE          ETCD_LOST: no member answers
 * TUTTI_FAILED_PRECONDITION  NOT_LEADER: the lease is over; STORE_FORMAT: of a newer version
 * TUTTI_DATA_LOSS            STORE_FORMAT: what is there is not ours, or damaged
 * TUTTI_PERMISSION_DENIED    ETCD_REFUSED
 * TUTTI_RESOURCE_EXHAUSTED   no memory
 * Later, of flush: the same, TUTTI_RESOURCE_EXHAUSTED STORE_FULL: etcd's quota is exceeded, and
 * TUTTI_DATA_LOSS STORE_WENT_BACK: etcd does not have what was written last
 */
tutti_code tutti_store_etcd_open(const tutti_store_etcd_options *options, tutti_store **ret_store,
                                 tutti_error *err);

#endif
