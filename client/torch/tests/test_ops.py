"""Goal: each op of torch.distributed gives on "tutti" what it should, for every kind of tensor, and errors are clear.

Method: the ranks are forks of this process, with agents of their own. Expected values are computed here.
"""

import datetime
import os
import sys
import tempfile
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

place.enter()

import unittest

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

import ranks
import tap

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64,
         torch.uint8, torch.complex64, torch.complex128]
MOVED = TYPES + [torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
COUNTS = (0, 1, 1000, 100_000)  # inline, and through mapped memory
# What torch 2.4 does not have, or gives its own backends only: docs/pytorch.md lists it.
OLD = tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 5)


def same(got, expected):
    assert got.dtype == expected.dtype and torch.equal(got, expected), "%s, not %s" % (got, expected)


def sums(rank, size):
    for dtype in TYPES:
        for count in COUNTS:
            got = torch.full((count,), rank + 1).to(dtype)
            dist.all_reduce(got)
            same(got, torch.full((count,), size * (size + 1) // 2).to(dtype))
    flags = torch.tensor([rank == 0, False, True])
    dist.all_reduce(flags, dist.ReduceOp.MAX)
    same(flags, torch.tensor([True, False, True]))


def reductions(rank, size):
    values = {dist.ReduceOp.SUM: sum(range(1, size + 1)), dist.ReduceOp.MIN: 1, dist.ReduceOp.MAX: size,
              dist.ReduceOp.AVG: (size + 1) / 2, dist.ReduceOp.PRODUCT: 2 if size == 2 else 24}
    for op, value in values.items():
        got = torch.full((5,), rank + 1.0)
        dist.all_reduce(got, op)
        same(got, torch.full((5,), float(value)))
    got = torch.full((3,), rank + 1.0)
    dist.all_reduce(got, dist._make_nccl_premul_sum(0.5))
    same(got, torch.full((3,), 0.5 * size * (size + 1) / 2))
    got = torch.tensor([1 << rank])
    dist.all_reduce(got, dist.ReduceOp.BOR)
    same(got, torch.tensor([(1 << size) - 1]))


def moves(rank, size):
    for dtype in MOVED:
        for count in (3, 70_000):
            mine = torch.full((count,), rank % 2).to(dtype)
            got = mine.clone()
            dist.broadcast(got, size - 1)
            same(got.view(torch.uint8), torch.full((count,), (size - 1) % 2).to(dtype).view(torch.uint8))
            parts = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(parts, mine)
            for index, part in enumerate(parts):
                same(part.view(torch.uint8), torch.full((count,), index % 2).to(dtype).view(torch.uint8))


def shapes(rank, size):
    """Transposed, sliced, of no dimension, without elements."""
    for count in (4, 40_000):
        wide = torch.full((count, 2), float(rank)).t()
        dist.all_reduce(wide)
        same(wide, torch.full((2, count), size * (size - 1) / 2))
        base = torch.zeros(count, 3)
        part = base[:, 1]
        part.fill_(rank + 1)
        dist.broadcast(part, 0)
        same(base[:, 1], torch.ones(count))
        same(base[:, 0], torch.zeros(count))
        outputs = [torch.empty(3, count).t() for _ in range(size)]
        dist.all_gather(outputs, torch.full((count, 3), float(rank)))
        same(outputs[-1].contiguous(), torch.full((count, 3), size - 1.0))
    point = torch.tensor(float(rank))
    dist.all_reduce(point)
    assert point.item() == size * (size - 1) / 2
    empty = torch.empty(0, 7)
    outputs = torch.empty(0, 7)
    dist.all_gather_into_tensor(outputs, empty)
    dist.reduce_scatter_tensor(empty, torch.empty(0, 7))
    dist.all_to_all_single(outputs, empty)


def parts(rank, size):
    for count in (3, 100_000):
        mine = torch.full((count,), float(rank))
        got = torch.empty(size * count)
        dist.all_gather_into_tensor(got, mine)
        same(got.view(size, count)[:, 0].clone(), torch.arange(float(size)))
        got = torch.empty(count)
        dist.reduce_scatter_tensor(got, torch.arange(float(size * count)))
        same(got, size * (torch.arange(float(count)) + rank * count))
        dist.reduce_scatter(got, [torch.full((count,), float(index)) for index in range(size)])
        same(got, torch.full((count,), float(size * rank)))
        dist.reduce(mine, 1)
        if rank == 1:
            same(mine, torch.full((count,), size * (size - 1) / 2))
        mine = torch.full((count,), float(rank))
        outputs = [torch.empty(count) for _ in range(size)] if rank == 1 else None
        dist.gather(mine, outputs, 1)
        if rank == 1:
            same(torch.stack(outputs)[:, 0].clone(), torch.arange(float(size)))
        inputs = [torch.full((count,), float(index)) for index in range(size)] if rank == 0 else None
        dist.scatter(got, inputs, 0)
        same(got, torch.full((count,), float(rank)))


def exchanges(rank, size):
    for factor in (1, 50_000):
        inputs = [torch.full(((index + 1) * factor,), float(rank)) for index in range(size)]
        outputs = [torch.empty((rank + 1) * factor) for _ in range(size)]
        dist.all_to_all(outputs, inputs)
        for index, output in enumerate(outputs):
            same(output, torch.full(((rank + 1) * factor,), float(index)))
        splits = [(index + 1) * factor for index in range(size)]
        got = torch.empty(size * (rank + 1) * factor, 2)
        dist.all_to_all_single(got, torch.full((sum(splits), 2), float(rank)), [(rank + 1) * factor] * size, splits)
        same(got, torch.arange(float(size)).repeat_interleave((rank + 1) * factor).unsqueeze(1).repeat(1, 2))


def pairs(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    for count in (0, 4, 1_000_000):
        got = torch.empty(count)
        work = dist.isend(torch.full((count,), float(rank)), after)
        assert dist.recv(got, before) == before
        work.wait()
        assert work.is_completed()
        same(got, torch.full((count,), float(before)))
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, torch.full((count,), float(rank)), after),
                                        dist.P2POp(dist.irecv, got, before)])
        for work in works:
            work.wait()
    first, second = torch.empty(1), torch.empty(1)
    works = [dist.isend(torch.tensor([1.0]), after, tag=1), dist.isend(torch.tensor([2.0]), after, tag=2)]
    dist.recv(second, before, tag=2)
    dist.recv(first, before, tag=1)
    assert (first.item(), second.item()) == (1.0, 2.0)
    for work in works:
        work.wait()
    if rank == 0:
        sources = []
        for _ in range(size - 1):
            source = dist.recv(first)
            assert source == first.item()
            sources.append(source)
        assert sorted(sources) == list(range(1, size))
    else:
        dist.send(torch.tensor([float(rank)]), 0)


