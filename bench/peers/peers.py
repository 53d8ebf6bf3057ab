#!/usr/bin/env python3
"""Tutti, whose clients call through lanes, beside itself through gRPC, PyTorch/Gloo, Open MPI and what the memory allows, in
alternating bursts of one run.

usage: peers.py BUILD [--json FILE] [--markdown FILE] [--pairs N] [--only REGEX] [--ranks N,N] [--wait-idle S]
                [--no-shm] [--hosts N,N] [--rate RATE] [--share-processors] [--device cuda:N,... [--stand-in]]
                [--beside BUILD]

Every side runs all the time and sleeps while it is not its turn. A row is one op on one size; a pair is a burst
of ours and one of the peer, one behind the other; a row's figure is the median over the pairs. Every second
round runs the sides in the opposite order: the first of two equal sides took up to 25 % longer. The time of a
burst is that of its slowest rank. On a virtual machine a round of bursts from which the hypervisor took more
than 2 % of the time is had again, up to three times as often as there are pairs; how often is said. With
--hosts also ranks on hosts of their own: network namespaces, joined by veth pairs and a bridge, at most --rate
(1gbit, say; as fast as it goes when it is not said) to and from each, with processors of their own where there
are enough, as hosts have (unless --share-processors). With --device tensors are on GPUs, one for each rank in
turn, and the peer is NCCL called directly. With --beside the peer is another build of Tutti, of an older commit
for instance: its ratio says what the change between the two brought.
"""
import argparse
import json
import os
import platform
import re
import statistics
import time

import peers_sides as sides
from peers_sides import namespaces

KIB, MIB = 1 << 10, 1 << 20
BURST_S = 0.25
STOLEN_MAX = 0.02  # of a round: more, and it is had again
AGAIN_MAX = 3  # times as many as pairs
OTHERS = ("broadcast", "all_gather", "reduce_scatter", "all_to_all")
ROWS = ([("all_reduce", size, 2) for size in (8, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)] +
        [(op, size, 2) for op in OTHERS for size in (MIB, 64 * MIB)] +
        [("all_reduce", size, 4) for size in (MIB, 64 * MIB)])
HOST_SIZES = (MIB, 64 * MIB)
GPU_ROWS = ([("all_reduce", size) for size in (8, KIB, 64 * KIB, MIB, 16 * MIB, 64 * MIB, 256 * MIB)] +
            [(op, size) for op in OTHERS[:3] for size in (64 * KIB, 64 * MIB)])


def ticks():
    """Of all processors together, since the start: user, nice, system, idle, iowait, irq, softirq, steal."""
    with open("/proc/stat") as file:
        return [int(word) for word in file.readline().split()[1:9]]


def idle_share(seconds):
    def read():
        numbers = ticks()
        return numbers[3] + numbers[4], sum(numbers)
    idle, total = read()
    time.sleep(seconds)
    idle_now, total_now = read()
    return (idle_now - idle) / max(1, total_now - total)


def wait_idle(seconds):
    """Until nothing else runs here, or the time is up; whether it is so."""
    until = time.monotonic() + seconds
    while idle_share(0.2) < 0.9:
        if time.monotonic() > until:
            return False
    return True


def times_of(side, op, size):
    least = 1 if side.hosts else 3  # what is slow needs no more
    once = side.burst(op, size, least)
    return None if once is None else max(least, min(20000, int(BURST_S * 1e6 / max(once, 1))))


def stolen():
    """Seconds that processors of this virtual machine were ready and not had, by the hypervisor's word."""
    return ticks()[7] / os.sysconf("SC_CLK_TCK")


