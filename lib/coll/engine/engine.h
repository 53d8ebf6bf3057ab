/* Private to lib/coll: what the engine is made of, and which file does what. */
#ifndef TUTTI_COLL_ENGINE_ENGINE_H
#define TUTTI_COLL_ENGINE_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "coll/agree/agree.h"
#include "coll/backend.h"
#include "coll/coll.h"
#include "coll/packet/packet.h"
#include "coll/wire.h"

#define PARKED_MAX 65536 /* packets that came before they were wanted */
#define LEAVE_REASON_MAX 160
#define FATES_MAX 1024 /* per group: ops that ended before we called them */
#define NO_RANK UINT32_MAX
#define NO_GROUP 0                          /* coordinators count from 1 */
#define INQUIRY_NS (100 * 1000000ULL)       /* how long a late op asks who is missing */
#define ZOMBIE_NS (1000 * 1000000ULL)       /* until a failed op's memory is torn from the wire */
#define ENDING_NS (500 * 1000000ULL)        /* for last words to leave when stopping */
#define ENDING_LOANS_NS (2500 * 1000000ULL) /* ... and for loans to come back */
#define LOSS_GRACE_NS (300 * 1000000ULL)    /* for ops that may not need the lost rank any more */
#define CLOSE_GRACE_NS (1000 * 1000000ULL)  /* for ranks that have not heard of a deletion yet */
#define PEER_ADDRESS_MAX 4096
#define WHOLE_MAX (64u << 20) /* bytes of a message that has no place prepared for it */
#define STEP_TAKEN 1          /* of the packets that end a Send */
#define STEP_CONFIRM 32       /* of the rounds that confirm; those of the agreement begin at 0 */
#define STEP_ANNOUNCE 63      /* of the round that tells what signatures do not hold */
#define STEP_DATA 64          /* data rounds are numbered from here */
#define STEP_PART (1u << 20)  /* ... in every part of a coalesced op */

enum phase {
    PHASE_NEW,      /* not begun */
    PHASE_BEHIND,   /* a barrier behind earlier ops of its group */
    PHASE_AGREE,    /* signatures travel */
    PHASE_ANNOUNCE, /* what signatures do not hold: splits, shapes, what the root says */
    PHASE_CONFIRM,  /* ... once more: receivers have memory for what they learnt */
    PHASE_START,    /* all stands */
    PHASE_DATA,     /* the backend moves data */
    PHASE_P2P,      /* a send or receive */
};

struct tutti_coll_engine {
    tutti_coll_engine_options options;
    tutti_wire *wire;
    pthread_t thread;
    int wake;   /* eventfd */
    int poller; /* epoll: wake and the wire */

    pthread_mutex_t
        lock; /* guards what follows, and the posting side of groups; nothing is called under it */
    tutti_link inbox;
    bool awake; /* the thread will look at the inbox before it sleeps */
    bool stopping;
    tutti_coll_item refusal;
    uint64_t op_count;
    uint64_t next_id;
    uint64_t job_id;
    uint32_t rank;
    uint64_t incarnation;

    /*
     * What follows, and what hangs on it, belongs to the engine's thread: that is who holds the
     * baton. Its own thread lets go of it to sleep only; then a poster may take it
     * (progress_inline.c). Taken before the lock.
     */
    pthread_mutex_t baton;
    uint64_t sleeps_to_ns; /* the engine's own thread looks at the timers then */
    uint64_t help_ns;      /* how long a poster tries */
    tutti_timers timers;
    uint64_t now_ns;
    tutti_map groups;
    tutti_map peers;
    tutti_map ops;    /* by id, all in flight */
    tutti_link early; /* packets for groups that are not open yet */
    uint32_t parked_count;
    tutti_link asks; /* peers to look up */
    tutti_link probes;
    tutti_link spare_ios;
    tutti_link turns;   /* ops to be advanced: by their `turn` */
    uint64_t device_ns; /* when a device is to be asked again */
    uint32_t notes;     /* packets without an op that have not left yet */
    uint64_t ending_ns; /* give notes until then to leave */
    bool ending;

