"""Tracers for tests: a cluster whose ranks have a tracer "t", and the calls of TracersService."""

import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, collectives, handle, tracers, types

SUM = types.REDUCE_OP_SUM


def options(**fields):
    if "wait" in fields:
        fields["async"] = fields.pop("wait")
    return types.OpOptions(**fields)


def create(agent, name="t"):
    agent.tracers.CreateTracer(tracers.CreateTracerRequest(name=name), timeout=LONG_S)


def attach(agent, *names, tracer="t"):
    agent.tracers.Attach(tracers.AttachRequest(tracer=tracer, tensors=names), timeout=LONG_S)


def traced(agent, array, tracer="t"):
    name = agent.put(np.asarray(array))
    attach(agent, name, tracer=tracer)
    return name


def clear(agent, name="t"):
    agent.tracers.ClearTracer(tracers.ClearTracerRequest(tracer=name), timeout=LONG_S)


def listed(agent):
    found = agent.tracers.ListTracers(tracers.ListTracersRequest(), timeout=LONG_S).tracers
    return {one.name: one for one in found}


def call(agent, method, name=None, timeout=LONG_S, **fields):
    """An op by handle; the handle of its result."""
    request = getattr(collectives, method + "Request")(**fields)
    if name:
        request.input.CopyFrom(handle(name))
    response = getattr(agent.ops, method)(request, timeout=timeout)
    return response.output.handle if hasattr(response, "output") else None


def all_reduce(agent, name, op=SUM, **fields):
    return call(agent, "AllReduce", name, reduce_op=op, **fields)


def backward(agent, given=(), wanted=(), tracer="t", timeout=LONG_S, **fields):
    """Gradients by tensor, None where there is none. `given` are pairs of a handle and an array."""
    request = tracers.BackwardRequest(tracer=tracer, wanted=wanted, **fields)
    for name, gradient in given:
        request.gradients.add(tensor=name, gradient=agent.put(np.asarray(gradient)))
    response = agent.tracers.Backward(request, timeout=timeout)
    return {
        one.tensor: agent.get(one.gradient.handle) if one.gradient.handle else None
        for one in response.gradients
    }


def floats(*values):
    return np.array(values, np.float32)


class TracersCase(ClusterCase):
    size = 3

    def setUp(self):
        self.cluster.all(create)

    def tearDown(self):
        for agent in self.cluster.agents:
            for name in listed(agent):
                agent.tracers.DeleteTracer(
                    tracers.DeleteTracerRequest(tracer=name), timeout=LONG_S
                )
        super().tearDown()

    def on_all(self, work):
        """work(agent) on all ranks at once; none may fail."""
        results = self.cluster.all(work)
        for result in results:
            self.assertNotIsInstance(result, support.Failure, result)
        return results

    def sequence(self, agent):
        for one in agent.stats().groups:
            if one.group == "world":
                return one.sequence
        return 0
