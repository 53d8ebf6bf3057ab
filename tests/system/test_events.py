"""Goal: programs of libtutti order ops after their streams by events, through lanes as by gRPC; an agent that has none says so.

Method: tests/client/events_program.c, two ranks of it beside agents over the stand-ins for CUDA and NCCL.
"""

import os
import subprocess
import sys
import unittest

import grpc

import support

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "conformance"))
import places  # noqa: E402
from cluster_case import LONG_S, Cluster, tensors  # noqa: E402

PROGRAM = os.path.join(support.BUILD, "tests", "client", "events_program")
PLACE, REASON = places.prepare(places.NCCL, True)
if PLACE is None or not os.path.exists(PROGRAM):
    support.skip_all(REASON or "no events_program: there is no stand-in for CUDA")


class Programs(unittest.TestCase):
    def run_ranks(self, **environment):
        cluster = PLACE.make(2, *PLACE.options)
        self.addCleanup(cluster.stop)
        ranks = [subprocess.Popen([PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  env=dict(os.environ, TUTTI_AGENT=agent.program.address, **environment))
                 for agent in cluster.agents]
        for rank in ranks:
            self.addCleanup(rank.kill)
        for rank in ranks:
            said, _ = rank.communicate(timeout=2 * LONG_S)
            self.assertEqual(rank.returncode, 0, said)

    def test_through_lanes(self):
        self.run_ranks()

    def test_by_grpc(self):
        self.run_ranks(TUTTI_NO_LANE="1")


class Failing(unittest.TestCase):
    """What the device cannot do is told, and nothing is left: agents end with an error if something is."""

    def refused(self, settings):
        before = os.environ["TUTTI_STANDIN_CUDA"]
        os.environ["TUTTI_STANDIN_CUDA"] = before + ",leaks," + settings
        self.addCleanup(os.environ.__setitem__, "TUTTI_STANDIN_CUDA", before)
        cluster = PLACE.make(1, *PLACE.options)
        self.addCleanup(cluster.stop)
        stub = cluster.agents[0].tensors
        with self.assertRaises(grpc.RpcError) as caught:
            next(stub.ShareEvents(tensors.ShareEventsRequest(count=5)))
        return support.Failure(caught.exception), stub

    def test_a_gpu_without_such_events(self):
        failure, _ = self.refused("no-events")
        self.assertEqual(failure.code, grpc.StatusCode.UNIMPLEMENTED, failure)
        self.assertIn("this GPU has no events for other processes", failure.text)

    def test_an_event_that_cannot_be_made(self):
        failure, stub = self.refused("fail:cudaIpcGetEventHandle:3")
        self.assertEqual((failure.code, failure.reason), (grpc.StatusCode.INTERNAL, "DEVICE_FAILED"))
        stream = stub.ShareEvents(tensors.ShareEventsRequest(count=5))
        self.assertEqual(len(next(stream).events), 5)
        stream.cancel()


class WithoutGpu(unittest.TestCase):
    def test_an_agent_without_a_gpu_has_no_events(self):
        cluster = Cluster(1)
        self.addCleanup(cluster.stop)
        for device in ("", "cuda", "cuda:0"):
            with self.assertRaises(grpc.RpcError) as caught:
                next(cluster.agents[0].tensors.ShareEvents(tensors.ShareEventsRequest(device=device, count=1)))
            failure = support.Failure(caught.exception)
            self.assertEqual((failure.code, failure.reason), (grpc.StatusCode.FAILED_PRECONDITION, "NO_DEVICE"))


if __name__ == "__main__":
    support.main()
