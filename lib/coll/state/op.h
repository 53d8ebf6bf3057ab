/*
 * Private to lib/coll: the phases of an op and the numbers of its rounds.
 *
 * A packet is told from others of its op by sender and step, so the ranges of steps do not overlap:
 * the agreement from 0 on, the confirmation from STEP_CONFIRM (31 rounds, for up to
 * 2^31 ranks), then what is announced, then data. All ranks must be built with the same numbers.
 */
#ifndef TUTTI_COLL_STATE_OP_H
#define TUTTI_COLL_STATE_OP_H

#define ZOMBIE_NS (1000 * 1000000ULL) /* until a failed op's memory is torn from the transport */
#define STEP_TAKEN 1                  /* of the packets that end a Send */
#define STEP_CONFIRM 32      /* of the rounds that confirm; those of the agreement begin at 0 */
#define STEP_ANNOUNCE 63     /* of the round that tells what signatures do not hold */
#define STEP_DATA 64         /* data rounds are numbered from here */
#define STEP_PART (1u << 20) /* ... in every part of a coalesced op */

/*
 * A collective goes NEW, BEHIND (barriers), AGREE, ANNOUNCE (if something has to be told), CONFIRM
 * (after ANNOUNCE, or if a receiver learnt its shape), START, DATA; then DATA and START in turn for
 * each further tensor of a coalesced op. A send or receive goes NEW, P2P. No other moves. The phase
 * of an op that fails stays: release calls finish if it is DATA.
 */
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

#endif
