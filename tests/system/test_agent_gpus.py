"""Goal: an agent with several GPUs runs each op on the one on which its tensors are, or says why not.

Method: agents with two GPUs each, over the stand-ins for CUDA and NCCL, in groups that use one or the other; what
changes within a group is refused for all its ranks, which go on afterwards.
"""

import grpc
import numpy as np

import standin
import support

standin.use("leaks,delay:50")

import metrics_page  # noqa: E402
from cluster_case import LONG_S, ClusterCase, collectives, handle, tensors, tracers, types  # noqa: E402
from lane_case import LaneCase  # noqa: E402
from tracers_case import attach, create, options  # noqa: E402

INVALID = grpc.StatusCode.INVALID_ARGUMENT
SUM = types.REDUCE_OP_SUM
TWO = ("--device", "cuda:0,cuda:1", "--allow-shared-gpu", "--device-memory-limit", "32MiB")


def device_of(agent, name):
    return agent.tensors.Stat(tensors.StatRequest(handle=name), timeout=LONG_S).info.device


def all_reduce(agent, name, **fields):
    request = collectives.AllReduceRequest(input=handle(name), reduce_op=SUM, **fields)
    return agent.ops.AllReduce(request, timeout=LONG_S).output.handle


class Gpus(ClusterCase):
    size = 3
    options = TWO
    last = 0

    def new_group(self):
        """Of all ranks, as no op has used it."""
        Gpus.last += 1
        return self.cluster.group("g%d" % self.last, [0, 1, 2]).name

    def on_all(self, work):
        results = self.cluster.all(work)
        for one in results:
            self.assertNotIsInstance(one, support.Failure, one)
        return results

    def test_groups_run_on_the_gpu_of_their_tensors(self):
        groups = {"cuda:0": self.new_group(), "cuda:1": self.new_group()}

        def work(agent):
            found = []
            for device, group in groups.items():
                name = agent.put(np.full(1000, agent.rank + 1.0), device=device)
                made = all_reduce(agent, name, group=group)
                found.append((device_of(agent, made), float(agent.get(made)[-1])))
            return found

        self.assertEqual(self.on_all(work), [[("cuda:0", 6), ("cuda:1", 6)]] * 3)

    def test_ranks_of_one_group_may_use_different_ones(self):
        group = self.new_group()

        def work(agent):
            name = agent.put(np.arange(1000.0), device="cuda:%d" % (agent.rank % 2))
            made = all_reduce(agent, name, group=group)
            return device_of(agent, made), float(agent.get(made)[9])

        self.assertEqual(self.on_all(work), [("cuda:0", 27), ("cuda:1", 27), ("cuda:0", 27)])

    def test_a_group_that_changes_is_refused_for_all_and_goes_on(self):
        group = self.new_group()

        def work(agent):
            first = agent.put(np.ones(5), device="cuda:1")
            all_reduce(agent, first, group=group)
            other = agent.put(np.ones(5), device="cuda:0") if agent.rank == 2 else first
            failure = self.fails(lambda: all_reduce(agent, other, group=group))
            made = all_reduce(agent, first, group=group)
            return failure, float(agent.get(made)[0])

        for failure, total in self.on_all(work):
            self.assert_failed(failure, INVALID, "DEVICE_MISMATCH")
            self.assertIn("group %s runs its ops on cuda:1 at this rank" % group, failure.text)
            self.assertEqual(total, 3)

    def test_a_receiver_has_it_where_its_group_works(self):
        group = self.new_group()

        def work(agent):
            name = agent.put(np.arange(5.0), device="cuda:1")
            all_reduce(agent, name, group=group)
            request = collectives.BroadcastRequest(root=1, group=group)
            if agent.rank == 1:
                request.input.CopyFrom(handle(name))
            made = agent.ops.Broadcast(request, timeout=LONG_S).output.handle
            return device_of(agent, made), list(agent.get(made))

        self.assertEqual(self.on_all(work), [("cuda:1", [0, 1, 2, 3, 4])] * 3)

    def test_messages_go_from_any_to_any(self):
        group = self.new_group()

        def work(agent):
            if agent.rank == 2:
                return None
            for device in ("cuda:0", "cuda:1", "cuda:0"):
                name = agent.put(np.arange(3.0), device=device)
                if agent.rank == 0:
                    request = collectives.SendRequest(input=handle(name), destination=1, group=group)
                    agent.ops.Send(request, timeout=LONG_S)
                    continue
                other = "cuda:0" if device == "cuda:1" else "cuda:1"
                into = agent.put(np.zeros(3), device=other)
                request = collectives.RecvRequest(source=0, group=group, output=into)
                agent.ops.Recv(request, timeout=LONG_S)
                self.assertEqual(list(agent.get(into)), [0, 1, 2])
            return None

        self.on_all(work)

    def test_groups_on_both_do_not_wait_in_a_circle(self):
        groups = [self.new_group() for _ in range(4)]

        def work(agent):
            place = {group: "cuda:%d" % ((agent.rank + i) % 2) for i, group in enumerate(groups)}
            names = {group: agent.put(np.ones(2000), device=place[group]) for group in groups}
            made = []
            for turn in range(6):
                order = groups[(turn + agent.rank) % 4:] + groups[:(turn + agent.rank) % 4]
                made += [all_reduce(agent, names[one], group=one, options=options(wait=True)) for one in order]
            return sum(float(agent.get(one)[-1]) for one in made)

        self.assertEqual(self.on_all(work), [72.0] * 3)

    def test_gradients_go_back_on_the_second(self):
        group = self.new_group()

        def work(agent):
            create(agent)
            name = agent.put(np.array([1.0, agent.rank]), device="cuda:1")
            attach(agent, name)
            request = collectives.AllReduceRequest(input=handle(name), reduce_op=types.REDUCE_OP_MAX, group=group)
            made = agent.ops.AllReduce(request, timeout=LONG_S).output.handle
            request = tracers.BackwardRequest(tracer="t")
            request.gradients.add(tensor=made, gradient=agent.put(np.ones(2), device="cuda:1"))
            found = agent.tracers.Backward(request, timeout=LONG_S).gradients[0].gradient.handle
            agent.tracers.DeleteTracer(tracers.DeleteTracerRequest(tracer="t"), timeout=LONG_S)
            return device_of(agent, found), list(agent.get(found))

        zero, one = ("cuda:1", [3, 0]), ("cuda:1", [3, 3])
        self.assertEqual(self.on_all(work), [zero, zero, one])



class Memory(LaneCase):
    size = 1
    options = TWO

    def test_metrics_say_what_the_memory_of_each_gpu_is(self):
        agent = self.cluster.agents[0]
        agent.put(np.ones(16, np.float32), device="cuda:1")
        with open(agent.port_file) as file:
            page = metrics_page.read(file.read().strip())
        for device, count in (("cuda:0", 0), ("cuda:1", 64)):
            with self.subTest(device=device):
                self.assertEqual(page.sum("tutti_agent_gpu_memory_bytes", device=device, owner="tensors"), count)
                self.assertEqual(page.sum("tutti_agent_gpu_memory_bytes", device=device),
                                 page.sum("tutti_agent_gpu_memory_used_bytes", device=device))


if __name__ == "__main__":
    support.main()
