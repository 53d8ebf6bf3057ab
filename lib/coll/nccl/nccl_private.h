/*
 * Private to coll/nccl: the backend, its communicators, and the ops it has.
 *
 * An op's way: it waits until what its group called before is launched; the members tell each other
 * their tickets and which communicator they have (ORDER); where these differ, all make a new one
 * (MEET); it waits for its turn among all ops of the device, and for the communicator (TURN); it is
 * launched, step by step (LAUNCH); an event says that the device is through with it (PENDING).
 *
 * When an op fails from ORDER on, some member may have launched it, so its communicator is aborted
 * and all other ops on it fail too. A member that finished the op first and heard nothing still has
 * the old one: the next ORDER shows that.
 */
#ifndef TUTTI_COLL_NCCL_NCCL_PRIVATE_H
#define TUTTI_COLL_NCCL_NCCL_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include <nccl.h>

#include "coll/nccl/nccl.h"
#include "coll/nccl/order.h"
#include "coll/nccl/plan.h"

#define NCCL_ABORT_NS (10 * 1000000000ULL) /* after that an abort hangs, and is said to */
#define NCCL_REMOTE_NS (500 * 1000000ULL)  /* whose failure it was says why, and better */
#define NCCL_POOL_KEPT (256ULL << 20)      /* free memory that the pool keeps for the next op */
#define NCCL_ENTRIES_MAX 512 /* in the stream: behind about 1000 the next call of CUDA waits */
#define NCCL_COPIES_MAX 256  /* of one op at a time */
#define NCCL_IDS_MAX 64
#define NCCL_RANKS_PER_ID 64 /* of a large world: more ids let it begin in parallel */

typedef struct nccl_backend {
    tutti_coll_backend door;
    tutti_coll_nccl_options options;
    int device;
    cudaStream_t stream;
    cudaMemPool_t pool; /* of what ops work in */
    nccl_line line;
    size_t entry_count;      /* what launched ops have put into the stream, about */
    tutti_list_node behind;  /* ops that wait for others of their group: nccl_op.link */
    tutti_list_node pending; /* launched, in the order of the stream: nccl_op.link */
    cudaStream_t copies;     /* of sends and receives: not behind ops that wait for other ranks */
    tutti_list_node moving;  /* nccl_stage_memory.link */
    tutti_list_node spare;
    size_t spare_bytes;
    tutti_list_node comms; /* all of them: nccl_comm.link */
    uint64_t busy_ns;      /* something moved last */
    uint64_t asked_ns;     /* communicators were asked for errors last */
    bool stuck; /* the stream waits for an event of a client that is gone: new ops are refused */
} nccl_backend;

/* EMPTY, BEGUN, READY, in this order; ENDING from each of them, then it is freed. A group has at
 * most one that is not ENDING. */
typedef enum nccl_comm_state {
    NCCL_COMM_EMPTY, /* to be made */
    NCCL_COMM_BEGUN, /* NCCL makes it */
    NCCL_COMM_READY,
    NCCL_COMM_ENDING, /* a thread aborts or destroys it */
} nccl_comm_state;

/* NCCL connects for collectives at the first of them, and for pairs at the first send or receive. */
typedef enum nccl_link {
    NCCL_LINK_COLLECTIVE = 1,
    NCCL_LINK_PAIR = 2,
} nccl_link;

typedef struct nccl_comm {
    tutti_list_node link;
    nccl_backend *backend;
    uint64_t group;
    nccl_comm_state state;
    ncclComm_t comm;
    char name[TUTTI_NAME_MAX + 1]; /* NCCL may look at it as long as it lives */
    unsigned connected;            /* nccl_link: what ops have used */
    uint64_t tag;        /* the same on all members when they have the same one; 0 = none */
    tutti_list_node ops; /* nccl_op.in_comm */
    tutti_error why;     /* ENDING: what its ops end with */
    pthread_t thread;
    bool threaded;
    bool aborts; /* else it is destroyed: nothing is under way */
    bool late;   /* it was said that this takes too long */
    uint64_t ending_ns;
    uint64_t tell_ns; /* ENDING: its ops are given up not before */
    /* Set by the ending thread as its last act, read by the engine (seq_cst): all that the thread
     * did happens before. */
    atomic_bool ended;
} nccl_comm;

/* In this order; MEET only if a communicator is to be made, BEHIND only if the group has earlier
 * ops. A failed op stays where it was, except in LAUNCH: once NCCL has let go it is PENDING. */
