"""Goal: the backend also works with the oldest torch that it is made for, and ranks that have different torches are told so, all
of them, before any op. Method: two virtual environments, each with a torch of PyPI and the package built for it.
"""

import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

sys.path.insert(0, os.path.join(place.SOURCE, "tests", "support"))
import tap

HERE = os.path.dirname(os.path.abspath(__file__))
TRAINING = os.path.join(HERE, "training.py")
OLDEST = "2.4.1"
OLDEST_VENV = os.environ.get("TUTTI_TORCH_OLDEST_VENV", os.path.join(place.SOURCE, "build", "torch-venv-oldest"))
LIMIT_S = 240

JOIN = """
import sys, tutti_torch, torch.distributed as dist
try:
    dist.init_process_group("tutti", init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2)
except RuntimeError as error:
    print("told:", error)
else:
    print("joined")
"""


CLOSE = """
import sys, torch
newest, oldest = (torch.load(path) for path in sys.argv[1:])
assert len(newest) == len(oldest) == 6, (len(newest), len(oldest))
for one, other in zip(newest, oldest):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
"""


def place_of(venv, torch):
    """The module `place`, for another virtual environment."""
    known = dict(os.environ)
    os.environ.update(TUTTI_TORCH_VENV=venv, TUTTI_TEST_TORCH="==" + torch)
    try:
        spec = importlib.util.spec_from_file_location("place_of_" + torch, place.__file__)
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        made.prepare()
    finally:
        os.environ.clear()
        os.environ.update(known)
    return made


class Versions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        place.prepare()
        cls.oldest = place_of(OLDEST_VENV, OLDEST)
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-torch-")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_ranks_with_different_torches_are_told(self):
        torches = [place, self.oldest]
        versions = [one.version() for one in torches]
        method = "file://" + os.path.join(self.folder.name, "store")
        programs = [subprocess.Popen([one.PYTHON, "-c", JOIN, method, str(rank)], env=one.environment(), stdout=subprocess.PIPE,
                                     stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
                    for rank, one in enumerate(torches)]
        for rank, program in enumerate(programs):
            said, _ = program.communicate(timeout=LIMIT_S)
            self.assertEqual(program.returncode, 0, said)
            self.assertIn("told: tutti: TORCH_MISMATCH: rank %d has torch %s, and rank %d has torch %s"
                          % (1 - rank, versions[1 - rank], rank, versions[rank]), said)

    def trained(self, where, name):
        """The file with the weights by a torch."""
        path = os.path.join(self.folder.name, name)
        launcher = [where.PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = subprocess.run(launcher + [TRAINING, "tutti", path], env=where.environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=LIMIT_S, text=True)
        self.assertEqual(done.returncode, 0, done.stdout[-6000:])
        return path

    def test_the_oldest_torch_trains(self):
        """To the weights of the newest, which test_launch.py has compared with Gloo's: Gloo of torch 2.4 sometimes does not end,
        because its destructor keeps the interpreter's lock while it waits for a thread that needs it."""
        words = [place.PYTHON, "-c", CLOSE, self.trained(place, "newest"), self.trained(self.oldest, "oldest")]
        done = subprocess.run(words, env=place.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    tap.main()
