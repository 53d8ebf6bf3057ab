#!/usr/bin/python3
"""Goal: the wheel, whose native module has the stable ABI of CPython 3.11, works in newer ones.

Method: a root folder by mmdebstrap of Debian's unstable suite with all the CPythons that it has; into each an
environment with the wheel and what it depends on as PyPI has it; then the package's tests against a cluster of
real processes of this build. Skips with the reason where a root folder or PyPI cannot be had.
"""

import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import unittest

import test_python
import worlds

sys.path.append(os.path.join(worlds.support.SOURCE, "tests", "support"))
from bare_debian import LONG_S, ROOT, WORK, inside, make_root, remove_root  # noqa: E402

LEAST = (3, 12)
WHEELS = os.path.join(ROOT, "wheels")
GLIBCS = range(17, 37)
OTHERS = ("test_launch.py",)  # it wants the build's programs, which need this system's libraries


def download(wheel, version):
    """What the wheel depends on, for that CPython: pip of the root folder then needs no network."""
    words = ["/usr/bin/python3", "-m", "pip", "download", "-q", "--only-binary", ":all:", "--dest", WHEELS]
    words += ["--implementation", "cp", "--python-version", version]
    for abi in ("cp" + version.replace(".", ""), "abi3", "none"):
        words += ["--abi", abi]
    for platform_tag in ["manylinux2014"] + ["manylinux_2_%d" % one for one in GLIBCS]:
        words += ["--platform", "%s_%s" % (platform_tag, platform.machine())]
    done = subprocess.run(words + [wheel], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LONG_S)
    return "" if done.returncode == 0 else " / ".join(done.stderr.strip().splitlines()[-2:])[:300]


def setUpModule():
    if shutil.which("patchelf") is None:
        worlds.support.skip_all("no patchelf")
    make_root("?name(^python3[.][0-9]+-venv$)", suite="sid")
    os.makedirs(WHEELS)
    script = os.path.join(worlds.support.SOURCE, "cmake", "wheel.py")
    worlds.must(["/usr/bin/python3", script, worlds.support.BUILD, os.path.join(WORK, "wheel")])
    (wheel,) = glob.glob(os.path.join(WORK, "wheel", "*.whl"))
    shutil.copy(wheel, WHEELS)
    here = os.path.join(ROOT, "source")
    for path in ("client/python/tests", "tests/support", "docs"):
        shutil.copytree(os.path.join(worlds.support.SOURCE, path), os.path.join(here, path))


def tearDownModule():
    remove_root()


def versions():
    found = [re.search(r"python(3)\.(\d+)$", path) for path in glob.glob(os.path.join(ROOT, "usr/bin/python3.*"))]
    numbers = sorted((int(one.group(1)), int(one.group(2))) for one in found if one is not None)
    return ["%d.%d" % one for one in numbers if one >= LEAST]


class Newer(unittest.TestCase):
    def run_scripts(self, python, cluster):
        """The names of the scripts that failed."""
        known = {"TUTTI_SOURCE": "/source", **cluster.environment()}
        failed = []
        for script in test_python.SCRIPTS:
            if script in OTHERS:
                continue
            try:
                inside(python, "/source/client/python/tests/" + script, **known)
            except AssertionError as error:
                print("# %s\n# %s" % (script, str(error).replace("\n", "\n# ")), flush=True)
                failed.append(script)
        return failed

    def test_each_runs_the_tests_of_the_package(self):
        (wheel,) = glob.glob(os.path.join(WHEELS, "tutti-*.whl"))
        found = versions()
        self.assertTrue(found)
        for version in found:
            with self.subTest(version=version):
                missing = download(wheel, version)
                if missing:
                    print("# CPython %s left out: pip download: %s" % (version, missing), flush=True)
                    continue
                inside("python" + version, "-m", "venv", "/v" + version)
                python = "/v%s/bin/python" % version
                inside(python, "-m", "pip", "install", "-q", "--no-index", "--find-links", "/wheels", "tutti")
                said = inside(python, "-c", "import sys, tutti._native_door as door; print(sys.version, door.native)")
                self.assertIn("_native", said)
                print("# " + said.strip().replace("\n", " "), flush=True)
                with worlds.Cluster(4) as cluster:
                    self.assertEqual(self.run_scripts(python, cluster), [])


if __name__ == "__main__":
    worlds.support.main()
