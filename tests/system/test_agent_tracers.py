"""Goal: gradients go back through collectives, as the adjoint of what went forward.

Method: real processes. Duals are compared with the ops themselves on random arguments, from a seed
that is printed and can be given, TUTTI_TEST_SEED; then chains, several uses, missing gradients, order.
"""

import os
import random
import time

import grpc
import numpy as np

import support
from cluster_case import LONG_S, collectives, handle, tracers, types
from tracers_case import (
    SUM, TracersCase, all_reduce, backward, call, clear, floats, listed, options, traced,
)

PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
SEED = int(os.environ.get("TUTTI_TEST_SEED", random.randrange(2**32)))


# ---------------------------------------------------------------------------- duals are adjoints


class Draw:
    """A random op on a group of `size`: what each rank sends, and the arrays that it gives."""

    def __init__(self, rng, size):
        self.rng = rng
        self.size = size
        self.root = rng.randrange(size)
        self.method = rng.choice(list(MAKERS))
        self.shape = [rng.randint(1, 4) for _ in range(rng.randint(1, 4))]
        self.axis = rng.randrange(len(self.shape))
        self.fields = [{} for _ in range(size)]
        self.givers = range(size)
        MAKERS[self.method](self)
        self.inputs = [self.array(rank) for rank in range(size)]

    def array(self, rank):
        numpy = np.random.default_rng(self.rng.randrange(2**32))
        shape = self.shapes[rank] if hasattr(self, "shapes") else self.shape
        return numpy.standard_normal(shape) if rank in self.givers else None

    def set(self, **fields):
        for one in self.fields:
            one.update(fields)

    def divisible(self, axis=None):
        self.shape[self.axis if axis is None else axis] *= self.size

    def said_axis(self, places):
        """The same axis, sometimes from the end."""
        return self.axis - places if self.rng.random() < 0.3 else self.axis

    def form(self, cuts):
        form = self.rng.choice([collectives.FORM_CONCAT, collectives.FORM_STACK, collectives.FORM_FLAT])
        if form == collectives.FORM_STACK and cuts:
            self.shape[self.axis] = self.size
        elif cuts:
            self.divisible()
        places = len(self.shape) + (form == collectives.FORM_STACK and not cuts)
        self.set(form=form, axis=self.said_axis(places))

    def reduction(self):
        op = self.rng.choice([SUM, types.REDUCE_OP_AVG, types.REDUCE_OP_PREMUL_SUM])
        self.set(reduce_op=op)
        for one in self.fields:
            one["factor"] = self.rng.uniform(-2, 2)

    def __str__(self):
        return "%s of %s on %d ranks, %s" % (self.method, self.shape, self.size, self.fields)


def make_all_reduce(draw):
    draw.reduction()


def make_reduce(draw):
    draw.reduction()
    draw.set(root=draw.root)


def make_broadcast(draw):
    draw.givers = [draw.root]
    draw.set(root=draw.root)


def make_all_gather(draw):
    draw.form(cuts=False)


def make_gather(draw):
    draw.form(cuts=False)
    draw.set(root=draw.root)


def make_scatter(draw):
    draw.form(cuts=True)
    draw.givers = [draw.root]
    draw.set(root=draw.root)


def make_reduce_scatter(draw):
    draw.reduction()
    draw.form(cuts=True)


def make_all_to_all(draw):
    if draw.rng.random() < 0.5:
        draw.divisible()
        concat = draw.rng.randrange(len(draw.shape))
        draw.set(split_axis=draw.axis, concat_axis=concat)
        return
    rows = [[draw.rng.randint(0, 3) for _ in range(draw.size)] for _ in range(draw.size)]
    for rank, one in enumerate(draw.fields):
        one["input_splits"] = rows[rank]
        one["output_splits"] = [rows[other][rank] for other in range(draw.size)]
    draw.shapes = [[sum(one)] + draw.shape[1:] for one in rows]


def make_permute(draw):
    to = list(range(draw.size))
    draw.rng.shuffle(to)
    draw.set(src_dst=to)


MAKERS = {
    "AllReduce": make_all_reduce,
    "Reduce": make_reduce,
    "Broadcast": make_broadcast,
    "AllGather": make_all_gather,
    "Gather": make_gather,
    "Scatter": make_scatter,
    "ReduceScatter": make_reduce_scatter,
    "AllToAll": make_all_to_all,
    "Permute": make_permute,
}


