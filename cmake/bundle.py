#!/usr/bin/env python3
"""Programs and the shared libraries they need, in one folder that runs wherever it is unpacked.

usage: bundle.py BUILD OUT.tar.gz [--cuda]

The result needs a Linux with glibc at least as new as that of this machine, and nothing else: programs find
their libraries by $ORIGIN. libc and the loader are the system's own; the driver of a GPU always is. With
--cuda, libcudart and libnccl come along (200 MiB); without, tutti-cuda.so and tutti-nccl.so look for them
where CUDA is usually installed. patchelf and ldd have to be there.
"""

import argparse
import glob
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

PROGRAMS = ("tutti-coordinator", "tutti-agent", "tutti")
MODULES = ("tutti-cuda.so", "tutti-nccl.so", "tutti-tvm.so")
NEEDS_CUDA = MODULES[:2]  # to be built
# Parts of glibc: they belong to the loader of the machine.
SYSTEM = re.compile(r"^(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util|nss_.*|anl)\.so\.\d+|libcuda\.so.*|linux-vdso.*)$")
CUDA = re.compile(r"^lib(cudart|nccl)\.so")
CUDA_PLACES = "/usr/local/cuda/lib64:/usr/lib/x86_64-linux-gnu:/usr/lib/aarch64-linux-gnu"


def fail(text):
    sys.exit("bundle: " + text)


def needed(path):
    """What ldd finds for it: name -> file."""
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    missing = re.findall(r"(\S+) => not found", said)
    if missing:
        fail("%s needs %s, which are not here" % (path, ", ".join(missing)))
    return dict(re.findall(r"(\S+) => (/\S+)", said))


class Bundle:
    def __init__(self, build, with_cuda):
        self.build = build
        self.with_cuda = with_cuda
        self.version = self.read_version()
        self.name = "tutti-%s-%s" % (self.version, platform.machine())
        self.folder = os.path.join(tempfile.mkdtemp(prefix="tutti-bundle-"), self.name)
        self.sources = {}  # file of the system -> where it went

    def read_version(self):
        with open(os.path.join(self.build, "CMakeCache.txt")) as file:
            return re.search(r"CMAKE_PROJECT_VERSION:STATIC=(\S+)", file.read())[1]

    def take(self, path, *place, rpath):
        """`place` ends with the file's name there."""
        target = os.path.join(self.folder, *place)
        if os.path.exists(target):
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.realpath(path), target)
        os.chmod(target, 0o755)
        subprocess.run(["patchelf", "--set-rpath", rpath, target], check=True)
        self.sources[path] = target

    def take_libraries(self, path):
        for name, found in needed(path).items():
            if not SYSTEM.match(name) and (self.with_cuda or not CUDA.match(name)):
                self.take(found, "lib", name, rpath="$ORIGIN")

    def take_programs(self):
        for name in PROGRAMS:
            path = os.path.join(self.build, name)
            if not os.path.exists(path):
                fail("no %s: build it first" % path)
            self.take(path, "bin", name, rpath="$ORIGIN/../lib")
            self.take_libraries(path)

    def take_modules(self):
        rpath = "$ORIGIN/.." if self.with_cuda else "$ORIGIN/..:" + CUDA_PLACES
        for name in MODULES:
            path = os.path.join(self.build, name)
            if not os.path.exists(path):
                if name not in NEEDS_CUDA:
                    fail("no %s: build it first" % path)
                continue
            self.take(path, "lib", "tutti", name, rpath=rpath)
            self.take_libraries(path)

    def take_transports(self):
        """UCX loads what it has for RDMA and the like from the folder `ucx` beside libucs."""
        ucs = needed(os.path.join(self.build, "tutti-agent")).get("libucs.so.0", "")
        for path in glob.glob(os.path.join(os.path.dirname(ucs), "ucx", "*.so.0")):
            try:
                self.take_libraries(path)
            except SystemExit as reason:
                print("%s: left out" % reason, file=sys.stderr)
                continue
            self.take(path, "lib", "ucx", os.path.basename(path), rpath="$ORIGIN/..")

    def take_words(self, source):
        for name in ("LICENSE", "README.md"):
            shutil.copy(os.path.join(source, name), self.folder)
        target = os.path.join(self.folder, "share", "licenses")
        os.makedirs(target)
        for path in self.sources:
            if shutil.which("dpkg-query") is None or path.startswith(self.build):
                continue
            said = subprocess.run(["dpkg-query", "-S", os.path.realpath(path)], capture_output=True, text=True)
            package = said.stdout.split(":")[0]
            words = "/usr/share/doc/%s/copyright" % package
            if package and os.path.exists(words):
                shutil.copyfile(words, os.path.join(target, package))

    def pack(self, out):
        def plain(info):
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = "root"
            return info

        os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
        with tarfile.open(out, "w:gz", compresslevel=6) as archive:
            archive.add(self.folder, self.name, filter=plain)
        shutil.rmtree(os.path.dirname(self.folder))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", help="the folder in which the programs were built")
    parser.add_argument("out", help="the archive to write")
    parser.add_argument("--cuda", action="store_true", help="with libcudart and libnccl")
    arguments = parser.parse_args()
    for tool in ("patchelf", "ldd"):
        if shutil.which(tool) is None:
            fail("no %s here" % tool)
    bundle = Bundle(os.path.abspath(arguments.build), arguments.cuda)
    bundle.take_programs()
    bundle.take_modules()
    bundle.take_transports()
    bundle.take_words(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    bundle.pack(arguments.out)
    print("%s: %d files of other packages, %.0f MiB"
          % (arguments.out, len(bundle.sources), os.path.getsize(arguments.out) / (1 << 20)))


if __name__ == "__main__":
    main()
