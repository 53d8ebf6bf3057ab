"""Functions that test_session.py has hosts run: a worker's part of models that are cut over the workers."""

import os

import numpy as np

import tutti


@tutti.function("disco.mlp", signature="x, w1, w2 -> y")
def mlp(env, x, w1, w2):
    """w1 is cut by columns, w2 by rows."""
    hidden = np.maximum(x @ w1, 0)
    return env.all_reduce(hidden @ w2)


def softmax(x):
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


@tutti.function("disco.attention", signature="x, wq, wk, wv, wo, heads -> y")
def attention(env, x, wq, wk, wv, wo, heads):
    """Each worker has `heads` of the heads: columns of wq, wk and wv, rows of wo."""
    length, _ = x.shape
    q, k, v = [(x @ w).reshape(length, heads, -1).transpose(1, 0, 2) for w in (wq, wk, wv)]
    scores = softmax(q @ k.transpose(0, 2, 1) / np.sqrt(np.float32(q.shape[-1])))
    mixed = (scores @ v).transpose(1, 0, 2).reshape(length, -1)
    return env.all_reduce(np.ascontiguousarray(mixed) @ wo)


@tutti.function("disco.parameter", signature="int -> tensor")
def parameter(env, index):
    """What a loader of parameters gives: this worker's part of the one with this number."""
    return np.full((2, 2), 10 * index + env.worker, np.float32)


@tutti.function("disco.transform", signature="function, int -> tensor")
def transform(env, get_item, count):
    """Asks another function for parameters, one after the other, by its name."""
    function = tutti.functions.known()[get_item].call
    return np.concatenate([function(env, index) for index in range(count)])


@tutti.function("disco.fail_on", signature="int -> int")
def fail_on(env, worker):
    if env.worker == worker:
        raise ValueError("worker %d does not like it" % worker)
    return env.worker


@tutti.function("disco.ring", signature="tensor -> tensor")
def ring(env, x):
    """Gives the tensor to the next worker, and takes that of the one before."""
    right = (env.worker + 1) % env.worker_count
    left = (env.worker - 1) % env.worker_count
    out = env.empty(x.shape, x.dtype)
    if env.worker % 2:
        env.recv(out, left)
        env.send(x, right)
    else:
        env.send(x, right)
        env.recv(out, left)
    return out


@tutti.function("disco.crash_on", signature="int -> int")
def crash_on(env, worker):
    if env.worker == worker:
        os.abort()
    return env.worker


@tutti.function("disco.scale_in_place", signature="tensor, float -> null")
def scale_in_place(x, factor):
    x *= np.asarray(factor, x.dtype)
