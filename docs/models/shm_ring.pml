/*
 * A model of the rings of lib/coll/shm under the memory model of C11, for Spin.
 *
 * Two agents: one puts RECORDS records into a ring of ROOM and sleeps while it is full, the other
 * takes them and sleeps while it is empty. Checked in every interleaving and for every value that
 * C11 lets a load return:
 *   - what is read of a record was written before, and is not written again until it was read
 *     (the assertions of read_record and write_record);
 *   - nobody sleeps for ever (no invalid end state).
 *
 * Memory. Each atomic word has a history of values; each thread has a view: how old a value it may
 * still read of each word. A release store attaches the view of its thread to the value, an acquire
 * load joins it. A seq_cst load reads nothing older than the last seq_cst store before it; an
 * exchange reads the last value. Each word's stores come in the order in which they are made: it has
 * one writer, or they all write the same. Source of the construction: O. Lahav, N. Giannarakis,
 * V. Vafeiadis, "Taming release-acquire consistency", POPL 2016 (views), and C11 7.17.3 (seq_cst).
 *
 * Orders can be weakened, one at a time, with -D: the check must then fail. NO_LOOK is the way it was
 * before who waits for room looked, about to sleep, whether it had been unblocked: this model found
 * that. tests/house/test_house_models.py runs all of them.
 */
#ifndef RECORDS
#define RECORDS 4
#endif
#define ROOM 2

#define GIVER 0
#define TAKER 1

/* The atomic words. */
#define TAIL 0
#define HEAD 1
#define BLOCKED 2
#define ASLEEP(who) (3 + (who)) /* in each one's page */
#define ATOMS 5
/* What is not atomic, as words too: the last write of it must be in the reader's view. */
#define WROTE(slot) (5 + (slot)) /* the record in a place of the ring */
#define TOOK(slot) (7 + (slot))  /* the taker's reading of it */
#define WORDS 9
#define HISTORY 8

typedef history {
    byte value[HISTORY];
    byte view[HISTORY * WORDS] /* of the thread that released the value; 0 where it did not */
}
typedef sight {
    byte at[WORDS]
}

history word[ATOMS];
byte last[WORDS];     /* of each history: the newest value */
byte ordered[WORDS];  /* the newest seq_cst store */
sight view[2];
byte bell[2];         /* eventfds: the kernel orders them */

#define RELAXED 0
#define SEQ_CST 2

#ifdef WEAK_TAIL /* who puts tells of a record without releasing it */
#define TAIL_STORE RELAXED
#else
#define TAIL_STORE SEQ_CST
#endif
#ifdef WEAK_HEAD /* who takes gives a place back without releasing it */
#define HEAD_STORE RELAXED
#else
#define HEAD_STORE SEQ_CST
#endif
#ifdef WEAK_SLEEP /* release and acquire are not enough between two flags */
#define FLAGS 1
#else
#define FLAGS SEQ_CST
#endif

inline less(what, by)
{
    if
    :: what > by -> what = what - by
    :: else -> what = 0
    fi
}

/* What nobody can read any more is forgotten, so that what looks alike is alike. */
inline forget_old(x)
{
    at = view[0].at[x];
    if
    :: view[1].at[x] < at -> at = view[1].at[x]
    :: else
    fi;
    if
    :: at > 0 ->
        last[x] = last[x] - at;
        less(ordered[x], at);
        less(view[0].at[x], at);
        less(view[1].at[x], at);
        j = 0;
        do
        :: j < ATOMS ->
            k = 0;
            do
            :: k < HISTORY -> less(word[j].view[k * WORDS + x], at); k++
            :: else -> break
            od;
            j++
        :: else -> break
        od;
        if
        :: x < ATOMS ->
            k = 0;
            do
            :: k < HISTORY && k <= last[x] ->
                word[x].value[k] = word[x].value[k + at];
                j = 0;
                do
                :: j < WORDS ->
                    word[x].view[k * WORDS + j] = word[x].view[(k + at) * WORDS + j];
                    j++
                :: else -> break
                od;
                k++
            :: k < HISTORY && k > last[x] ->
                word[x].value[k] = 0;
                j = 0;
                do
                :: j < WORDS -> word[x].view[k * WORDS + j] = 0; j++
                :: else -> break
                od;
                k++
            :: else -> break
            od
        :: else
        fi
    :: else
    fi;
    at = 0;
    j = 0;
    k = 0
}

inline store(who, x, v, order)
{
    d_step {
        forget_old(x);
        assert(last[x] + 1 < HISTORY);
        last[x]++;
        word[x].value[last[x]] = v;
        view[who].at[x] = last[x];
        k = 0;
        do
        :: k < WORDS ->
            if
            :: order != RELAXED -> word[x].view[last[x] * WORDS + k] = view[who].at[k]
            :: else -> word[x].view[last[x] * WORDS + k] = 0
            fi;
            k++
        :: else -> break
        od;
        if
        :: order == SEQ_CST -> ordered[x] = last[x]
        :: else
        fi;
        k = 0;
        forget_old(x)
    }
}