def works(rank, size):
    """A work completes when its op does, not before, and its future has the tensors."""
    got = torch.ones(3)
    if rank == 0:
        work = dist.all_reduce(got, async_op=True)
        assert not work.is_completed(), "complete before the others have called"
        dist.send(torch.ones(1), 1)
    else:
        if rank == 1:
            dist.recv(torch.ones(1), 0)
        work = dist.all_reduce(got, async_op=True)
    work.wait()
    assert work.is_completed() and work.is_success()
    same(work.get_future().value()[0], torch.full((3,), float(size)))
    group = dist.group.WORLD
    before = group._get_backend(torch.device("cpu"))._get_sequence_number_for_group()
    if rank < 2:
        dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0)
    dist.barrier(device_ids=[0])
    numbers = [None] * size
    dist.all_gather_object(numbers, group._get_backend(torch.device("cpu"))._get_sequence_number_for_group())
    assert len(set(numbers)) == 1 and numbers[0] > before, numbers


def futures(rank, size):
    """What has waited for a work may ask its future at once, whichever thread has completed it."""
    for turn in range(500):
        got = torch.full((3,), float(rank))
        work = dist.all_reduce(got, async_op=True)
        future = work.get_future()
        if turn % 2:
            work.wait()
        else:
            while not work.is_completed():
                pass
        assert future.value()[0] is not None