    atomic_uint_fast64_t done;
    atomic_uint_fast64_t failed;
};

struct tutti_coll_group {
    tutti_coll_engine *engine;
    uint64_t id;
    uint32_t size;
    uint32_t rank; /* ours */
    uint32_t *ranks;
    char name[TUTTI_NAME_MAX + 1];

    /* under the engine's lock */
    uint64_t sequence; /* of the last op posted */
    uint64_t epoch;
    tutti_coll_args last;

    /* the engine's thread only */
    tutti_coll_item open_item;
    tutti_coll_item close_item;
    tutti_map_node node;
    unsigned char key[8];
    uint64_t live_epoch;
    bool doubtful; /* ranks may count apart: a return or a doubt, and no op has succeeded since */
    uint64_t settled_by; /* the op whose success ended the last doubt; 0 = none of this epoch */
    uint64_t begun;      /* the newest sequence of this epoch that an op or a refusal has had */
    tutti_coll_args begun_args;
    tutti_map ops;       /* collectives by sequence */
    tutti_map fates;     /* of sequences not begun */
    tutti_link early;    /* packets for ops not begun, or of newer epochs */
    tutti_link sends;    /* SEND packets nobody has received */
    tutti_link metas;    /* META packets whose SEND nobody has received */
    tutti_link receives; /* Recv ops nobody has sent to: by their items */
    tutti_timer loss_timer;
    tutti_timer close_timer;
    uint32_t lost_rank; /* a member that is gone, of the job; NO_RANK = all there */
    uint32_t leaver;    /* a member that begins no op behind `last_op`; NO_RANK = none */
    uint64_t last_op;
    char leave_reason[LEAVE_REASON_MAX];
    atomic_uint refs; /* ops that point here, and the map */
    bool closing;     /* deleted: it goes when nothing runs in it */
    bool closed;
    void *backend_note;         /* backend.h */
    atomic_uint_fast64_t facts; /* any thread reads */
};

/* Another rank. */
typedef struct coll_peer {
    tutti_map_node node;
    unsigned char key[8];
    tutti_coll_engine *engine;
    uint32_t rank;
    uint64_t incarnation; /* 0 = not known yet */
    unsigned char *address;
    size_t address_size;
    tutti_wire_link *way;
    uint64_t torn;      /* how often the way between us has been torn, as far as we know */
    tutti_link ios;     /* of ops, that need this peer */
    tutti_link waiting; /* sends that wait for the address: by their `queue` */
    tutti_link ask;     /* in engine->asks */
    bool lost;
    tutti_timer expulsion; /* when what it still says is not heard any more */
    char reason[192];
} coll_peer;

/* A packet that came before it was wanted. */
typedef struct coll_parked {
    tutti_link link;
    tutti_packet packet;
    tutti_wire_parcel *parcel;
    tutti_spec spec; /* of a SEND */
    size_t size;
    unsigned char data[]; /* when there is no parcel */
} coll_parked;

/* One message out or in. Those of ops hang on the op and on the peer; the others stand alone. */
typedef struct coll_io {
    tutti_wire_ticket ticket;
    tutti_coll_engine *engine;
    tutti_coll_op *op; /* NULL: a note, such as an abort */
    coll_peer *peer;   /* NULL: a receive from anybody */
    tutti_link in_op;
    tutti_link in_peer;
    tutti_link queue; /* op->expected, or peer->waiting */
    bool incoming;
    bool flying; /* the wire has it: ticket will come back */
    bool whole;  /* incoming: any size, into memory of our own */
    uint32_t step;
    uint32_t from; /* rank of the job */
    size_t header_size;
    unsigned char header[TUTTI_WIRE_HEADER_MAX];
    void *data;
    size_t size;
    void *owned; /* freed with it */
    uint64_t *ret_extra;
    bool lent;             /* outgoing: memory that the peer works in */
    tutti_wire_loan loan;  /* ... which */
    tutti_coll_view *view; /* incoming: the peer's memory */
} coll_io;

