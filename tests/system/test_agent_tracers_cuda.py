"""Goal: gradients of tensors of GPUs go back as those of host memory do, and stay on the GPU.

Method: the tests of test_agent_tracers and their faults over the stand-ins for CUDA and NCCL, whose device memory no processor can
touch; then what a device adds: where gradients are, faults of copies, and memory that is given back.
"""

import unittest

import numpy as np

import standin
import support

standin.use("leaks")

import test_agent_tracers as host  # noqa: E402
import test_agent_tracers_faults as faults  # noqa: E402
from cluster_case import LONG_S, Agent, Cluster, tensors, tracers, types  # noqa: E402
from tracers_case import (  # noqa: E402
    SUM, all_reduce, attach, backward, call, clear, create, floats, options, traced)

GPU = ("--device", "cuda:0", "--allow-shared-gpu", "--device-memory-limit", "64MiB")


class Adjoints(host.Adjoints):
    options = GPU
    rounds = 40


class Tapes(host.Tapes):
    options = GPU


class Faults(faults.Faults):
    options = faults.Faults.options + GPU


class Deaths(faults.Deaths):
    options = GPU


def device_of(agent, name):
    return agent.tensors.Stat(tensors.StatRequest(handle=name), timeout=LONG_S).info.device


def put_on(agent, array, device):
    name = agent.put(array)
    try:
        request = tensors.CopyRequest(handle=name, device=device)
        return agent.tensors.Copy(request, timeout=LONG_S).tensor.handle
    finally:
        agent.delete(name)


class Places(host.TracersCase):
    options = ("--device", "cuda:0,cpu") + GPU[2:]

    def handles(self, agent, given, wanted):
        request = tracers.BackwardRequest(tracer="t", wanted=wanted)
        for name, gradient in given:
            request.gradients.add(tensor=name, gradient=gradient)
        response = agent.tracers.Backward(request, timeout=LONG_S)
        return [one.gradient.handle for one in response.gradients]

    def test_gradients_are_where_their_tensors_are(self):
        def work(agent):
            there = traced(agent, floats(1, 2))
            here = put_on(agent, floats(1, 2), "cpu")
            attach(agent, here)
            given = [(all_reduce(agent, there), agent.put(floats(1, 1))),
                     (all_reduce(agent, here), put_on(agent, floats(2, 2), "cpu"))]
            found = self.handles(agent, given, [there, here])
            return [(device_of(agent, one), list(agent.get(one))) for one in found]

        self.assertEqual(self.on_all(work), [[("cuda:0", [3, 3]), ("cpu", [6, 6])]] * 3)

    def test_a_gradient_of_another_place_is_refused(self):
        def work(agent):
            name = traced(agent, floats(1, 2))
            given = [(all_reduce(agent, name), put_on(agent, floats(1, 1), "cpu"))]
            return self.fails(lambda: self.handles(agent, given, [name])).reason

        for found in self.cluster.all(work):
            self.assertIn(found, ["DEVICE_MISMATCH"])
        self.on_all(clear)

    def test_what_is_given_and_wanted_is_a_copy(self):
        def work(agent):
            name = traced(agent, floats(1, 2))
            gradient = agent.put(floats(3, 4))
            first, second = self.handles(agent, [(name, gradient)], [name, name])
            self.assertEqual(len({gradient, first, second}), 3)
            agent.delete(gradient)
            return [list(agent.get(one)) for one in (first, second)], device_of(agent, second)

        self.assertEqual(self.on_all(work), [([[3, 4], [3, 4]], "cuda:0")] * 3)

    def test_a_message_between_a_gpu_and_the_host_goes_back(self):
        def work(agent):
            name = got = None
            if agent.rank == 0:
                name = traced(agent, floats(1, 2))
                call(agent, "Send", name, destination=1, tag=4)
                return list(backward(agent, [], [name])[name])
            if agent.rank == 1:
                into = put_on(agent, floats(0, 0), "cpu")
                call(agent, "Recv", source=0, tag=4, output=into)
                got = put_on(agent, floats(5, 6), "cpu")
                self.handles(agent, [(into, got)], [])
            return None

        self.assertEqual(self.on_all(work)[0], [5, 6])

    def test_no_elements_are_gradients_too(self):
        def work(agent):
            name = traced(agent, floats())
            first = all_reduce(agent, name, types.REDUCE_OP_MAX)
            second = all_reduce(agent, name, types.REDUCE_OP_AVG)
            return len(backward(agent, [(first, floats()), (second, floats())])[name])

        self.assertEqual(self.on_all(work), [0, 0, 0])

    def test_two_tracers_of_one_max_share_what_they_keep(self):
        def work(agent):
            create(agent, "u")
            name = traced(agent, floats(agent.rank, 1))
            attach(agent, name, tracer="u")
            result = all_reduce(agent, name, types.REDUCE_OP_MAX, output=name)
            given = [(result, floats(1, 1))]
            return [list(backward(agent, given, [name], tracer=one)[name]) for one in "tu"]

        self.assertEqual(self.on_all(work), [[[0, 3]] * 2, [[0, 3]] * 2, [[3, 3]] * 2])

    def test_a_kept_tape_has_its_mask_again(self):
        def work(agent):
            name = traced(agent, floats(agent.rank, 1))
            result = all_reduce(agent, name, types.REDUCE_OP_MAX)
            given = [(result, floats(1, 2))]
            return [list(backward(agent, given, keep=keep)[name]) for keep in (True, True, False)]

        self.assertEqual(self.on_all(work), [[[0, 6]] * 3, [[0, 6]] * 3, [[3, 6]] * 3])

    def test_sums_of_more_than_one_piece_are_brought_back_whole(self):
        part = np.arange(600000, dtype=np.float32)  # three of them are more than a slot

        def work(agent):
            name = traced(agent, part)
            whole = call(agent, "AllGather", name)
            gradient = call(agent, "AllGather", agent.put(part), options=options(no_grad=True))
            [found] = self.handles(agent, [(whole, gradient), (whole, gradient)], [name])
            return bool((agent.get(found) == 6 * part).all())

        self.assertEqual(self.on_all(work), [True] * 3)


