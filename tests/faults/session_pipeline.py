"""A controller in a process of its own, with the package tutti, as programs of Disco are: it broadcasts, scatters and reduces arrays, and
waits for nothing, until it is killed.

usage: session_pipeline.py ADDRESS LINGER
"""

import sys

import numpy as np
import tutti

LARGE = 60000

if __name__ == "__main__":
    with tutti.session(sys.argv[1], linger=sys.argv[2] == "1") as session:
        size = len(session.workers)
        kept = session.empty((2,), "float32")  # register 1
        parts = session.scatter(np.ones((size, LARGE), np.float32))
        session.sync()
        print(*(session.ticket or session.id + ".-").split("."), flush=True)
        registers = []
        while True:
            registers.append(session.broadcast(np.ones(LARGE, np.float32)))
            registers.append(session.allreduce(parts, op="sum"))
            registers.append(session.scatter(np.ones((size, LARGE // 2), np.float32)))
            registers.append(session.allgather(kept))
            del registers[:-5]
