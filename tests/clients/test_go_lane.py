#!/usr/bin/python3
"""Goal: small calls of client/go go through a lane where there is one, with the results, the errors and the words of
gRPC; contexts end them, and so do a killed agent and the end of a token; where there is no lane all goes by gRPC.

Method: the Lane tests of client/go and its scenario against fresh processes, built with the race detector where cgo has
a compiler. They count the calls that lanes have carried.

usage: test_go_lane.py [measure]   measure: two ranks of one program, with and without lanes (./run bench go)
"""

import os
import shutil
import sys

import go_world
import test_scenario
import worlds
from worlds import support

SIZE = 3


def build(*options):
    world = go_world.World("go-lane")
    program = os.path.join(world.root, "lanes")
    world.go("test", *options, "-c", "-o", program, ".")
    return program


def play(title, program, tests, secure=False, agent_options=(), kills=False, **environment):
    """These tests on a cluster of their own."""
    print("# " + title, flush=True)
    cluster = worlds.Cluster(SIZE, secure, agent_options=["--functions", "demo", *agent_options])
    if secure:
        environment["TUTTI_TEST_KEY"] = cluster.secrets.path("key")
    if kills:
        environment["TUTTI_TEST_VICTIM"] = str(cluster.agents[0].process.pid)
    known = dict(os.environ)
    os.environ.update(environment)
    try:
        words = [program, "-test.v", "-test.run", tests, "-test.timeout", "%ds" % test_scenario.RUN_S]
        if kills:
            return test_scenario.run("go", words, cluster)
        with cluster:
            return test_scenario.run("go", words, cluster)
    finally:
        os.environ.clear()
        os.environ.update(known)
        if kills:
            cluster.kill()


def measure():
    with worlds.Cluster(2) as cluster:
        words = [build(), "-test.v", "-test.run", "^TestLaneMeasure$"]
        return test_scenario.run("go", words, cluster)


def main():
    if go_world.missing():
        support.skip_all(go_world.missing())
    if sys.argv[1:] == ["measure"]:
        os.environ["TUTTI_TEST_MEASURE"] = "1"
        sys.exit(0 if measure() else 1)
    race = shutil.which("gcc") is not None
    print("# the race detector: " + ("yes" if race else "no, there is no gcc for cgo"))
    program = build("-race") if race else build()
    all_tests = "^Test(Scenario|Lane(Ops|Sizes|Errors|Contexts|Goroutines|Ring.*|Socket))$"
    fine = [
        play("lanes", program, all_tests),
        play("lanes, with TLS, client certificates and a token", program, all_tests, secure=True),
        play("a token that ends", program, "^TestLaneToken$", secure=True),
        play("a client that wants no lanes", program, "^Test(Scenario|LaneOff)$",
             TUTTI_NO_LANE="1", TUTTI_TEST_WHY_NO_LANE="LANE_UNWANTED"),
        play("agents without lanes", program, "^Test(Scenario|LaneOff)$", agent_options=["--no-lane"],
             TUTTI_TEST_WHY_NO_LANE="LANES_OFF"),
        play("few lanes for each agent", program, "^Test(Scenario|LaneGoroutines)$", agent_options=["--lanes-max", "4"]),
        play("busy lanes", program, "^TestLane(Ops|Contexts)$", agent_options=["--busy-poll", "50us"]),
        play("an agent is killed", program, "^TestLaneKilled$", kills=True),
    ]
    sys.exit(0 if all(fine) else 1)


if __name__ == "__main__":
    main()
