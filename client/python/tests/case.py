"""What the package's tests share: agents of a running job, and one thread for each rank.

TUTTI_TEST_AGENTS lists their addresses, by rank; TUTTI_TEST_COORDINATOR is the coordinator's.
"""

import os
import threading
import time
import unittest

import numpy as np

import tutti

ADDRESSES = os.environ.get("TUTTI_TEST_AGENTS", "").split()
COORDINATOR = os.environ.get("TUTTI_TEST_COORDINATOR", "")
LONG_S = 60


def in_threads(calls):
    """Results in order; what a call raised stands in its place."""
    results = [None] * len(calls)

    def work(place):
        try:
            results[place] = calls[place]()
        except Exception as error:
            results[place] = error

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def good(results):
    """The results, none of which may be an error."""
    for one in results:
        if isinstance(one, Exception):
            raise one
    return results


def ramp(agent, count=6, dtype=np.float32):
    """An array that tells whose it is."""
    return (np.arange(count) + 10 * agent.rank).astype(dtype)


@unittest.skipUnless(ADDRESSES, "no agents: set TUTTI_TEST_AGENTS to their addresses")
class AgentCase(unittest.TestCase):
    """Tests with a connection to each rank, that leave no tensor behind."""

    @classmethod
    def setUpClass(cls):
        cls.agents = [tutti.connect(address, timeout=LONG_S) for address in ADDRESSES]
        cls.size = len(cls.agents)

    @classmethod
    def tearDownClass(cls):
        for agent in cls.agents:
            agent.close()

    def tensors_left(self):
        """Of a failed op the result is there, pending, until nothing touches its memory any more: a moment longer than its error."""
        until = time.monotonic() + LONG_S
        while True:
            left = [tensor for agent in self.agents for tensor in agent.tensors()]
            if not any("pending" in str(tensor) for tensor in left) or time.monotonic() > until:
                return left
            time.sleep(0.01)

    def tearDown(self):
        left = self.tensors_left()
        said = str(left)
        for tensor in left:
            tensor.delete()
        self.assertEqual(said, "[]")

    def all(self, call):
        """call(agent) on all ranks at once; none may fail."""
        return good(in_threads([lambda one=one: call(one) for one in self.agents]))

    def all_fail(self, call):
        """The error of each rank."""
        found = in_threads([lambda one=one: call(one) for one in self.agents])
        for one in found:
            self.assertIsInstance(one, tutti.TuttiError)
        return found

    def free(self, *tensors):
        for tensor in tensors:
            tensor.delete()
