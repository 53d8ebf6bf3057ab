"""Goal: torch's own tests of a backend, distributed_test.py of the torch that PyPI has, pass on "tutti".

Method: suite.py runs one function after the other in two ranks, each with a time limit; a few of it run side by side. There
are three lists: what a backend of its own name gets; what runs for the name "gloo" only; and all_to_all on the CPU, which
runs for "mpi" only. For the last two our backend has that name. What skips itself because two ranks are too few runs once
more on eight. EXPECTED has what does not pass, and why; a function in it that passes is a failure, too.
TUTTI_TEST_ONLY is a pattern of names, TUTTI_TEST_TABLE a file for the results.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import threading

import place

LIMIT_S = int(os.environ.get("TUTTI_TEST_LIMIT_S", "240"))
AT_ONCE = int(os.environ.get("TUTTI_TEST_AT_ONCE", "3"))
SKIPPED = 75  # of suite.py
SUITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "suite.py")
TOO_FEW = re.compile(r"at least \d+ ranks|world[ _]size", re.IGNORECASE)

EXPECTED = {
    ("test_ddp_logging_data_cpu", "tutti"): "torch calls the backend of a process group \"custom\" in DDP's logs, the test "
                                            "expects the name",
    ("test_sparse_all_reduce_sum", "gloo"): "sparse tensors are refused, as NCCL does",
}


def listed(name, size):
    """Functions that no decorator skips for a backend of this name."""
    known = place.environment(WORLD_SIZE=str(size), **({"SUITE_AS": name} if name != "tutti" else {}))
    done = subprocess.run([place.PYTHON, SUITE, "--list"], env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=LIMIT_S)
    assert done.returncode == 0, done.stderr.decode()
    found = [line.split(" ", 1) for line in done.stdout.decode().splitlines() if line.startswith("test_")]
    return [function for function, why in found if not why]


class Server:
    """A suite.py that waits for names of functions."""

    def __init__(self, name, size, folder):
        known = place.environment(WORLD_SIZE=str(size), **({"SUITE_AS": name} if name != "tutti" else {}))
        self.folder = folder
        self.process = subprocess.Popen([place.PYTHON, SUITE, "--serve", folder, str(LIMIT_S)], env=known,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def run(self, function):
        """(what came out, seconds, what was said)."""
        self.process.stdin.write(function + "\n")
        self.process.stdin.flush()
        words = self._answer(function)
        code = int(words[1])
        with open(os.path.join(self.folder, function), errors="replace") as file:
            text = file.read()
        results = {0: "passed", SKIPPED: "skipped", -1: "no end in %d s" % LIMIT_S}
        return results.get(code, "failed"), float(words[2]), text

    def _answer(self, function):
        """Older torch says a line of its own while it is imported, if hypothesis is not there."""
        for line in self.process.stdout:
            words = line.split()
            if words[:1] == [function]:
                return words
        raise AssertionError("suite.py ended before it had run %s" % function)

    def close(self):
        self.process.stdin.close()
        self.process.wait(LIMIT_S)


def reason_of(text):
    found = re.findall(r"^SKIPPED (.*)$", text, re.MULTILINE)
    return found[-1] if found else ""


class Report:
    """TAP lines, and a table for docs/measured."""

    def __init__(self):
        self.count = self.failed = 0
        self.lock = threading.Lock()
        self.newest = newest_names()
        self.rows = []

    def add(self, *row):
        with self.lock:
            self._add(*row)

    def _add(self, function, name, size, result, seconds, text):
        label = "%s, as %s, %d ranks" % (function, name, size)
        expected = EXPECTED.get((function, name)) if self.newest else None
        good = result == "passed" if expected is None else result != "passed"
        why = reason_of(text)
        self.count += 1
        self.failed += not (good or result == "skipped")
        if result == "skipped":
            line = "ok %d - %s # SKIP torch's own suite: %s" % (self.count, label, why)
        elif good:
            line = "ok %d - %s%s" % (self.count, label, " (does not pass: %s)" % expected if expected else "")
        else:
            line = "not ok %d - %s: %s%s" % (self.count, label, result, ", and should not have" if expected else "")
        print(line, flush=True)
        if not good and result != "skipped":
            for said in text.splitlines()[-60:]:
                print("#   " + said, flush=True)
        self.rows.append((function, name, size, result, seconds, expected or why))

    def write(self, path):
        with open(path, "w") as file:
            file.write("| function | as | ranks | result | s | why |\n|---|---|---|---|---|---|\n")
            for row in sorted(self.rows, key=lambda row: (row[1] != "tutti", row[1], row[0], row[2])):
                file.write("| %s | %s | %d | %s | %.0f | %s |\n" % row)


def run_share(name, size, jobs, report, again):
    """Takes jobs of one name and size until there is none. again: gets what needs more ranks."""
    with tempfile.TemporaryDirectory() as folder:
        server = Server(name, size, folder)
        try:
            while True:
                try:
                    function, _, _ = jobs.pop(0)
                except IndexError:
                    return
                result, seconds, text = server.run(function)
                if result == "skipped" and size == 2 and TOO_FEW.search(reason_of(text)):
                    again.append((function, name, 8))
                else:
                    report.add(function, name, size, result, seconds, text)
        finally:
            server.close()


def run_all(jobs, report):
    """What is to be run on more ranks."""
    again = []
    for kind in sorted({job[1:] for job in jobs}, reverse=True):
        share = [job for job in jobs if job[1:] == kind]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            futures = [pool.submit(run_share, *kind, share, report, again) for _ in range(min(AT_ONCE, len(share)))]
            for future in futures:
                future.result()
    return again


def newest_names():
    """Does torch look for a plugin before it takes a backend of its own, and does it name plugins in DDP's logs "custom"?"""
    return [int(part) for part in place.version().split(".")[:2]] >= [2, 5]


def find_jobs():
    wanted = re.compile(os.environ.get("TUTTI_TEST_ONLY", ""))
    own = listed("tutti", 2)
    gloo = listed("gloo", 2) if newest_names() else []  # older torch takes its own Gloo for that name
    mpi = listed("mpi", 2)
    jobs = [(function, "tutti", 2) for function in own]
    jobs += [(function, "gloo", 2) for function in gloo if function not in own]
    jobs += [(function, "mpi", 2) for function in mpi if function not in own + gloo]
    seen = {function for function, _, _ in jobs}
    jobs += [(function, "tutti", 4) for function in listed("tutti", 4) if function not in seen]
    return [job for job in jobs if wanted.search(job[0])]


def main():
    place.prepare()
    jobs = find_jobs()
    report = Report()
    print("# %d functions, %d at once" % (len(jobs), AT_ONCE), flush=True)
    more = run_all(jobs, report)
    run_all(more, report)
    print("1..%d" % report.count)
    if os.environ.get("TUTTI_TEST_TABLE"):
        report.write(os.environ["TUTTI_TEST_TABLE"])
    return 0 if report.failed == 0 and report.count > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
