"""Goal: a call that comes again because its answer was lost gets that answer; nothing runs twice.

Method: real agents; calls repeated with their token, by the same client and by another one after
the first has died, while the op runs, after it has failed, and after the window.
"""

import os
import signal
import subprocess
import sys
import time

import grpc
import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, collectives, handle, inline, types

CALLER = """
import sys
import grpc
sys.path.insert(0, sys.argv[1])
from tutti.v1 import collectives_service_pb2 as collectives
from tutti.v1 import collectives_service_pb2_grpc as collectives_grpc

request = collectives.AllReduceRequest.FromString(bytes.fromhex(sys.argv[3]))
with grpc.insecure_channel(sys.argv[2]) as channel:
    call = collectives_grpc.CollectivesServiceStub(channel).AllReduce.future(request)
    print("called", flush=True)
    sys.stdin.readline()
"""


def sum_of(array, token, **more):
    """A request: inline in, inline out."""
    options = types.OpOptions(token=token, timeout_ms=LONG_S * 1000)
    return collectives.AllReduceRequest(
        input=inline(array), payload=array.tobytes(), reduce_op=types.REDUCE_OP_SUM, options=options, **more
    )


class Answers(ClusterCase):
    size = 3

    def wait_empty(self, agent):
        """Answers are kept, with their bytes: there is nothing to wait for."""

    def wait(self, agent, *works):
        return agent.ops.Wait(collectives.WaitRequest(works=works), timeout=LONG_S).works

    def test_a_call_that_comes_again_with_its_token_gets_the_same_answer(self):
        first = self.cluster.agents[0]

        def call(agent, token):
            array = np.full(3, 1 + agent.rank, np.int32)
            return agent.ops.AllReduce(sum_of(array, token), timeout=LONG_S)

        answers = self.cluster.all(lambda agent: call(agent, 70 + agent.rank))
        again = [call(first, 70) for _ in range(3)]  # nobody else takes part
        self.assertEqual(again, [answers[0]] * 3)
        after = self.cluster.all(lambda agent: call(agent, 80 + agent.rank))
        self.assertEqual(after[0].info.sequence, answers[0].info.sequence + 1)
        self.assertEqual(call(first, 80), after[0])

    def test_a_token_gives_the_handles_and_the_work_of_the_first_call(self):
        first = self.cluster.agents[0]
        names = self.cluster.all(lambda agent: agent.put(np.ones(4, np.float32)))

        def call(agent, token, **more):
            options = types.OpOptions(token=token, **more)
            request = collectives.AllReduceRequest(
                input=handle(names[agent.rank]), reduce_op=types.REDUCE_OP_SUM, options=options
            )
            return agent.ops.AllReduce(request, timeout=LONG_S)

        answers = self.cluster.all(lambda agent: call(agent, 90 + agent.rank))
        self.assertEqual(call(first, 90), answers[0])
        self.assertEqual(list(first.get(answers[0].output.handle)), [self.size] * 4)
        works = self.cluster.all(lambda agent: call(agent, 100 + agent.rank, **{"async": True}))
        self.assertEqual(call(first, 100, **{"async": True}), works[0])
        for agent, answer in zip(self.cluster.agents, works):
            self.wait(agent, answer.info.work)
        self.assertEqual(call(first, 100, **{"async": True}), works[0])

    def test_a_token_of_an_op_in_flight_waits_and_of_a_failed_one_runs_again(self):
        first, others = self.cluster.agents[0], self.cluster.agents[1:]

        def request(token, timeout_ms):
            return collectives.BarrierRequest(
                options=types.OpOptions(token=token, timeout_ms=timeout_ms)
            )

        flying = first.ops.Barrier.future(request(110, LONG_S * 1000), timeout=LONG_S)
        until = time.monotonic() + LONG_S
        while True:  # until the first one is there
            self.assertLess(time.monotonic(), until)
            if first.stats().op_running_count == 1:
                break
        failure = self.fails(lambda: first.ops.Barrier(request(110, 1000), timeout=LONG_S))
        self.assert_failed(failure, grpc.StatusCode.ABORTED, "TOKEN_IN_FLIGHT", "110")
        rest = [agent.ops.Barrier.future(request(110, LONG_S * 1000)) for agent in others]
        answer = flying.result()
        for call in rest:
            call.result()
        self.assertEqual(first.ops.Barrier(request(110, 1000), timeout=LONG_S), answer)
        # too late for the others, and so for all
        failure = self.fails(lambda: first.ops.Barrier(request(120, 50), timeout=LONG_S))
        self.assertEqual(failure.reason, "TIMEOUT")
        for agent in others:
            failure = self.fails(lambda agent=agent: agent.ops.Barrier(request(120, 50), timeout=LONG_S))
            self.assertEqual(failure.reason, "TIMEOUT")
        said = self.cluster.all(
            lambda agent: agent.ops.Barrier(request(120, LONG_S * 1000), timeout=LONG_S).info.sequence
        )
        self.assertEqual(said, [answer.info.sequence + 2] * self.size)

    def test_a_client_that_died_before_its_answer_is_answered_when_it_comes_back(self):
        first, others = self.cluster.agents[0], self.cluster.agents[1:]
        request = sum_of(np.ones(4, np.int32), 130)
        command = [sys.executable, "-c", CALLER, os.path.join(support.BUILD, "tests", "system", "stubs"), first.program.address]
        with subprocess.Popen(
            command + [request.SerializeToString().hex()], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as client:
            try:
                self.assertEqual(client.stdout.readline(), b"called\n")
                until = time.monotonic() + LONG_S
                while first.stats().op_running_count == 0:
                    self.assertLess(time.monotonic(), until)
                os.kill(client.pid, signal.SIGSTOP)
                for answer in self.cluster.on(
                    [agent.rank for agent in others],
                    lambda agent: agent.ops.AllReduce(sum_of(np.ones(4, np.int32), 131), timeout=LONG_S),
                ):
                    self.assertEqual(answer.payload, np.full(4, self.size, np.int32).tobytes())
            finally:
                os.kill(client.pid, signal.SIGKILL)
        answer = first.ops.AllReduce(request, timeout=LONG_S)
        self.assertEqual(answer.payload, np.full(4, self.size, np.int32).tobytes())


class Forgotten(ClusterCase):
    """Answers are kept as long as it was said, and no more of them than there is room for."""

    size = 1
    options = ("--retry-window", "200ms", "--retry-bytes-limit", "64KiB")

    def sequence(self, token, count=1):
        agent = self.cluster.agents[0]
        request = sum_of(np.ones(count, np.int32), token)
        return agent.ops.AllReduce(request, timeout=LONG_S).info.sequence

    def test_behind_the_window(self):
        first = self.sequence(1)
        until = time.monotonic() + LONG_S
        while self.sequence(1) == first:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)

    def test_behind_newer_ones(self):
        first = self.sequence(2, 9000)
        self.sequence(3, 9000)
        self.sequence(0)  # an answer leaves before it is counted; when the next op ends, it is
        self.assertGreater(self.sequence(2, 9000), first)
        large = self.sequence(4, 20000)  # more than all of the room
        self.sequence(0)
        self.assertGreater(self.sequence(4, 20000), large)


if __name__ == "__main__":
    support.main()
