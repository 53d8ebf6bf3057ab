#!/usr/bin/python3
"""Goal: in a bare Debian `pip install` of the wheel is all that a user needs for a cluster and README's Python.

Method: a root folder by mmdebstrap, with python3-venv and nothing of ours; the wheel, and what it depends on as PyPI has it
today; the programs of its environment. Skips with the reason where a root folder or PyPI cannot be had.
"""

import glob
import os
import shutil
import subprocess
import sys
import unittest

import worlds

sys.path.append(os.path.join(worlds.support.SOURCE, "tests", "support"))
from bare_debian import LONG_S, ROOT, WORK, inside, make_root, python_of_readme, remove_root  # noqa: E402

WHEELS = os.path.join(ROOT, "wheels")


def download(wheel):
    """What the wheel depends on; pip of the root folder then needs no network."""
    words = ["/usr/bin/python3", "-m", "pip", "download", "-q", "--only-binary", ":all:", "--dest", WHEELS, wheel]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG_S)
    if done.returncode != 0:
        worlds.support.skip_all("pip download: " + " / ".join(done.stderr.strip().splitlines()[-2:])[:300])


def setUpModule():
    if shutil.which("patchelf") is None:
        worlds.support.skip_all("no patchelf")
    make_root("python3-venv")
    os.makedirs(WHEELS, exist_ok=True)
    os.makedirs(os.path.join(ROOT, "run", "root"), mode=0o700, exist_ok=True)
    script = os.path.join(worlds.support.SOURCE, "cmake", "wheel.py")
    worlds.must(["/usr/bin/python3", script, worlds.support.BUILD, os.path.join(WORK, "wheel")])
    (wheel,) = glob.glob(os.path.join(WORK, "wheel", "*.whl"))
    download(wheel)
    inside("python3", "-m", "venv", "/venv")
    inside("/venv/bin/pip", "install", "-q", "--no-index", "--find-links", "/wheels", "tutti")


def tearDownModule():
    remove_root()


class BareWheel(unittest.TestCase):
    def test_a_cluster_runs_the_python_of_the_readme(self):
        with open(os.path.join(ROOT, "tmp", "block.py"), "w") as file:
            file.write(python_of_readme())
        inside("/venv/bin/tutti", "cluster", "start", "-n", "2")
        try:
            self.assertIn("2 of 2 ranks alive", inside("/venv/bin/tutti", "status"))
            said = inside("/venv/bin/tutti", "run", "-n", "2", "--no-prefix", "--", "/venv/bin/python", "/tmp/block.py")
            self.assertNotIn("grpcio", inside("/venv/bin/pip", "list"))
            self.assertEqual(said.count("[0.0, 1.0, 2.0, 3.0] [1.0, 1.0, 1.0]"), 2, said)
        finally:
            inside("/venv/bin/tutti", "cluster", "stop")

    def test_python_goes_by_the_native_module(self):
        said = inside("/venv/bin/python", "-c", "import tutti._native_door as door; print(door.native.__file__)")
        self.assertIn("/venv/lib/python3.11/site-packages/tutti/_native", said)

    def test_nothing_of_ours_is_outside_of_the_environment(self):
        found = inside("sh", "-c", "ls /usr/bin /usr/lib/*/ /usr/lib/python3/dist-packages 2>/dev/null | grep -c tutti || true")
        self.assertEqual(found.strip(), "0")


if __name__ == "__main__":
    worlds.support.main()
