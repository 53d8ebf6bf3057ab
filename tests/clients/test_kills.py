#!/usr/bin/python3
"""Goal: a coordinator that is killed and started again is a delay to calls of the store, and each counts once.

Method: clients in C and Python, and with `go` in Go where it is installed, add, push, pop, append and take without a pause
while the coordinator is killed at drawn moments, several times; others wait for one value all the time. Each
answer is compared with the one to come, and in the end the counters, and what was pushed with what was popped. With `watch` some watch
all keys meanwhile (with --store-sync order: without it a change and what watches need of it are two transactions), and are told each
change once, in order.

usage: test_kills.py KILLS [go] [watch] [SEED]
"""

import os
import random
import subprocess
import sys
import tempfile
import time

import go_world
import worlds
from worlds import support

LONG_S = 120
HERE = os.path.dirname(os.path.abspath(__file__))


class Client:
    """A process that calls, or that waits."""

    def __init__(self, name, words, environment=None):
        self.name = name
        self.out = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=self.out, stderr=subprocess.STDOUT, close_fds=False,
            env=dict(os.environ, **(environment or {})),
        )

    def end(self):
        """What it has printed; an error unless it ended well."""
        self.process.stdin.close()
        try:
            code = self.process.wait(LONG_S)
        finally:
            self.process.kill()
        self.out.seek(0)
        said = self.out.read().decode(errors="replace")
        self.out.close()
        assert code == 0, "%s: exit code %d\n%s" % (self.name, code, said[-2000:])
        return [line.split(" ", 1) for line in said.splitlines() if line.startswith(("popped ", "turns ", "told "))]

    def kill(self):
        self.process.kill()
        self.process.wait()


class Durable(worlds.Cluster):
    """Its coordinator keeps what it knows."""

    def __init__(self, size, sync):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-kills-")
        self.options = ["--store", "lmdb:" + self.folder.name, "--store-sync", sync]
        super().__init__(size, coordinator_options=self.options)

    def kill_coordinator(self):
        self.coordinator.kill()

    def start_coordinator(self):
        self.coordinator = support.Program("tutti-coordinator", *self.options, listen=self.coordinator.address)


def build_go():
    """The test program of client/go; "" = there is no Go here."""
    if go_world.missing():
        print("# without Go: " + go_world.missing())
        return ""
    world = go_world.World("go-kills")
    program = os.path.join(world.root, "kills")
    world.go("test", "-c", "-o", program, ".")
    return program


def clients(cluster, go, modes):
    """Of each kind one for each mode."""
    python, folder = worlds.install("debian", "kills")
    c = os.path.join(support.BUILD, "tests", "client", "kills_program")
    for place, mode in enumerate(modes):
        address = cluster.agents[place % 2].address
        yield Client("c", [c, address, mode, "c"])
        for kind in ("sync", "aio"):
            words = [python, os.path.join(HERE, "kills_load.py"), address, kind, mode, kind]
            yield Client(kind, words, {"PYTHONPATH": folder})
        if go:
            known = {"TUTTI_TEST_KILLS": "%s %s go" % (address, mode)}
            yield Client("go", [go, "-test.run", "^TestKills$"], known)


def wait_for_turns(keys, loads, waiters):
    """All of them are at it: who has never reached a coordinator need not believe in one."""
    from tutti.v1 import store_service_pb2 as store

    names = ["count " + one.name for one in loads] + ["waits " + one.name for one in waiters]
    request = store.StoreServiceWaitRequest(keys=[name.encode() for name in names])
    keys.Wait(request, timeout=LONG_S, wait_for_ready=True)


def wait_until_they_stand(watches):
    until = time.monotonic() + LONG_S
    for one in watches:
        while os.pread(one.out.fileno(), 7, 0) != b"stands\n":
            assert time.monotonic() < until and one.process.poll() is None, one.name + " does not watch"
            time.sleep(0.01)


def play(kills, dice, go, watch):
    support.build_stubs()
    from tutti.v1 import store_service_pb2 as store
    from tutti.v1 import store_service_pb2_grpc as store_grpc

    with Durable(2, "order" if watch else "none") as cluster:
        running = list(clients(cluster, go, ("watch",) if watch else ()))
        watches = running[:]
        try:
            wait_until_they_stand(watches)
            running += clients(cluster, go, ("load", "wait"))
            loads = running[len(watches) : (len(watches) + len(running)) // 2]
            waiters = running[(len(watches) + len(running)) // 2 :]
            with cluster.coordinator.channel() as channel:
                wait_for_turns(store_grpc.StoreServiceStub(channel), loads, waiters)
            for _ in range(kills):
                time.sleep(dice.uniform(0.05, 0.6))
                cluster.kill_coordinator()
                time.sleep(dice.choice((0, 0.05, 0.3)))
                cluster.start_coordinator()
            said = [one.end() for one in loads]
            with cluster.coordinator.channel() as channel:
                keys = store_grpc.StoreServiceStub(channel)
                for one in waiters:
                    push = store.StoreServiceQueuePushRequest(key=b"wait " + one.name.encode(), value=b"at last")
                    keys.QueuePush(push, timeout=LONG_S)
                waited = [one.end() for one in waiters]
                judge(loads, said, waited, keys, store)
                keys.Set(store.StoreServiceSetRequest(key=b"stop", value=b"now"), timeout=LONG_S)
            told = [one.end() for one in watches]
            judge_watches(loads, said, watches, told)
        finally:
            for one in running:
                one.kill()


def judge(loads, said, waited, keys, store):
    turns = [int(dict(lines)["turns"]) for lines in said]
    popped = sorted(line[1] for lines in said for line in lines if line[0] == "popped")
    pushed = sorted("%s/%d" % (one.name, turn + 1) for one, count in zip(loads, turns) for turn in range(count))
    total = int(keys.Get(store.StoreServiceGetRequest(key=b"all"), timeout=LONG_S).value)
    print("# turns: %s" % ", ".join("%s %d" % (one.name, count) for one, count in zip(loads, turns)))
    assert total == sum(turns), "all were %d adds and the counter is %d" % (sum(turns), total)
    assert popped == pushed, "pushed and popped differ: %s" % sorted(set(popped) ^ set(pushed))[:10]
    assert all(lines == [["popped", "at last"]] for lines in waited), waited


def judge_watches(loads, said, watches, told):
    """They have compared each change; the last ones must have come."""
    wanted = {"count " + one.name: dict(lines)["turns"] for one, lines in zip(loads, said)}
    for one, lines in zip(watches, told):
        last = dict(line[1].rsplit(" ", 1) for line in lines)
        found = {key: number for key, number in last.items() if key.startswith("count ")}
        assert found == wanted, "%s watched: %r, not %r" % (one.name, found, wanted)


def main():
    kills, go, watch = int(sys.argv[1]), "go" in sys.argv, "watch" in sys.argv
    given = [word for word in sys.argv[2:] if word not in ("go", "watch")]
    seed = int(given[0]) if given else random.SystemRandom().randrange(1 << 32)
    print("1..1\n# %d kills, seed %d" % (kills, seed), flush=True)
    play(kills, random.Random(seed), build_go() if go else "", watch)
    print("ok 1 - %d kills of the coordinator: 0 errors, exact counts" % kills)


if __name__ == "__main__":
    main()
