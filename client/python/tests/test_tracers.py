"""Goal: tracers, tapes and torch's autograd give the gradients of collectives, and agree with their words.

Method: one thread for each rank; the gradients are those of the sum of all ranks' losses.
"""

import os
import sys
import threading
import unittest

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402


class Tracers(case.AgentCase):
    def test_backward_gives_the_gradients_of_what_was_attached(self):
        def work(agent):
            with agent.put(np.array([1.0, 2.0])) as x, agent.tracer() as tracer:
                tracer.attach(x)
                with agent.all_reduce(x) as y:
                    found = tracer.backward({y: np.array([1.0, agent.rank])})
                    self.assertEqual(list(found), [x.handle])
                    gradient = found[x].numpy().tolist()
                    found.delete()
                    return gradient

        ranks = sum(range(self.size))
        self.assertEqual(self.all(work), [[self.size, ranks]] * self.size)

    def test_a_rank_without_a_gradient_takes_part(self):
        def work(agent):
            with agent.put(np.ones(2)) as x, agent.tracer() as tracer:
                tracer.attach(x)
                with agent.all_gather(x) as y:
                    given = {y: np.ones(2 * self.size)} if agent.rank == 1 else {}
                    found = tracer.backward(given, [x])
                    gradient = found[x].numpy().tolist()
                    found.delete()
                    return gradient

        self.assertEqual(self.all(work), [[1.0, 1.0]] * self.size)

    def test_nobody_has_one_is_none_and_async_says_so_too(self):
        def work(agent):
            with agent.put(np.ones(2)) as x, agent.tracer() as tracer:
                tracer.attach(x)
                with agent.all_reduce(x):
                    once = tracer.backward(keep=True)
                    later = tracer.backward(async_=True).wait()
                    return once[x], later[x]

        self.assertEqual(self.all(work), [(None, None)] * self.size)

    def test_an_async_backward_gives_gradients_at_its_wait(self):
        def work(agent):
            with agent.put(np.ones(2)) as x, agent.put(np.ones(2)) as dy, agent.tracer() as tracer:
                tracer.attach(x)
                with agent.all_reduce(x, "avg") as y:
                    (found,) = agent.wait([tracer.backward({y: dy}, async_=True)], case.LONG_S)
                    gradient = found[x].numpy().tolist()
                    found.delete()
                    return gradient

        self.assertEqual(self.all(work), [[1.0, 1.0]] * self.size)

    def test_a_backward_is_cancelled_on_all_ranks(self):
        cancelled = threading.Event()  # else it may have succeeded before

        def work(agent):
            with agent.put(np.ones(2)) as x, agent.put(np.ones(2)) as dy, agent.tracer() as tracer:
                tracer.attach(x)
                with agent.all_reduce(x) as y:
                    if agent.rank == 0:
                        begun = tracer.backward({y: dy}, async_=True)
                        begun.cancel()
                        cancelled.set()
                    cancelled.wait(case.LONG_S)
                    with self.assertRaises(tutti.TuttiError) as caught:
                        begun.wait(case.LONG_S) if agent.rank == 0 else tracer.backward({y: dy})
                    if agent.rank == 0:
                        begun.tensor[x].delete()  # it was to be made
                    return caught.exception.reason, caught.exception.rank

        self.assertEqual(self.all(work), [("CALLER_GONE", 0)] * self.size)

    def test_receivers_name_the_tracer(self):
        def work(agent):
            with agent.put(np.ones(2)) as x, agent.tracer() as tracer:
                root = agent.rank == 0
                if root:
                    tracer.attach(x)
                y = agent.broadcast(x if root else None, tracers=[tracer])
                found = tracer.backward({y: np.full(2, agent.rank + 1.0)}, [x] if root else [])
                gradient = found[x].numpy().tolist() if root else None
                found.delete()
                y.delete()
                return gradient

        total = sum(range(1, self.size + 1))
        self.assertEqual(self.all(work), [[total, total]] + [None] * (self.size - 1))

    def test_no_grad_is_not_recorded(self):
        def work(agent):
            with agent.put(np.ones(2)) as x, agent.tracer("step") as tracer:
                tracer.attach(x)
                with agent.all_reduce(x, no_grad=True), agent.all_reduce(x):
                    (info,) = agent.tracers()
                    tracer.clear()
                    (cleared,) = agent.tracers()
                    return info.name, info.op_count, info.attached_count, cleared.op_count

        self.assertEqual(self.all(work), [("step", 1, 1, 0)] * self.size)

    def test_what_cannot_be_traced_is_refused(self):
        agent = self.agents[0]
        with agent.put(np.arange(3)) as x, agent.tracer("once") as tracer:
            for call, reason in (
                (lambda: tracer.attach(x), "DTYPE_UNSUPPORTED"),
                (lambda: tracer.backward({x: np.arange(3)}), "NOT_ON_TAPE"),
                (lambda: agent.tracer("once"), "NAME_TAKEN"),
            ):
                with self.assertRaises(tutti.TuttiError) as caught:
                    call()
                self.assertEqual(caught.exception.reason, reason)
        tracer.delete()
        self.assertEqual(agent.tracers(), [])


class Tapes(case.AgentCase):
    def test_a_tape_takes_and_gives_arrays(self):
        def work(agent):
            with agent.tape() as tape:
                x = tape.watch(np.array([1.0, 2.0]) * (agent.rank + 1))
                with agent.all_reduce(x) as y:
                    (gradient,) = tape.gradient({y: 2 * y.numpy()})
                    return gradient.tolist()

        total = sum(range(1, self.size + 1))
        want = [2.0 * total * self.size, 4.0 * total * self.size]
        self.assertEqual(self.all(work), [want] * self.size)

    def test_max_goes_to_who_had_it(self):
        def work(agent):
            with agent.tape() as tape:
                x = tape.watch(np.array([float(agent.rank)]))
                with agent.all_reduce(x, "max") as y:
                    return tape.gradient({y: np.ones(1)}, [x])[0].tolist()

        self.assertEqual(self.all(work), [[0.0]] * (self.size - 1) + [[float(self.size)]])


if __name__ == "__main__":
    tap.main()
