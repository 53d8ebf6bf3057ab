/*
 * Share: memory handed from process to process of one machine. One side offers a descriptor and
 * gets a token, which it tells the other by a way it trusts (an RPC); the other shows the token at
 * a Unix socket, gets the descriptor, and maps it.
 *
 * The connection over which it came is the lease: when it ends, and so when its process does, the
 * share is over for the process that offered it. What is mapped stays mapped until it is unmapped.
 * Any thread.
 */
#ifndef TUTTI_SHARE_SHARE_H
#define TUTTI_SHARE_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/data/bytes.h"
#include "tutti/error.h"

#define TUTTI_SHARE_TOKEN_BYTES 16
#define TUTTI_SHARE_NAME_MAX 63

/* ------------------------------------------------------------------ the lender's side */

typedef struct tutti_share tutti_share;

typedef struct tutti_share_options {
    uint32_t shares_max;          /* offers that nobody took yet count too */
    bool any_user;                /* other users than ours and root may take, too */
    uint64_t patience_ns;         /* until an offer ends that nobody takes; 0 = 30 s */
    void (*on_over)(void *owner); /* an offer is over, in whichever way: once each, any thread */
} tutti_share_options;

/*
 * A socket in the abstract namespace, and a thread that serves it.
 *
 * others  from the system: no descriptors, no thread
 */
tutti_code tutti_share_open(const tutti_share_options *options, tutti_share **ret_share,
                            tutti_error *err);

/* End all leases, whose processes see that, and all offers. NULL is fine. */
void tutti_share_close(tutti_share *share);

/* The socket's name, for the other side. Borrowed. */
const char *tutti_share_socket(const tutti_share *share);

typedef struct tutti_share_item {
    int fd;         /* borrowed for the call; sealed, so that nobody can shrink it */
    int second;     /* a further descriptor, which is sent with it; borrowed; 0 = none */
    int third;      /* and one more, behind a second one; borrowed; 0 = none */
    uint64_t bytes; /* from its beginning; at least 1 */
    bool writable;  /* else a descriptor that cannot be mapped for writing goes out */
    void *owner;    /* for on_over and tutti_share_revoke; never NULL */
} tutti_share_item;

/*
 * Whoever shows the token first gets it.
 *
 * TUTTI_RESOURCE_EXHAUSTED  SHARE_LIMIT: --shares-max are out; or no memory or descriptor.
 *                           on_over does not run then
 */
tutti_code tutti_share_offer(tutti_share *share, const tutti_share_item *item,
                             unsigned char ret_token[TUTTI_SHARE_TOKEN_BYTES], tutti_error *err);

/* Tell a process that has it mapped that no other process uses it any more; an offer that was not
 * taken yet ends, and its token is worth nothing. */
void tutti_share_revoke(tutti_share *share, const void *owner);

/* Leases, and offers not taken yet. */
uint64_t tutti_share_count(tutti_share *share);

/* ------------------------------------------------------------------ the borrower's side */

typedef struct tutti_share_view {
    void *data; /* mapped: `bytes` of them */
    uint64_t bytes;
    uint64_t mapped_bytes; /* private, as what follows */
    bool writable;
    int lease;
    int second; /* [owned] the further descriptor that came; -1 = none; a taker that keeps it sets it to -1 */
} tutti_share_view;

/*
 * Show a token, map what comes.
 *
 * [out, owned]  ret_view  tutti_share_drop it
 *
 * TUTTI_UNAVAILABLE        NO_SHARE_SOCKET: nobody answers there: another network namespace, or it
 *                          has ended
 * TUTTI_PERMISSION_DENIED  SHARE_TOKEN: used, too old, or never given; OTHER_USER
 * TUTTI_DATA_LOSS          what came makes no sense: too short, or it could shrink under us
 * others                   from the system: no memory, no descriptors
 */
tutti_code tutti_share_take(const char *socket_name, tutti_bytes token, uint32_t timeout_ms,
                            tutti_share_view *ret_view, tutti_error *err);

/* The same of an offer with a second descriptor, which is in the view. */
tutti_code tutti_share_take_two(const char *socket_name, tutti_bytes token, uint32_t timeout_ms,
                                tutti_share_view *ret_view, tutti_error *err);

/* Was it revoked, or has the other process ended? Then nobody else uses the memory any more. */
bool tutti_share_is_revoked(const tutti_share_view *view);

/* Unmap it and end the lease. Zeroed is fine. */
void tutti_share_drop(tutti_share_view *view);

#endif