/* Which of the values that it may: all are tried. Every load of ours acquires. */
inline load(who, x, order, ret)
{
    atomic {
        at = view[who].at[x];
        if
        :: order == SEQ_CST && ordered[x] > at -> at = ordered[x]
        :: else
        fi;
        do
        :: at < last[x] -> at++
        :: break
        od;
        d_step {
            join(who, x);
            ret = word[x].value[at];
            forget_old(x)
        }
    }
}

inline join(who, x)
{
    view[who].at[x] = at;
    k = 0;
    do
    :: k < WORDS ->
        if
        :: word[x].view[at * WORDS + k] > view[who].at[k] ->
            view[who].at[k] = word[x].view[at * WORDS + k]
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0
}

inline exchange(who, x, v, ret)
{
    atomic {
        d_step {
            at = last[x];
            join(who, x);
            ret = word[x].value[at];
            forget_old(x)
        };
        if
        :: ret != v -> store(who, x, v, SEQ_CST)
        :: else /* the same value again changes nothing that we look at */
        fi
    }
}

/* tutti_shm_ring_bell */
inline ring_bell(who, whom)
{
    load(who, ASLEEP(whom), FLAGS, got);
    if
    :: got != 0 ->
        exchange(who, ASLEEP(whom), 0, got);
        if
        :: got != 0 -> bell[whom] = 1
        :: else
        fi
    :: else
    fi
}

inline write_record(slot)
{
    d_step {
        assert(view[GIVER].at[TOOK(slot)] == last[TOOK(slot)]); /* it was read, and that is over */
        last[WROTE(slot)]++;
        view[GIVER].at[WROTE(slot)] = last[WROTE(slot)];
        forget_old(WROTE(slot))
    }
}

inline read_record(slot)
{
    d_step {
        assert(view[TAKER].at[WROTE(slot)] == last[WROTE(slot)]); /* the newest, and whole */
        last[TOOK(slot)]++;
        view[TAKER].at[TOOK(slot)] = last[TOOK(slot)];
        forget_old(TOOK(slot))
    }
}

/* tutti_shm_put with has_room; then, when it waits, wire_shm_arm and the sleep. */
active proctype giver()
{
    byte j, k, at, got, put, seen;
    bool waits;

    do
    :: put == RECORDS -> break
    :: else ->
        waits = false;
        if
        :: put - seen == ROOM -> load(GIVER, HEAD, SEQ_CST, seen)
        :: else
        fi;
        if
        :: put - seen == ROOM ->
            store(GIVER, BLOCKED, 1, SEQ_CST);
            load(GIVER, HEAD, SEQ_CST, seen);
            waits = put - seen == ROOM
        :: else
        fi;
        if
        :: !waits ->
            write_record(put % ROOM);
            put++;
            store(GIVER, TAIL, put, TAIL_STORE);
            ring_bell(GIVER, TAKER)
        :: else ->
            bell[GIVER] = 0; /* look_at_sockets */
            store(GIVER, ASLEEP(GIVER), 1, FLAGS);
#ifdef NO_LOOK
            got = 1;
#else
            load(GIVER, BLOCKED, FLAGS, got);
#endif
            if
            :: got == 1 -> bell[GIVER] == 1 /* sleep */
            :: else
            fi;
            store(GIVER, ASLEEP(GIVER), 0, RELAXED)
        fi
    od
}

/* tutti_shm_source_progress, wire_shm_arm and the sleep. */
active proctype taker()
{
    byte j, k, at, got, taken, seen;

    do
    :: taken == RECORDS -> break
    :: else ->
        load(TAKER, TAIL, 1, seen);
        if
        :: seen != taken ->
            read_record(taken % ROOM);
            taken++;
            store(TAKER, HEAD, taken, HEAD_STORE);
            load(TAKER, BLOCKED, SEQ_CST, got);
            if
            :: got != 0 ->
                exchange(TAKER, BLOCKED, 0, got);
                if
                :: got != 0 -> ring_bell(TAKER, GIVER)
                :: else
                fi
            :: else
            fi
        :: else ->
            bell[TAKER] = 0;
            store(TAKER, ASLEEP(TAKER), 1, FLAGS);
            load(TAKER, TAIL, FLAGS, seen);
            if
            :: seen == taken -> bell[TAKER] == 1 /* sleep */
            :: else
            fi;
            store(TAKER, ASLEEP(TAKER), 0, RELAXED)
        fi
    od
}
