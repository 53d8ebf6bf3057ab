#!/usr/bin/env python3
"""How the cost of ops grows with ranks on one host, and with hosts.

usage: scaling.py BUILD [--json FILE] [--markdown FILE] [--ranks N,N] [--hosts N,N] [--rate RATE] [--delay MS]
                  [--only REGEX] [--seconds S]

Places:

  host    ranks on one host
  hosts   network namespaces with one rank each (tests/support/namespaces.py), at most --rate to and from each
  far     the same, and what leaves a host takes --delay: by netem, and where the kernel has none by relay.py
  pairs   hosts with two ranks each

Between hosts every op is measured with every algorithm that agents know for it (tutti-agent --algorithm), and with
what they choose by themselves: "auto". A figure is the median of some bursts, each the time of one op on its slowest
rank. Nothing is begun after --seconds: rows that were not reached are named. model.py reads what --json writes.
"""
import argparse
import datetime
import json
import os
import re
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "peers"))

import peers  # noqa: E402
import peers_sides as sides  # noqa: E402
import relay  # noqa: E402
from peers_sides import namespaces  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
BURST_S = 0.06
BURSTS = 3
SIZES = {"host": (8, 64 * KIB, MIB, 16 * MIB), "hosts": (8, 8 * KIB, 256 * KIB, 4 * MIB), "far": (8, 8 * KIB, 256 * KIB),
         "pairs": (8, 8 * KIB, 256 * KIB, 4 * MIB)}
# What agents are told with --algorithm, op by op. "shared" needs no word: it is what one host takes.
ALGORITHMS = {
    "all_reduce": ("flat", "direct", "ring", "recursive_doubling", "rabenseifner", "chain", "bruck"),
    "broadcast": ("binomial", "chain"),
    "all_gather": ("direct", "ring", "recursive_doubling", "bruck"),
    "reduce_scatter": ("direct", "pairwise", "ring", "recursive_halving"),
    "all_to_all": ("direct", "pairwise", "bruck"),
    "barrier": ("dissemination",),
}
PAIRS = ({"all_reduce": "hierarchical", "broadcast": "hierarchical", "all_gather": "hierarchical"},
         {"all_reduce": "rabenseifner", "broadcast": "binomial", "all_gather": "ring"})
KEPT_MAX = 64 * MIB  # flat and bruck keep all inputs: agents take another algorithm beyond
COPYING = {"flat", "bruck"}


def knows_algorithms(build):
    said = subprocess.run([f"{build}/tutti-agent", "--help"], capture_output=True, text=True).stdout
    return "--algorithm " in said


def settings(place, forced):
    """What agents are started with, one after the other: an algorithm for each op."""
    yield {op: "auto" for op in (PAIRS[0] if place == "pairs" else ALGORITHMS)}
    if place == "host" or not forced:
        return
    if place == "pairs":
        yield from PAIRS
        return
    for index in range(max(len(names) for names in ALGORITHMS.values())):
        yield {op: names[index] for op, names in ALGORITHMS.items() if index < len(names)}


