"""What test_host.py has hosts run."""

import os

import numpy as np

import tutti

BEGAN = None  # an Event of the test


@tutti.function("tests.py.scale", signature="tensor, float -> tensor")
def scale(x, factor):
    return x * np.asarray(factor, x.dtype)


@tutti.function("tests.py.add_in_place")
def add_in_place(x, number):
    """tensor, int -> the same tensor"""
    x += number
    return x


@tutti.function("tests.py.place")
def place(env):
    return tutti.Shape([env.worker, env.worker_count, env.group_size, env.rank, env.world_size])


@tutti.function("tests.py.echo")
def echo(value):
    return value


@tutti.function("tests.py.sum_of_all")
def sum_of_all(env, x):
    out = env.empty(x.shape, x.dtype)
    env.all_reduce(x * 2, out=out)
    env.barrier()
    return out


@tutti.function("tests.py.gathered")
def gathered(env, x):
    return env.all_gather(x)


@tutti.function("tests.py.broken")
def broken(x):
    return {}[x]


@tutti.function("tests.py.nonsense")
def nonsense():
    return ["a", "list"]


@tutti.function("tests.py.leave")
def leave():
    raise SystemExit(3)


@tutti.function("tests.py.crash")
def crash():
    os.abort()


@tutti.function("tests.py.until_cancelled")
def until_cancelled(env):
    BEGAN.set()
    while not env.cancelled:
        pass
    return 1


@tutti.function("tests.py.torch_sum", arrays="torch")
def torch_sum(x):
    return float(x.sum())
