/*
 * Private to lib/coll/shm: what the transport is made of, and which file does what.
 *
 * All functions run on the engine's thread. Shared with other processes are shm_page, shm_segment
 * and the tensors' memory; all else is ours. For each pair of agents there are two links: each side
 * connects to the other, and has a source for the other's link.
 */
#ifndef TUTTI_COLL_SHM_SHM_PRIVATE_H
#define TUTTI_COLL_SHM_SHM_PRIVATE_H

#include "base/os/local.h"
#include "coll/shm/ring.h"
#include "coll/shm/shm.h"

#define SHM_REGION_MAX                                                                             \
    1000 /* rendezvous messages in one peer's hands; their returns always have room */
#define SHM_SOURCES_MAX 4096      /* processes that may send to us at once */
#define SHM_REGIONS_MAX 256       /* of one peer, mapped at once */
#define SHM_COPY_BYTES (1U << 20) /* of a pull, in one go */

enum shm_kind {
    SHM_EAGER = 1,  /* header and data */
    SHM_RNDV = 2,   /* header; the data is `input` */
    SHM_REGION = 3, /* header; input and output */
    SHM_BACK = 4,   /* the other way: rndv `id` is back */
    SHM_UNDONE = 5, /* ... but its borrower did not do its part */
};

typedef struct transport_shm transport_shm;

/* Something in our poller. */
typedef struct shm_watch shm_watch;
struct shm_watch {
    void (*on_event)(shm_watch *watch);
    int fd;
};

/* One per transport, shared with all peers. */
#define SHM_AWAKE 0U
#define SHM_ASLEEP 1U /* ring the doorbell when something was put */
#define SHM_IDLE 2U   /* ... that is not patient */

typedef struct shm_page {
    _Alignas(64) _Atomic uint32_t asleep; /* one of the above */
} shm_page;

/* How to wake the other side. */
typedef struct shm_doorbell {
    int fd; /* a bell (base/os/bell.h); -1 = none yet */
    shm_page *page;
} shm_doorbell;

/* One per link, made by the process that connects. */
typedef struct shm_segment {
    shm_ring out;          /* from the process that connected */
    shm_ring back;         /* to the process that connected: returns */
    _Atomic uint32_t refs; /* of an `inside` transport: the last one unmaps it */
} shm_segment;

typedef enum shm_state {
    SHM_MEETING, /* the other has not answered yet */
    SHM_SAME_HOST,
    SHM_REMOTE, /* the inner transport does it */
} shm_state;

/* A region that the peer has mapped. */
typedef struct shm_told {
    uint32_t id;
    void *base;
} shm_told;

/*
 * The connection to a peer. The moves: MEETING to SAME_HOST or REMOTE, once. `broken` only with
 * SAME_HOST. segment, out, back and doorbell are good from SAME_HOST on. Freed by disconnect, or,
 * if regions are still out, when the last of them is back or the peer is dead.
 */
struct tutti_transport_conn {
    transport_shm *transport;
    uint64_t number; /* no other one's, ever */
    void *owner;     /* NULL: disconnected, and only waits for exposed regions */
    shm_state state;
    bool broken; /* the peer is dead */
    shm_watch watch;
    shm_segment *segment;
    shm_end out;
    shm_end back;
    shm_doorbell doorbell;
    tutti_list_node link;
    tutti_list_node queue; /* shm_out that have not left */
    tutti_list_node lent;  /* shm_out in the peer's hands */
    uint32_t lent_count;
    uint64_t next_id;
    uint64_t secret[2]; /* of the other's address */
    shm_told *told;     /* [owned] SHM_REGIONS_MAX of them, or NULL */
    uint32_t told_count;
    tutti_transport_conn *inner; /* made when it is needed */
    size_t inner_size;
    unsigned char inner_address[];
};

/* Something that leaves, or has left and is still read: in link->queue, or in link->lent. Owned by
 * the link; ended once, with its ticket. The header and data are the caller's until then. */
typedef struct shm_out {
    tutti_list_node link;
    tutti_transport_ticket *ticket;
    uint64_t id;
    uint16_t kind;
    const void *header;
    size_t header_size;
    const void *data; /* EAGER and RNDV */
    size_t size;
    tutti_transport_region rma;
} shm_out;

