"""Goal: on a cluster that outlives its programs, a run never gets the end of another run as its own first answers.

Method: two agents stay, programs come and go: stubs, with a connection of its own for each program.
"""

import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, collectives, collectives_grpc, inline, types

CANCELLED = grpc.StatusCode.CANCELLED
INVALID = grpc.StatusCode.INVALID_ARGUMENT


class Program:
    """A client of one rank that is new to its agent."""

    def __init__(self, agent):
        self.rank = agent.rank
        self.agent = agent
        self.channel = agent.program.channel(("grpc.use_local_subchannel_pool", 1))
        self.ops = collectives_grpc.CollectivesServiceStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.channel.close()


class Runs(ClusterCase):
    def program(self, rank):
        return Program(self.cluster.agents[rank])

    def run_both(self, first, group="world"):
        """Both ranks call three all-reduces; the one of `first` is there before the other."""
        running = []
        with self.program(0) as zero, self.program(1) as one:
            order = [zero, one] if first == 0 else [one, zero]
            for turn in range(3):
                for program in order:
                    array = np.full(2, 1 + program.rank, np.float32)
                    running.append(self.begin(program, array, group))
                    if program.rank == first:
                        self.wait_entered(program)
            for call in running:
                response = call.result(LONG_S)
                self.assertEqual(list(np.frombuffer(response.payload, np.float32)), [3, 3])

    def begin(self, program, array, group="world", **options):
        spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=array.shape)
        request = collectives.AllReduceRequest(
            group=group, input=types.TensorArg(inline_tensor=spec), payload=array.tobytes(),
            reduce_op=types.REDUCE_OP_SUM, options=types.OpOptions(**options),
        )
        return program.ops.AllReduce.future(request, timeout=LONG_S)

    def wait_entered(self, program):
        self.wait_running(program, 1)

    def wait_running(self, program, count):
        until = time.monotonic() + LONG_S
        while program.agent.stats().op_running_count < count:
            self.assertLess(time.monotonic(), until)

    def run_alone(self, group="world", count=1):
        """A program of rank 0 that is ended by Ctrl-C while it waits for the other rank."""
        with self.program(0) as program:
            calls = [self.begin(program, np.ones(2, np.float32), group) for _ in range(count)]
            self.wait_running(program, count)
            for call in calls:
                call.cancel()
        self.wait_empty(self.cluster.agents[0])
        self.hear()

    def hear(self):
        """Rank 1 has heard what rank 0 told it before: messages between two ranks keep their order."""
        send = collectives.SendRequest(input=inline(np.ones(1)), destination=1, payload=np.ones(1).tobytes())
        sent = self.cluster.agents[0].ops.Send.future(send, timeout=LONG_S)
        self.cluster.agents[1].ops.Recv(collectives.RecvRequest(source=0, inline_result=True), timeout=LONG_S)
        sent.result(LONG_S)

    def test_a_program_that_was_stopped_leaves_nothing_to_the_next_ones(self):
        for first in (0, 1, 1):
            self.run_alone()
            self.run_both(first)

    def test_nor_do_several_ops_of_it(self):
        self.run_alone(count=5)
        self.run_both(1)
        self.run_alone(count=2)
        self.run_alone(count=3)
        self.run_both(0)

    def test_nor_does_one_whose_time_was_over(self):
        for first in (0, 1):
            with self.program(0) as program:
                call = self.begin(program, np.ones(2, np.float32), timeout_ms=100)
                self.assertEqual(support.Failure(call.exception(LONG_S)).reason, "TIMEOUT")
            self.hear()
            self.run_both(first)

    def test_nor_do_ops_of_a_group_that_the_other_rank_has_never_called(self):
        for first in (0, 1):
            name = "pair%d" % first
            self.cluster.group(name, [0, 1])
            self.run_alone(name)
            self.run_both(first, name)

    def test_a_client_that_is_there_hears_of_it_once(self):
        with self.program(1) as other:
            other.channel.unary_unary("/tutti.v1.DiagnosticsService/DescribeAgent")(b"", timeout=LONG_S)
            self.run_alone()
            failure = support.Failure(self.begin(other, np.ones(2, np.float32)).exception(LONG_S))
            self.assert_failed(failure, CANCELLED, "CALLER_GONE", "the caller of rank 0 went away")
            self.assertRegex(failure.text, r"^group world op \d+: ")
            with self.program(0) as program:
                calls = [self.begin(one, np.ones(2, np.float32)) for one in (program, other)]
                for call in calls:
                    call.result(LONG_S)

    def test_a_refusal_is_for_a_program_that_still_starts(self):
        """Nothing but its age tells it from one of another run, and here it is new."""
        request = collectives.BroadcastRequest(root=9)
        with self.program(0) as program:
            failure = self.fails(lambda: program.ops.Broadcast(request, timeout=LONG_S))
            self.assert_failed(failure, INVALID, "BAD_ROOT")
        self.hear()
        with self.program(1) as other:
            failure = support.Failure(self.begin(other, np.ones(2, np.float32)).exception(LONG_S))
            self.assert_failed(failure, INVALID, "BAD_ROOT", "rank 0 was refused")
        self.run_both(1)


if __name__ == "__main__":
    support.main()
