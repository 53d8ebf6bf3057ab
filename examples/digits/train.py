#!/usr/bin/env python3
"""One worker of the digits example, in Python with plain grpcio and generated stubs.

    tutti run -n 4 -- python3 examples/digits/train.py examples/data/digits.csv.gz

The stubs are made from proto/ by a stock protoc; $TUTTI_STUBS names the folder they are in. The
training is that of train.c, so the weights can be compared: with --save FILE rank 0 writes them.
"""
import os
import sys
import time

import digits
import grpc
import numpy as np

sys.path.insert(0, os.environ.get("TUTTI_STUBS", "."))
from tutti.v1 import collectives_service_pb2 as collectives  # noqa: E402
from tutti.v1 import collectives_service_pb2_grpc as collectives_grpc  # noqa: E402
from tutti.v1 import types_pb2 as types  # noqa: E402


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
    worker = Worker()

    def tell(epoch, loss, accuracy):
        if rank == 0:
            print(f"epoch {epoch:2d}   loss {loss:.4f}   accuracy {100 * accuracy:.2f} %", flush=True)

    weights, accuracy = digits.train(digits.Shard(sys.argv[1], rank), worker.average, tell)
    if rank == 0:
        print(f"all-reduce  {worker.calls} calls, {1e6 * worker.seconds / worker.calls:.0f} us each", flush=True)
        if len(sys.argv) > 3 and sys.argv[2] == "--save":
            np.save(sys.argv[3], weights)
        if accuracy < 0.95:
            sys.exit(f"accuracy {accuracy:.3f} is below 0.95")


if __name__ == "__main__":
    main()
