"""What schedules are drawn from: every fault in every phase it can strike in, with every op in turn.

A deck holds each pair of a fault and a phase once, and behind these as often more as the fault weighs; both halves are
shuffled by the seed, and played again, in another order, when they are through. Each time a pair comes its op is the
next one, so a thousand schedules have many ops with every fault in every phase.
"""

import collections
import itertools
import random

from fault_ops import OPS, SESSION

EVERY = ("before", "during", "data", "after", "wait", "group", "upload", "join")
CALLS = ("before", "during", "data", "after", "wait", "group")
BEFORE_JOIN = EVERY[:-1]

Fault = collections.namedtuple("Fault", "weight phases")
LOCAL = {  # one host, and relays
    "kill": Fault(6, EVERY),
    "burst": Fault(2, EVERY),
    "stop": Fault(4, EVERY),
    "silence": Fault(2, EVERY),
    "coordinator": Fault(4, EVERY),
    "truncated-store": Fault(1, EVERY),
    "cut": Fault(4, EVERY),
    "partition": Fault(2, EVERY),
    "mismatch": Fault(8, ("during", "group")),
    "absent": Fault(4, ("during", "group", "wait")),
    "outside": Fault(2, ("during", "group")),
    "cancel": Fault(10, ("during", "data", "upload")),
    "abort": Fault(3, ("before", "during", "data")),
    "shrink": Fault(3, ("before", "during", "data")),
    "trainer": Fault(4, ("during", "data", "wait")),
    "descriptors": Fault(3, BEFORE_JOIN),
    "coordinator-descriptors": Fault(2, EVERY),
}
AT = ("during", "data", "wait", "group")
LOCAL.update({  # at a point inside one agent
    "kill-at": Fault(2, AT),
    "stop-at": Fault(1, AT),
    "delay-at": Fault(1, AT),
    "kill-answer": Fault(6, ("after",)),
})
WIRE = {  # the same, of packets between agents that share no memory
    "drop-at": Fault(1, AT),
    "duplicate-at": Fault(2, AT),
    "cut-at": Fault(2, AT),
}
ETCD = {  # a coordinator on etcd
    "etcd-restored": Fault(2, ("before", "during", "data", "wait", "group")),
}
NET = {  # hosts in namespaces
    "split": Fault(1, ("before", "during", "data", "after", "wait", "group", "upload", "join")),
    "alone": Fault(1, ("before", "during", "wait", "group", "upload", "join")),
    "blink": Fault(1, EVERY),
    "apart": Fault(1, ("before", "during", "after", "wait", "group", "upload")),
    "loss": Fault(1, EVERY),
    "slow": Fault(1, EVERY),
}
DRIVEN = ("idle", "commands", "call", "linger")  # what a session does
SESSIONS = {  # of a controller, its leader, its workers and their hosts of functions
    "leader-kill": Fault(1, DRIVEN),
    "leader-stop": Fault(1, DRIVEN),
    "leader-silence": Fault(1, DRIVEN),
    "worker-kill": Fault(1, DRIVEN),
    "worker-stop": Fault(1, DRIVEN),
    "worker-silence": Fault(1, DRIVEN),
    "controller-cancel": Fault(1, ("commands", "linger")),
    "controller-half-close": Fault(1, ("commands", "linger")),
    "controller-cut": Fault(1, ("commands", "linger")),
    "controller-kill": Fault(1, ("commands", "linger")),
    "controller-pipeline": Fault(3, ("commands", "linger")),
    "session-coordinator": Fault(1, DRIVEN),
    "function-kill": Fault(1, ("call", "linger")),
    "function-crash": Fault(1, ("commands", "call", "linger")),
    "function-hang": Fault(1, ("commands", "linger")),
    "function-nonsense": Fault(2, ("commands", "linger")),
    "function-leak": Fault(1, ("commands", "linger")),
}
FAULTS = dict(LOCAL, **WIRE, **ETCD, **NET, **SESSIONS)
PHASES = EVERY + DRIVEN
HARMLESS = (  # a delay at most
    "stop", "coordinator", "truncated-store", "cut", "stop-at", "delay-at", "duplicate-at", "blink", "loss", "slow",
    "coordinator-descriptors", "etcd-restored",
)
DEADLY = ("kill", "burst", "silence", "partition", "split", "alone")  # who is struck is not a member any more
CALL_FAULTS = ("mismatch", "outside", "absent", "cancel")  # of one call; no process is touched

PAIRS = [(fault, phase) for fault, one in FAULTS.items() for phase in one.phases]
MORE = [(fault, phase) for fault, phase in PAIRS for _ in range(FAULTS[fault].weight - 1)]


def draw(seed):
    """(number, fault, phase, op) of schedules, without end."""
    turns = collections.Counter()
    deck = []
    for number in itertools.count():
        if not deck:
            dice = random.Random("%d/deck/%d" % (seed, number))
            deck = dice.sample(MORE, len(MORE)) + dice.sample(PAIRS, len(PAIRS))
        pair = deck.pop()
        ops = fitting(*pair)
        random.Random("%d/ops/%s/%s" % ((seed,) + pair)).shuffle(ops)
        yield (number,) + pair + (ops[turns[pair] % len(ops)],)
        turns[pair] += 1


def fitting(fault, phase):
    """Ops that the pair makes sense with; those of `data`, `wait`, `upload` and `join` are what they are."""
    if fault in SESSIONS:
        return [SESSION]
    if phase in ("upload", "join") or fault in ("cancel", "kill-answer", "trainer"):
        return [op for op in OPS if op.name == "all_reduce"]
    if fault == "outside":
        return [op for op in OPS if op.name == "range"]
    if phase in ("data", "wait"):
        return [op for op in OPS if op.by_handle]
    if fault == "mismatch":
        return [op for op in OPS if op.shapes_compared]
    return list(OPS)