typedef enum nccl_stage {
    NCCL_STAGE_NEW,
    NCCL_STAGE_BEHIND,
    NCCL_STAGE_ORDER,
    NCCL_STAGE_MEET,
    NCCL_STAGE_TURN,
    NCCL_STAGE_LAUNCH,
    NCCL_STAGE_PENDING,
    NCCL_STAGE_DONE,
} nccl_stage;

/* What members tell each other in ORDER. All run the same build. */
typedef struct nccl_words {
    uint64_t ticket; /* the largest */
    uint64_t tag_min;
    uint64_t tag_max;
} nccl_words;

typedef struct nccl_invitation {
    uint64_t tag;
    ncclUniqueId id;
} nccl_invitation;

typedef struct nccl_op {
    tutti_coll_op *op;
    nccl_backend *backend;
    tutti_list_node link;
    tutti_list_node in_comm;
    nccl_comm *comm;
    nccl_stage stage;
    nccl_place place;
    uint32_t round;
    nccl_words told;
    nccl_words heard;
    nccl_invitation *invitations; /* of MEET: one for each maker of an id */
    nccl_plan plan;
    uint32_t step;      /* of LAUNCH */
    size_t entry_count; /* its part of the backend's */
    size_t copied;      /* of the list of this step */
    bool pausing;       /* until `event`: a long list goes into the stream in parts */
    bool issuing;       /* NCCL goes on with a group by itself */
    bool dead;          /* failed: it only waits for the device */
    bool off;           /* taken off */
    cudaEvent_t event;
    uint64_t deserted_ns; /* since when its `after` cannot come any more; 0 = it can */
} nccl_op;

/* comm.c */
nccl_comm *tutti_nccl_comm_of(nccl_backend *backend, uint64_t group); /* EMPTY one; NULL: memory */
uint64_t tutti_nccl_comm_tag(const nccl_comm *comm);
uint32_t tutti_nccl_makers(uint32_t size); /* of ids */
tutti_code tutti_nccl_invite(nccl_op *self, nccl_invitation *ret_own, tutti_error *err);
tutti_code tutti_nccl_comm_begin(nccl_op *self, tutti_error *err);
/* Abort it, or destroy it, on a thread of its own; the ops on it are given up with `why`. */
void tutti_nccl_comm_end(nccl_comm *comm, bool aborts, const tutti_error *why);
/* Is it ready now, or has it an error? Then it is ended. */
void tutti_nccl_comm_ask(nccl_comm *comm);
unsigned tutti_nccl_comms_poll(nccl_backend *backend, uint64_t now_ns);
void tutti_nccl_comms_close(nccl_backend *backend);

/* launch.c: all that can be launched now. *ret_done: the whole plan is in the stream */
tutti_code tutti_nccl_launch(nccl_op *self, bool *ret_done, tutti_error *err);
/* The nccl_link that it uses. */
unsigned tutti_nccl_launch_links(const nccl_op *self);
/* About how many entries of the stream it takes at once. */
size_t tutti_nccl_launch_entries(const nccl_op *self);

/* stage.c */
tutti_code tutti_nccl_stage(tutti_coll_op *op, size_t bytes, tutti_error *err);
tutti_code tutti_nccl_fetch(tutti_coll_op *op, size_t bytes, tutti_error *err);
tutti_code tutti_nccl_store(tutti_coll_op *op, size_t bytes, tutti_error *err);
void tutti_nccl_unstage(tutti_coll_op *op);
unsigned tutti_nccl_stages_poll(nccl_backend *backend);
void tutti_nccl_stages_close(nccl_backend *backend);

/* kernel.c */
tutti_code tutti_nccl_kernels_load(nccl_backend *backend, tutti_error *err); /* at open; waits */
tutti_code tutti_nccl_kernel_run(const nccl_kernel *kernel, cudaStream_t stream, tutti_error *err);

/* poll.c */
void tutti_nccl_op_complete(nccl_op *self); /* may free it */
void tutti_nccl_op_detach(nccl_op *self);   /* from its communicator */
/*
 * Fail the op with the reason for which its communicator ended. False: it is too early (tell_ns).
 */
bool tutti_nccl_op_give_up(nccl_op *self, uint64_t now_ns);
void tutti_nccl_abandon(tutti_coll_op *op);
/* Does it wait for an event whose client is gone? And the words for that: CALLER_GONE. */
bool tutti_nccl_is_deserted(const nccl_op *self);
tutti_code tutti_nccl_fail_deserted(const nccl_op *self, tutti_error *err);
unsigned tutti_nccl_poll(tutti_coll_backend *door, uint64_t now_ns, uint64_t *ret_next_ns);

#endif