class Rounds:
    """Bursts of all sides, round after round; those in which the machine was somebody else's are had again."""

    def __init__(self, ours, peers, op, size):
        self.ours, self.sides = ours, [ours] + peers
        self.op, self.size = op, size
        self.times = {side: times_of(side, op, size) for side in self.sides}
        self.took = {side: [] for side in self.sides}
        self.busy = self.again = self.count = 0

    def one(self, patience):
        """The bursts of a round, and what share of it was stolen."""
        self.busy += patience > 0 and not wait_idle(patience)
        began, before = time.monotonic(), stolen()
        self.count += 1
        order = self.sides if self.count % 2 == 1 else self.sides[::-1]
        bursts = {side: side.burst(self.op, self.size, self.times[side]) for side in order if self.times[side] is not None}
        return bursts, (stolen() - before) / (os.cpu_count() * (time.monotonic() - began))

    def run(self, pairs, patience):
        if self.times[self.ours] is None:
            return
        while len(self.took[self.ours]) < pairs:
            bursts, share = self.one(patience)
            if share > STOLEN_MAX and self.again < AGAIN_MAX * pairs:
                self.again += 1
                continue
            for side, us in bursts.items():
                self.took[side].append(us)

    def row(self, peer):
        ours, theirs = self.took[self.ours], self.took[peer]
        return {"name": self.op, "bytes": self.size, "ranks": self.ours.ranks, "hosts": len(self.ours.hosts or [0]),
                "ours_us": round(statistics.median(ours), 1), "peer": peer.name,
                "peer_us": round(statistics.median(theirs), 1),
                "ratio": round(statistics.median(b / a for a, b in zip(ours, theirs)), 2), "pairs": len(ours)}

    def rows(self):
        """One per peer that can do this."""
        return [self.row(peer) for peer in self.sides[1:] if self.took[peer]]

    def remarks(self):
        return ([f"rounds on a busy machine: {self.busy}"] if self.busy else []) + (
            [f"rounds that were had again, for the machine was not ours: {self.again}"] if self.again else [])


class EmptyCall:
    """The least call to the same agents: what an op of 8 bytes takes beyond it is the op's."""

    def __init__(self, ours):
        self.name, self.hosts, self.ours = "empty call", None, ours

    def burst(self, op, size, times):
        return self.ours.burst("unary", size, times) if (op, size) == ("all_reduce", 8) else None

    def close(self):
        """Its side is closed by others."""


def words(size):
    return f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB" if size >= KIB else f"{size} B"


def line(row):
    return (f"| {row['name']} | {words(row['bytes'])} | {row['ranks']} | {row['hosts']} | {row['ours_us']:.1f} | {row['peer']} | "
            f"{row['peer_us']:.1f} | {row['ratio']:.2f} |")


HEAD = ["| op | bytes | ranks | hosts | Tutti us | peer | peer us | ratio |", "|---|---|---|---|---|---|---|---|"]


def machine():
    model = next((text.split(":")[1].strip() for text in open("/proc/cpuinfo") if text.startswith("model name")),
                 platform.machine())
    return f"{model}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.2f} at the start"


