#!/usr/bin/python3
"""Goal: the wheel is all that a user needs: programs, libtutti and the native module, beside other packages.

Method: cmake/wheel.py makes it of the build folder. pip installs it into a fresh environment that sees the
system's grpcio, NumPy and torch, with no build folder on any path. Then `tutti cluster start -n 2`, and a
program with all of these in one process.
"""

import glob
import json
import os
import shutil
import unittest

import worlds

WORK = os.path.join(worlds.support.BUILD, "clients", "wheel")
NAME = "wheel-%d" % os.getpid()
PROGRAM = """
import sys, threading
import grpc, numpy as np
try:
    import torch
except ImportError:
    torch = None
import tutti
from tutti._native_door import native

agents = [tutti.connect(address) for address in sys.argv[1:]]
found = [None, None]

def work(rank):
    one = agents[rank]
    found[rank] = [one.all_reduce(np.full(count, rank + 1.0))[0] for count in (2, 1 << 18)]
    found[rank].append(one.broadcast(np.full(2, rank + 5.0), 1)[0])
    if torch is not None:
        found[rank].append(float(one.all_reduce(torch.ones(3))[0]))

threads = [threading.Thread(target=work, args=(rank,)) for rank in range(2)]
[one.start() for one in threads]
[one.join() for one in threads]
assert found[0] == found[1] and found[0][:3] == [3, 3, 6], found
assert "/_bundle/lib/libgrpc-tutti.so" in open("/proc/self/maps").read()
print("good", native.version(), "torch" if torch else "no torch")
"""


class WheelCase(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("patchelf") is None or worlds.call(["/usr/bin/python3", "-m", "venv", "--help"])[0]:
            worlds.support.skip_all("no patchelf, or no python3-venv")
        shutil.rmtree(WORK, ignore_errors=True)
        script = os.path.join(worlds.support.SOURCE, "cmake", "wheel.py")
        worlds.must(["/usr/bin/python3", script, worlds.support.BUILD, WORK])
        (cls.wheel,) = glob.glob(os.path.join(WORK, "*.whl"))
        cls.venv = os.path.join(WORK, "venv")
        worlds.must(["/usr/bin/python3", "-m", "venv", "--system-site-packages", cls.venv])
        pip = [cls.at("python"), "-m", "pip", "install", "-q", "--no-deps", "--no-index", cls.wheel]
        worlds.must(pip)
        cls.clean = {key: value for key, value in os.environ.items() if not key.startswith(("TUTTI", "PYTHONPATH", "LD_"))}
        cls.clean["PATH"] = os.path.join(cls.venv, "bin") + ":/usr/bin:/bin"

    @classmethod
    def at(cls, name):
        return os.path.join(cls.venv, "bin", name)

    def say(self, *words):
        return worlds.must(list(words), env=self.clean, cwd="/")

    def test_the_tag_is_of_this_machine(self):
        self.assertRegex(os.path.basename(self.wheel), r"^tutti-[\d.]+-cp311-abi3-manylinux_2_\d+_\w+\.whl$")

    def test_programs_are_on_the_path(self):
        for name in ("tutti", "tutti-agent", "tutti-coordinator"):
            self.assertIn(name, self.say(self.at(name), "--version"))
        self.assertEqual(self.say(self.at("python"), "-m", "tutti", "--version"), self.say(self.at("tutti"), "--version"))

    def test_a_cluster_and_a_program_with_other_packages(self):
        self.say(self.at("tutti"), "cluster", "start", "-n", "2", "--name", NAME)
        try:
            status = self.say(self.at("tutti"), "cluster", "status", "--name", NAME, "--json")
            addresses = sorted(one["address"] for one in json.loads(status)["agents"])
            self.assertIn("good", self.say(self.at("python"), "-c", PROGRAM, *addresses))
        finally:
            self.say(self.at("tutti"), "cluster", "stop", "--name", NAME)

    def test_it_does_not_need_grpcio(self):
        said = self.say(self.at("python"), "-c", "from importlib.metadata import requires; print(requires('tutti'))")
        self.assertIn("protobuf", said)
        self.assertNotIn("grpcio", said)

    def test_nothing_of_the_build_folder_is_named(self):
        for path in glob.glob(os.path.join(self.venv, "lib/python3*/site-packages/tutti/_native*.so")):
            said = self.say("readelf", "-d", path)
            self.assertNotIn(worlds.support.BUILD, said)
            self.assertIn("$ORIGIN/_bundle/lib", said)


if __name__ == "__main__":
    worlds.support.main()