def coalesced(rank, size):
    with dist._coalescing_manager(async_ops=True) as manager:
        tensors = [torch.full((3,), float(index)) for index in range(4)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    same(tensors[3], torch.full((3,), 3.0 * size))
    with dist._coalescing_manager():
        outputs = [torch.empty(2 * size) for _ in range(3)]
        for index, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((2,), float(rank + index)))
    same(outputs[2], (torch.arange(float(size)) + 2).repeat_interleave(2))
    with dist._coalescing_manager():
        results = [torch.empty(2) for _ in range(3)]
        for result in results:
            dist.reduce_scatter_tensor(result, torch.arange(2.0 * size))
    same(results[1], size * torch.arange(2.0 * size)[2 * rank:2 * rank + 2])
    group = dist.group.WORLD
    same(functional.all_reduce(torch.ones(4), "sum", group) + 0, torch.full((4,), float(size)))
    same(functional.all_gather_tensor(torch.full((2,), float(rank)), 0, group) + 0,
         torch.arange(float(size)).repeat_interleave(2))
    same(functional.reduce_scatter_tensor(torch.arange(2.0 * size), "sum", 0, group) + 0,
         size * torch.arange(2.0 * size)[2 * rank:2 * rank + 2])
    first, second = functional.all_reduce_coalesced([torch.ones(2), torch.ones(3)], "sum", group)
    same(second + first.sum() * 0, torch.full((3,), float(size)))
    first, second = functional.all_gather_into_tensor_coalesced([torch.ones(2), torch.full((3,), float(rank))], group)
    same(second + 0, torch.arange(float(size)).repeat_interleave(3))
    same(functional.broadcast(torch.full((2,), float(rank)), 1, group) + 0, torch.ones(2))


def reduced_together(tensors, size):
    with dist._coalescing_manager():
        for one in tensors:
            dist.all_reduce(one)
    for index, one in enumerate(tensors):
        same(one, torch.full(one.shape, index % 7 * size).to(one.dtype))


def lists(rank, size):
    """Many tensors in one op: small ones, large ones, more than a list has, in memory of the program's and of the agent's."""
    import tutti_torch

    def numbers(counts, make=torch.empty):
        tensors = [make(count) for count in counts]
        for index, one in enumerate(tensors):
            one.fill_(index % 7)
        return tensors

    reduced_together(numbers([1, 2, 3]), size)
    reduced_together(numbers([1, 0, 30_000, 5, 100_000]), size)
    reduced_together(numbers([3] * 1030), size)
    reduced_together(numbers([500, 200_000, 7], tutti_torch.empty), size)
    reduced_together([torch.empty(6, 4).t().fill_(0), torch.empty(90_000, dtype=torch.int64).fill_(1),
                      torch.empty(3, dtype=torch.float16).fill_(2)], size)
    for count in (5, 50_000):
        inputs, outputs = numbers([count, 2 * count]), [torch.empty(count * size), torch.empty(2 * count * size)]
        with dist._coalescing_manager():
            for output, one in zip(outputs, inputs):
                dist.all_gather_into_tensor(output, one)
        same(outputs[1], torch.ones(2 * count * size))
        parts = [torch.empty(count), torch.empty(2 * count)]
        with dist._coalescing_manager():
            for part, output in zip(parts, outputs):
                dist.reduce_scatter_tensor(part, output)
        same(parts[1], torch.full((2 * count,), float(size)))
    raises(lambda: reduced_together(numbers([2, 2 + rank]), size), RuntimeError, "SHAPE_MISMATCH")
    raises(lambda: reduced_together(numbers([2] * (2 + rank)), size), RuntimeError, "LIST_SIZE")
    raises(lambda: reduced_together(numbers([20_000] * (2 + rank)), size), RuntimeError, "LIST_SIZE")
    reduced_together(numbers([1, 2]), size)


def objects(rank, size):
    said = [None] * size
    dist.all_gather_object(said, {"rank": rank, "text": "x" * 100_000 * rank})
    assert [one["rank"] for one in said] == list(range(size))
    given = [{"a": rank}]
    dist.broadcast_object_list(given, 1)
    assert given == [{"a": 1}]
    got = [None]
    dist.scatter_object_list(got, [str(index) for index in range(size)] if rank == 0 else None, 0)
    assert got == [str(rank)]
    said = [None] * size if rank == 0 else None
    dist.gather_object(rank, said, 0)
    assert rank or said == list(range(size))


def groups(rank, size):
    from torch.distributed.device_mesh import init_device_mesh

    pair = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        got = torch.ones(3)
        dist.all_reduce(got, group=pair)
        same(got, torch.full((3,), 2.0))
        dist.destroy_process_group(pair)
    half = size // 2
    mesh = init_device_mesh("cpu", (2, half), mesh_dim_names=("rows", "columns"))
    got = torch.full((2,), float(rank))
    dist.all_reduce(got, group=mesh.get_group("rows"))
    same(got, torch.full((2,), float(rank % half * 2 + half)))


