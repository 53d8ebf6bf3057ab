#!/usr/bin/env python3
"""What one coordinator needs for 100 to 30 000 agents: ./run bench scale [--agents N,N...] [--rounds N].

bench_scale simulates the agents (a connection, Join, a session and its heartbeats each) in one process,
against a real coordinator. Both share the machine, so times are upper bounds. Where `ulimit -Hn` allows the
coordinator fewer files than there are agents, two agents share a connection, which real ones do not.
If the simulator itself did not run for longer than the heartbeat timeout, its agents were silent and count as "lost alive":
"no heartbeat sent for" says how long that was.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import plot

SIZES = (100, 300, 1000, 3000, 10000, 30000)
SPARE_FILES = 100
SHARE_MAX = 2
GOALS = (  # of 10 000 agents on two cores: key, words, limit, unit
    ("joined_s", "all come at one instant, all have joined", 10, "s"),
    ("beat_core", "heartbeats, of a core", 0.30, ""),
    ("event_s", "one dies (0.5 s of grace), all are told", 2, "s"),
    ("deaths_s", "1000 die at once, all are told", 5, "s"),
    ("false_losses", "ranks lost that were alive", 0, ""),
    ("group_s", "all make a group of all", 1, "s"),
    ("group_mb", "messages of that, both ways", 20, "MB"),
    ("rss_kib", "memory of the coordinator for an agent", 48, "KiB"),
)
COLUMNS = (
    ("agents", "agents", "%.0f"),
    ("joined_s", "all joined, s", "%.2f"),
    ("join_cpu_s", "CPU of it, s", "%.2f"),
    ("rss_kib", "KiB an agent", "%.1f"),
    ("interval_s", "heartbeat every, s", "%.1f"),
    ("beat_core", "heartbeats, of a core", "%.3f"),
    ("event_s", "one death told, s", "%.2f"),
    ("deaths", "deaths at once", "%.0f"),
    ("deaths_s", "all told, s", "%.2f"),
    ("deaths_cpu_s", "CPU of it, s", "%.2f"),
    ("deaths_mb", "MB of it", "%.0f"),
    ("return_s", "all back and told, s", "%.2f"),
    ("group_s", "group of all by all, s", "%.2f"),
    ("group_mb", "MB of it", "%.1f"),
    ("false_losses", "lost alive", "%.0f"),
    ("late_s", "no heartbeat sent for, s", "%.1f"),
    ("share", "agents of a connection", "%.0f"),
)


class Coordinator:
    """A process of its own for each measurement, so that memory is that of its agents."""

    def __init__(self, programs, options):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-scale-")
        port = os.path.join(self.folder.name, "port")
        self.process = subprocess.Popen(
            [os.path.join(programs, "tutti-coordinator"), "--listen", "127.0.0.1:0", "--port-file", port, *options],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until = time.monotonic() + 30
        while not (os.path.exists(port) and os.path.getsize(port)):
            if self.process.poll() is not None or time.monotonic() > until:
                sys.exit("scale.py: the coordinator did not start")
            time.sleep(0.02)
        with open(port, encoding="ascii") as file:
            self.address = file.readline().strip()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()


def measure(programs, agents, deaths, idle_s, options, share=1):
    coordinator = Coordinator(programs, options)
    try:
        done = subprocess.run(
            [os.path.join(programs, "bench", "bench_scale"), coordinator.address, str(coordinator.process.pid),
             str(agents), str(deaths), str(idle_s), str(share)], stdout=subprocess.PIPE, text=True, check=False)
    finally:
        coordinator.end()
    found = json.loads(done.stdout)
    found["load"] = os.getloadavg()[0]
    return found


def middle(runs):
    """The median of each figure; of ranks that were lost alive the sum, for one is too many."""
    row = {key: statistics.median(run[key] for run in runs) for key, value in runs[0].items() if not isinstance(value, str)}
    row["false_losses"] = sum(run["false_losses"] for run in runs)
    row["load"] = max(run["load"] for run in runs)
    return row


def measure_all(arguments, sizes, files):
    rows = []
    for agents in sizes:
        runs = []
        for _ in range(arguments.rounds):
            deaths = min(arguments.deaths, agents // 10)
            run = measure(arguments.programs, agents, deaths, arguments.idle, arguments.option,
                          -(-agents // files))
            if "failed" in run:
                sys.exit("scale.py: %d agents: %s" % (agents, run))
            print("%6d agents: %s" % (agents, "  ".join(
                "%s %s" % (key, form % run[key]) for key, _, form in COLUMNS[1:])), file=sys.stderr, flush=True)
            runs.append(run)
        rows.append(middle(runs))
    return rows


def table(rows):
    lines = ["| " + " | ".join(words for _, words, _ in COLUMNS) + " | load |",
             "|" + "---|" * (len(COLUMNS) + 1)]
    for row in rows:
        lines.append("| " + " | ".join(form % row[key] for key, _, form in COLUMNS) + " | %.1f |" % row["load"])
    return "\n".join(lines) + "\n"


def goals(rows):
    """Beside the goals of 10 000, where these were measured. Returns the text, and whether all are met."""
    row = next((row for row in rows if row["agents"] == 10000), None)
    if row is None:
        return "", True
    lines = ["| 10 000 agents | goal | measured | |", "|---|---|---|---|"]
    met = True
    for key, words, limit, unit in GOALS:
        fine = row[key] < limit or row[key] == limit == 0
        met &= fine
        goal = "< %g %s" % (limit, unit) if limit > 0 else "0"
        lines.append("| %s | %s | %.3g %s | %s |" % (words, goal, row[key], unit, "met" if fine else "missed"))
    return "\n".join(lines) + "\n", met


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", help="folder of tutti-coordinator and bench/bench_scale")
    parser.add_argument("--agents", default=",".join(map(str, SIZES)), help="numbers of agents, with commas")
    parser.add_argument("--deaths", type=int, default=1000, help="that many at once, at most a tenth of all")
    parser.add_argument("--rounds", type=int, default=1, help="measure each number so often, and take medians")
    parser.add_argument("--idle", type=int, default=10, help="seconds of heartbeats")
    parser.add_argument("--option", action="append", default=[], help="an option of the coordinator: --option=--heartbeat-timeout=20s")
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--markdown", help="write the tables here")
    parser.add_argument("--svg", help="write the plot here")
    arguments = parser.parse_args()

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    wanted = [int(word) for word in arguments.agents.split(",")]
    most = (hard - SPARE_FILES) * SHARE_MAX
    sizes = sorted({min(agents, most) for agents in wanted})
    if max(wanted) > hard - SPARE_FILES:
        print("scale.py: %d files are allowed (ulimit -Hn): two agents share a connection above %d agents, and %d are the most"
              % (hard, hard - SPARE_FILES, most), file=sys.stderr)
    rows = measure_all(arguments, sizes, hard - SPARE_FILES)
    beside, met = goals(rows)
    text = table(rows) + ("\n" + beside if beside else "")
    print(text)
    for path, content in ((arguments.json, json.dumps(rows, indent=1) + "\n"), (arguments.markdown, text), (arguments.svg, plot.draw(rows))):
        if path:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