class Adjoints(TracersCase):
    """For a linear op L and its dual D: <L x, g> = <x, D g>, summed over all ranks."""

    size = 4
    rounds = 60

    def run_draw(self, draw, ranks, group):
        def work(agent):
            place = ranks.index(agent.rank)
            given = draw.inputs[place]
            name = traced(agent, given) if given is not None else None
            result = call(agent, draw.method, name, group=group, **draw.fields[place])
            made = agent.get(result) if result else None
            gradient = None
            if made is not None:
                gradient = np.random.default_rng(SEED + place).standard_normal(made.shape)
            found = backward(agent, [(result, gradient)] if result else [], [name] if name else [])
            left = np.sum(made * gradient) if made is not None else 0
            right = np.sum(given * found[name]) if name else 0
            return left, right

        return self.cluster.on(ranks, work)

    def test_duals_are_adjoints_of_random_ops(self):
        print("# TUTTI_TEST_SEED=%d" % SEED)
        rng = random.Random(SEED)
        for turn in range(self.rounds):
            ranks = rng.sample(range(self.size), rng.randint(1, self.size))
            group = "g%d" % turn
            self.cluster.group(group, ranks)
            draw = Draw(rng, len(ranks))
            pairs = self.run_draw(draw, ranks, group)
            for pair in pairs:
                self.assertNotIsInstance(pair, support.Failure, "%s: %s" % (draw, pair))
            left, right = (sum(one) for one in zip(*pairs))
            self.assertAlmostEqual(left, right, 9, "seed %d, %s" % (SEED, draw))
            self.cluster.on(ranks, clear)
            super().tearDown()
            self.setUp()

    def test_max_goes_back_as_a_difference_does(self):
        """Where no two ranks hold the maximum, it is differentiable: compare with a difference."""
        values = np.random.default_rng(SEED).permutation(4 * 24).reshape(4, 24).astype(np.float64)
        gradients = np.random.default_rng(SEED + 1).standard_normal((4, 24))

        def work(agent):
            name = traced(agent, values[agent.rank])
            result = all_reduce(agent, name, types.REDUCE_OP_MAX)
            return backward(agent, [(result, gradients[agent.rank])])[name]

        step = np.random.default_rng(SEED + 2).uniform(-0.4, 0.4, (4, 24))
        after = (values + step).max(axis=0) - values.max(axis=0)
        found = np.array(self.on_all(work))
        self.assertAlmostEqual(np.sum(found * step), np.sum(gradients.sum(axis=0) * after), 9)


# ---------------------------------------------------------------------------- tapes


