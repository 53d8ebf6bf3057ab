"""Goal: torch's own tool finds in our flight record which rank has not called what. Method: ops in two and four ranks, dumps of
all ranks in a folder, and torch.distributed.flight_recorder on it.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

place.enter()

import datetime
import importlib.util
import pickle
import subprocess
import tempfile
import unittest

import torch
import torch.distributed as dist

import ranks
import tap
import tutti_torch


def every_op(rank, size):
    got = torch.ones(3)
    dist.all_reduce(got)
    dist.broadcast(got, 0)
    dist.reduce(got, 0)
    dist.all_gather([torch.empty(3) for _ in range(size)], got)
    dist.all_gather_into_tensor(torch.empty(3 * size), got)
    dist.gather(got, [torch.empty(3) for _ in range(size)] if rank == 0 else None, 0)
    dist.scatter(got, [torch.empty(3) for _ in range(size)] if rank == 0 else None, 0)
    dist.reduce_scatter_tensor(got, torch.ones(3 * size))
    dist.reduce_scatter(got, [torch.ones(3) for _ in range(size)])
    dist.all_to_all_single(torch.empty(size, 2), torch.ones(size, 2))
    dist.barrier()
    if rank == 0:
        dist.send(got, 1)
    elif rank == 1:
        dist.recv(got, 0)


def tool(folder):
    """What torchfrtrace says of the dumps in a folder."""
    words = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "rank_"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    return done.stdout


def database(folder):
    """Its collectives: torchfrtrace -o."""
    path = os.path.join(folder, "..", "database")
    words = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", folder, "-p", "rank_", "-o", path]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
    with open(path, "rb") as file:
        return pickle.load(file)[1].collectives, done.stdout


TOOL = unittest.skipUnless(importlib.util.find_spec("torch.distributed.flight_recorder"),
                           "torch %s brings no torchfrtrace" % torch.__version__)


class Record(unittest.TestCase):
    def setUp(self):
        self.outer = tempfile.TemporaryDirectory(prefix="tutti-torch-")
        self.addCleanup(self.outer.cleanup)
        self.folder = os.path.join(self.outer.name, "dumps")
        os.mkdir(self.folder)

    def test_fields(self):
        def ops(rank, size):
            every_op(rank, size)
            path = os.path.join(self.folder, "rank_%d" % rank)
            assert tutti_torch.dump_trace(path) == open(path, "rb").read()

        ranks.run(2, ops)
        with open(os.path.join(self.folder, "rank_0"), "rb") as file:
            dump = pickle.load(file)
        self.assertEqual(dump["pg_config"]["0"], {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"})
        self.assertEqual([entry["record_id"] for entry in dump["entries"]], list(range(len(dump["entries"]))))
        first, last = dump["entries"][0], dump["entries"][-1]
        self.assertEqual(first["profiling_name"], "tutti:all_reduce")
        self.assertEqual((first["input_sizes"], first["input_dtypes"], first["state"]), ([[3]], ["Float"], "completed"))
        self.assertGreater(first["duration_ms"], 0)
        self.assertEqual((last["profiling_name"], last["is_p2p"]), ("tutti:send 0->1", True))
        self.assertEqual(dump["pg_status"]["0"]["last_completed_collective"], first["collective_seq_id"] + 10)

    @TOOL
    def test_tool_matches_every_op(self):
        for size in (2, 4):
            def ops(rank, size):
                every_op(rank, size)
                tutti_torch.dump_trace(os.path.join(self.folder, "rank_%d" % rank))

            ranks.run(size, ops)
            collectives, said = database(self.folder)
            wrong = [(one.collective_name, one.type_of_mismatch) for one in collectives if not one.pass_check]
            self.assertEqual(wrong, [], said)
            self.assertGreaterEqual(len(collectives), 11)

    @TOOL
    def test_a_timeout_writes_it(self):
        """Rank 1 does not call an op: the first error writes the files, and the tool names the rank."""
        def late(rank, size):
            group = dist.new_group(timeout=datetime.timedelta(seconds=1))
            dist.barrier(group)
            if rank == 0:
                try:
                    dist.all_reduce(torch.ones(5), group=group)
                except RuntimeError as error:
                    assert "Timed out" in str(error), error
                dist.send(torch.ones(1), 1)
            else:
                dist.recv(torch.ones(1), 0)
                tutti_torch.dump_trace(os.path.join(self.folder, "rank_1"))

        os.environ["TORCH_FR_DUMP_TEMP_FILE"] = os.path.join(self.folder, "rank_")
        self.addCleanup(os.environ.pop, "TORCH_FR_DUMP_TEMP_FILE")
        ranks.run(2, late)
        with open(os.path.join(self.folder, "rank_0"), "rb") as file:
            entries = pickle.load(file)["entries"]
        failed = [entry for entry in entries if entry["retired"] and entry["state"] != "completed"]
        self.assertEqual([(one["profiling_name"], one["input_sizes"], one["timeout_ms"]) for one in failed],
                         [("tutti:all_reduce", [[5]], 1000)])
        self.assertRegex(tool(self.folder), r"(?i)missing ranks: \{1\}")

    def test_off_and_short(self):
        def few(rank, size):
            for _ in range(10):
                dist.all_reduce(torch.ones(1))
            return len(pickle.loads(tutti_torch.dump_trace())["entries"])

        self.addCleanup(os.environ.pop, "TORCH_FR_BUFFER_SIZE")
        for kept in (0, 4):
            os.environ["TORCH_FR_BUFFER_SIZE"] = str(kept)
            self.assertEqual(ranks.run(2, few), [kept] * 2)


if __name__ == "__main__":
    tap.main()
