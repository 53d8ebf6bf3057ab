"""Goal: the packages of `./run deb` install into a bare Debian, work there, and leave nothing when they are purged.

Method: ./run deb, which lintian has to be content with; a root folder by mmdebstrap with this machine's sources;
apt-get in it; a cluster, an op and README's Python block; the ExecStart lines of the units, as a user without rights
in a process that may not make memory executable (no systemd runs here: what its filters of system calls refuse is
not tested). Skips with the reason where a root folder cannot be made.

usage: test_packages.py [FOLDER WITH PACKAGES]
"""

import glob
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
import unittest

import support

sys.path.append(os.path.join(support.SOURCE, "tests", "support"))
from bare_debian import ROOT, inside, make_root, python_of_readme, remove_root, words_in  # noqa: E402

PACKAGES = ["libtutti-dev", "libtutti-rpc-dev", "libtutti-rpc0", "libtutti0", "python3-tutti", "tutti"]
MADE = sys.argv[1:2]
del sys.argv[1:2]
# As the units have it: prctl(PR_SET_MDWE) is what MemoryDenyWriteExecute= is, for older systemd by a filter.
STRICT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(65, 1, 0, 0, 0); os.umask(0o77); os.execv(sys.argv[1], sys.argv[1:])"
NOBODY = ["setpriv", "--reuid", "64123", "--regid", "64123", "--clear-groups", "--no-new-privs", "--inh-caps=-all",
          "--bounding-set=-all"]


def make_packages():
    if MADE:
        return MADE[0]
    done = subprocess.run([os.path.join(support.SOURCE, "run"), "deb"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1800)
    if done.returncode != 0:
        raise AssertionError("./run deb: %s" % done.stdout.decode()[-4000:])
    return os.path.join(support.SOURCE, "build", "deb")


def setUpModule():
    make_root()
    target = os.path.join(ROOT, "debs")
    os.mkdir(target)
    os.mkdir(os.path.join(ROOT, "run", "root"), 0o700)
    for path in glob.glob(os.path.join(make_packages(), "*.deb")):
        shutil.copy(path, target)
    debs = ["/debs/" + name for name in sorted(os.listdir(target))]
    inside("apt-get", "-q", "update")
    inside("apt-get", "-q", "install", "-y", "--no-install-recommends", *debs)


def tearDownModule():
    remove_root()


class Unit:
    """A process as a unit starts it."""

    def __init__(self, name, instance="", **more):
        with open(os.path.join(ROOT, "lib", "systemd", "system", name)) as file:
            (line,) = re.findall(r"^ExecStart=(.+)$", file.read(), re.M)
        self.folder = "/run/unit-%s%s" % (name.split("@")[0], instance)
        state = "/var/lib/tutti-coordinator"
        for path in (self.folder, state):
            os.makedirs(ROOT + path, mode=0o700, exist_ok=True)
            os.chown(ROOT + path, 64123, 64123)
        line = line.replace("${RUNTIME_DIRECTORY}", self.folder)
        if "--port-file" not in line:
            line += " --port-file %s/address" % self.folder
        words = NOBODY + ["/usr/bin/python3", "-c", STRICT] + shlex.split(line)
        self.process = subprocess.Popen(words_in(*words), env=dict({"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, **more),
                                        stdin=subprocess.DEVNULL, close_fds=False)

    def address(self):
        path = ROOT + self.folder + "/address"
        until = time.monotonic() + 60
        while not (os.path.exists(path) and os.path.getsize(path) > 0):
            if self.process.poll() is not None or time.monotonic() > until:
                raise AssertionError("no address in %s; exit code %s" % (path, self.process.poll()))
            time.sleep(0.01)  # a file that appears makes no event here
        with open(path) as file:
            return file.read().strip()

    def end(self):
        self.process.terminate()
        return self.process.wait(60)


class Packages(unittest.TestCase):
    def test_1_all_packages_are_made(self):
        names = sorted(name.split("_")[0] for name in os.listdir(os.path.join(ROOT, "debs")))
        self.assertEqual(names, PACKAGES)

    def test_2_a_cluster_runs_an_op_and_the_python_of_the_readme(self):
        with open(os.path.join(ROOT, "tmp", "block.py"), "w") as file:
            file.write(python_of_readme())
        inside("tutti", "cluster", "start", "-n", "2")
        try:
            self.assertIn("2 of 2 ranks alive", inside("tutti", "status"))
            said = inside("tutti", "run", "-n", "2", "--no-prefix", "--", "python3", "/tmp/block.py")
            self.assertEqual(said.count("[0.0, 1.0, 2.0, 3.0] [1.0, 1.0, 1.0]"), 2, said)
        finally:
            inside("tutti", "cluster", "stop")

    def test_3_what_people_look_for_is_there(self):
        for path in ("usr/share/man/man8/tutti-agent.8.gz", "usr/share/man/man1/tutti.1.gz", "etc/tutti/agent.conf",
                     "usr/share/bash-completion/completions/tutti", "lib/systemd/system/tutti-agent@.service"):
            self.assertTrue(os.path.exists(os.path.join(ROOT, path)), path)

    def test_3_python_goes_by_the_native_module(self):
        ask = "import tutti, tutti._native_door as door; print(door.native.__file__)"
        said = inside("python3", "-c", ask)
        self.assertIn("/usr/lib/python3/dist-packages/tutti/_native.abi3.so", said)
        self.assertIn("libtutti0 (", inside("dpkg-query", "-W", "-f", "${Depends}", "python3-tutti"))

    def test_4_the_units_start_for_a_user_without_rights(self):
        coordinator = Unit("tutti-coordinator.service")
        try:
            address = coordinator.address()
            agent = Unit("tutti-agent@.service", "0", TUTTI_RANK="0", TUTTI_COORDINATOR=address,
                         UCX_MEM_MMAP_HOOK_MODE="reloc")
            try:
                inside("tutti", "barrier", TUTTI_AGENT=agent.address())
            finally:
                self.assertEqual(agent.end(), 0)
        finally:
            self.assertEqual(coordinator.end(), 0)

    def test_5_nothing_is_left_when_they_are_purged(self):
        shutil.rmtree(os.path.join(ROOT, "debs"))
        os.remove(os.path.join(ROOT, "tmp", "block.py"))
        shutil.rmtree(os.path.join(ROOT, "run"))
        os.mkdir(os.path.join(ROOT, "run"))
        # systemd's folder, which only this test has made: the package has never started a unit here.
        shutil.rmtree(os.path.join(ROOT, "var/lib/tutti-coordinator"), ignore_errors=True)
        inside("apt-get", "-q", "purge", "-y", *PACKAGES)
        left = []
        for folder, folders, files in os.walk(ROOT):
            left += [os.path.join(folder, name) for name in folders + files if "tutti" in name]
        self.assertEqual(left, [])
        self.assertNotIn("tutti", inside("dpkg", "-l"))


if __name__ == "__main__":
    support.main()
