"""What a process holds, by kind: descriptors, mappings and threads; and what of it is one more than before."""

import collections
import os
import re

# The allocator's heaps and the stacks of threads, which come and go with load; the timer that UCX makes when the first
# peer dies; threads of gRPC's pools. All else must not grow, and these no further.
ALLOWED = {"mapping [anonymous]": 64, "descriptor anon_inode:[timerfd]": 1}
POOLS = ("event_engine", "grpc_global_tim", "timer_manager")
ALLOWED.update({"thread " + name: 2 for name in POOLS})
# Pools that start a thread when there is work and none is idle, and keep it: however few there were after the first
# schedules, there may be so many in the end. gRPC's executors have two for each processor; functions have --function-threads.
FULL = {
    "thread default-executo": 2 * os.sysconf("SC_NPROCESSORS_CONF"),
    "thread resolver-execut": 2 * os.sysconf("SC_NPROCESSORS_CONF"),
    "thread tutti-function": 8,
}
GONE = {"08"}  # CLOSE_WAIT: its other end is gone, and we hold on to it
NUMBERS = re.compile(r"[0-9a-f]{6,}|\d+")


def _descriptor_kind(target):
    if target.startswith("socket:"):
        return "socket"
    return NUMBERS.sub("N", target)


def _mappings(process):
    with open(process + "maps") as file:
        for line in file:
            words = line.split(None, 5)
            name = words[5].strip() if len(words) > 5 else ""
            yield "[anonymous]" if name in ("", "[heap]", "[stack]") else NUMBERS.sub("N", name)


def _threads(process):
    for task in os.listdir(process + "task"):
        try:
            with open(process + "task/" + task + "/comm") as file:
                yield file.read().strip()
        except OSError:
            pass  # it has ended meanwhile


def _half_closed(process, inodes):
    """Descriptors of connections whose other end is gone."""
    count = 0
    for table in ("net/tcp", "net/tcp6"):
        with open(process + table) as file:
            for line in list(file)[1:]:
                words = line.split()
                count += words[3] in GONE and words[9] in inodes
    return count


def _read(path):
    try:
        return os.readlink(path)
    except OSError:
        return None  # it was closed meanwhile


def of(pid):
    """A Counter of kinds."""
    process = "/proc/%d/" % pid
    found = collections.Counter()
    targets = [_read(process + "fd/" + name) for name in os.listdir(process + "fd")]
    for target in targets:
        if target is not None:
            found["descriptor " + _descriptor_kind(target)] += 1
    for kind in _mappings(process):
        found["mapping " + kind] += 1
    for name in _threads(process):
        found["thread " + name] += 1
    inodes = {target[8:-1] for target in targets if target is not None and target.startswith("socket:")}
    found["half-closed connection"] = _half_closed(process, inodes)
    return found


def totals(found):
    """Descriptors, threads, mappings."""
    return tuple(sum(count for kind, count in found.items() if kind.startswith(word))
                 for word in ("descriptor", "thread", "mapping"))


def grown(now, base, sockets):
    """What there is more of than ever in `base`, beyond what is allowed; `sockets` more may be there."""
    allowed = dict(ALLOWED, **{"descriptor socket": sockets})
    return {kind: count - base[kind] for kind, count in now.items()
            if count - base[kind] > allowed.get(kind, 0) and count > FULL.get(kind, 0)}
