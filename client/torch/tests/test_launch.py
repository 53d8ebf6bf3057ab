"""Goal: one training program, in which only the name of the backend is "tutti", runs however it is launched, and has Gloo's
weights. Method: training.py under torchrun with both backends, under `tutti run`, and on two hosts, which are network
namespaces; restart.py under torchrun, which starts it again after a rank has failed.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

sys.path.insert(0, os.path.join(place.SOURCE, "tests", "support"))
import namespaces
import tap

HERE = os.path.dirname(os.path.abspath(__file__))
TRAINING = os.path.join(HERE, "training.py")
RESTART = os.path.join(HERE, "restart.py")
OUTLIVED = os.path.join(HERE, "outlived.py")
TUTTI = os.path.join(place.BUILD, "tutti")
TORCHRUN = [place.PYTHON, "-m", "torch.distributed.run"]
LIMIT_S = 240
RESTARTS = int(os.environ.get("TUTTI_TEST_RESTARTS", "5"))


def call(words, **known):
    done = subprocess.run(words, env=place.environment(**known), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, timeout=LIMIT_S)
    return done.returncode, done.stdout.decode(errors="replace")


class Launch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-torch-")
        cls.expected = cls.trained(cls, "gloo", TORCHRUN + ["--standalone", "--nproc-per-node", "2"])

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def trained(self, backend, launcher, **known):
        """The file with the weights, as bytes."""
        path = os.path.join(self.folder.name, "weights")
        program = [TRAINING, backend, path] if launcher[0] == place.PYTHON else [place.PYTHON, TRAINING, backend, path]
        code, said = call(launcher + program, **known)
        assert code == 0, said[-6000:]
        with open(path, "rb") as file:
            return file.read()

    def test_torchrun(self):
        self.assertEqual(self.trained("tutti", TORCHRUN + ["--standalone", "--nproc-per-node", "2"]), self.expected)

    def test_tutti_run(self):
        self.assertEqual(self.trained("tutti", [TUTTI, "run", "-n", "2", "--"]), self.expected)

    def test_two_hosts(self):
        reason = namespaces.why_not()
        if reason:
            self.skipTest(reason)
        path = os.path.join(self.folder.name, "weights")  # the file has its own name in it
        with namespaces.Network(2) as network:
            programs = []
            for rank, host in enumerate(network.hosts):
                known = place.environment(TUTTI_LISTEN=host.address + ":0", TUTTI_LAUNCH_OPTIONS="--insecure",
                                          MASTER_ADDR=network.hosts[0].address, MASTER_PORT="29611", RANK=str(rank), WORLD_SIZE="2", GLOO_SOCKET_IFNAME="eth0")
                programs.append(host.start([place.PYTHON, TRAINING, "tutti", path], env=known, stdout=subprocess.PIPE,
                                           stderr=subprocess.STDOUT))
            for program in programs:
                said, _ = program.communicate(timeout=LIMIT_S)
                self.assertEqual(program.returncode, 0, said.decode(errors="replace")[-4000:])
        with open(path, "rb") as file:
            self.assertEqual(file.read(), self.expected)

    def test_restarts(self):
        """A rank exits in the first attempt; torchrun ends the others and starts all again, with the keys that were."""
        for attempt in range(RESTARTS):
            with self.subTest(attempt=attempt):
                code, said = call(TORCHRUN + ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", RESTART])
                self.assertEqual(code, 0, said[-6000:])
                self.assertEqual(said.count("ended well after 1 restarts"), 2, said[-6000:])

    def test_trainers_die_and_their_agents_live(self):
        """Groups, staging and memory of the agent's go with the trainers."""
        code, said = call([TUTTI, "run", "-n", "2", "--", place.PYTHON, OUTLIVED])
        self.assertEqual(code, 0, said[-6000:])
        self.assertEqual(len(re.findall(r"before: 2 groups, [1-9]\d* tensors", said)), 2, said)
        self.assertEqual(said.count("nothing is left"), 2, said)

    def test_nobody_names_an_agent_that_is_not_there(self):
        words = [place.PYTHON, TRAINING, "tutti", "/dev/null"]
        code, said = call(words, TUTTI_AGENT="127.0.0.1:1", TUTTI_COORDINATOR="127.0.0.1:1", RANK="0", WORLD_SIZE="1",
                          MASTER_ADDR="127.0.0.1", MASTER_PORT="0", TUTTI_TIMEOUT_MS="3000")
        self.assertNotEqual(code, 0)
        self.assertIn("127.0.0.1:1", said)

    def test_no_programs(self):
        words = [place.PYTHON, TRAINING, "tutti", "/dev/null"]
        code, said = call(words, TUTTI_PROGRAMS="/nowhere", PATH="/usr/bin:/bin", RANK="0", WORLD_SIZE="1",
                          MASTER_ADDR="127.0.0.1", MASTER_PORT="0")
        self.assertNotEqual(code, 0)
        self.assertIn("tutti-coordinator", said)
        self.assertIn("/nowhere", said)

    def test_another_torch(self):
        """torch goes on without the backend, and who asks for it is told."""
        words = """
import tutti_torch, torch.distributed as dist
torch_version, tutti_torch.torch.__version__ = tutti_torch.torch.__version__, "2.3.1"
try:
    dist.init_process_group("tutti", init_method="file:///nowhere", rank=0, world_size=1)
except ImportError as error:
    print("told:", error)
"""
        code, said = call([place.PYTHON, "-c", words])
        self.assertEqual(code, 0, said)
        self.assertIn("told: tutti_torch was built for torch", said)
        self.assertIn("this is torch 2.3.1", said)


if __name__ == "__main__":
    place.prepare()
    tap.main()