class Tapes(TracersCase):
    def test_gradients_go_back_through_a_chain(self):
        def work(agent):
            name = traced(agent, floats(1, 2, 3) * (agent.rank + 1))
            parts = call(agent, "ReduceScatter", name, reduce_op=SUM)
            whole = call(agent, "AllGather", parts)
            mean = all_reduce(agent, whole, types.REDUCE_OP_AVG)
            return list(backward(agent, [(mean, floats(1, 2, 3) * (agent.rank + 1))])[name])

        for found in self.on_all(work):  # the mean of gradients, and one from each rank's share
            self.assertEqual(found, [6, 12, 18])

    def test_gradients_of_several_uses_are_added(self):
        def work(agent):
            name = traced(agent, floats(1, 1))
            first = all_reduce(agent, name)
            second = all_reduce(agent, name)
            given = [(first, floats(1, 2)), (second, floats(10, 20)), (name, floats(100, 100)),
                     (first, floats(1, 1))]
            return list(backward(agent, given)[name])

        for found in self.on_all(work):
            self.assertEqual(found, [3 * 12 + 100, 3 * 23 + 100])

    def test_an_op_in_place_is_part_of_the_chain(self):
        def work(agent):
            name = traced(agent, floats(agent.rank, 5))
            all_reduce(agent, name, types.REDUCE_OP_MAX, output=name)
            all_reduce(agent, name, output=name)
            return list(backward(agent, [(name, floats(1, 1))], [name])[name])

        found = self.on_all(work)
        self.assertEqual(found, [[0, 9], [0, 9], [9, 9]])

    def test_ranks_without_a_gradient_give_zeros(self):
        def work(agent):
            name = traced(agent, floats(1))
            result = all_reduce(agent, name)
            given = [(result, floats(7))] if agent.rank == 1 else []
            return backward(agent, given)[name]

        self.assertEqual([list(one) for one in self.on_all(work)], [[7]] * 3)

    def test_without_any_gradient_there_is_no_dual_op(self):
        def work(agent):
            name = traced(agent, floats(1))
            all_reduce(agent, name)
            before = self.sequence(agent)
            return backward(agent)[name], self.sequence(agent) - before

        self.assertEqual(self.on_all(work), [(None, 1)] * 3)  # the agreement alone

    def test_a_receiver_has_it_on_its_tracer_of_the_same_name(self):
        def work(agent):
            name = traced(agent, floats(1, 2)) if agent.rank == 2 else None
            got = call(agent, "Broadcast", name, root=2, user_meta=b"mine" if name else b"")
            found = backward(agent, [(got or name, floats(1, 10) * (agent.rank + 1))])
            return [list(one) for one in found.values()]

        self.assertEqual(self.on_all(work), [[], [], [[6, 60]]])

    def test_user_meta_stays_what_it_was(self):
        def work(agent):
            request = collectives.BroadcastRequest()
            if agent.rank == 0:
                request.input.handle = traced(agent, floats(1))
                request.user_meta = b"\1\5hello"
            return agent.ops.Broadcast(request, timeout=LONG_S).user_meta

        self.assertEqual(self.on_all(work), [b"\1\5hello"] * 3)
        self.on_all(lambda agent: backward(agent))

    def test_messages_go_back_to_their_senders(self):
        def work(agent):
            left, right = (agent.rank + 2) % 3, (agent.rank + 1) % 3
            name = traced(agent, floats(agent.rank))
            request = collectives.SendRequest(input=handle(name), destination=right, tag=3)
            getattr(request, "options").CopyFrom(options(wait=True))
            work = agent.ops.Send(request, timeout=LONG_S).info.work
            got = call(agent, "Recv", source=left, tag=3)
            agent.ops.Wait(collectives.WaitRequest(works=[work]), timeout=LONG_S)
            given = [(got, floats(10 + agent.rank))] if agent.rank != 1 else []
            return backward(agent, given, [name])[name]

        found = self.on_all(work)  # rank 0 sent to 1, which has no gradient
        self.assertIsNone(found[0])
        self.assertEqual([list(one) for one in found[1:]], [[12], [10]])

    def test_a_coalesced_op_is_as_many_ops(self):
        def work(agent):
            names = [traced(agent, floats(agent.rank, 1)), traced(agent, floats(*[agent.rank] * 3)),
                     agent.put(floats(5))]
            request = collectives.AllReduceRequest(
                reduce_op=types.REDUCE_OP_MAX, inputs=[handle(one) for one in names],
                outputs=[agent.put(floats(0, 0)), names[1], agent.put(floats(0))])
            agent.ops.AllReduce(request, timeout=LONG_S)
            given = [(request.outputs[0], floats(1, 10)), (names[1], floats(1, 2, 3))]
            found = backward(agent, given if agent.rank else given[:1], names[:2])
            return [list(found[one]) for one in names[:2]]

        self.assertEqual(self.on_all(work), [
            [[0, 30], [0, 0, 0]], [[0, 30], [0, 0, 0]], [[3, 30], [2, 4, 6]]])

    def test_the_parts_of_a_coalesced_op_are_told_apart(self):
        def work(agent):
            name = traced(agent, floats(1))
            other = agent.put(floats(1))
            names = [name, other] if agent.rank else [other, name]
            request = collectives.AllReduceRequest(
                reduce_op=SUM, inputs=[handle(one) for one in names])
            agent.ops.AllReduce(request, timeout=LONG_S)
            return backward(agent)

        for failure in self.cluster.all(work):
            self.assert_failed(failure, PRECONDITION, "TAPE_MISMATCH")
        self.on_all(clear)

    def test_a_deleted_tensor_stays_on_the_tape(self):
        def work(agent):
            name = traced(agent, floats(1))
            middle = all_reduce(agent, name, types.REDUCE_OP_MAX)
            result = all_reduce(agent, middle)
            agent.delete(middle)
            return list(backward(agent, [(result, floats(1))])[name])

        self.assertEqual(self.on_all(work), [[9]] * 3)

    def test_the_tape_is_empty_after_backward_unless_it_is_kept(self):
        def work(agent):
            name = traced(agent, floats(1))
            result = all_reduce(agent, name)
            first = backward(agent, [(result, floats(1))], keep=True)[name]
            kept = listed(agent)["t"]
            second = backward(agent, [(result, floats(2))])[name]
            left = listed(agent)["t"]
            return (first[0], kept.op_count, second[0], left.op_count, left.attached_count)

        self.assertEqual(self.on_all(work), [(3, 1, 6, 0, 1)] * 3)

    def test_no_grad_is_not_recorded_and_an_overwritten_result_is_forgotten(self):
        def work(agent):
            name = traced(agent, floats(1))
            all_reduce(agent, name, options=options(no_grad=True))
            result = all_reduce(agent, name)
            all_reduce(agent, agent.put(floats(5)), output=result)
            failure = self.fails(lambda: backward(agent, [(result, floats(1))]))
            return failure.reason, listed(agent)["t"].op_count

        for found in self.cluster.all(work):
            self.assertIn(found, [("NOT_ON_TAPE", 1)])
        self.on_all(clear)

    def test_async_ops_and_a_backward_behind_them_need_no_wait(self):
        def work(agent):
            name = traced(agent, np.ones(1 << 16, np.float32))
            middle = all_reduce(agent, name, options=options(wait=True))
            result = all_reduce(agent, middle, options=options(wait=True))
            request = tracers.BackwardRequest(tracer="t", options=options(wait=True))
            request.gradients.add(tensor=result, gradient=agent.put(np.ones(1 << 16, np.float32)))
            response = agent.tracers.Backward(request, timeout=LONG_S)
            self.assertTrue(response.info.work)
            gradient = response.gradients[0].gradient.handle
            after = all_reduce(agent, gradient)  # waits for it, in its group and for its tensor
            return agent.get(gradient)[0], agent.get(after)[-1]

        self.assertEqual(self.on_all(work), [(9, 27)] * 3)

    def test_a_sync_waits_for_a_backward(self):
        def work(agent):
            name = traced(agent, floats(1))
            result = all_reduce(agent, name)
            request = tracers.BackwardRequest(tracer="t", options=options(wait=True))
            request.gradients.add(tensor=result, gradient=agent.put(floats(1)))
            if agent.rank == 1:
                time.sleep(0.3)
            agent.tracers.Backward(request, timeout=LONG_S)
            done = agent.ops.Sync(collectives.SyncRequest(), timeout=LONG_S)
            return done.failed_count, listed(agent)["t"].walking

        self.assertEqual(self.on_all(work), [(0, False)] * 3)

    def test_ops_after_a_backward_keep_their_order(self):
        def work(agent):
            name = traced(agent, floats(1))
            result = all_reduce(agent, name)
            request = tracers.BackwardRequest(tracer="t", options=options(wait=True))
            request.gradients.add(tensor=result, gradient=agent.put(floats(1)))
            if agent.rank == 1:
                time.sleep(0.3)  # the others' ops come before anything of theirs has run
            agent.tracers.Backward(request, timeout=LONG_S)
            ones = agent.put(floats(agent.rank + 1))
            works = [
                all_reduce(agent, ones, op, options=options(wait=True))
                for op in (types.REDUCE_OP_MAX, SUM, types.REDUCE_OP_MIN)
            ]
            return [float(agent.get(one)[0]) for one in works]

        self.assertEqual(self.on_all(work), [[3, 6, 1]] * 3)

    def test_groups_in_different_orders_do_not_wait_in_a_circle(self):
        for name in ("one", "two"):
            self.cluster.group(name, [0, 1, 2])

        def work(agent):
            order = ("one", "two") if agent.rank % 2 else ("two", "one")
            made = {}
            for group in order:
                name = traced(agent, floats(agent.rank))
                made[group] = name, all_reduce(agent, name, group=group, options=options(wait=True))
            found = backward(agent, [(result, floats(1)) for _, result in made.values()])
            return sorted(float(one[0]) for one in found.values())

        self.assertEqual(self.on_all(work), [[3, 3]] * 3)


if __name__ == "__main__":
    support.main()
