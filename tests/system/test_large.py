"""Goal: what large jobs do differently, so that their ranks do not all come at once, costs no rank its seat.

Method: one agent of an elastic job with very many seats, which begins with that agent alone; a relay
resets its connections.
"""

import os
import sys
import time
import types as python_types
import unittest

import support

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "faults"))
from cluster_case import LONG_S, Agent  # noqa: E402
from relay import Relay  # noqa: E402

SEATS = 65536
CUTS = 3
SERVING = b"\x08\x01"  # grpc.health.v1.HealthCheckResponse


class Large(unittest.TestCase):
    def begin(self):
        self.coordinator = support.Program(
            "tutti-coordinator", "--lost-grace", "2s", "--elastic-wait", "10ms"
        )
        self.addCleanup(self.coordinator.stop)
        self.relay = Relay(self.coordinator.address)
        self.addCleanup(self.relay.close)
        behind = python_types.SimpleNamespace(
            coordinator=python_types.SimpleNamespace(address=self.relay.address), size=SEATS
        )
        self.agent = Agent(behind, None, "--min-world", "1")
        self.addCleanup(self.agent.close)
        self.addCleanup(self.agent.program.stop)
        self.agent.wait_joined()
        check = self.agent.channel.unary_unary("/grpc.health.v1.Health/Check")
        self.wait(lambda: check(b"", timeout=LONG_S) == SERVING)  # there is a session

    def wait(self, done):
        until = time.monotonic() + LONG_S
        while not done():
            self.assertIsNone(self.agent.program.process.poll(), self.agent.program.log())
            self.assertLess(time.monotonic(), until, self.agent.program.log())
            time.sleep(0.01)  # a line in a log makes no event here

    def times_back(self):
        return self.agent.program.log().count("in touch with the coordinator again")

    def test_a_rank_whose_connection_breaks_is_back_within_the_grace(self):
        self.begin()
        for times in range(CUTS):
            self.relay.cut()
            self.wait(lambda: self.times_back() > times)
        self.assertNotIn("is lost", self.coordinator.log())


if __name__ == "__main__":
    support.main()
