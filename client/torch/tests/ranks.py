"""Runs a function in several ranks of a process group, each a fork: to import torch takes seconds on a busy machine.

    said = ranks.run(2, function, "tutti")      # function(rank, size) in each; what each returned, by rank

The calling process must have no process group of its own. A rank that raises fails the whole, with its traces; a rank may
also return what it was told by pickle. Ranks that do not end in time are killed.
"""

import atexit
import datetime
import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401 -- knows "tutti"

LIMIT_S = 120


class Ended(Exception):
    """Some rank did not return: exit codes by rank, -9 = killed; None in `said` where nothing was returned."""

    def __init__(self, codes, said, text):
        super().__init__("exit codes %s\n%s" % (codes, text))
        self.codes, self.said = codes, said


def _open(rank, size, backend, path, timeout_s):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(backend, init_method="file://" + path, rank=rank, world_size=size,
                            timeout=datetime.timedelta(seconds=timeout_s))


def _child(rank, size, function, backend, folder, timeout_s, init):
    code = 1
    try:
        os.setsid()
        atexit._clear()
        log = os.open(os.path.join(folder, "log%d" % rank), os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if init:
            _open(rank, size, backend, os.path.join(folder, "store"), timeout_s)
        result = function(rank, size)
        with open(os.path.join(folder, "result%d.tmp" % rank), "wb") as file:
            pickle.dump(result, file)
        os.rename(file.name, os.path.join(folder, "result%d" % rank))
        if init and dist.is_initialized():
            dist.barrier()
            dist.destroy_process_group()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        try:
            _close()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _close():
    """What the interpreter does when it ends: agents end with it. What the caller had registered is not ours."""
    atexit._run_exitfuncs()


def _wait(children, ends):
    codes = []
    for child in children:
        descriptor = os.pidfd_open(child)
        select.select([descriptor], [], [], max(0.0, ends - time.monotonic()))
        os.close(descriptor)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return codes


def _read(path, mode):
    if not os.path.exists(path):
        return None
    with open(path, mode) as file:
        return pickle.load(file) if mode == "rb" else file.read()


def _run(size, function, backend, limit_s, timeout_s, init, folder):
    children = []
    for rank in range(size):
        child = os.fork()
        if child == 0:
            _child(rank, size, function, backend, folder, timeout_s, init)
        children.append(child)
    codes = _wait(children, time.monotonic() + limit_s)
    said = [_read(os.path.join(folder, "result%d" % rank), "rb") for rank in range(size)]
    return codes, said, [_read(os.path.join(folder, "log%d" % rank), "r") or "" for rank in range(size)]


def run(size, function, backend="tutti", limit_s=LIMIT_S, timeout_s=60, may_end=False, init=True):
    """may_end: give (codes, results, logs) whatever became of them. init: ranks begin with a process group."""
    folder = tempfile.mkdtemp(prefix="tutti-torch-")
    try:
        codes, said, logs = _run(size, function, backend, limit_s, timeout_s, init, folder)
    finally:
        shutil.rmtree(folder)
    if may_end:
        return codes, said, logs
    if any(codes):
        raise Ended(codes, said, "\n".join(logs))
    return said