/* The message of the process that connects, after it has got our random number. */
typedef struct shm_hello {
    uint64_t magic;
    uint64_t secret[2];
    uint64_t memory_size; /* 0 = none */
    shm_segment *segment; /* inside: where they are */
    shm_page *page;
    tutti_transport_proof proof; /* that a member says all this, to us, now */
} shm_hello;

/* A region of a peer, mapped here. */
typedef struct shm_region {
    tutti_list_node link;
    uint32_t id;
    uint32_t refs; /* the source's, while the peer has it, and rendezvous messages' */
    void *data;
    uint64_t size;
} shm_region;

/*
 * The connection from a peer. `met`: the handshake is done, and the ring is read. A hello that is
 * ahead of our epoch keeps its descriptors in fds. `gone`: off all lists, and freed when `parcels`
 * is 0.
 */
typedef struct shm_source {
    transport_shm *transport;
    shm_watch watch;
    tutti_list_node link;
    shm_segment *segment;
    shm_end in;
    shm_end back;
    shm_doorbell doorbell;
    unsigned char *memory; /* the peer's, mapped */
    uint64_t memory_size;
    uint64_t incarnation;
    uint64_t nonce[2];
    shm_hello hello; /* kept until we know its epoch */
    int fds[TUTTI_LOCAL_FDS_MAX];
    size_t fd_count;
    tutti_list_node regions;
    uint32_t region_count;
    uint32_t parcels; /* rndvs that point into its memory or its regions */
    bool met;
    bool gone;
} shm_source;

/* A rndv of the engine's: freed by fetch (at its end), drop or give_back. Keeps source and regions
 * alive. */
struct tutti_transport_rndv {
    shm_source *source;
    tutti_transport_rndv *inner; /* of the inner transport; then the rest says nothing */
    uint64_t id;
    bool is_region;
    tutti_transport_region rma;
    shm_region *input_region; /* counted; NULL = none */
    shm_region *output_region;
    tutti_list_node link; /* in pulls */
    unsigned char *dest;
    uint64_t copied;
    tutti_transport_ticket *ticket;
};

struct transport_shm {
    tutti_transport base;
    tutti_transport *inner;
    tutti_transport_shm_options options;
    char host_id[TUTTI_TRANSPORT_SHM_HOST_MAX];
    bool on;
    uint64_t secret[2];
    const tutti_transport_events *events;
    void *arg;
    unsigned char *address;
    size_t address_size;
    int poller;
    int doorbell;
    int page_fd;
    int spare; /* its place is for the descriptor of a note; -1 = none was left */
    shm_page *page;
    shm_watch listener;
    shm_watch doorbell_watch;
    shm_watch inner_watch;
    tutti_list_node links;
    tutti_list_node sources;
    tutti_list_node pulls;
    uint64_t link_count; /* that ever were */
    uint32_t source_count;
    uint32_t remote_count; /* links that the inner transport carries */
    uint32_t turn;
    uint64_t knock_again_ns; /* 0 = the listener is in the poller */
    uint64_t gone_seen;      /* regions that are gone, as far as peers know */
    bool said_why;           /* that a peer could not be met; once */
};

/* shm.c: lifetime */
void tutti_shm_close(tutti_transport *transport);

/* shm.c: the address that other processes get. The inner address is a part of it. */
#define SHM_NAME_BYTES 24
typedef struct shm_address {
    const char *host_id;
    size_t host_size;
    const unsigned char *name; /* of the socket: SHM_NAME_BYTES, without the leading NUL */
    uint64_t secret[2];
    tutti_bytes inner;
} shm_address;
tutti_code tutti_shm_address_make(transport_shm *self, const unsigned char name[SHM_NAME_BYTES],
                                  tutti_error *err);
bool tutti_shm_address_read(tutti_bytes bytes, shm_address *ret);

/* meet.c: how two get to know each other */
/* Begin the handshake; its end is tutti_shm_set_same_host or _set_remote, from progress. False: it
 * could not begin, and the link is as it was. */
bool tutti_shm_meet(tutti_transport_conn *link, const shm_address *address);
/* A caller at the listener: on_event of it. */
void tutti_shm_on_knock(shm_watch *listener);
/* If a shortage of descriptors has made the listener pause, accept callers again once the pause is over. */
void tutti_shm_knock_again(transport_shm *self);
void tutti_shm_judge_again(shm_source *source); /* there is a new key; the source may be gone */
void tutti_shm_segment_close(const transport_shm *self, shm_segment *segment); /* NULL is fine */
void tutti_shm_doorbell_close(const transport_shm *self, shm_doorbell *doorbell);