def splits(rank, size):
    if OLD:
        return
    half = size // 2
    split = dist.split_group(split_ranks=[list(range(half)), list(range(half, size))])
    got = torch.full((2,), float(rank))
    dist.all_reduce(got, group=split)
    same(got, torch.full((2,), float(sum(range(half) if rank < half else range(half, size)))))
    dist.destroy_process_group(split)


def profile(rank, size):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        dist.all_reduce(torch.ones(3))
        dist.broadcast(torch.ones(3), 0)
        dist.barrier()
        work = dist.all_reduce(torch.ones(3), async_op=True)
        work.wait()
    counts = {event.key: event.count for event in profiler.key_averages()}
    assert counts.get("tutti:all_reduce") == 2 and counts.get("tutti:broadcast") == 1, counts
    assert counts.get("tutti:barrier") == 1, counts


def raises(function, kind, *words):
    try:
        function()
    except kind as error:
        for word in words:
            assert word in str(error), "%r is not in %r" % (word, str(error))
        return str(error)
    raise AssertionError("nothing was raised")


def wrong_tensors(rank, size):
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))  # dist.all_reduce() of such a tensor does nothing, in torch
    raises(lambda: backend.allreduce([torch.ones(3, device="meta")]), RuntimeError, "meta", "those of the CPU")
    mixed = [torch.ones(3) if other == 0 else torch.ones(3, device="meta") for other in range(size)]
    raises(lambda: dist.all_gather(mixed, torch.ones(3)), RuntimeError, "meta", "those of the CPU")
    raises(lambda: dist.all_reduce(torch.ones(3).to_sparse()), RuntimeError, "sparse")
    raises(lambda: dist.all_gather_into_tensor(torch.empty(5), torch.ones(3)), (RuntimeError, ValueError), "5")
    raises(lambda: dist.all_reduce(torch.ones(3), dist.ReduceOp.BAND), RuntimeError, "non-integral")
    raises(lambda: dist.all_to_all_single(torch.empty(4), torch.ones(4), [1] * size, [9] * size), RuntimeError, "plit")
    got = torch.ones(3)
    dist.all_reduce(got)  # the group is as it was
    same(got, torch.full((3,), float(size)))


def mismatch(rank, size):
    """Told on every rank, and the group goes on."""
    for _ in range(2):
        raises(lambda: dist.all_reduce(torch.ones(3 + rank)), RuntimeError, "SHAPE_MISMATCH")
    work = dist.all_reduce(torch.ones(3 + rank), async_op=True)
    raises(work.wait, RuntimeError, "SHAPE_MISMATCH")
    assert work.is_completed() and not work.is_success() and (OLD or "SHAPE" in str(work.exception()))
    raises(lambda: work.get_future().wait(), RuntimeError, "SHAPE_MISMATCH")
    got = torch.ones(3)
    dist.all_reduce(got)
    same(got, torch.full((3,), float(size)))


def timeouts(rank, size):
    group, other = dist.new_group(timeout=datetime.timedelta(seconds=1)), dist.new_group()
    if rank == 0:
        text = raises(lambda: dist.all_reduce(torch.ones(3), group=group), RuntimeError, " Timed out ", "rank 1")
        assert "DEADLINE_EXCEEDED" in text
    if rank == 0 and not OLD:
        limit = datetime.timedelta(milliseconds=500)
        raises(lambda: dist.monitored_barrier(other, limit), RuntimeError, "Rank 1 failed to pass monitoredBarrier")
        everyone = ", ".join(str(index) for index in range(1, size))
        raises(lambda: dist.monitored_barrier(other, limit, True), RuntimeError,
               "Ranks %s failed to pass monitoredBarrier" % everyone)
        raises(lambda: dist.monitored_barrier(other, datetime.timedelta(0)), RuntimeError, "Rank 0 timed out")
    if rank == 0:
        for late in range(1, size):
            dist.send(torch.ones(1), late)
    else:
        dist.recv(torch.ones(1), 0)  # calls no collective before rank 0 has seen that it does not


