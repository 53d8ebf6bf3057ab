#!/usr/bin/env python3
"""One worker of the digits example, in Python with plain grpcio and generated stubs.

    tutti run -n 4 -- python3 examples/digits/train.py examples/data/digits.csv.gz

The stubs are made from proto/ by a stock protoc; $TUTTI_STUBS names the folder they are in. The
training is that of train.c, so the weights can be compared: with --save FILE rank 0 writes them.
"""
import gzip
import os
import sys
import time

import grpc
import numpy as np

sys.path.insert(0, os.environ.get("TUTTI_STUBS", "."))
from tutti.v1 import collectives_service_pb2 as collectives  # noqa: E402
from tutti.v1 import collectives_service_pb2_grpc as collectives_grpc  # noqa: E402
from tutti.v1 import types_pb2 as types  # noqa: E402

PIXELS, CLASSES, SHARDS, BATCH, EPOCHS, RATE = 64, 10, 4, 32, 40, np.float32(0.5)


def load(path):
    """All rows, shuffled as train.c shuffles them."""
    rows = np.array([[int(word) for word in line.split(",")] for line in gzip.open(path, "rt")])
    state = 1
    for i in range(len(rows) - 1, 0, -1):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        k = (state >> 8) % (i + 1)
        rows[[i, k]] = rows[[k, i]]
    pixels = np.ones((len(rows), PIXELS + 1), np.float32)
    pixels[:, :PIXELS] = rows[:, :PIXELS] / 16
    return pixels, rows[:, PIXELS]


def gradient(pixels, labels, weights):
    scores = pixels @ weights.T
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    scores /= scores.sum(axis=1, keepdims=True)
    rows = np.arange(len(labels))
    loss = -np.log(scores[rows, labels] + 1e-12).mean()
    scores[rows, labels] -= 1
    return scores.T @ pixels / np.float32(BATCH), loss


class Worker:
    def __init__(self):
        # Where the agent of this rank is; `tutti run` says it.
        self.stub = collectives_grpc.CollectivesServiceStub(grpc.insecure_channel(os.environ["TUTTI_AGENT"]))
        self.seconds = 0.0
        self.calls = 0

    def average(self, numbers):
        """Averaged over all ranks: one call, the bytes travel inside it."""
        began = time.perf_counter()
        spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=numbers.shape)
        request = collectives.AllReduceRequest(
            input=types.TensorArg(inline_tensor=spec),
            reduce_op=types.REDUCE_OP_AVG,
            payload=numbers.astype(np.float32).tobytes(),
            # A worker that repeats a step which has succeeded elsewhere is refused, not summed with the next one.
            options=types.OpOptions(step=self.calls + 1),
        )
        response = self.stub.AllReduce(request, timeout=30)
        self.seconds += time.perf_counter() - began
        self.calls += 1
        return np.frombuffer(response.payload, np.float32).reshape(numbers.shape)


def main():
    rank = int(os.environ["RANK"])
    pixels, labels = load(sys.argv[1])
    held_out = len(labels) // 5
    length = (len(labels) - held_out) // SHARDS
    first = held_out + rank * length
    weights = np.zeros((CLASSES, PIXELS + 1), np.float32)
    worker = Worker()
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for step in range(length // BATCH):
            rows = slice(first + step * BATCH, first + (step + 1) * BATCH)
            own, loss = gradient(pixels[rows], labels[rows], weights)
            averaged = worker.average(np.append(own.ravel(), np.float32(loss)))
            weights = weights - RATE * averaged[:-1].reshape(weights.shape)
            losses.append(averaged[-1])
        if rank == 0:
            found = (pixels[:held_out] @ weights.T).argmax(axis=1) == labels[:held_out]
            print(f"epoch {epoch:2d}   loss {np.mean(losses):.4f}   accuracy {100 * found.mean():.2f} %", flush=True)
    if rank == 0:
        print(f"all-reduce  {worker.calls} calls, {1e6 * worker.seconds / worker.calls:.0f} us each", flush=True)
        if len(sys.argv) > 3 and sys.argv[2] == "--save":
            np.save(sys.argv[3], weights)
        if found.mean() < 0.95:
            sys.exit(f"accuracy {found.mean():.3f} is below 0.95")


if __name__ == "__main__":
    main()
