"""What has been played and what was found: lines on standard output, a table, and the same as Markdown."""

import collections
import os
import platform
import threading
import traceback

from deck import FAULTS, PHASES
from fault_cluster import Broken
from fault_ops import OPS, SESSION

PLAYED = OPS + [SESSION]


def kind_of(error):
    """hang, wrong result, leak, or another invariant that does not hold."""
    text = str(error)
    for kind, words in (("hangs", ("hung",)), ("wrong results", ("wrong result", "changed")), ("leaks", ("leak", "keeps"))):
        if any(word in text for word in words):
            return kind
    return "others"


class Report:
    """Any thread may tell it."""

    def __init__(self, verbose):
        self.verbose = verbose
        self.lock = threading.Lock()
        self.done = collections.Counter()  # by fault, phase, op
        self.found = collections.Counter({"hangs": 0, "wrong results": 0, "leaks": 0, "others": 0})
        self.broken = []
        self.lanes = []
        self.most = [0, 0, 0]

    @property
    def count(self):
        return sum(self.done.values())

    def broke(self, schedule, error, logs):
        with self.lock:
            self.broken.append(schedule.number)
            self.found[kind_of(error)] += 1
            print("# schedule %d (%s, victim %d): %s" % (schedule.number, schedule.name, schedule.victim, error))
            if not isinstance(error, Broken):
                for line in traceback.format_exception(type(error), error, error.__traceback__):
                    print("#   " + line.rstrip().replace("\n", "\n#   "))
            for rank, log in logs:
                print("# log of rank %d: %s" % (rank, log.replace("\n", "\n#   ")), flush=True)

    def played(self, schedule, seconds):
        with self.lock:
            self.done[schedule.fault, schedule.phase, schedule.op.name] += 1
            if self.verbose:
                print("# %d %s: %.2f s" % (schedule.number, schedule.name, seconds), flush=True)

    def gained(self, uses):
        with self.lock:
            self.most = list(map(max, self.most, uses))

    def lost_lane(self, text):
        with self.lock:
            self.lanes.append(text)
            print("# " + text, flush=True)

    # ------------------------------------------------------------------ the table

    def sum(self, fault=None, phase=None, op=None):
        return sum(count for (one, two, three), count in self.done.items()
                   if fault in (None, one) and phase in (None, two) and op in (None, three))

    def grid(self, columns, count):
        """Rows of words: each fault, how often, and so often for each column."""
        yield ["fault"] + list(columns) + ["all"]
        for fault in FAULTS:
            yield [fault] + [str(count(fault, one) or ".") for one in columns] + [str(self.sum(fault))]
        yield ["all"] + [str(count(None, one) or ".") for one in columns] + [str(self.count)]

    def grids(self):
        yield self.grid(PHASES, lambda fault, one: self.sum(fault, one))
        yield self.grid([op.name for op in PLAYED], lambda fault, one: self.sum(fault, op=one))

    def verdict(self):
        text = ", ".join("%d %s" % (self.found[kind], kind) for kind in ("hangs", "wrong results", "leaks"))
        return text + (", %d others" % self.found["others"] if self.found["others"] else "")

    def print_tables(self):
        for grid in self.grids():
            print("#")
            for row in grid:
                print("# %-19s" % row[0] + "".join("%*s" % (max(len(word), 6) + 2, word) for word in row[1:]))
        print("#\n# %d schedules: %s" % (self.count, self.verdict()))
        print("# most that one process gained: %d descriptors, %d threads, %d mappings" % tuple(self.most))

    def write_markdown(self, path, seed, seconds, skipped):
        with open(path, "w") as file:
            file.write("`./run faults --schedules %d --seed %d`: %d schedules in %d s; %d CPUs, Linux %s. **%s**"
                       % (self.count, seed, self.count, seconds, os.cpu_count(), platform.release(), self.verdict()))
            file.write("; at most %d descriptors, %d threads, %d mappings more than after a process' first "
                       "schedules.%s\n" % (tuple(self.most) + (" " + skipped if skipped else "",)))
            for grid in self.grids():
                rows = list(grid)
                file.write("\n| " + " | ".join(rows[0]) + " |\n" + "|---" * len(rows[0]) + "|\n")
                for row in rows[1:]:
                    file.write("| " + " | ".join(row) + " |\n")
            file.write("\nHow often each fault, phase and op came together:\n\n| fault and phase | "
                       + " | ".join(op.name for op in PLAYED) + " |\n" + "|---" * (len(PLAYED) + 1) + "|\n")
            for fault, one in FAULTS.items():
                for phase in one.phases:
                    file.write("| %s %s | " % (fault, phase) + " | ".join(
                        str(self.done[fault, phase, op.name] or ".") for op in PLAYED) + " |\n")
