"""How the coordinator answers under Adds, and how long its heartbeats wait meanwhile.

    ./run bench store beats [COORDINATOR ...]

For each COORDINATOR (default: the built one), each --store-sync and 1 and 64 clients: Adds a second by
bench_store, and the time from a heartbeat of a session to its answer. All in one run, so that the figures
of two programs can be compared.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "system"))
import support  # noqa: E402

support.build_stubs()
import grpc  # noqa: E402
from coordinator_case import Agent  # noqa: E402

SECONDS = 8
BEAT_S = 0.22  # a heartbeat is answered when a quarter of the timeout is over
CLIENTS = (1, 64)
STORES = ("memory", "none", "order", "full")


class Beater(Agent):
    """A session that takes the time of its heartbeats."""

    def begin(self):
        self.took = []
        self.heard = threading.Event()
        self.ending = False
        self.open_session()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def _read(self, session, events):
        try:
            for response in session:
                if response.HasField("heartbeat_heard"):
                    self.heard.set()
                else:
                    events.put(response)
        except grpc.RpcError as error:
            if not self.ending:
                print("the session ended:", error.details())

    def run(self):
        while not self.ending:
            time.sleep(BEAT_S)
            begun = time.perf_counter()
            self.heard.clear()
            self.beat()
            self.heard.wait(10)
            self.took.append(time.perf_counter() - begun)

    def end(self):
        self.ending = True
        self.thread.join()
        took = sorted(self.took)
        return 1e3 * took[len(took) // 2], 1e3 * took[-1]


def measure(program, word, clients):
    with tempfile.TemporaryDirectory(prefix="tutti-store-") as folder:
        options = ["--heartbeat-timeout", "800ms", "--heartbeat-interval", "200ms"]
        if word != "memory":
            options += ["--store", "lmdb:" + folder, "--store-sync", word]
        with support.Program(program, *options) as coordinator:
            beater = Beater(coordinator, 0, 77, 1, job="beats")
            beater.joined()
            beater.begin()
            bench = os.path.join(support.BUILD, "bench", "bench_store")
            out = subprocess.run([bench, "tutti", coordinator.address, "add", str(clients), str(SECONDS)], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
            beats = beater.end()
            beater.die()
    print("%-28s %-7s %s; heartbeat %.2f ms (p50), %.2f ms (max)"
          % (program[-28:], word, out.strip(), *beats), flush=True)


def main():
    for word in STORES:
        for clients in CLIENTS:
            for program in sys.argv[1:] or ["tutti-coordinator"]:
                measure(program, word, clients)


main()
