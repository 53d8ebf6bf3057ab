#!/usr/bin/env python3
"""All that Tutti shows on a machine with one GPU and no network, in less than ten minutes; each step has a log.

usage: run_all.py [--build DIR] [--out DIR] [--stand-in] [--only REGEX] [--minutes M] [--pack FILE] [--list]

The build is a build folder, or the kit that tests/gpu/make_kit.py has made for another machine. With --stand-in the
steps run over the stand-ins for CUDA and NCCL: a rehearsal without a GPU, whose times mean nothing. A step that fails
or takes too long does not end the run. At the end there is a table, also in OUT/table.md; the exit code is 1 if a
step has failed. After M minutes no step begins, and the one that runs is ended. FILE is a .tar.gz of OUT, written after each step.
"""

import argparse
import glob
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
SKIPPED = 77  # as CTest knows it


class Step:
    """A command; `limit` in seconds. `real` and `stand_in`: where it can run."""

    def __init__(self, name, limit, words, environment=None, real=True, stand_in=True):
        self.name = name
        self.limit = limit
        self.words = words
        self.environment = environment or {}
        self.real = real
        self.stand_in = stand_in


def script(*place):
    return [sys.executable, "-u", os.path.join(ROOT, *place)]


def steps_of(run):
    """In the order in which they matter, if the time is short."""
    build, conformance = run.build, script("tests", "conformance", "run_conformance.py")
    stand_in = ["--stand-in"] if run.stand_in else []
    peers = script("bench", "peers", "peers.py") + [build, "--device", "cuda:0", "--ranks", "2", "--pairs", "3", *stand_in]
    sanitizer = shutil.which("compute-sanitizer") or "compute-sanitizer"
    checked = [sanitizer, "--tool", "memcheck", "--error-exitcode", "1"]
    tensor_suite = os.path.join(build, "tests", "lib", "tensor", "test_tensor_cuda")
    return [
        Step("what is here", 90, script("tests", "gpu", "look.py") + [build]),
        Step("tensor suite", 60, [tensor_suite], {"CMOCKA_MESSAGE_OUTPUT": "TAP", "TUTTI_STANDIN_CUDA": "leaks"}),
        # Alone, with all that NCCL says: if it does not work, this tells why.
        Step("first light", 90, conformance + ["--tap", "--backend", "nccl", "--filter", "all_reduce.sum.i64.doc", *stand_in],
             {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": os.path.join(run.out, "nccl.%p.log")}),
        Step("conformance", 240, conformance + ["--tap", "--backend", "nccl", *stand_in]),
        Step("faults, two groups", 150, script("tests", "gpu", "test_gpu_faults.py")),
        Step("tensors through agents, ShareGpu", 150, script("tests", "system", "test_agent_cuda.py")),
        Step("events of clients and ops", 120, script("tests", "gpu", "test_gpu_events.py")),
        Step("torch", 300, script("client", "torch", "tests", "test_gpu.py"),
             {"TUTTI_TORCH_PYTHON": os.environ.get("TUTTI_TORCH_PYTHON", sys.executable), "MAX_JOBS": str(os.cpu_count())}),
        Step("gradients", 60, conformance + ["--tap", "--backend", "nccl", "--filter", "grad*", *stand_in]),
        Step("beside NCCL", 150, peers + ["--json", os.path.join(run.out, "peers.json"),
                                          "--markdown", os.path.join(run.out, "peers.md")], stand_in=False),
        Step("beside NCCL (two rows)", 60, peers + ["--only", "all_reduce 8$|all_gather 65536$"], real=False),
        Step("upload, download, first op, memory", 60, script("tests", "gpu", "measure.py") + [build, *stand_in]),
        Step("compute-sanitizer, tensor suite", 120, checked + [tensor_suite], stand_in=False),
    ]


def library_folders():
    """Where libcudart and libnccl may be, besides what the loader knows: with CUDA, and with Python's packages."""
    found = []
    for key in ("purelib", "platlib"):
        found += glob.glob(os.path.join(sysconfig.get_paths()[key], "nvidia", "*", "lib"))
    found.append("/usr/local/cuda/lib64")  # behind those that torch was built with
    return [one for one in dict.fromkeys(found) if os.path.isdir(one)]


class Run:
    def __init__(self, arguments):
        self.build = os.path.abspath(arguments.build)
        self.out = os.path.abspath(arguments.out)
        self.stand_in = arguments.stand_in
        self.rows = []
        os.makedirs(self.out, exist_ok=True)
        self.environment = dict(os.environ, TUTTI_SOURCE=ROOT, TUTTI_BUILD=self.build, TUTTI_PROGRAMS=self.build,
                                PYTHONDONTWRITEBYTECODE="1")
        if os.path.exists(os.path.join(self.build, "kit")):
            self.environment["TUTTI_STUBS"] = "made"
        if self.stand_in:
            self.environment.update(TUTTI_MODULES=os.path.join(self.build, "standin"), TUTTI_STANDIN_CUDA="memory:256")
        else:
            folders = library_folders() + os.environ.get("LD_LIBRARY_PATH", "").split(":")
            self.environment.update(TUTTI_MODULES=self.build, TUTTI_GPU="1", LD_LIBRARY_PATH=":".join(folders).strip(":"))

    def one(self, step, limit):
        """Run it for at most `limit` seconds; a row of the table."""
        name = re.sub(r"[^a-z0-9]+", "-", step.name.lower()).strip("-")
        log = os.path.join(self.out, name + ".log")
        began = time.monotonic()
        print("%-40s " % step.name, end="", flush=True)
        process, late = None, "after %d s" % limit
        with open(log, "w") as file:
            try:
                # A group of its own: what a step leaves behind ends with it.
                process = subprocess.Popen(step.words, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                           env=dict(self.environment, **step.environment), start_new_session=True)
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                code = late
            except OSError as error:
                file.write("%s\n" % error)
                code = "not started"
            finally:  # also when this program is ended
                if process is not None:
                    self.end(process)
        row = self.read(step, log, code, time.monotonic() - began)
        print("%-9s %5.1f s  %s" % (row["ended"], row["seconds"], row["said"]), flush=True)
        self.rows.append(row)

    @staticmethod
    def end(process):
        """With what it has started: agents that are left would disturb the next step."""
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def read(self, step, log, code, seconds):
        with open(log, errors="replace") as file:
            text = file.read()
        passed = len(re.findall(r"^ok (?!.*# SKIP)", text, re.M))
        skipped = len(re.findall(r"^ok .*# SKIP", text, re.M))
        failed = re.findall(r"^not ok \d+ - (.*)", text, re.M)
        if code == SKIPPED:
            ended, said = "skipped", re.sub(r"^1\.\.0 # SKIP ", "", text.strip().split("\n")[-1])
        elif code == 0 and not failed and not passed and (skipped or re.search(r"^skipped: ", text, re.M)):
            ended, said = "skipped", re.search(r"(?:# SKIP |^skipped: )(.*)", text, re.M)[1]
        elif code == 0 and not failed:
            ended = "passed"
            said = "%d passed, %d skipped" % (passed, skipped) if passed else ""
        else:
            ended = "FAILED"
            said = "; ".join(failed[:3]) if failed else "%s: %s" % (code, (text.strip().split("\n") or [""])[-1][:160])
        return {"name": step.name, "ended": ended, "seconds": seconds, "said": said, "log": os.path.basename(log)}

    def write_table(self, pack):
        with open(os.path.join(self.out, "table.md"), "w") as file:
            file.write("| step | ended | seconds | |\n|---|---|---|---|\n")
            for row in self.rows:
                file.write("| %(name)s | %(ended)s | %(seconds).1f | %(said)s |\n" % row)
        if pack:
            with tarfile.open(pack, "w:gz") as archive:
                archive.add(self.out, "gpu")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default=os.path.join(ROOT, "build", "dev"), help="a build folder, or a kit")
    parser.add_argument("--out", default=os.path.join(ROOT, "build", "gpu"), help="where logs and the table go")
    parser.add_argument("--stand-in", action="store_true", help="over the stand-ins: without a GPU")
    parser.add_argument("--only", default="", metavar="REGEX", help="steps whose names match")
    parser.add_argument("--minutes", type=float, default=0, help="no longer than so; 0: as long as it takes")
    parser.add_argument("--pack", metavar="FILE", help="OUT as one .tar.gz, written after each step")
    parser.add_argument("--list", action="store_true", help="print the steps and run nothing")
    arguments = parser.parse_args()
    run = Run(arguments)
    steps = [step for step in steps_of(run) if re.search(arguments.only, step.name)]
    steps = [step for step in steps if (step.stand_in if run.stand_in else step.real)]
    if arguments.list:
        for step in steps:
            print("%-40s at most %3d s" % (step.name, step.limit))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    until = began + arguments.minutes * 60 if arguments.minutes else float("inf")
    for step in steps:
        left = until - time.monotonic()
        if left < 5:
            print("%-40s not run: the time is up" % step.name, flush=True)
            continue
        run.one(step, min(step.limit, left))
        run.write_table(arguments.pack)
    failed = sum(row["ended"] == "FAILED" for row in run.rows)
    print("%d steps, %d failed, in %.0f s; logs in %s" % (len(run.rows), failed, time.monotonic() - began, run.out))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