class SlowAgent(Agent):
    def start(self, *words):
        settings = {"TUTTI_STANDIN_CUDA": "leaks,delay:4000"}
        return support.Program("tutti-agent", *words, environment=settings)


class SlowCluster(Cluster):
    agent_class = SlowAgent


class Cuts(host.TracersCase):
    """Backwards that end early, while copies of theirs are under way."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = SlowCluster(cls.size, *GPU)

    def one(self, agent, limit_ms):
        name = traced(agent, floats(1, 2))
        first = all_reduce(agent, name, types.REDUCE_OP_MAX)
        second = all_reduce(agent, name)
        given = [(one, floats(1, 1)) for one in (first, second, name, name)]
        said = self.cluster.on([agent.rank], lambda agent: backward(
            agent, given, [name, name], options=options(timeout_ms=limit_ms)))[0]
        clear(agent)
        return said

    def test_wherever_it_is_cut_nothing_is_left_and_ops_go_on(self):
        said = set()
        for limit_ms in (10, 25, 40, 55, 70, 90, 110, 140, 20000):
            for found in self.on_all(lambda agent: self.tried(agent, limit_ms)):
                said.add(found)
            self.assert_works()
            self.tidy()
        self.assertIn("", said)
        print("# " + " ".join(sorted(said)))
        self.assertLessEqual(said, {"", "TIMEOUT", "MISSING_RANKS"})

    def tried(self, agent, limit_ms):
        found = self.one(agent, limit_ms)
        return found.reason if isinstance(found, support.Failure) else ""

    def tidy(self):
        super().tearDown()
        self.setUp()


class BrokenAgent(Agent):
    def start(self, *words):
        broken = "fail:cudaMemcpyAsync:%d" % self.calls if self.rank == 1 else ""
        return support.Program("tutti-agent", *words, environment={"TUTTI_STANDIN_CUDA": broken})


class Copies(unittest.TestCase):
    def one(self, agent):
        create(agent)
        name = traced(agent, floats(1, 2, 3))
        first = all_reduce(agent, name, types.REDUCE_OP_MAX)
        second = all_reduce(agent, name, SUM)
        found = backward(agent, [(first, floats(1, 1, 1)), (second, floats(1, 1, 1))])
        return list(found[name])

    def test_a_copy_that_fails_fails_the_backward_and_nothing_hangs(self):
        reasons = set()
        for calls in range(6, 22, 3):
            kind = type("SetAgent", (BrokenAgent,), {"calls": calls})
            cluster = type("SetCluster", (Cluster,), {"agent_class": kind})(2, *GPU)
            try:
                for found in cluster.all(self.one):
                    if isinstance(found, support.Failure):
                        reasons.add(found.reason)
                    else:
                        self.assertEqual(found, [4, 4, 4])
            finally:
                cluster.stop()
        self.assertIn("DEVICE_FAILED", reasons)


if __name__ == "__main__":
    support.main()
