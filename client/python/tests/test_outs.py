"""Goal: an op whose `out` cannot take its result fails on every rank, with a TuttiError, before anything is
written; nothing that the package can know fails behind the success of others.

Method: one thread for each rank; rank 1 gives arrays that cannot take the result, all others good ones.
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import numpy as np  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402

ODD = 1  # the rank whose `out` is wrong
SMALL, LARGE = 8, 1 << 18  # elements: in a message, and by memory of the agent


def read_only(shape, dtype):
    array = np.zeros(shape, dtype)
    array.flags.writeable = False
    return array


# What is wrong, by the reason that all ranks get.
FAULTS = {
    "size": ("OUT_SHAPE", lambda shape, dtype: np.zeros(int(np.prod(shape)) + 1, dtype)),
    "dtype": ("DTYPE_MISMATCH", lambda shape, dtype: np.zeros(shape, np.int64)),
    "read-only": ("BAD_OUT", read_only),
    "list": ("BAD_OUT", lambda shape, dtype: np.zeros(shape, dtype).tolist()),
    "text": ("BAD_OUT", lambda shape, dtype: np.zeros(shape, "U1")),
}

# call(agent, x, out), and how many times larger than x the result is.
OPS = {
    "all_reduce": (lambda agent, x, out: agent.all_reduce(x, out=out), 1),
    "reduce_scatter": (lambda agent, x, out: agent.reduce_scatter(x, out=out), 0.25),
    "all_gather": (lambda agent, x, out: agent.all_gather(x, out=out), 4),
    "all_to_all": (lambda agent, x, out: agent.all_to_all(x, out=out), 1),
    "permute": (lambda agent, x, out: agent.permute(x, [1, 2, 3, 0], out=out), 1),
    "reduce": (lambda agent, x, out: agent.reduce(x, root=ODD, out=out if agent.rank == ODD else None), 1),
    "gather": (lambda agent, x, out: agent.gather(x, ODD, out=out if agent.rank == ODD else None), 4),
    "broadcast": (lambda agent, x, out: agent.broadcast(x, 0, out=out), 1),
    "scatter": (lambda agent, x, out: agent.scatter(x if agent.rank == 0 else None, 0, out=out), 0.25),
}


class Outs(case.AgentCase):
    def refuse(self, call, count, times, fault):
        """All ranks get that error, and no good `out` is written to."""
        reason, make = FAULTS[fault]
        shape = (round(count * times),)
        outs = [np.full(shape, -1, np.float32) for _ in range(self.size)]
        bad = make(shape, np.float32)

        def work(agent):
            return call(agent, np.ones(count, np.float32), bad if agent.rank == ODD else outs[agent.rank])

        for rank, error in enumerate(self.all_fail(work)):
            self.assertEqual((error.code, error.reason), (tutti.StatusCode.INVALID_ARGUMENT, reason), error)
            if rank != ODD:
                self.assertIn("rank %d" % ODD, str(error))
        for rank, out in enumerate(outs):
            self.assertTrue(rank == ODD or (out == -1).all())

    def test_an_array_that_cannot_take_the_result_is_refused_on_every_rank(self):
        for name, (call, times) in OPS.items():
            for fault in FAULTS:
                with self.subTest(op=name, fault=fault):
                    self.refuse(call, SMALL, times, fault)
            with self.subTest(op=name, fault="large"):
                self.refuse(call, LARGE, times, "size")
        for name, (call, times) in OPS.items():
            with self.subTest(op=name, fault="none"):
                outs = [np.zeros(round(SMALL * times), np.float32) for _ in range(self.size)]
                self.all(lambda agent: call(agent, np.ones(SMALL, np.float32), outs[agent.rank]))
                self.assertTrue(outs[ODD].any())

    def test_a_send_fails_that_a_recv_cannot_take(self):
        for count in (SMALL, LARGE):
            for fault, (reason, make) in FAULTS.items():
                with self.subTest(fault=fault, count=count):
                    calls = [
                        lambda: self.agents[0].send(np.ones(count, np.float32), ODD),
                        lambda: self.agents[ODD].recv(0, out=make((count,), np.float32)),
                    ]
                    for error in case.in_threads(calls):
                        self.assertIsInstance(error, tutti.TuttiError)
                        self.assertIn(error.reason, (reason, "SHAPE_MISMATCH"), error)  # the sender's and ours differ

    def test_lists_of_arrays_are_looked_at_one_by_one(self):
        def work(agent, outs):
            return agent.all_reduce([np.ones(2, np.float32), np.ones(3, np.int32)], out=outs)

        good = [np.zeros(2, np.float32), np.zeros(3, np.int32)]
        for bad, reason in (
            ([good[0]], "LIST_SIZE"),
            ([good[1], good[0]], "DTYPE_MISMATCH"),
            ([good[0], np.zeros(4, np.int32)], "OUT_SHAPE"),
            ([good[0], read_only(3, np.int32)], "BAD_OUT"),
        ):
            with self.subTest(reason=reason):
                outs = [[one.copy() for one in good] for _ in range(self.size)]
                for error in self.all_fail(lambda agent: work(agent, bad if agent.rank == ODD else outs[agent.rank])):
                    self.assertEqual(error.reason, reason, error)
                self.assertFalse(any(one.any() for rank in outs for one in rank))

    def test_shapes_and_orders_may_differ(self):
        for out in (np.zeros((2, 4), np.float32, order="F"), np.zeros((8, 2), np.float32)[:, 0], np.zeros(8, ">f4")):
            outs = [out if agent.rank == ODD else np.zeros(8, np.float32) for agent in self.agents]
            self.all(lambda agent: agent.all_reduce(np.ones(8, np.float32), out=outs[agent.rank]))
            self.assertTrue((out == self.size).all())

    def test_async_ops_are_refused_as_well(self):
        for fault in ("size", "read-only"):
            reason, make = FAULTS[fault]
            bad = make((SMALL,), np.float32)

            def work(agent):
                out = bad if agent.rank == ODD else np.zeros(SMALL, np.float32)
                return agent.all_reduce(np.ones(SMALL, np.float32), out=out, async_=True).wait()

            for error in self.all_fail(work):
                self.assertEqual(error.reason, reason, error)

    def test_torch_tensors_as_well(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch here: install python3-torch")
        for bad, reason in (
            (torch.zeros(SMALL + 1), "OUT_SHAPE"),
            (torch.zeros(SMALL, dtype=torch.float64), "DTYPE_MISMATCH"),
            (torch.zeros(SMALL, requires_grad=True), "BAD_OUT"),
            (torch.zeros(1).expand(SMALL), "BAD_OUT"),
        ):
            outs = [bad if agent.rank == ODD else torch.zeros(SMALL) for agent in self.agents]
            for error in self.all_fail(lambda agent: agent.all_reduce(torch.ones(SMALL), out=outs[agent.rank])):
                self.assertEqual(error.reason, reason, error)

    def test_a_timeout_that_is_no_number_of_seconds_is_named(self):
        for timeout in ("x", -1, float("nan"), [1]):
            with self.assertRaises(tutti.TuttiError) as caught:
                self.agents[0].all_reduce(np.ones(2), timeout=timeout)
            self.assertEqual(caught.exception.reason, "BAD_TIMEOUT")
            self.assertIn("timeout is %r" % (timeout,), str(caught.exception))


if __name__ == "__main__":
    tap.main()
