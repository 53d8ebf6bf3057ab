#!/usr/bin/python3
"""Goal: on an agent's host the Python client goes on by its Unix socket, and by that of each rank it looks up.

Method: the package in the world of Debian's grpcio; two agents that listen on both, the socket first.
"""

import os
import subprocess
import sys
import tempfile

import worlds

PROGRAM = """
import asyncio, os, sys, tutti, tutti.aio

given, wanted = sys.argv[1], sys.argv[2]
with tutti.connect(given) as agent:
    assert agent.line.address.startswith(wanted), agent.line.address
    with agent.connect_rank(1) as other:
        assert other.rank == 1 and other.line.address.startswith(wanted), other.line.address
    for one in tutti.connect_job(agent.info.coordinator):
        assert one.line.address.startswith(wanted), one.line.address
        one.close()

async def work():
    async with await tutti.aio.connect(given) as agent:
        assert agent.line.address.startswith(wanted), agent.line.address

asyncio.run(work())
"""


def main():
    python, path = worlds.install("debian", "near")  # a folder of its own: tests run side by side
    fine = True
    with tempfile.TemporaryDirectory(prefix="tutti-near-") as folder:
        listen = "unix:%s/%%d,127.0.0.1:0" % folder
        with worlds.Cluster(2, listen=listen) as cluster:
            tcp = cluster.agents[0].addresses[1]
            for number, (said, wanted, more) in enumerate(
                (
                    ("goes on by the socket on its host", "unix:", {}),
                    ("never does on another", "127.0.0.1:", {"TUTTI_HOST_ID": "elsewhere"}),
                )
            ):
                environment = dict(os.environ, PYTHONPATH=path, **more)
                done = subprocess.run(
                    [python, "-c", PROGRAM, tcp, wanted], env=environment, close_fds=False,
                    timeout=120,
                )  # fmt: skip
                good = done.returncode == 0
                print("%s %d - a client %s" % ("ok" if good else "not ok", number + 1, said))
                fine = fine and good
    print("1..2")
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
