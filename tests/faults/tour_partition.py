#!/usr/bin/env python3
"""The partitions of docs/operating.md, between hosts: what a person on each side sees.

usage: tour_partition.py; the environment as tests/system/support.py wants it. As root, with iproute2 and iptables.
"""

import subprocess
import sys
import time

from fault_cluster import support
import net_cluster
from net_cluster import namespaces

SIZE = 3


def barrier(cluster, ranks):
    """Each rank by a command of its own, all at once; what they said."""
    begun = []
    for rank in ranks:
        words = ["barrier", "--rank", str(rank), "--timeout", "4s", "--agent", cluster.agents[rank].program.address]
        begun.append(subprocess.Popen([support.PROGRAMS + "/tutti"] + words, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, env=dict(support.os.environ, NO_COLOR="1")))
    for rank, process in zip(ranks, begun):
        said = process.communicate()[0].decode().strip()
        print("on rank %d: %s" % (rank, said or "barrier: done"), flush=True)


def log(agent, words):
    for line in agent.program.log().splitlines():
        if words in line:
            print("agent%d: %s" % (agent.rank, line.split("]: ", 1)[-1]), flush=True)
            return


def say(text):
    print("\n## " + text, flush=True)


def main():
    reason = namespaces.why_not()
    if reason is not None:
        support.skip_all(reason)
    cluster = net_cluster.NetCluster(SIZE)
    try:
        play(cluster)
    finally:
        cluster.kill()


def play(cluster):
    network = cluster.network
    hosts = network.hosts
    barrier(cluster, range(SIZE))
    say("apart: ranks 1 and 2 do not reach each other, both reach the coordinator")
    network.part([hosts[1]], [hosts[2]])
    barrier(cluster, range(SIZE))
    network.join()
    cluster.wait_until_it_works()
    say("split: the host of rank 2 is cut from all others, and from the coordinator")
    network.part([hosts[2]], [host for host in hosts if host is not hosts[2]])
    barrier(cluster, range(SIZE))
    log(cluster.agents[0], "rank 2 is lost")
    say("whole again")
    network.join()
    until = time.monotonic() + support.STOP_S
    while cluster.agents[2].program.process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    log(cluster.agents[2], "does not know this rank")
    print("agent2: " + cluster.agents[2].program.log().splitlines()[-1].replace("tutti-agent: ", ""))
    cluster.replace(2)
    cluster.wait_until_it_works()
    barrier(cluster, range(SIZE))


if __name__ == "__main__":
    sys.exit(main())