class Comparison:
    """Rows of all that is compared, and what has to be said about it."""

    def __init__(self, options):
        self.options, self.rows, self.about = options, [], []
        self.say(machine())

    def say(self, words):
        if words not in self.about:
            self.about.append(words)
            print(words, flush=True)

    def run(self, wanted, ours, found):
        """Rows of `wanted`, (op, bytes), of our side and those that were found. Closes all sides."""
        for side, said in found:
            self.say(said if side is not None else "skipped: " + said)
        peers = [side for side, _ in found if side is not None] + [EmptyCall(ours)]
        try:
            print("\n".join(HEAD), flush=True)
            for op, size in wanted:
                rounds = Rounds(ours, peers, op, size)
                rounds.run(self.options.pairs, self.options.wait_idle)
                for remark in rounds.remarks():
                    print(f"({remark})")
                for row in rounds.rows():
                    self.rows.append(row)
                    print(line(row), flush=True)
        finally:
            for side in [ours] + peers:
                side.close()

    def wanted(self, rows):
        return [row for row in rows if re.search(self.options.only, f"{row[0]} {row[1]}")]

    def on_one_host(self, ranks):
        build = self.options.build
        wanted = self.wanted([row[:2] for row in ROWS if row[2] == ranks])
        if wanted:
            options = ["--no-shm"] if self.options.no_shm else []
            found = self.other_build(ranks, options) or [
                sides.tutti_by_grpc(build, ranks, options), sides.gloo(ranks), sides.mpi(build, ranks), sides.probe(build, ranks)]
            self.run(wanted, sides.tutti(build, ranks, options), found)

    def other_build(self, ranks, options=(), hosts=None):
        """Of --beside; empty when it was not given."""
        if self.options.beside is None:
            return []
        side = sides.tutti(self.options.beside, ranks, options, hosts)
        side.name = "other build"
        return [(side, f"beside {self.options.beside}")]

    def on_gpus(self, ranks):
        build, devices = self.options.build, self.options.device.split(",")
        options = {rank: ["--device", devices[rank % len(devices)]] for rank in range(ranks)}
        more = ["--allow-shared-gpu", "--device-memory-limit", "1GiB"]
        standin = {"TUTTI_MODULES": f"{build}/standin"} if self.options.stand_in else {}
        gpus = [device.rpartition(":")[2] for device in devices]
        peer = sides.nccl(build, ranks, gpus, self.options.stand_in)
        if peer[0] is None:
            self.say("skipped: " + peer[1])
            return
        ours = sides.tutti(build, ranks, more, environment=standin, own=options)
        self.run(self.wanted(GPU_ROWS), ours, [peer])

    def on_hosts(self, count):
        build, rate = self.options.build, self.options.rate
        wanted = self.wanted([("all_reduce", size) for size in HOST_SIZES])
        if not wanted:
            return
        if namespaces.why_not() is not None:
            self.say(f"skipped: {count} hosts: {namespaces.why_not()}")
            return
        with namespaces.Network(count, rate=rate) as network:
            hosts = network.hosts
            own = not self.options.share_processors and network.share_out_processors()
            self.say(f"hosts are network namespaces, {rate or 'as fast as veth goes'}, "
                     + (f"with {own} of the processors each" if own else "all of them on all processors"))
            found = self.other_build(count, hosts=hosts) or [sides.gloo(count, hosts), sides.mpi(build, count, hosts)]
            self.run(wanted, sides.tutti(build, count, hosts=hosts), found)

    def save(self):
        if self.options.json:
            with open(self.options.json, "w") as file:
                file.writelines(json.dumps(row) + "\n" for row in self.rows)
        if self.options.markdown:
            with open(self.options.markdown, "w") as file:
                file.write("\n".join([", ".join(self.about), ""] + HEAD + [line(row) for row in self.rows]) + "\n")


def numbers(text):
    return [int(word) for word in text.split(",") if word not in ("", "0")]


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("build")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--ranks", default="2,4", help="on one host; 0 = none")
    parser.add_argument("--hosts", default="2", help="each with one rank; 0 = none")
    parser.add_argument("--rate", help="of each host: 1gbit, 100mbit ...")
    parser.add_argument("--share-processors", action="store_true",
                        help="hosts: do not give each of them processors of its own, as hosts have")
    parser.add_argument("--wait-idle", type=float, default=0, metavar="S",
                        help="before a pair, wait so long for a machine with nothing else to do")
    parser.add_argument("--no-shm", action="store_true")
    parser.add_argument("--device", help="cuda:0, or one for each rank in turn: cuda:0,cuda:1")
    parser.add_argument("--beside", metavar="BUILD", help="compare with another build of Tutti instead of with other systems")
    parser.add_argument("--stand-in", action="store_true", help="for tests: what looks like CUDA and NCCL")
    comparison = Comparison(parser.parse_args())
    gpus = comparison.options.device
    for ranks in numbers(comparison.options.ranks):
        (comparison.on_gpus if gpus else comparison.on_one_host)(ranks)
    for count in [] if gpus else numbers(comparison.options.hosts):
        comparison.on_hosts(count)
    comparison.save()


if __name__ == "__main__":
    main()
