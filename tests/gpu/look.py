#!/usr/bin/env python3
"""What machine this is, and what an agent on its GPU says of itself: `tutti status`, `tutti doctor`.

usage: look.py BUILD
"""

import os
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "system"))
import support  # noqa: E402

COMMANDS = (["nvidia-smi"], ["nvidia-smi", "-L"], ["uname", "-a"], ["ldd", "--version"])


def show(words, environment=None):
    print("$ " + " ".join(words), flush=True)
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=environment)
        print(done.stdout + done.stderr, flush=True)
        return done.returncode
    except (OSError, subprocess.TimeoutExpired) as error:
        print(error, flush=True)
        return None


def main():
    for words in COMMANDS:
        show(words)
    show(["ldd", os.path.join(os.environ["TUTTI_MODULES"], "tutti-nccl.so")])
    tutti = os.path.join(sys.argv[1], "tutti")
    with support.Program("tutti-coordinator") as coordinator:
        with support.Program("tutti-agent", "--coordinator", coordinator.address, "--world-size", "1",
                             "--device", "cuda:0") as agent:
            codes = [show([tutti, "--agent", agent.address, *words]) for words in
                     (["status"], ["status", "--json"], ["capabilities"], ["doctor"],
                      ["bench", "all_reduce", "-b", "8", "-e", "1M", "-f", "64", "-n", "20", "--device", "cuda:0"])]
            print(agent.log())
    return 0 if codes[:3] == [0, 0, 0] else 1


if __name__ == "__main__":
    sys.exit(main())
