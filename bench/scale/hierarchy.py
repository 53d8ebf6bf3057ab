#!/usr/bin/env python3
"""Where one coordinator ends, and what a relay for each rack would change: bench/scale/hierarchy.py FIGURES.json

FIGURES.json is what scale.py --json has written. Its figures of 10 000 agents give the cost of one join,
heartbeat, message and change; a simulation in events then plays a job of any size: each coordinator is one
server that works off its queue, in the order in which work comes. A relay is such a server, too: agents of
its rack join, beat and hear through it; it tells the root of all of them with one message, and hears from
the root once. Relays are not built: this is the paper on which they would be decided.
"""

import heapq
import json
import random
import sys

GRACE_S = 0.5  # --lost-grace
TRIP_S = 0.0002  # of a message between two machines
CHANGES_OF_A_MESSAGE = 256
BEAT_S = 2  # between two heartbeats of a relay
FILES = 60000  # connections of one process, beside others: below 65 536 ports of one address
GOALS_S = {"join": 10, "deaths": 5, "group": 1}


class Costs:
    """CPU seconds of a coordinator, from the figures."""

    def __init__(self, rows):
        row = min(rows, key=lambda one: abs(one["agents"] - 10000))
        agents, deaths = row["agents"], row["deaths"]
        self.agents = agents
        self.row = row
        self.join = row["join_cpu_s"] / agents
        self.beat = row["beat_core"] / row["beats_per_s"]
        self.message = row["event_cpu_s"] / agents
        changes = deaths * (agents - deaths)
        self.change = max(0.0, row["deaths_cpu_s"] - row["deaths_messages"] * self.message) / changes
        self.group = row["group_cpu_s"] / agents
        self.kib = row["rss_kib"]

    def tell(self, changes):
        """Of telling one session of so many changes."""
        messages = max(1, -(-changes // CHANGES_OF_A_MESSAGE))
        return messages * self.message + changes * self.change


class Server:
    """Works off what comes, one after the other."""

    def __init__(self):
        self.free_at = 0.0
        self.busy_s = 0.0

    def work(self, now, seconds):
        self.free_at = max(self.free_at, now) + seconds
        self.busy_s += seconds
        return self.free_at


class World:
    """Events in the order of their times."""

    def __init__(self):
        self.queue = []
        self.count = 0
        self.now = 0.0

    def at(self, when, action, *arguments):
        self.count += 1
        heapq.heappush(self.queue, (when, self.count, action, arguments))

    def run(self):
        while self.queue:
            self.now, _, action, arguments = heapq.heappop(self.queue)
            action(*arguments)
        return self.now


def racks_of(agents, rack):
    return [min(rack, agents - begin) for begin in range(0, agents, rack)]


def play_deaths(costs, agents, deaths, rack, seed=1):
    """`deaths` agents die within 10 ms; seconds until all others know. rack 0 = no relays."""
    draw = random.Random(seed)
    world, root = World(), Server()
    noticed = sorted(GRACE_S + draw.uniform(0, 0.01) for _ in range(deaths))
    told_by = noticed[-1] + TRIP_S
    if rack == 0:
        # A session is told of what has come since its last message: two rounds at most matter, the last has the rest.
        for _ in range(agents - deaths):
            world.at(root.work(told_by, costs.tell(deaths)) + TRIP_S, lambda: None)
        return world.run()
    racks = racks_of(agents, rack)
    for size in racks:
        relay = Server()
        heard = root.work(told_by, costs.tell(deaths)) + TRIP_S  # the root tells the relay once

        def fan_out(relay=relay, size=size):
            for _ in range(size):
                world.at(relay.work(world.now, costs.tell(deaths)) + TRIP_S, lambda: None)

        world.at(heard, fan_out)
    return world.run()


def play_calls(cost, agents, rack):
    """All make one call at one instant, a join or a group: seconds until all are answered."""
    world, root = World(), Server()
    if rack == 0:
        return root.work(0, agents * cost)
    last = 0.0
    for size in racks_of(agents, rack):
        relay = Server()
        asked = relay.work(0, size * cost) + TRIP_S
        # The root has a message for each rack; reading a rank of it is a tenth of a call without its own stream.
        answered = root.work(asked, cost + size * cost / 10) + TRIP_S
        last = max(last, answered)
    return max(last, world.run())


def beats(costs, agents, rack):
    """Of a core of the root."""
    if rack == 0:  # as server/coordinator/member/join.c paces them, with a --heartbeat-timeout of 10 s
        return agents / max(2, min(agents / 2500, 10 / 3)) * costs.beat
    return len(racks_of(agents, rack)) / BEAT_S * costs.beat


def limit(costs, play, goal_s):
    """The largest job for which `play` stays below the goal, without relays."""
    low, high = 100, 10_000_000
    while high - low > low // 50:
        middle = (low + high) // 2
        if play(middle) < goal_s:
            low = middle
        else:
            high = middle
    return low


def tables(costs, out):
    row = costs.row
    deaths = int(row["deaths"])
    out("Costs from %d agents: join %.0f us, heartbeat %.0f us, message %.0f us and %.2f us for a change, group call %.0f us, %.0f KiB an agent.\n\n" % (
        costs.agents, costs.join * 1e6, costs.beat * 1e6, costs.message * 1e6, costs.change * 1e6, costs.group * 1e6, costs.kib))
    out("The model beside what was measured at %d agents: join %.2f s / %.2f s, %d deaths %.2f s / %.2f s, group %.2f s / %.2f s.\n\n" % (
        costs.agents, play_calls(costs.join, costs.agents, 0), row["joined_s"], deaths,
        play_deaths(costs, costs.agents, deaths, 0), row["deaths_s"], play_calls(costs.group, costs.agents, 0), row["group_s"]))
    out("| agents | relays | all join, s | heartbeats, of the root's core | a tenth (at most 1000) dies: all told, s | group of all by all, s | root's memory |\n|---|---|---|---|---|---|---|\n")
    for agents in (10_000, 30_000, 100_000, 300_000, 1_000_000):
        for rack in (0, 1000):
            if rack == 0 and agents > FILES:
                out("| %d | none | %s |\n" % (agents, "more connections than a process has | | | | "))
                continue
            dead = min(1000, agents // 10)
            sessions = agents if rack == 0 else len(racks_of(agents, rack))
            out("| %d | %s | %.1f | %.2f | %.1f | %.1f | %.0f MiB |\n" % (
                agents, "none" if rack == 0 else "%d of %d" % (sessions, rack), play_calls(costs.join, agents, rack),
                beats(costs, agents, rack), play_deaths(costs, agents, dead, rack), play_calls(costs.group, agents, rack),
                (sessions * costs.kib + (agents * 1.0 if rack else 0)) / 1024))
    out("\nWithout relays the goals are met up to: join in %g s %d agents; 1000 deaths told in %g s %d; group of all in %g s %d.\n" % (
        GOALS_S["join"], limit(costs, lambda n: play_calls(costs.join, n, 0), GOALS_S["join"]),
        GOALS_S["deaths"], limit(costs, lambda n: GRACE_S + n * costs.tell(1000), GOALS_S["deaths"]),
        GOALS_S["group"], limit(costs, lambda n: play_calls(costs.group, n, 0), GOALS_S["group"])))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        tables(Costs(json.load(file)), sys.stdout.write)


if __name__ == "__main__":
    main()
