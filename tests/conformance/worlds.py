"""A cluster of real processes per world size, started once and used by all cases of that size."""

import itertools
import threading
import time

import grpc

import places
import wire
from wire import Wrong, coordinator, diagnostics, tensors, types

SETTLE_S = 5  # until what was freed must be gone


class World:
    def __init__(self, size, through=None, place=places.Place()):
        """through: a module that wraps agents, or None."""
        self.size = size
        self.place = place
        self.through = through
        self.cluster = None
        self.seats = []
        self.names = {}
        self.naming = threading.Lock()
        self.numbers = itertools.count(1)
        self.start()

    def start(self):
        self.cluster = self.place.make(self.size, *self.place.options)
        if self.through is not None:
            for agent in self.cluster.agents:
                self.through.wrap(agent)
        self.seats = [wire.Seat(agent) for agent in self.cluster.agents]
        self.members = [self._member(agent) for agent in self.cluster.agents]
        self.names = {tuple(range(self.size)): ""}

    def _member(self, agent):
        return types.Member(rank=agent.rank, incarnation=agent.describe().incarnation)

    def unique(self):
        """A name that no other case has."""
        return "c%d" % next(self.numbers)

    def use(self, way):
        """Inline tensors are in host memory, so those they meet have to be there too."""
        for seat in self.seats:
            seat.device = "cpu" if way.inline else ""

    # ------------------------------------------------------------------ groups

    def group(self, ranks):
        """The name of the group of these global ranks, in this order; made at first use."""
        key = tuple(ranks)
        with self.naming:  # ranks of one step ask at the same time
            if key not in self.names:
                name = self.unique()
                request = coordinator.CreateGroupRequest(
                    member=self.members[ranks[0]], name=name, ranks=ranks
                )
                wire.call(self.cluster.members.CreateGroup, request)
                self.names[key] = name
            return self.names[key]

    def sequence(self, rank, ranks):
        """The number of the last op of this group that the rank's agent has begun."""
        name = self.group(ranks) or "world"
        for one in self._stats(self.seats[rank]).groups:
            if one.group == name:
                return one.sequence
        return 0

    # ------------------------------------------------------------------ after a case

    def clear(self):
        """Free what the case made; a world in which that is impossible is replaced."""
        try:
            for seat in self.seats:
                seat.clear()
        except wire.Refused:
            self.replace()

    def sweep(self):
        """Free also what nobody knows of: results whose calls were given up."""
        for seat in self.seats:
            page = wire.call(seat.agent.tensors.List, tensors.ListRequest(page_size=1000))
            for one in page.tensors:
                seat.keep(one.tensor.handle)

    def check_empty(self):
        """Nothing may be left on any agent."""
        until = time.monotonic() + SETTLE_S
        for seat in self.seats:
            while True:
                stats = self._stats(seat)
                left = (stats.tensor_count, stats.op_running_count)
                if left == (0, 0):
                    break
                if time.monotonic() > until:
                    said = self._left(seat)
                    self.replace()
                    raise Wrong("rank %d: afterwards %d tensors and %d running ops are left%s"
                                % (seat.rank, left[0], left[1], said))
                time.sleep(0.005)

    def _stats(self, seat):
        return wire.call(seat.agent.diagnostics.GetStats, diagnostics.GetStatsRequest())

    def _left(self, seat):
        page = wire.call(seat.agent.tensors.List, tensors.ListRequest())
        return "".join(" %s" % one.tensor.handle for one in page.tensors[:5])

    # ------------------------------------------------------------------ life

    def dead(self):
        """Programs that ended by themselves, with the end of their logs."""
        programs = [self.cluster.coordinator] + [one.program for one in self.cluster.agents]
        return [one for one in programs if one.process.poll() is not None]

    def check_alive(self):
        dead = self.dead()
        if dead:
            said = "; ".join(
                "%s ended with %d: %s"
                % (one.process.args[0], one.process.returncode, one.log()[-600:])
                for one in dead
            )
            self.replace()
            raise Wrong(said)

    def close_clients(self):
        for seat in self.seats:
            seat.close()

    def replace(self):
        self.close_clients()
        self.cluster.kill()
        self.start()

    def stop(self):
        """End all programs; Wrong when one of them does not end well."""
        self.close_clients()
        try:
            self.cluster.stop()
        except (AssertionError, grpc.RpcError) as error:
            self.cluster.kill()
            raise Wrong("stopping world %d: %s" % (self.size, error)) from None
