"""Functions on tensors of a GPU, for `--python gpu_of_tests`."""

import numpy as np

import tutti


@tutti.function("gpu.describe", signature="tensor -> text")
def describe(x):
    words = x.__cuda_array_interface__
    return "%s %s %s %s %d" % (type(x).__name__, x.shape, x.dtype, words["typestr"], words["version"])


@tutti.function("gpu.scale", signature="tensor, float -> tensor")
def scale(x, factor):
    x.set(x.numpy() * factor)
    return x


@tutti.function("gpu.make", signature="int -> tensor")
def make(env, count):
    made = env.empty((count,), "FP64", device="cuda:0")
    made.set(np.arange(count) + env.rank)
    return made


@tutti.function("gpu.sum", signature="tensor -> tensor")
def total(env, x):
    return env.all_reduce(x, out=x)


@tutti.function("gpu.foreign", signature="tensor -> nothing")
def foreign(env, x):
    class Part:
        __cuda_array_interface__ = dict(x.__cuda_array_interface__, shape=(1,))

    env.all_reduce(Part(), out=x)


@tutti.function("gpu.nowhere", signature="-> nothing")
def nowhere(env):
    env.empty((2,), device="cuda:7")
