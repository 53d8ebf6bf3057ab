/* Private to lib/coll/shm: what the wire is made of, and which file does what. */
#ifndef TUTTI_COLL_SHM_COLL_SHM_WIRE_H
#define TUTTI_COLL_SHM_COLL_SHM_WIRE_H

#include "base/os/local.h"
#include "coll/shm/coll_shm.h"
#include "coll/shm/coll_shm_ring.h"

#define SHM_LOANS_MAX 1000        /* parcels in one peer's hands; their returns always have room */
#define SHM_SOURCES_MAX 4096      /* who may send to us at once */
#define SHM_REGIONS_MAX 256       /* of one peer, mapped at once */
#define SHM_COPY_BYTES (1U << 20) /* of a pull, in one go */

enum shm_kind {
    SHM_EAGER = 1,  /* header and data */
    SHM_PARCEL = 2, /* header; the data is `input` */
    SHM_LOAN = 3,   /* header; input and output */
    SHM_BACK = 4,   /* the other way: parcel `id` is back */
    SHM_UNDONE = 5, /* ... but its borrower did not do its part */
};

typedef struct wire_shm wire_shm;

/* Something in our poller. */
typedef struct shm_watch shm_watch;
struct shm_watch {
    void (*on_event)(shm_watch *watch);
    int fd;
};

/* One per wire, shared with all peers. */
#define SHM_AWAKE 0U
#define SHM_ASLEEP 1U /* ring the bell when something was put */
#define SHM_IDLE 2U   /* ... that is not patient */

typedef struct shm_page {
    _Alignas(64) _Atomic uint32_t asleep; /* one of the above */
} shm_page;

/* How to wake the other side. */
typedef struct shm_bell {
    int fd; /* eventfd; -1 = none yet */
    shm_page *page;
} shm_bell;

/* One per link, made by who connects. */
typedef struct shm_segment {
    shm_ring out;          /* from who connected */
    shm_ring back;         /* to who connected */
    _Atomic uint32_t refs; /* of an `inside` wire: who unmaps it */
} shm_segment;

typedef enum shm_state {
    SHM_MEETING, /* the other has not answered yet */
    SHM_NEAR,
    SHM_FAR, /* the inner wire does it */
} shm_state;

/* A region that the peer has mapped. */
typedef struct shm_told {
    uint32_t id;
    void *base;
} shm_told;

/* The way to a peer. */
struct tutti_wire_link {
    wire_shm *wire;
    void *owner; /* NULL: disconnected, and only waits for loans */
    shm_state state;
    bool broken; /* near, and the peer is dead */
    shm_watch watch;
    shm_segment *segment;
    shm_end out;
    shm_end back;
    shm_bell bell;
    tutti_link link;
    tutti_link queue; /* shm_out that have not left */
    tutti_link lent;  /* shm_out in the peer's hands */
    uint32_t lent_count;
    uint64_t next_id;
    uint64_t secret[2]; /* of the other's address */
    shm_told *told;     /* [owned] SHM_REGIONS_MAX of them, or NULL */
    uint32_t told_count;
    tutti_wire_link *inner; /* made when it is needed */
    size_t inner_size;
    unsigned char inner_address[];
};

/* Something that leaves, or has left and is still read. */
typedef struct shm_out {
    tutti_link link;
    tutti_wire_ticket *ticket;
    uint64_t id;
    uint16_t kind;
    const void *header;
    size_t header_size;
    const void *data; /* EAGER and PARCEL */
    size_t size;
    tutti_wire_loan loan;
} shm_out;

/* What who connects says, after we have drawn a number for it to answer with. */
typedef struct shm_hello {
    uint64_t magic;
    uint64_t secret[2];
    uint64_t memory_size; /* 0 = none */
    shm_segment *segment; /* inside: where they are */
    shm_page *page;
    tutti_wire_proof proof; /* that a member says all this, to us, now */
} shm_hello;

/* A region of a peer, mapped here. */
typedef struct shm_region {
    tutti_link link;
    uint32_t id;
    uint32_t refs; /* the source's, while the peer has it, and parcels' */
    void *data;
    uint64_t size;
} shm_region;

/* The way from a peer. */
typedef struct shm_source {
    wire_shm *wire;
    shm_watch watch;
    tutti_link link;
    shm_segment *segment;
    shm_end in;
    shm_end back;
    shm_bell bell;
    unsigned char *memory; /* the peer's, mapped */
    uint64_t memory_size;
    uint64_t incarnation;
    uint64_t nonce[2];
    shm_hello hello; /* kept until we know its epoch */
    int fds[TUTTI_LOCAL_FDS_MAX];
    size_t fd_count;
    tutti_link regions;
    uint32_t region_count;
    uint32_t parcels; /* that point into all that */
    bool met;
    bool gone;
} shm_source;

struct tutti_wire_parcel {
    shm_source *source;
    tutti_wire_parcel *inner; /* of the inner wire; then the rest says nothing */
    uint64_t id;
    bool is_loan;
    tutti_wire_loan loan;
    shm_region *input_region; /* counted; NULL = none */
    shm_region *output_region;
    tutti_link link; /* in pulls */
    unsigned char *dest;
    uint64_t copied;
    tutti_wire_ticket *ticket;
};

