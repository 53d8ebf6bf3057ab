"""Runs functions of torch's own distributed_test.py, which is in the package of PyPI, on the backend "tutti".

    python suite.py --list          # names, one a line; behind a name the reason why torch skips it for us
    python suite.py NAME            # runs one; exit code 0, or 75 = the function skips itself
    python suite.py --serve FOLDER LIMIT_S
                                    # runs those that stdin names, each in a fork, says "NAME EXIT_CODE SECONDS" (-1: it was
                                    # killed at its limit) and leaves what they said in FOLDER/NAME
    SUITE_AS=gloo                   # the name of another backend, and ours: for functions that ask for that name

What torch's test/distributed/test_distributed_spawn.py does, which is in its source tree only. Its ranks are spawned; ours
are forked before they have a process group, because to import torch takes longer than most of the functions.
"""

import os
import select
import signal
import sys
import tempfile
import time
import unittest

SKIPPED = 75


def prepare_environment():
    """torch reads it while it is imported. Spawned ranks find what their parent has set."""
    os.environ.setdefault("BACKEND", os.environ.get("SUITE_AS", "tutti"))
    os.environ.setdefault("WORLD_SIZE", "2")
    if "TEMP_DIR" not in os.environ:
        os.environ["TEMP_DIR"] = tempfile.mkdtemp(prefix="tutti-torch-")
        for name in ("barrier", "init_dir", "test_dir"):
            os.mkdir(os.path.join(os.environ["TEMP_DIR"], name))
    os.environ.setdefault("INIT_METHOD", "file://" + os.path.join(os.environ["TEMP_DIR"], "shared_init_file"))


prepare_environment()

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.testing._internal import common_distributed  # noqa: E402

import tutti_torch  # noqa: E402, F401

torch.set_num_threads(1)
for feature in ("ddp", "subgroup", "plugin"):
    common_distributed.DistTestCases.backend_feature[feature].add("tutti")
if os.environ.get("SUITE_AS") == "gloo":
    dist.Backend._plugins["GLOO"] = dist.Backend._plugins["TUTTI"]

from torch.testing._internal.distributed import distributed_test  # noqa: E402

if os.environ.get("SUITE_AS") == "mpi":  # for the decorators; torch gives no store to a backend of that name
    distributed_test.BACKEND = os.environ["BACKEND"] = "tutti"

# They look for "tutti:all_reduce" and the like in profiles; with another's name not for "gloo:all_reduce".
for backends in (distributed_test.PROFILING_SUPPORTED_BACKENDS, distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
    backends[:] = ["tutti"]


class Suite(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
    def setUp(self):
        super().setUp()
        self._start_processes(torch.multiprocessing.get_context("fork").Process)


def names():
    return unittest.defaultTestLoader.getTestCaseNames(Suite)


def why_skipped(name):
    """What a decorator of the function says; "" = it runs. Those for GPUs skip only when they run."""
    function = getattr(Suite, name)
    while function is not None:
        if getattr(function, "__unittest_skip__", False):
            return function.__unittest_skip_why__
        maker = function.__code__.co_qualname.split(".")[0]
        if maker in ("skip_if_no_gpu", "skip_if_lt_x_gpu", "nccl_skip_if_lt_x_gpu", "skip_if_rocm_multiprocess"):
            return "needs GPUs: " + maker
        function = getattr(function, "__wrapped__", None)
    return ""


def run(name):
    """Its exit code."""
    result = unittest.TextTestRunner(verbosity=2).run(unittest.defaultTestLoader.loadTestsFromName(name, Suite))
    if result.wasSuccessful() and result.skipped:
        print("SKIPPED", result.skipped[0][1])
        return SKIPPED
    return 0 if result.wasSuccessful() else 1


def run_in_child(name, path):
    """Never returns. A folder for files, a session and an output of its own."""
    code = 1
    try:
        os.setsid()
        out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for descriptor in (1, 2):
            os.dup2(out, descriptor)
        os.environ.pop("TEMP_DIR")
        os.environ.pop("INIT_METHOD")
        prepare_environment()
        distributed_test.INIT_METHOD = os.environ["INIT_METHOD"]
        code = run(name)
        sys.stdout.flush()
    finally:
        os._exit(code)


def wait_for(child, limit_s):
    """Its exit code; -1: it took longer. What it has left is killed."""
    descriptor = os.pidfd_open(child)
    ready, _, _ = select.select([descriptor], [], [], limit_s)
    os.close(descriptor)
    try:
        os.killpg(child, signal.SIGKILL)
    except ProcessLookupError:
        pass
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status) if ready else -1


def serve(folder, limit_s):
    for line in sys.stdin:
        name = line.strip()
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            run_in_child(name, os.path.join(folder, name))
        code = wait_for(child, limit_s)
        print(name, code, "%.1f" % (time.monotonic() - began), flush=True)
    return 0


def main():
    if sys.argv[1:] == ["--list"]:
        for name in names():
            print(name, why_skipped(name))
        return 0
    if sys.argv[1] == "--serve":
        return serve(sys.argv[2], float(sys.argv[3]))
    return run(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