/* engine.c */
void tutti_coll_engine_push(tutti_coll_engine *engine, tutti_coll_item *item);
/* With the lock held. True: tutti_coll_engine_wake (coll.h) is to be called after it is released.
 */
bool tutti_coll_engine_put(tutti_coll_engine *engine, tutti_coll_item *item);

/* One look at everything. How much was done. With the baton. */
unsigned tutti_coll_engine_step(tutti_coll_engine *engine);

/*
 * progress_inline.c: a poster that finds the engine asleep does its work, for a short while: to
 * wake another thread costs more than a small op. Returns false: wake it.
 */
#define TUTTI_COLL_HELP_NS (400 * 1000ULL)
bool tutti_coll_help(tutti_coll_engine *engine);

/* peer.c: who the others are, and the ways to them */
coll_peer *tutti_coll_peer_of(tutti_coll_engine *engine, uint32_t rank); /* NULL: no memory */
void tutti_coll_peer_broke(void *engine, void *peer, const char *why);
void tutti_coll_peers_ask(tutti_coll_engine *engine);
void tutti_coll_peer_watch(coll_peer *peer); /* have a way, so that its death is noticed */
bool tutti_coll_peer_connect(coll_peer *peer, const char **ret_why);
void tutti_coll_peer_ask(coll_peer *peer);     /* where is it? */
void tutti_coll_peer_give_up(coll_peer *peer); /* fail the ops that need it, tear down the way */
void tutti_coll_peer_drop_way(coll_peer *peer);
void tutti_coll_hear_reset(tutti_coll_engine *engine, const tutti_packet *packet);
void tutti_coll_peers_drop_ways(tutti_coll_engine *engine);
void tutti_coll_peers_free(tutti_coll_engine *engine); /* after the wire is closed */

/* io.c: messages out and in */
coll_io *tutti_coll_io_new(tutti_coll_op *op, tutti_coll_engine *engine, uint32_t rank);
void tutti_coll_io_end(coll_io *io); /* over: takes it off its op, which may go on */
void tutti_coll_io_submit(coll_io *io);
void tutti_coll_io_write(coll_io *io, const tutti_packet *packet, const tutti_spec *spec);
void tutti_coll_io_take(coll_io *io, const tutti_packet *packet, const void *data, size_t size,
                        tutti_wire_parcel *parcel);
void tutti_coll_expect(tutti_coll_op *op, uint32_t step, uint32_t rank, void *dest, size_t size,
                       bool whole, uint64_t *ret_extra);
coll_io *tutti_coll_io_for(tutti_coll_op *op, uint32_t rank); /* NULL: the op has failed */
void tutti_coll_fill_packet(const tutti_coll_op *op, tutti_packet_kind kind,
                            tutti_packet *ret_packet);
void tutti_coll_lose_one(tutti_coll_op *op);  /* of the pending */
void tutti_coll_submit_expected(coll_io *io); /* a receive: what is here already is taken */
void tutti_coll_post_packet(tutti_coll_op *op, tutti_packet_kind kind, uint32_t step, uint32_t rank,
                            const void *data, size_t size, uint64_t extra);
/* What is in flight that the op waits for now. */
uint32_t tutti_coll_waits_for(const tutti_coll_op *op);

/* expose.c: working in each other's memory */
uint64_t tutti_coll_own_word(tutti_coll_op *op); /* what this rank says yes to */
void tutti_coll_hear_near(tutti_coll_op *op);    /* what a round of the agreement brought */
void tutti_coll_take_view(coll_io *io, tutti_wire_parcel *parcel);
void tutti_coll_return_views(tutti_coll_op *op, bool done);
void tutti_coll_loan_over(coll_io *io); /* its ticket is back */
unsigned tutti_coll_run_turns(tutti_coll_engine *engine);