struct wire_shm {
    tutti_wire base;
    tutti_wire *inner;
    tutti_wire_shm_options options;
    char host_id[TUTTI_WIRE_SHM_HOST_MAX];
    bool on;
    uint64_t secret[2];
    const tutti_wire_events *events;
    void *arg;
    unsigned char *address;
    size_t address_size;
    int poller;
    int bell;
    int page_fd;
    shm_page *page;
    shm_watch listener;
    shm_watch bell_watch;
    shm_watch inner_watch;
    tutti_link links;
    tutti_link sources;
    tutti_link pulls;
    uint32_t source_count;
    uint32_t far_count; /* links that the inner wire carries */
    uint32_t turn;
    uint64_t gone_seen; /* regions that are gone, as far as peers know */
    bool said_why;      /* that a peer could not be met; once */
};

/* coll_shm_open.c: lifetime */
void tutti_shm_close(tutti_wire *wire);

/* coll_shm_address.c: what others are told. The inner address is a part of it. */
#define SHM_NAME_BYTES 24
typedef struct shm_address {
    const char *host_id;
    size_t host_size;
    const unsigned char *name; /* of the socket: SHM_NAME_BYTES, without the leading NUL */
    uint64_t secret[2];
    tutti_bytes inner;
} shm_address;
tutti_code tutti_shm_address_make(wire_shm *self, const unsigned char name[SHM_NAME_BYTES],
                                  tutti_error *err);
bool tutti_shm_address_read(tutti_bytes bytes, shm_address *ret);

/* coll_shm_meet.c: how two get to know each other */
bool tutti_shm_meet(tutti_wire_link *link, const shm_address *address);
void tutti_shm_on_knock(shm_watch *listener);
void tutti_shm_judge_again(shm_source *source); /* there is a new key; the source may be gone */
void tutti_shm_segment_close(const wire_shm *self, shm_segment *segment); /* NULL is fine */
void tutti_shm_bell_close(const wire_shm *self, shm_bell *bell);

/* coll_shm_link.c: the ways out */
tutti_code tutti_shm_link_open(tutti_wire *wire, tutti_bytes address, void *owner,
                               tutti_wire_link **ret_link, tutti_error *err);
void tutti_shm_disconnect(tutti_wire_link *link);
tutti_wire_result tutti_shm_send_packet(tutti_wire_link *link, const void *header,
                                        size_t header_size, const void *data, size_t size,
                                        tutti_wire_ticket *ticket);
tutti_wire_result tutti_shm_lend(tutti_wire_link *link, const void *header, size_t header_size,
                                 const tutti_wire_loan *loan, tutti_wire_ticket *ticket);
void tutti_shm_go_far(tutti_wire_link *link);  /* all that waits goes by the inner wire */
void tutti_shm_go_near(tutti_wire_link *link); /* ... or by the ring */
void tutti_shm_hang_up(tutti_wire_link *link); /* the peer is dead */
unsigned tutti_shm_link_progress(tutti_wire_link *link);
void tutti_shm_link_free(tutti_wire_link *link); /* tickets come back */

/* coll_shm_region.c: memory of single tensors */
bool tutti_shm_is_in_region(const wire_shm *self, const void *data, uint64_t size);
/* Where the peer finds its loan; tells it of regions. False: not now; or the link is broken. */
bool tutti_shm_place(tutti_wire_link *link, const shm_out *out, shm_record *record);
void tutti_shm_forget_gone(wire_shm *self); /* tell peers what is gone */
/* What the peer told of regions. False: its end, or nonsense. */
bool tutti_shm_hear_notes(shm_source *source);
/* One of the peer's; tutti_shm_region_drop it. NULL: it has none of that id. */
shm_region *tutti_shm_region_get(shm_source *source, uint32_t id);
void tutti_shm_region_drop(shm_region *region); /* NULL is fine */
void tutti_shm_regions_close(shm_source *source);

/* coll_shm_source.c: the ways in */
unsigned tutti_shm_source_progress(shm_source *source);
void tutti_shm_source_gone(shm_source *source); /* freed with its last parcel */
unsigned tutti_shm_pulls_progress(wire_shm *self);
tutti_wire_result tutti_shm_pull(tutti_wire *wire, tutti_wire_parcel *parcel, void *dest,
                                 size_t size, tutti_wire_ticket *ticket);
void tutti_shm_drop(tutti_wire *wire, tutti_wire_parcel *parcel);
bool tutti_shm_view(tutti_wire *wire, tutti_wire_parcel *parcel, tutti_wire_loan *ret_loan);
void tutti_shm_give_back(tutti_wire *wire, tutti_wire_parcel *parcel, bool done);

/* coll_shm.c */
extern const tutti_wire_ops tutti_wire_shm_ops;
extern const tutti_wire_events tutti_shm_inner_events;
wire_shm *tutti_wire_shm_from(tutti_wire *wire);
bool tutti_shm_watch(wire_shm *self, shm_watch *watch);
void tutti_shm_unwatch(wire_shm *self, shm_watch *watch);
bool tutti_shm_holds(tutti_wire *wire, const void *data, uint64_t size);
/* `patient`: it can wait until something runs there. */
void tutti_shm_ring_bell(const shm_bell *bell, bool patient);

#endif
