/*
 * A model of who wakes the thread that serves several lanes (lib/rpc/server/lane.c), for Spin.
 *
 * LANES clients send MESSAGES each, up to WINDOW ahead of the answers that they take; the ring of answers
 * has room for ROOM. One thread serves all lanes. It may look at the RECENT lanes without sleeping
 * (--busy-poll), and decides at any time to do so or to stop, as that depends on a clock. Checked in every
 * interleaving: no client waits for ever (no invalid end state).
 *
 * Every access is sequentially consistent here: shm_ring.pml has the orders of one flag and one ring.
 * The rules can be broken, one at a time, with -D: the check must then fail. tests/house/test_house_models.py
 * runs all of them.
 */
#ifndef LANES
#define LANES 2
#endif
#ifndef RECENT
#define RECENT 1
#endif
#ifndef MESSAGES
#define MESSAGES 2
#endif
#define WINDOW 2
#define ROOM 1
#define NONE LANES

/* In the memory of each lane. */
byte down[LANES];    /* messages in the ring to the server */
byte up[LANES];      /* answers in the ring to the client */
bool sleeps[LANES];  /* the server has to be woken */
bool crowded[LANES]; /* the server waits for room */

/* Of the server. */
bool bell[LANES];    /* its poller has something to tell */
bool wants[LANES];   /* it has asked for a message */
bool pending[LANES]; /* an answer waits for room */
bool ready[LANES];   /* to be served in this turn */
byte recent[RECENT];

/* wake_reader, of the server: the exchange, and the bell that the exchange alone decides on */
inline ring_if_asleep(i)
{
    d_step {
        if
        :: sleeps[i] -> sleeps[i] = false; bell[i] = true
        :: else
        fi
    }
}

proctype client(byte i)
{
    byte sent, taken;

    do
    :: taken == MESSAGES -> break
    :: atomic { sent < MESSAGES && sent - taken < WINDOW -> down[i]++; sent++ };
        ring_if_asleep(i)
    :: atomic { taken < sent && up[i] > 0 -> up[i]--; taken++ };
        if
        :: atomic { crowded[i] -> crowded[i] = false }; ring_if_asleep(i)
        :: else
        fi
    od
}

#define HAS_MESSAGE(i) (wants[i] && down[i] > 0)

/* put_to_sleep */
inline put_to_sleep(i)
{
    sleeps[i] = true;
    d_step {
        if
        :: HAS_MESSAGE(i) -> bell[i] = true
        :: else
        fi
    }
}

inline wake_recent()
{
    do
    :: atomic { r == RECENT -> r = 0; break }
    :: atomic { r < RECENT ->
        if
#ifdef WAKE_CROWDED /* as it was: no look at messages notices that there is room */
        :: recent[r] != NONE -> sleeps[recent[r]] = false
#else
        :: recent[r] != NONE && !pending[recent[r]] -> sleeps[recent[r]] = false
#endif
        :: else
        fi;
        r++ }
    od
}

inline put_recent_to_sleep()
{
    do
    :: atomic { r == RECENT -> r = 0; break }
    :: atomic { r < RECENT && recent[r] == NONE -> r++ }
    :: r < RECENT && recent[r] != NONE -> put_to_sleep(recent[r]); r++
    od
}

/* add_recent, unless it is there */
inline note_recent(i)
{
    d_step {
        do
        :: r < RECENT && recent[r] != i -> r++
        :: else -> break
        od;
        old = NONE;
        if
        :: r == RECENT ->
            old = recent[next];
            recent[next] = i;
            next = (next + 1) % RECENT
        :: else
        fi;
        r = 0
    };
#ifndef KEEP_REPLACED /* as it was: the lane that is looked at no more stays awake */
    if
    :: old != NONE -> put_to_sleep(old)
    :: else
    fi;
#endif
    old = NONE
}

/* epoll_wait */
inline take_bells()
{
    d_step {
        do
        :: n == LANES -> n = 0; break
        :: n < LANES && bell[n] -> bell[n] = false; ready[n] = true; found = true; n++
        :: n < LANES && !bell[n] -> n++
        od
    }
}

inline find_messages()
{
    do
    :: atomic { n == RECENT -> n = 0; break }
    :: atomic { n < RECENT ->
        if
        :: recent[n] == NONE
        :: recent[n] != NONE && !HAS_MESSAGE(recent[n])
        :: recent[n] != NONE && HAS_MESSAGE(recent[n]) -> ready[recent[n]] = true; found = true
        fi;
        n++ }
    od
}

inline has_left(i)
{
    d_step { up[i]++; pending[i] = false; wants[i] = true }
}

/* rpc_lane_write, flush_pending */
inline answer(i)
{
    if
    :: up[i] < ROOM -> has_left(i)
    :: else ->
        crowded[i] = true;
        if
        :: up[i] < ROOM -> has_left(i)
        :: else ->
            d_step { pending[i] = true; sleeps[i] = true };
            d_step {
                if
                :: up[i] < ROOM -> bell[i] = true
                :: else
                fi
            }
        fi
    fi
}

/* serve_lane */
inline serve(i)
{
    ready[i] = false;
    if
    :: pending[i] -> answer(i)
    :: else
    fi;
    if
    :: d_step { HAS_MESSAGE(i) -> wants[i] = false; down[i]-- };
        answer(i)
    :: else
    fi;
    if
    :: wants[i] ->
        sleeps[i] = true;
        d_step {
            if
            :: down[i] > 0 -> sleeps[i] = false; ready[i] = true
            :: else
            fi
        }
    :: else /* rpc_lane_read looks */
    fi
}

inline serve_ready()
{
    do
    :: atomic { n == LANES -> n = 0; break }
    :: atomic { n < LANES && !ready[n] -> n++ }
    :: n < LANES && ready[n] -> note_recent(n); n++
    od;
    do
    :: atomic { n == LANES -> n = 0; break }
    :: atomic { n < LANES && !ready[n] -> n++ }
    :: n < LANES && ready[n] -> serve(n)
    od
}

proctype server()
{
    byte n, r, next;
    byte old = NONE;
    bool found;

    do
    :: wake_recent();
        do
        :: !found -> find_messages(); take_bells()
        :: break /* it was found, or the time is over */
        od;
        if
        :: found -> found = false; serve_ready()
#ifdef KEEP_OTHERS
        :: else -> put_recent_to_sleep()
#else
        :: else
#endif
        fi
    :: skip;
#ifndef KEEP_OTHERS /* as it was: only a search that found nothing put them to sleep */
        put_recent_to_sleep();
#endif
end:
        (bell[0] || bell[1]);
        take_bells();
        found = false;
        serve_ready()
    od
}

init {
    byte i;

    atomic {
        i = 0;
        do
        :: i < RECENT -> recent[i] = NONE; i++
        :: else -> break
        od;
        i = 0;
        do
        :: i < LANES -> sleeps[i] = true; wants[i] = true; run client(i); i++
        :: else -> break
        od;
        run server()
    }
}