/* A packet without an op. `data` is copied. */
void tutti_coll_note(tutti_coll_engine *engine, uint32_t rank, const tutti_packet *packet,
                     const void *data, size_t size);
void tutti_coll_ios_free(tutti_coll_engine *engine);

/* unexpected.c: packets before their time, and where a packet goes */
void tutti_coll_arrive(void *engine, const void *header, size_t header_size, const void *data,
                       size_t size, tutti_wire_parcel *parcel);
void tutti_coll_park(tutti_coll_engine *engine, tutti_link *where, const tutti_packet *packet,
                     const tutti_spec *spec, const void *data, size_t size,
                     tutti_wire_parcel *parcel);
void tutti_coll_unpark(tutti_coll_engine *engine, coll_parked *parked);
void tutti_coll_unpark_all(tutti_coll_engine *engine, tutti_link *where);
void tutti_coll_replay(tutti_coll_engine *engine, tutti_link *where); /* route them once more */

/* post.c: how an op begins */
void tutti_coll_op_begin(tutti_coll_engine *engine, tutti_coll_item *item);

/* device_pending.c: ops of which a device has something */
const tutti_coll_backend *tutti_coll_backend_of(const tutti_coll_op *op);
unsigned tutti_coll_poll_devices(tutti_coll_engine *engine);
void tutti_coll_close_devices(const tutti_coll_engine_options *options);
void tutti_coll_forget_group(tutti_coll_group *group);
/* Where a send's or receive's bytes are for the wire: the tensor, or the stage of a device's. */
void *tutti_coll_stage_or(const tutti_coll_op *op, const void *data);
/* Is it time to fetch what is to be sent (false: it is here), or to store what came? On its way. */
tutti_code tutti_coll_fetch(tutti_coll_op *op, bool *ret_begun, tutti_error *err);
tutti_code tutti_coll_store(tutti_coll_op *op, bool *ret_begun, tutti_error *err);
/* Of a receive: where `size` bytes shall come. */
tutti_code tutti_coll_place(tutti_coll_op *op, size_t size, void **ret_data, tutti_error *err);

/* op.c: the life of an op that has begun */
void tutti_coll_op_run(tutti_coll_op *op);
void tutti_coll_op_succeed(tutti_coll_op *op);
/* `tell`: the other members must hear of it. */
void tutti_coll_op_fail(tutti_coll_op *op, const tutti_error *err, bool tell);
void tutti_coll_op_release(tutti_coll_op *op);
bool tutti_coll_op_is_p2p(const tutti_coll_op *op);
tutti_coll_op *tutti_coll_op_by_id(tutti_coll_engine *engine, uint64_t id);

/* announce.c: PHASE_ANNOUNCE, which has two rounds. [in] reference  the call that all others fit */
void tutti_coll_tell_what(tutti_coll_op *op, const tutti_coll_args *reference);
tutti_code tutti_coll_announce(tutti_coll_op *op, tutti_error *err);
tutti_code tutti_coll_use_told(tutti_coll_op *op, tutti_error *err);
tutti_code tutti_coll_hear(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size,
                           tutti_error *err);
void tutti_coll_forget_told(tutti_coll_op *op);

/* splits.c, shapes.c and root_info.c: what is told, for announce.c */
tutti_code tutti_coll_send_splits(tutti_coll_op *op, tutti_error *err);
tutti_code tutti_coll_compare_splits(const tutti_coll_op *op, tutti_error *err);
tutti_code tutti_coll_send_shapes(tutti_coll_op *op, tutti_error *err);
tutti_code tutti_coll_hear_shapes(tutti_coll_op *op, uint32_t from, const void *bytes, size_t size,
                                  tutti_error *err);
tutti_code tutti_coll_send_head(tutti_coll_op *op, tutti_error *err);
tutti_code tutti_coll_hear_head(tutti_coll_op *op, const void *bytes, size_t size,
                                tutti_error *err);

