"""The backend "tutti" of torch.distributed.

    import torch.distributed as dist

    dist.init_process_group("tutti")        # under torchrun, tutti run, or with any init_method

Where $TUTTI_AGENT names this rank's agent, as `tutti run` sets it, that agent is used. Else each rank launches an agent, and
rank 0 a coordinator, which end with the program. torch 2.5 and newer load this module by themselves.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit


def autoload():
    """Called by `import torch`: torch.distributed knows "tutti" without an import of this module."""
    if "_register" in globals():  # else this module has imported torch, and registers when torch is there
        _register()


import torch  # noqa: E402 -- it calls autoload()
import torch.distributed as dist  # noqa: E402

from .elastic import shrink
from .state import broadcast_state_dict

__all__ = ["agent_memory", "autoload", "broadcast_state_dict", "copied_bytes", "dump_trace", "empty", "shrink", "why_no_gpu",
           "why_not_shared"]


def _same_minor(one: str, other: str) -> bool:
    return one.split("+")[0].split(".")[:2] == other.split("+")[0].split(".")[:2]


def _load():
    try:
        from . import _C
    except ImportError as error:
        raise ImportError("tutti_torch was built for another torch, or does not find libtutti: build it again with "
                          "`pip install --no-build-isolation ./client/torch`: %s" % error) from error
    if not _same_minor(_C.built_for, torch.__version__):
        raise ImportError("tutti_torch was built for torch %s, this is torch %s: build it again with "
                          "`pip install --no-build-isolation ./client/torch`" % (_C.built_for, torch.__version__))
    return _C


@functools.lru_cache(None)
def _module():
    """The native module. Not loaded before it is used: torch loads this package in each program, and must not fail there."""
    native = _load()
    atexit.register(native.close)
    return native


def copied_bytes() -> int:
    """Bytes that were copied to memory of the agent's and back."""
    return _module().copied_bytes()


def why_not_shared() -> str:
    """Why the agent lends no memory; empty = it does."""
    return _module().why_not_shared()


def why_no_gpu() -> str:
    """Why memory of the agent's GPU cannot be opened here, so that tensors of CUDA go through the host; empty = it can, or the
    agent has no GPU."""
    return _module().why_no_gpu()


def dump_trace(path: str | None = None) -> bytes:
    """The ops of this process's groups of the backend, those that run and those before them, as torch's flight recorder has
    them: bytes that pickle.loads() takes. path: a file that is written, too; torchfrtrace wants PREFIX and the rank."""
    record = _module().flight_record()
    if path is not None:
        with open(path, "wb") as file:
            file.write(record)
    return record


def empty(*size, dtype: torch.dtype | None = None) -> torch.Tensor:
    """As torch.empty, in memory that this rank's agent lends: ops of the backend copy nothing of it. Ordinary memory where
    the agent lends none (why_not_shared() says why). There must be a process group of the backend."""
    shape = torch.Size(size[0] if len(size) == 1 and not isinstance(size[0], int) else size)
    return _module().empty(shape.numel(), dtype or torch.get_default_dtype()).view(shape)


@contextlib.contextmanager
def agent_memory(at_least: int = 1 << 20):
    """In the block, new tensors of the CPU of `at_least` bytes and more are in memory that this rank's agent lends: parameters,
    activations, gradients. Of this thread alone; backward() of tensors of the CPU computes in the thread that calls it. Such
    memory counts towards the agent's --memory-limit, and beyond it tensors are in ordinary memory. A child of fork shares it
    with its parent: what one writes, the other sees. There must be a process group of the backend."""
    if at_least < 1:
        raise ValueError("agent_memory(at_least=%d): give 1 byte or more" % at_least)
    before = _module().lend_from(at_least)
    try:
        yield
    finally:
        _module().lend_from(before)


def _create(opts, options=None):
    os.environ.setdefault("DDP_DISABLE_COMM_MEM", "0")  # gradient buckets of DDP in memory that the agent lends; 1: in ordinary
    return _module().create(opts.store, opts.group_rank, opts.group_size, opts.timeout.total_seconds(),
                            list(opts.global_ranks_in_group or []), opts.group_id or "", torch.__version__)


def _rendezvous(url, timeout=timedelta(minutes=5), **_):
    """tutti://HOST:PORT?rank=R&world_size=N; what is missing is taken from RANK and WORLD_SIZE."""
    parts = urlsplit(url)
    query = parse_qs(parts.query)
    rank = int(query["rank"][0] if "rank" in query else os.environ["RANK"])
    size = int(query["world_size"][0] if "world_size" in query else os.environ["WORLD_SIZE"])
    coordinator = parts.netloc or os.environ.get("TUTTI_COORDINATOR", "")
    if not coordinator:
        raise ValueError("%s names no coordinator, and TUTTI_COORDINATOR is not set: tutti://HOST:PORT" % url)
    job = os.environ.get("TUTTI_JOB", "default")
    run = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    yield _module().store(coordinator, "torch/%s/%s/" % (job, run), timeout.total_seconds(), rank, size), rank, size


def _register():
    if "tutti" not in dist.Backend.backend_list:
        dist.Backend.register_backend("tutti", _create, extended_api=True, devices=["cpu", "cuda"])
        dist.register_rendezvous_handler("tutti", _rendezvous)


_register()
