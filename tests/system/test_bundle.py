"""Goal: what `./run bundle` packs starts where nothing of ours, and no environment, is.

Method: a bundle of this build is unpacked elsewhere; the loader lists where every library comes from; the
programs run with an empty environment, an op too; and, where this may change its root folder, in one that
has the bundle and glibc alone.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

if shutil.which("patchelf") is None:
    support.skip_all("no patchelf here: Debian's package of that name")
if os.path.exists(os.path.join(support.BUILD, "CMakeCache.txt")):
    with open(os.path.join(support.BUILD, "CMakeCache.txt")) as cache:
        if re.search(r"^TUTTI_SANITIZE:\w+=.", cache.read(), re.M):
            support.skip_all("a build with sanitizers is not for other machines")

# Of glibc, which every Linux of the kind has.
GLIBC = re.compile(r"linux-vdso|/ld-linux|/lib(c|m|dl|rt|pthread|resolv)\.so\.\d")
LONG_S = 120


class Bundle(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory(prefix="tutti-test-bundle-")
        archive = os.path.join(cls.place.name, "bundle.tar.gz")
        words = [sys.executable, os.path.join(support.SOURCE, "cmake", "bundle.py"), support.BUILD, archive]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["tar", "-xzf", archive, "-C", cls.place.name], check=True)
        (cls.folder,) = glob.glob(os.path.join(cls.place.name, "tutti-*"))

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def run_bare(self, *words):
        done = subprocess.run(words, env={}, cwd="/", capture_output=True, text=True, timeout=LONG_S)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def program(self, name):
        return os.path.join(self.folder, "bin", name)

    def binaries(self):
        for folder, _, names in os.walk(self.folder):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as file:
                    if file.read(4) == b"\x7fELF":
                        yield path

    def own_needs(self, path):
        said = subprocess.run(["patchelf", "--print-needed", path], capture_output=True, text=True, check=True).stdout
        return said.split()

    def test_every_library_is_the_bundles_own_but_glibc(self):
        """And, for the modules, those of CUDA, which bring their own."""
        count = 0
        for path in self.binaries():
            said = subprocess.run(["ldd", path], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
            for name in self.own_needs(path):
                found = re.search(r"^\s*%s => (\S+)" % re.escape(name), said.stdout, re.M)
                where = found[1] if found else name
                cuda = os.path.join("lib", "tutti") in path and re.match("libcudart|libnccl", name)
                self.assertTrue(where.startswith(self.folder) or GLIBC.search("/" + where) or cuda,
                                "%s: %s" % (path, where))
            count += 1
        self.assertGreater(count, 20)

    def test_the_plug_in_for_tvm_is_there(self):
        path = os.path.join(self.folder, "lib", "tutti", "tutti-tvm.so")
        words = [self.program("tutti-agent"), "--plugin", path, "--coordinator", "127.0.0.1:1", "--world-size", "1"]
        done = subprocess.run(words, env={}, cwd="/", capture_output=True, text=True, timeout=LONG_S)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("tutti-tvm.so", done.stderr)  # it was loaded, and looks for what is the operator's to give
        self.assertIn("libtvm_ffi", done.stderr)

    def test_programs_start_in_an_empty_environment(self):
        for name in ("tutti-coordinator", "tutti-agent", "tutti"):
            self.assertIn(name, self.run_bare(self.program(name), "--version"))

    def test_a_world_of_two_agents_runs_an_op(self):
        tutti = self.program("tutti")
        self.run_bare(tutti, "run", "-n", "2", "--", tutti, "barrier")

    def test_a_root_folder_with_glibc_alone_is_enough(self):
        root = os.path.join(self.place.name, "root")
        os.makedirs(os.path.join(root, "tmp"))
        shutil.copytree(self.folder, os.path.join(root, "tutti"))
        said = subprocess.run(["ldd", self.program("tutti-agent")], capture_output=True, text=True, check=True).stdout
        for path in re.findall(r"(/\S+)", said):
            if GLIBC.search(path):
                target = root + path
                os.makedirs(os.path.dirname(target), exist_ok=True)
                shutil.copyfile(os.path.realpath(path), target)
                os.chmod(target, 0o755)
        os.makedirs(os.path.join(root, "proc"))  # the loader asks there what $ORIGIN is
        script = 'mount --rbind /proc "$1/proc" && PATH=$PATH:/usr/sbin exec chroot "$1" /tutti/bin/tutti-agent --version'
        words = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, "sh", root]
        probe = words[:3] + ["sh", "-c", 'mount --rbind /proc "$1/proc"', "sh", root]
        if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True).returncode != 0:
            self.skipTest("no mounts in user namespaces here")
        done = subprocess.run(words, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True)
        self.assertIn("tutti-agent", done.stdout, done.stderr)

    def test_what_is_bundled_has_its_licence_beside_it(self):
        if shutil.which("dpkg-query") is None:
            self.skipTest("not a Debian system")
        names = os.listdir(os.path.join(self.folder, "share", "licenses"))
        for name in ("libgrpc29", "libucx0"):
            self.assertIn(name, names)


if __name__ == "__main__":
    support.main()
