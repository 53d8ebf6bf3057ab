/* Private to lib/share: what travels over the socket, and what a share is made of. */
#ifndef TUTTI_SHARE_PRIVATE_H
#define TUTTI_SHARE_PRIVATE_H

#include <pthread.h>

#include "base/data/list.h"
#include "share/share.h"

#define SHARE_MAGIC_BYTES 8
#define SHARE_HELLO "tthello1"
#define SHARE_ANSWER "ttshare1"
#define SHARE_REVOKED "ttended1"
#define SHARE_STRANGERS_MAX 64 /* connections that have shown no token */

/* From the borrower, once. */
typedef struct share_hello {
    char magic[SHARE_MAGIC_BYTES]; /* without a NUL */
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
} share_hello;

enum share_refusal {
    SHARE_WELCOME,
    SHARE_BAD_TOKEN,
    SHARE_OTHER_USER,
};

/* Back: with a descriptor when it is welcome, else the last message. */
typedef struct share_answer {
    char magic[SHARE_MAGIC_BYTES]; /* without a NUL */
    uint32_t refusal;
    uint32_t writable;
    uint64_t bytes;
} share_answer;

/* Later: the magic alone. */
typedef struct share_notice {
    char magic[SHARE_MAGIC_BYTES]; /* without a NUL */
} share_notice;

typedef enum share_state {
    SHARE_OFFERED,
    SHARE_LEASED,
} share_state;

typedef struct share_guest share_guest;

/* The share's lock guards it. OFFERED, then perhaps LEASED, then gone; never back. `fd` is a copy
 * of the lender's descriptor, -1 once it was sent. */
typedef struct share_offer {
    tutti_list_node link;
    share_state state;
    unsigned char token[TUTTI_SHARE_TOKEN_BYTES];
    int fd;     /* ours, as it goes out; -1 once it has */
    int second; /* the same; -1 = none, too */
    int third;  /* the same */
    uint64_t bytes;
    bool writable;
    void *owner;
    uint64_t due_ns;
    share_guest *guest; /* leased */
} share_offer;

/* A connection. The thread's; other threads send to `socket` under the share's lock, and it is
 * closed under that lock. */
struct share_guest {
    tutti_list_node link;
    int socket;
    uint64_t due_ns;    /* until it has shown a token */
    share_offer *offer; /* NULL: it has not */
};

struct tutti_share {
    tutti_share_options options;
    char name[TUTTI_SHARE_NAME_MAX + 1];
    int listener;
    int poller;
    int bell;
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards what follows; on_over runs outside */
    tutti_list_node offers;
    uint32_t offer_count;
    tutti_list_node guests; /* the thread's, and tutti_share_close's; the oldest first */
    uint32_t stranger_count;
    bool stopping;
};

/* door.c: the thread. Ends when `stopping` is set and the bell rings. */
void *tutti_share_run(void *share);
/* Ends a connection and what it leases: on_over runs inside. The thread, or close after the join;
 * without the lock. */
void tutti_share_end_guest(tutti_share *self, share_guest *guest);

/* share.c */
void share_close_offered(share_offer *offer); /* the descriptors that are there */
void tutti_share_lock(tutti_share *self);
void tutti_share_unlock(tutti_share *self);
/* Not in the list any more: close, tell, free. Without the lock. */
void tutti_share_end_offer(tutti_share *self, share_offer *offer);

#endif
