"""Goal: tensors are made where the caller says, on a GPU or in host memory, and are refused elsewhere.

Method: TUTTI_TEST_DEVICE names a device that the agents have beside "cpu"; without it they have none.
"""

import os
import sys
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402

DEVICE = os.environ.get("TUTTI_TEST_DEVICE", "")
LARGE = np.arange(1 << 20, dtype=np.float32)  # more than one message


class Devices(case.AgentCase):
    def ways(self, agent, here, device):
        return (
            lambda: agent.put(np.ones(3, np.float32), device=device),
            lambda: agent.put(LARGE, device=device),
            lambda: agent.create((2, 2), device=device),
            lambda: here.copy(device=device),
        )

    def test_a_device_that_is_not_there_is_refused_by_name(self):
        agent = self.agents[0]
        with agent.put(np.ones(3, np.float32), device="cpu") as here:
            for way in self.ways(agent, here, "cuda:7"):
                with self.assertRaises(tutti.TuttiError) as caught:
                    way()
                self.assertEqual(caught.exception.reason, "NO_DEVICE")
                self.assertIn("cuda:7", str(caught.exception))

    def test_tensors_are_where_they_were_asked_for(self):
        agent = self.agents[0]
        for device in filter(None, ("cpu", DEVICE)):
            with agent.put(np.ones(3, np.float32), device="cpu") as here:
                made = [way() for way in self.ways(agent, here, device)]
                self.assertEqual([one.device() for one in made], [device] * 4)
                np.testing.assert_array_equal(made[1].numpy(), LARGE)
                np.testing.assert_array_equal(made[3].numpy(), np.ones(3))
                self.free(*made)

    def test_ops_run_where_their_tensors_are(self):
        def work(agent):
            with agent.put(LARGE, device=DEVICE or "cpu") as x, agent.all_reduce(x) as total:
                np.testing.assert_array_equal(total.numpy(), self.size * LARGE)
                return total.device()

        self.assertEqual(self.all(work), [DEVICE or "cpu"] * self.size)

    @unittest.skipUnless(DEVICE, "no GPU: set TUTTI_TEST_DEVICE")
    def test_a_gpu_tells_its_backend_and_its_memory_is_shared(self):
        agent = self.agents[0]
        self.assertEqual(agent.get_backend(device=DEVICE), "nccl")
        self.assertTrue(agent.is_nccl_available() and agent.device_count() == 1)
        with agent.put(LARGE, device=DEVICE) as x, agent.share_gpu(x) as share:
            self.assertEqual((len(share.ipc_handle), share.nbytes), (64, LARGE.nbytes))
            self.assertTrue(share.gpu_uuid.startswith("GPU-"))
            self.assertEqual(share.tensor.handle, x.handle)

    def test_a_result_lies_where_its_receiver_says(self):
        def work(agent):
            made = []
            for device in filter(None, ("cpu", DEVICE)):
                with agent.put(np.arange(4.0), device=device) as x:
                    how = dict(device=device)
                    part = agent.scatter(x if agent.rank == 0 else None, **how)
                    whole = agent.broadcast(x if agent.rank == 0 else None, **how)
                    if agent.rank == 0:
                        agent.send(x, 1)
                    got = agent.recv(0, keep=True, **how).tensor if agent.rank == 1 else part
                    made.append((part.device(), whole.device(), got.device(), part.numpy().tolist()))
                    self.free(part, *([whole] if agent.rank else []), *([got] if agent.rank == 1 else []))
            return made

        devices = list(filter(None, ("cpu", DEVICE)))
        want = [[(one, one, one, [float(rank)]) for one in devices] for rank in range(self.size)]
        self.assertEqual(self.all(work), want)

    def test_a_receiver_of_a_device_that_is_not_there_is_refused_on_all_ranks(self):
        def work(agent):
            mine = dict(device="cuda:7") if agent.rank == 1 else {}
            return agent.broadcast(np.ones(2) if agent.rank == 0 else None, **mine)

        for error in self.all_fail(work):
            self.assertEqual(error.reason, "NO_DEVICE")
            self.assertIn("cuda:7", error.text)

    @unittest.skipUnless(DEVICE, "no GPU: set TUTTI_TEST_DEVICE")
    def test_a_receiver_elsewhere_than_the_root_is_refused_on_all_ranks(self):
        def work(agent):
            with agent.put(np.ones(2), device=DEVICE) as x:
                return agent.broadcast(x if agent.rank == 0 else None, device="cpu" if agent.rank else "")

        for error in self.all_fail(work):
            self.assertEqual(error.reason, "DEVICE_MISMATCH")

    @unittest.skipUnless(DEVICE, "no GPU: set TUTTI_TEST_DEVICE")
    def test_a_session_checks_the_gpus_of_its_workers(self):
        with tutti.session(case.ADDRESSES[0]) as session:
            session.init_ccl("nccl")
            session.init_ccl("nccl", *[0] * self.size)
            with self.assertRaises(tutti.TuttiError) as caught:
                session.init_ccl("nccl", 0, 1, *[0] * (self.size - 2))
            self.assertEqual(caught.exception.reason, "NO_BACKEND")
            self.assertIn("worker 1 (rank 1) has no NCCL on cuda:1", caught.exception.text)

    @unittest.skipUnless(DEVICE, "no GPU: set TUTTI_TEST_DEVICE")
    def test_ops_are_ordered_by_events(self):
        """Nobody records the first, so it counts as complete; that a GPU waits is tested by tests/gpu/test_gpu_events.py."""

        def work(agent):
            with agent.put(LARGE, device=DEVICE) as x, agent.share_events() as events:
                self.assertEqual([len(one) for one in events.ipc_handles], [64, 64])
                self.assertTrue(events.gpu_uuid.startswith("GPU-"))
                work = agent.all_reduce(x, out=x, async_=True, events=events.ids)
                work.wait()
                np.testing.assert_array_equal(x.numpy(), self.size * LARGE)
                failed = []
                for given in ((0, events.ids[1]), (1, 0)):
                    with self.assertRaises(tutti.TuttiError) as caught:
                        agent.all_reduce(x, out=x, events=given)
                    failed.append(caught.exception.reason)
                return failed

        self.assertEqual(self.all(work), [["BAD_EVENT", "NO_EVENT"]] * self.size)


if __name__ == "__main__":
    tap.main()