/* pending_abort.c: how ops end for the whole group */
void tutti_coll_tell(tutti_coll_group *group, uint64_t epoch, uint64_t sequence,
                     const tutti_error *err);
void tutti_coll_settle(const tutti_coll_op *op); /* it succeeds */
void tutti_coll_hear_abort(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_error *err);
bool tutti_coll_take_fate(tutti_coll_group *group, uint64_t sequence, tutti_error *ret_err);
void tutti_coll_free_fates(tutti_coll_group *group);
void tutti_coll_lost_words(tutti_coll_op *op, uint32_t rank, const char *reason, tutti_error *err);

/* leave.c: a member that begins no more ops */
void tutti_coll_hear_leave(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_error *err);
/* Then nobody will ever have it, and ret_err says why. */
bool tutti_coll_is_behind_leaver(const tutti_coll_op *op, tutti_error *ret_err);

/* inquiry.c: who is missing */
void tutti_coll_on_deadline(tutti_timer *timer);
void tutti_coll_answer_query(tutti_coll_engine *engine, const tutti_packet *packet);
void tutti_coll_hear_report(tutti_coll_op *op, const tutti_packet *packet, const void *words,
                            size_t size);
void tutti_coll_inquiry_free(tutti_coll_op *op);

/* probe.c: is there a way? */
void tutti_coll_probe_heard(tutti_coll_engine *engine, const tutti_packet *report);
void tutti_coll_probes_end(tutti_coll_engine *engine); /* at once: we stop */

/* p2p.c: send and receive */
void tutti_coll_p2p_begin(tutti_coll_op *op);
void tutti_coll_p2p_step(tutti_coll_op *op);
void tutti_coll_p2p_arrive(tutti_coll_group *group, const tutti_packet *packet,
                           const tutti_spec *spec, const void *data, size_t size,
                           tutti_wire_parcel *parcel);
void tutti_coll_p2p_answer(tutti_coll_engine *engine, const tutti_packet *packet, const void *data,
                           size_t size);
void tutti_coll_p2p_retract(tutti_coll_group *group, const tutti_packet *packet, const void *data,
                            size_t size);
void tutti_coll_p2p_failed(tutti_coll_op *op, const tutti_error *err);
/* The Recv that takes the tensor of this send. NULL: none does. */
tutti_coll_op *tutti_coll_p2p_taker(tutti_coll_group *group, uint32_t from, uint64_t send_id);

/* p2p_meta.c: bytes that go with a tensor that is sent */
void tutti_coll_p2p_post_meta(tutti_coll_op *op, uint32_t rank);
void tutti_coll_p2p_expect_meta(tutti_coll_op *op, uint32_t from, uint64_t send_id);
void tutti_coll_p2p_drop_meta(tutti_coll_group *group, uint32_t from, uint64_t send_id);
void tutti_coll_p2p_meta_arrive(tutti_coll_group *group, const tutti_packet *packet,
                                const void *data, size_t size, tutti_wire_parcel *parcel);
tutti_code tutti_coll_p2p_hear_meta(tutti_coll_op *op, const void *bytes, size_t size,
                                    tutti_error *err);

/* group.c */
void tutti_coll_group_unref(tutti_coll_group *group);
void tutti_coll_group_look(tutti_coll_group *group); /* is a member lost? */
void tutti_coll_group_fail_all(tutti_coll_group *group, const tutti_error *err, bool tell);
/* It is over: nobody finds it any more, and it is freed with the last op that uses it. */
void tutti_coll_group_drop(tutti_coll_group *group);
tutti_coll_group *tutti_coll_group_by_id(tutti_coll_engine *engine, uint64_t id);
uint32_t tutti_coll_group_rank_of(const tutti_coll_group *group, uint32_t rank); /* NO_RANK */
void tutti_coll_group_next(tutti_coll_group *group); /* an op ended: may a barrier go on? */
/* ... and was it the last of a deleted group? Then the group ends after the caller, not in it. */
void tutti_coll_group_end_if_closing(tutti_coll_group *group);

#endif
