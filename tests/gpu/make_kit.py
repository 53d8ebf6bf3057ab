#!/usr/bin/env python3
"""A kit for a machine with a GPU and none of our packages: programs, test programs and their libraries, and stubs for
Python, in one folder. The sources (tests, bench, proto) go there by other means; run_all.py --build KIT uses both.

usage: make_kit.py [--stand-in] BUILD KIT

With --stand-in the kit is for a rehearsal: it has the stand-ins for CUDA and NCCL too, and may lack the modules for the real ones.
libcudart, libnccl and the driver are those of that machine; run_all.py looks for them. patchelf and ldd have to be here.
"""

import importlib.util
import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PROGRAMS = ("tutti-coordinator", "tutti-agent", "tutti", "tests/lib/tensor/test_tensor_cuda", "bench/bench_peers_tutti",
            "bench/bench_peers_nccl", "bench/bench_peers_probe", "libtutti.so.0")
MODULES = ("tutti-cuda.so", "tutti-nccl.so", "tests/plugins/tests_plugin.so")


def bundle_module():
    spec = importlib.util.spec_from_file_location("bundle", os.path.join(ROOT, "cmake", "bundle.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Kit:
    def __init__(self, build, folder):
        self.build, self.folder, self.bundle = build, folder, bundle_module()
        self.places = self.bundle.CUDA_PLACES

    def take(self, path, target, rpath):
        if os.path.exists(target):
            return
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copyfile(os.path.realpath(path), target)
        os.chmod(target, 0o755)
        subprocess.run(["strip", "--strip-unneeded", target], check=True)
        subprocess.run(["patchelf", "--set-rpath", rpath, target], check=True)

    def take_program(self, name):
        path = os.path.join(self.build, name)
        if not os.path.exists(path):
            print("make_kit: left out, not built: " + name, file=sys.stderr)
            return
        depth = "/".join([".."] * name.count("/")) or "."
        self.take(path, os.path.join(self.folder, name), "$ORIGIN/%s/lib:%s" % (depth, self.places))
        self.take_libraries(path)

    def take_libraries(self, path, but=()):
        for library, found in self.bundle.needed(path).items():
            if not self.bundle.SYSTEM.match(library) and not self.bundle.CUDA.match(library) and library not in but:
                self.take(found, os.path.join(self.folder, "lib", library), "$ORIGIN")

    def take_stand_in(self):
        folder = os.path.join(self.build, "standin")
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            self.take(path, os.path.join(self.folder, "standin", name), "$ORIGIN:$ORIGIN/../lib")
            self.take_libraries(path, but=os.listdir(folder))

    def take_stubs(self):
        """By the machinery of the system tests, in this build folder; then copied."""
        script = "import support; support.build_stubs(); support.foreign_files()"
        environment = dict(os.environ, TUTTI_SOURCE=ROOT, TUTTI_BUILD=self.build)
        subprocess.run(["/usr/bin/python3", "-c", script], check=True, env=environment, cwd=os.path.join(ROOT, "tests", "system"))
        shutil.copytree(os.path.join(self.build, "tests", "system", "stubs"),
                        os.path.join(self.folder, "tests", "system", "stubs"))

    def take_package(self):
        """The Python package, which the tests import: building it needs protoc and setuptools."""
        environment = dict(os.environ, TUTTI_SOURCE=ROOT, TUTTI_BUILD=self.build)
        subprocess.run(["/usr/bin/python3", "-c", "import built_package; built_package.build()"], check=True, env=environment,
                       cwd=os.path.join(ROOT, "tests", "support"))
        shutil.copytree(os.path.join(self.build, "python-package"), os.path.join(self.folder, "python-package"))

    def take_headers(self):
        """What client/torch is built with there, besides include/ of the sources."""
        shutil.copytree(os.path.join(self.build, "include"), os.path.join(self.folder, "include"))
        shutil.copyfile(os.path.join(self.folder, "libtutti.so.0"), os.path.join(self.folder, "libtutti.so"))


def main():
    stand_in = sys.argv[1:2] == ["--stand-in"]
    words = sys.argv[2:] if stand_in else sys.argv[1:]
    if len(words) != 2:
        sys.exit(__doc__)
    build, folder = map(os.path.abspath, words)
    shutil.rmtree(folder, ignore_errors=True)
    kit = Kit(build, folder)
    for name in PROGRAMS + MODULES:
        kit.take_program(name)
    if stand_in:
        kit.take_stand_in()
    for name in () if stand_in else MODULES[:2]:
        if not os.path.exists(os.path.join(folder, name)):
            sys.exit("make_kit: no %s was built (CUDA's headers and nccl.h have to be here): a kit without it shows nothing" % name)
    kit.take_stubs()
    kit.take_package()
    kit.take_headers()
    with open(os.path.join(folder, "kit"), "w") as file:
        file.write("made by tests/gpu/make_kit.py\n")
    size = sum(os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(folder) for name in names)
    print("%s: %.0f MiB" % (folder, size / (1 << 20)))


if __name__ == "__main__":
    main()
