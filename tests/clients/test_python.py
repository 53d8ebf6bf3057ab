#!/usr/bin/python3
"""Goal: the Python package installs and works, in an old world and in the newest one.

Method: pip installs it from the source tree: `debian` with the system's grpcio and protobuf, without
network; `pypi` into a virtual environment, with what PyPI has today. Then its own tests run against
a cluster of real processes.

usage: test_python.py debian | pypi [grpc]     grpc: without the package's native module
"""

import os
import subprocess
import sys

import worlds

SCRIPTS = [
    "test_pieces.py",
    "test_agent.py",
    "test_ops.py",
    "test_native.py",
    "test_groups.py",
    "test_runs.py",
    "test_outs.py",
    "test_wire_calls.py",
    "test_tracers.py",
    "test_torch.py",
    "test_buckets.py",
    "test_launch.py",
    "test_ephemeral.py",
    "test_lists.py",
    "test_aio.py",
    "test_share.py",
    "test_device.py",
    "test_scenario.py",
    "test_session.py",
    "test_host.py",
]
SECURE_SCRIPTS = ["test_secure.py", "test_scenario.py", "test_share.py"]


def check_types(python):
    """The package keeps the promise of py.typed; True = it does."""
    words = [python, "-m", "mypy", "--config-file", "client/python/pyproject.toml", "-p", "tutti"]
    code, said = worlds.call(words, cwd=worlds.support.SOURCE)
    print("%s 1 - mypy --strict" % ("ok" if code == 0 else "not ok"))
    print("# " + said.replace("\n", "\n# ").rstrip("# \n"))
    return code == 0


def ways():
    """What the agents have, and the scripts that see it."""
    yield {}, SCRIPTS
    yield {"secure": True}, SECURE_SCRIPTS
    if os.path.exists(os.path.join(worlds.STANDIN, "tutti-nccl.so")):
        yield {"gpus": True}, ["test_device.py", "test_buckets.py"]


def main():
    world, mode = sys.argv[1], (sys.argv[2:] or [""])[0]
    python, folder = worlds.install(world, world + mode)
    tests = os.path.join(worlds.support.SOURCE, "client", "python", "tests")
    fine = world != "pypi" or check_types(python)
    for options, scripts in ways():
        print("# agents with %s" % (options or "nothing"), flush=True)
        with worlds.Cluster(4, **options) as cluster:
            environment = dict(os.environ, PYTHONPATH=folder, TUTTI_PYTHON=mode, **cluster.environment())
            for script in scripts:
                words = [python, os.path.join(tests, script)]
                done = subprocess.run(words, env=environment, close_fds=False, timeout=250)
                if done.returncode != 0:
                    worlds.support.tell_logs(sys.stdout)
                    fine = False
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
