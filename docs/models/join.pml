/*
 * A model of the moment in which an agent joins a job whose members run ops already, for Spin.
 *
 * The coordinator's answer gives the fresh agent two things: its seat (job id and rank,
 * tutti_coll_engine_sit) and the key of the epoch (tutti_coll_engine_rekey). Its control loop hands
 * both to the engine, one after the other, while the engine's own loop reads packets. A member that
 * has heard of the epoch sends its signature of the next op (AGREE) at once. The wire keeps a packet
 * until the key is there, and the engine drops a packet of a job in which it has no seat. A signature
 * is sent once: the ways between agents lose nothing.
 *
 * Checked in every interleaving: the fresh agent's op ends (no invalid end state), so no signature
 * was dropped.
 *
 * With -DKEY_FIRST the key comes before the seat, as it was once: the check must then fail.
 * tests/house/test_house_models.py runs both.
 */
#define MEMBERS 2

bool has_key, has_seat;
byte waiting; /* packets on the wire of the fresh agent */
byte heard;   /* signatures that its engine took */

/* The fresh agent's control loop: agent_wire_join_message. */
active proctype control()
{
#ifdef KEY_FIRST
    has_key = true;
    has_seat = true;
#else
    has_seat = true;
    has_key = true;
#endif
}

/* The fresh agent's engine: reads a packet when the key opens it, and drops what has no seat. */
active proctype engine()
{
end:
    do
    :: atomic { has_key && waiting > 0 -> waiting-- };
       if
       :: has_seat -> heard++
       :: else -> skip
       fi
    od
}

/* The others: each sends its signature once. */
active [MEMBERS] proctype member()
{
    waiting++
}

/* The fresh agent's op: it begins when the agent has joined, and ends with everybody's signature. */
active proctype op()
{
    has_seat && has_key;
    heard == MEMBERS
}