/* conn.c: outgoing connections */
tutti_code tutti_shm_link_open(tutti_transport *transport, tutti_bytes address, void *owner,
                               tutti_transport_conn **ret_link, tutti_error *err);
void tutti_shm_disconnect(tutti_transport_conn *link);
tutti_transport_result tutti_shm_send_packet(tutti_transport_conn *link, const void *header,
                                             size_t header_size, const void *data, size_t size,
                                             tutti_transport_ticket *ticket);
tutti_transport_result tutti_shm_expose(tutti_transport_conn *link, const void *header,
                                        size_t header_size, const tutti_transport_region *rma,
                                        tutti_transport_ticket *ticket);
void
tutti_shm_set_remote(tutti_transport_conn *link); /* all that waits goes by the inner transport */
void tutti_shm_set_same_host(tutti_transport_conn *link); /* ... or by the ring */
/* The peer is dead. This link, and others, may be freed: it hands packets over. */
void tutti_shm_hang_up(tutti_transport_conn *link);
/* What came back, and what can leave; how much. The link may be freed, but no other. */
unsigned tutti_shm_link_progress(tutti_transport_conn *link);
/* Hang up on those whose rings make no sense; how many. */
unsigned tutti_shm_links_judge(transport_shm *self);
void tutti_shm_link_free(tutti_transport_conn *link); /* tickets come back */

/* region.c: memory of single tensors */
bool tutti_shm_is_in_region(const transport_shm *self, const void *data, uint64_t size);
/* Where the peer finds its exposed region; tells it of regions. False: not now; or the link is
 * broken. */
bool tutti_shm_place(tutti_transport_conn *link, const shm_out *out, shm_record *record);
void tutti_shm_forget_gone(transport_shm *self); /* tell peers what is gone */
void tutti_shm_hold_spare(transport_shm *self);
/* What the peer told of regions. False: its end, or nonsense. */
bool tutti_shm_hear_notes(shm_source *source);
/* One of the peer's; tutti_shm_region_drop it. NULL: it has none of that id. */
shm_region *tutti_shm_region_get(shm_source *source, uint32_t id);
void tutti_shm_region_drop(shm_region *region); /* NULL is fine */
void tutti_shm_regions_close(shm_source *source);

/* source.c: incoming connections */
/* Hand over packets of the ring; how many. The source stays, whatever the handlers do. */
unsigned tutti_shm_source_progress(shm_source *source);
void tutti_shm_source_gone(shm_source *source); /* freed with its last rndv */
unsigned tutti_shm_pulls_progress(transport_shm *self);
tutti_transport_result tutti_shm_fetch(tutti_transport *transport, tutti_transport_rndv *rndv,
                                       void *dest, size_t size, tutti_transport_ticket *ticket);
void tutti_shm_drop(tutti_transport *transport, tutti_transport_rndv *rndv);
bool tutti_shm_map(tutti_transport *transport, tutti_transport_rndv *rndv,
                   tutti_transport_region *ret_region);
void tutti_shm_give_back(tutti_transport *transport, tutti_transport_rndv *rndv, bool done);

/* shm.c */
extern const tutti_transport_ops tutti_transport_shm_ops;
extern const tutti_transport_events tutti_shm_inner_events;
transport_shm *tutti_transport_shm_from(tutti_transport *transport);
/* Have on_event called when the descriptor is readable. False: no room in the poller. */
bool tutti_shm_watch(transport_shm *self, shm_watch *watch);
/* ... not until the next watch. */
void tutti_shm_pause(transport_shm *self, shm_watch *watch);
/* ... no more; closes the descriptor. Harmless when there is none. */
void tutti_shm_unwatch(transport_shm *self, shm_watch *watch);
bool tutti_shm_holds(tutti_transport *transport, const void *data, uint64_t size);
/* Wake the other process if it sleeps, after something was put into its ring. `patient`: not if no
 * op runs there. */
void tutti_shm_ring_doorbell(const shm_doorbell *doorbell, bool patient);

#endif