def shared_taking(rank, size):
    """While the thread that takes completions runs a program's callback, another one takes its place. It must give it back when
    the callback ends: else nobody hears of the ops after the next one. Which thread is first is left to chance, so it is done
    many times."""
    store = dist.distributed_c10d._get_default_store()
    posted = {}

    def on_first(future, turn):
        posted["second"] = dist.irecv(torch.zeros(1), 1, tag=3 * turn + 1)  # for another thread, as this one is here
        torch.ones(300, 300) @ torch.ones(300, 300)  # that one begins

    for turn in range(40):
        if rank == 0:
            first = dist.irecv(torch.zeros(1), 1, tag=3 * turn)
            seen = first.get_future().then(lambda future, turn=turn: on_first(future, turn))
            store.set("first %d" % turn, "")
            seen.wait()
            third = dist.irecv(torch.zeros(1), 1, tag=3 * turn + 2)
            store.set("third %d" % turn, "")
            posted["second"].wait(datetime.timedelta(seconds=20))
            third.wait(datetime.timedelta(seconds=20))
        elif rank == 1:
            for part, key in enumerate(("first", "third", "third")):
                store.wait(["%s %d" % (key, turn)])
                dist.send(torch.ones(1), 0, tag=3 * turn + part)


def after_destroy(rank, size):
    group = dist.new_group()
    dist.destroy_process_group(group)
    if not OLD:
        raises(lambda: group.allreduce([torch.ones(3)]).wait(), RuntimeError, "was destroyed")
    raises(lambda: dist.init_process_group("tutti"), ValueError, "twice")
    dist.barrier()
    dist.destroy_process_group()
    raises(lambda: dist.all_reduce(torch.ones(3)), ValueError, "not been initialized")


def aborts(rank, size):
    """abort() of another thread ends what waits, on every rank."""
    if OLD:
        return
    group = dist.new_group()
    started = threading.Event()
    if rank == 0:
        work = group.allreduce([torch.ones(3)])
        started.set()
        thread = threading.Thread(target=group.abort)
        thread.start()
        raises(work.wait, RuntimeError, "GROUP_ABORTED")
        thread.join()
    dist.barrier()
    raises(lambda: group.allreduce([torch.ones(3)]).wait(), RuntimeError, "GROUP_ABORTED")


def forked(rank, size):
    """A fork of a rank is told what it is; the rank goes on."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            dist.all_reduce(torch.ones(3))
        except RuntimeError as error:
            code = 0 if "FORKED" in str(error) else 2
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert status == 0, "the fork's exit code: %d" % os.waitstatus_to_exitcode(status)
    got = torch.ones(3)
    dist.all_reduce(got)
    same(got, torch.full((3,), float(size)))


FUNCTIONS = [sums, reductions, moves, shapes, parts, exchanges, pairs, works, futures, coalesced, lists, objects, groups, splits,
             profile, wrong_tensors, mismatch, timeouts, shared_taking, after_destroy, aborts, forked]


class Ops(unittest.TestCase):
    """Each function in two ranks and in four."""


class Versions(unittest.TestCase):
    def test_mixed(self):
        """Told on every rank, before any op."""
        def join(rank, size):
            import tutti_torch

            tutti_torch.why_not_shared()  # loads the module, which is for the torch that is here
            here = torch.__version__
            if rank == 1:
                torch.__version__ = "2.3.1"
            raises(lambda: dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=size),
                   RuntimeError, "TORCH_MISMATCH", "rank 1 has torch 2.3.1" if rank == 0 else "rank 0 has torch " + here,
                   "need the same torch")

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "store")
            ranks.run(2, join, init=False)


class Debug(unittest.TestCase):
    """TORCH_DISTRIBUTED_DEBUG=DETAIL: torch checks each op by Gloo before it is called."""

    def test_detail(self):
        def ops(rank, size):
            assert dist.get_debug_level() == dist.DebugLevel.DETAIL
            sums(rank, size)
            parts(rank, size)
            raises(lambda: dist.all_reduce(torch.ones(3 + rank)), RuntimeError, "mismatch")

        def with_debug(rank, size):
            os.environ["TORCH_DISTRIBUTED_DEBUG"] = "DETAIL"
            dist.set_debug_level_from_env()
            path = os.environ["TUTTI_TEST_STORE"]
            dist.init_process_group("tutti", init_method="file://" + path, rank=rank, world_size=size)
            ops(rank, size)
            dist.barrier()
            dist.destroy_process_group()

        with tempfile.TemporaryDirectory() as folder:
            os.environ["TUTTI_TEST_STORE"] = os.path.join(folder, "store")
            ranks.run(2, with_debug, init=False)


for _function in FUNCTIONS:
    for _size in (2, 4):
        def _test(self, function=_function, size=_size):
            ranks.run(size, function)
        setattr(Ops, "test_%s_%d" % (_function.__name__, _size), _test)

if __name__ == "__main__":
    tap.main()
