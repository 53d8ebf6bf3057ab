"""A client of the package tutti in a process of its own, with memory under its lease: it sums arrays and tensors until it is killed.

usage: trainer.py ADDRESS COUNT TIMEOUT_S idle|calls|async
"""

import sys

import numpy as np
import tutti

if __name__ == "__main__":
    timeout, way = float(sys.argv[3]), sys.argv[4]
    with tutti.connect(sys.argv[1]) as agent:
        array = agent.empty(int(sys.argv[2]), np.int32)
        array[:] = np.arange(array.size) % 17 + agent.rank * 100  # fault_ops has the others'
        agent.put(array)
        print("up", flush=True)
        while way != "idle":
            inputs = [array, agent.put(array)] * (4 if way == "async" else 1)
            agent.wait([agent.all_reduce(one, async_=True, timeout=timeout) for one in inputs] if way == "async" else [])
            for one in inputs if way == "calls" else ():
                agent.all_reduce(one, timeout=timeout)
        sys.stdin.read()
