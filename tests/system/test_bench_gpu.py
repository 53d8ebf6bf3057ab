#!/usr/bin/python3
"""Goal: `./run bench peers --device` puts ops through gRPC beside NCCL called directly, and says why where it cannot.
Method: two ranks of both over the stand-ins for CUDA and NCCL; the times mean nothing, and are not looked at. With
TUTTI_GPU=1 both on one real GPU."""

import json
import os
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

PEERS = os.path.join(support.SOURCE, "bench", "peers", "peers.py")
REAL = os.environ.get("TUTTI_GPU") == "1"
PROGRAM = os.path.join(support.BUILD, "bench", "bench_peers_nccl" + ("" if REAL else "_standin"))
if not os.path.exists(PROGRAM):
    support.skip_all("no %s: CUDA's or NCCL's headers were not found" % PROGRAM)
if REAL:
    found = subprocess.run([PROGRAM, "0"], capture_output=True, text=True)
    if found.returncode != 0:
        support.skip_all("cuda:0: " + found.stderr.strip())


def peers(*words):
    return subprocess.run(
        [sys.executable, PEERS, support.BUILD, "--device", "cuda:0", "--ranks", "2", "--pairs", "1", *words],
        capture_output=True, text=True, timeout=300, close_fds=False)


class Rows(unittest.TestCase):
    def test_nccl_and_the_empty_call_stand_beside_ours(self):
        path = os.path.join(support.BUILD, "test_bench_gpu.%d.json" % os.getpid())
        self.addCleanup(lambda: os.path.exists(path) and os.unlink(path))
        done = peers(*([] if REAL else ["--stand-in"]), "--only", "all_reduce 8$|all_gather 65536$", "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        self.assertEqual([(row["name"], row["bytes"], row["ranks"], row["peer"]) for row in rows],
                         [("all_reduce", 8, 2, "nccl"), ("all_reduce", 8, 2, "empty call"), ("all_gather", 65536, 2, "nccl")])
        self.assertTrue(all(row["ours_us"] > 0 and row["peer_us"] > 0 for row in rows))
        self.assertEqual("a stand-in: its times mean nothing" in done.stdout, not REAL)

    def test_no_gpu_is_said(self):
        if REAL or os.path.exists("/dev/nvidia0"):
            self.skipTest("there is a GPU")
        done = peers("--only", "all_reduce 8$")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, "skipped: (cuda:0: nccl: cudaSetDevice: |no CUDA, nccl.h or libnccl)")


if __name__ == "__main__":
    support.main()
