#!/usr/bin/env python3
"""One worker of the digits example with the package `tutti`: the training of train.c, and its times beside it.

    tutti run -n 4 -- python3 examples/digits/train_package.py examples/data/digits.csv.gz
"""
import sys
import time

import digits
import numpy as np
import tutti


def main():
    with tutti.connect() as agent:  # where `tutti run` has put this rank
        seconds, calls = 0.0, 0

        def average(numbers):
            nonlocal seconds, calls
            began = time.perf_counter()
            calls += 1  # a worker that repeats a step is refused, not summed with the next one
            agent.all_reduce(numbers, "avg", out=numbers, step=calls, timeout=30)
            seconds += time.perf_counter() - began
            return numbers

        def tell(epoch, loss, accuracy):
            if agent.rank == 0:
                print(f"epoch {epoch:2d}   loss {loss:.4f}   accuracy {100 * accuracy:.2f} %", flush=True)

        shard = digits.Shard(sys.argv[1], agent.rank)
        agent.barrier()
        began = time.perf_counter()
        weights, accuracy = digits.train(shard, average, tell)
        took = time.perf_counter() - began
        if agent.rank == 0:
            print(f"all-reduce  {calls} calls, {seconds:.2f} s inside, {1e6 * seconds / calls:.0f} us each; {took:.2f} s in all")
            if len(sys.argv) > 3 and sys.argv[2] == "--save":
                np.save(sys.argv[3], weights)
            if accuracy < 0.95:
                sys.exit(f"accuracy {accuracy:.3f} is below 0.95")


if __name__ == "__main__":
    main()