def cpu_ns(pid):
    """What a process has run so far, all its threads together."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def program_of(process, name):
    """The program itself, which may be below `ip netns exec`."""
    with open(f"/proc/{process.pid}/comm") as file:
        assert file.read().startswith(name[:15]), name
    return process.pid


class Scaling:
    def __init__(self, options):
        self.options, self.rows, self.about, self.coordinator = options, [], [peers.machine()], []
        self.until = time.monotonic() + options.seconds
        self.left_out = []
        self.forced = knows_algorithms(options.build)
        print(self.about[0], flush=True)
        if not self.forced:
            self.say("these agents know no --algorithm: only what they choose is measured")

    def say(self, words):
        self.about.append(words)
        print(words, flush=True)

    def burst(self, side, op, size):
        once = side.burst(op, size, 1)
        if once is None:
            return None
        times = max(1, min(2000, int(BURST_S * 1e6 / max(once, 1))))
        return statistics.median(side.burst(op, size, times) for _ in range(BURSTS))

    def row(self, side, place, op, algorithm, size):
        name = f"{place} {side.ranks} {op} {algorithm} {size}"
        if not re.search(self.options.only, name):
            return
        if time.monotonic() > self.until:
            self.left_out.append(name)
            return
        us = self.burst(side, op, size)
        if us is None:
            self.left_out.append(name + ": failed")
            return
        hosts = len({host.name for host in side.hosts}) if side.hosts else 1
        self.rows.append({"place": place, "ranks": side.ranks, "hosts": hosts, "op": op, "algorithm": algorithm,
                          "bytes": size, "us": round(us, 1), "rate": self.options.rate if side.hosts else None,
                          "delay_ms": self.options.delay if place == "far" else 0})
        print(f"{place:5} {side.ranks:3} ranks  {op:14} {algorithm:18} {peers.words(size):>8} {us:12.1f} us", flush=True)

    def measure(self, side, place, algorithms):
        for op, algorithm in algorithms.items():
            for size in SIZES[place] if op != "barrier" else (0,):
                if algorithm in COPYING and size * side.ranks > KEPT_MAX:
                    continue
                if op not in ("all_reduce", "broadcast", "barrier") and size < 4 * side.ranks:
                    continue  # not an element for each
                self.row(side, place, op, algorithm, size)

    def look_at_coordinator(self, side, seconds=4.0):
        """What joining has cost it, what agents cost it that do nothing, and its memory."""
        pid = program_of(side.programs[0], "tutti-coordinator")
        joined = cpu_ns(pid)
        time.sleep(seconds)
        self.coordinator.append({"ranks": side.ranks, "join_cpu_ms": round(joined * 1e-6, 2),
                                 "idle_cpu_us_per_s": round((cpu_ns(pid) - joined) * 1e-3 / seconds, 1),
                                 "resident_bytes": resident_bytes(pid)})

    def run(self, place, count, hosts=None):
        for algorithms in settings(place, self.forced):
            names = ",".join(f"{op}={name}" for op, name in algorithms.items() if name != "auto")
            if time.monotonic() > self.until:
                self.left_out.append(f"{place} {count} {names or 'auto'}")
                continue
            side = sides.tutti(self.options.build, count, ["--algorithm", names] if names else [], hosts)
            try:
                self.measure(side, place, algorithms)
                if place == "host":
                    self.look_at_coordinator(side)
            finally:
                side.close()

    def run_far(self, network):
        delay, rate = self.options.delay, self.options.rate
        if namespaces.has_netem():
            for host in network.hosts:
                host.delay(delay)  # the switch's side keeps the rate
            self.run("far", len(network.hosts), network.hosts)
            return
        carrier = relay.Delay(network.hosts, delay)
        try:
            for host in network.hosts:
                host.tc("qdisc", "replace", "dev", host.interface, "root", "tbf", "rate", rate, "burst", "256k",
                        "latency", "200ms")
            self.run("far", len(network.hosts), network.hosts)
        finally:
            carrier.close()

    def all(self):
        for ranks in peers.numbers(self.options.ranks):
            self.run("host", ranks)
        counts = peers.numbers(self.options.hosts)
        if counts and namespaces.why_not() is not None:
            self.say("skipped: hosts: " + namespaces.why_not())
            return
        if counts and self.options.delay and not namespaces.has_netem():
            self.say("this kernel has no netem: the delay is a relay's")
        for count in counts:
            with namespaces.Network(count, rate=self.options.rate) as network:
                self.run("hosts", count, network.hosts)
                if count <= 4:
                    self.run("pairs", 2 * count, [host for host in network.hosts for _ in range(2)])
        for count in counts if self.options.delay else ():
            with namespaces.Network(count, rate=self.options.rate) as network:
                self.run_far(network)

    def document(self):
        return {"date": datetime.date.today().isoformat(), "about": self.about, "cores": os.cpu_count(),
                "rate": self.options.rate, "delay_ms": self.options.delay, "rows": self.rows,
                "coordinator": self.coordinator, "left_out": self.left_out}


def table(document):
    """Markdown: a line for each op, algorithm and size, a column for each number of ranks."""
    lines = ["# How cost grows", "", "; ".join(document["about"]), "",
             "Microseconds of one op, as its slowest caller sees it; "
             f"hosts: {document['rate']} each.", ""]
    far = f"Hosts with one rank each, {document['delay_ms']:g} ms apart"
    for place, words in (("host", "Ranks on one host"), ("hosts", "Hosts with one rank each"),
                         ("pairs", "Ranks on hosts with two each"), ("far", far)):
        rows = [row for row in document["rows"] if row["place"] == place]
        counts = sorted({row["ranks"] for row in rows})
        if not rows:
            continue
        lines += [f"## {words}", "", "| op | algorithm | bytes | " + " | ".join(map(str, counts)) + " |",
                  "|---|---|---|" + "---|" * len(counts)]
        found = {}
        for row in rows:
            found.setdefault((row["op"], row["algorithm"], row["bytes"]), {})[row["ranks"]] = row["us"]
        for (op, algorithm, size), by_count in found.items():
            cells = [f"{by_count[count]:.1f}" if count in by_count else "" for count in counts]
            lines.append(f"| {op} | {algorithm} | {peers.words(size)} | " + " | ".join(cells) + " |")
        lines.append("")
    if document["left_out"]:
        lines += ["Left out when time was up, or failed: " + "; ".join(document["left_out"]) + ".", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1].split("\n\n")[0])
    parser.add_argument("build")
    parser.add_argument("--json")
    parser.add_argument("--markdown")
    parser.add_argument("--ranks", default="2,4,8,16", help="on one host; 0 = none")
    parser.add_argument("--hosts", default="2,4,8", help="each with one rank; 0 = none")
    parser.add_argument("--rate", default="1gbit", help="of each host")
    parser.add_argument("--delay", type=float, default=1, metavar="MS", help="from host to host; 0 = no such rows")
    parser.add_argument("--only", default="", help="rows: 'hosts 4 all_reduce ring 8192'")
    parser.add_argument("--seconds", type=float, default=300, help="begin nothing after so long")
    scaling = Scaling(parser.parse_args())
    scaling.all()
    document = scaling.document()
    if scaling.options.json:
        with open(scaling.options.json, "w") as file:
            json.dump(document, file, indent=1)
            file.write("\n")
    if scaling.options.markdown:
        with open(scaling.options.markdown, "w") as file:
            file.write(table(document))
    if document["left_out"]:
        print("left out: " + "; ".join(document["left_out"]))


if __name__ == "__main__":
    main()
