#!/usr/bin/python3
"""Goal: what `cmake --install` puts in place is all that a user needs, wherever the prefix is.

Method: install into a folder, move it, and build and run programs outside the tree against it:
C++ with find_package(tutti), C with pkg-config, shared and static, on a cluster that the installed
`tutti` starts.

usage: test_install.py CMAKE sanitizers=[LIST] C-COMPILER
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "system"))
import support  # noqa: E402

CMAKE, SANITIZERS, COMPILER = sys.argv[1:4]
del sys.argv[1:4]
SANITIZERS = SANITIZERS.split("=", 1)[1]
if SANITIZERS:
    support.skip_all("a library built with -fsanitize=%s is not one to install" % SANITIZERS)

HERE = os.path.dirname(os.path.abspath(__file__))
work = tempfile.TemporaryDirectory(prefix="tutti-inst-")
PREFIX = os.path.join(work.name, "moved")
BIN = os.path.join(PREFIX, "bin")


def call(*words, **more):
    """Run a program; what it prints. It has to succeed."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TUTTI_")}
    environment["XDG_RUNTIME_DIR"] = os.path.join(work.name, "run")
    environment.update(more)
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=work.name,
        env=environment,
        timeout=300,
        close_fds=False,
    )
    if done.returncode != 0:
        raise AssertionError("%s: exit code %d\n%s" % (" ".join(words), done.returncode, done.stdout.decode()))
    return done.stdout.decode()


def library_folder():
    for root, _, files in os.walk(PREFIX):
        if "libtutti.so" in files:
            return root
    raise AssertionError("no libtutti.so below " + PREFIX)


def find(name):
    """A file of the prefix by the end of its path."""
    for root, _, files in os.walk(PREFIX):
        for file in files:
            if os.path.join(root, file).endswith("/" + name):
                return os.path.join(root, file)
    raise AssertionError("no %s below %s" % (name, PREFIX))


def setUpModule():
    os.mkdir(os.path.join(work.name, "run"), 0o700)
    first = os.path.join(work.name, "first")
    call(CMAKE, "--install", support.BUILD, "--prefix", first)
    os.rename(first, PREFIX)  # nothing may remember where it was


class TestInstall(unittest.TestCase):
    def assert_ranks(self, text, words):
        lines = sorted(line.split("] ", 1)[1] for line in text.strip().split("\n"))
        self.assertEqual(lines, words)

    def run_ranks(self, program, **more):
        return call(os.path.join(BIN, "tutti"), "run", "-n", "2", "--", program, **more)

    def test_files__are_where_people_look_for_them(self):
        for name in [
            "bin/tutti",
            "bin/tutti-agent",
            "bin/tutti-coordinator",
            "include/tutti/client.h",
            "include/tutti/tutti.h",
            "include/tutti/version.h",
            "share/tutti/proto/tutti/v1/collectives_service.proto",
            "share/bash-completion/completions/tutti",
            "share/bash-completion/completions/tutti-agent",
            "share/zsh/site-functions/_tutti",
            "share/fish/vendor_completions.d/tutti.fish",
            "man/man1/tutti.1",
            "man/man1/tutti-all-reduce.1",
            "man/man8/tutti-agent.8",
            "man/man8/tutti-coordinator.8",
            "pkgconfig/tutti.pc",
            "cmake/tutti/tuttiConfig.cmake",
            "cmake/tutti/tuttiConfigVersion.cmake",
            "libtutti.a",
        ]:
            self.assertGreater(os.path.getsize(find(name)), 0, name)
        folder = library_folder()
        self.assertEqual(os.readlink(os.path.join(folder, "libtutti.so")), "libtutti.so.0")
        for root, _, files in os.walk(PREFIX):
            for name in files:
                with open(os.path.join(root, name), "rb") as file:
                    if name.endswith((".cmake", ".pc", ".h")):
                        self.assertNotIn(support.SOURCE.encode(), file.read(), name)

    def test_command__starts_a_cluster_from_the_prefix(self):
        tutti = os.path.join(BIN, "tutti")
        call(tutti, "cluster", "start", "-n", "2")
        try:
            self.assertIn("2 of 2 ranks alive", call(tutti, "status"))
            with open("/proc/%d/maps" % self.agent_pid(tutti)) as maps:
                self.assertIn(BIN, maps.read())
        finally:
            call(tutti, "cluster", "stop")

    def agent_pid(self, tutti):
        return int(re.search(r"agent 0 +runs +(\d+)", call(tutti, "cluster", "status")).group(1))

    def test_cmake__finds_the_package_for_cxx(self):
        if shutil.which("c++") is None:
            self.skipTest("no C++ compiler here: install g++")
        source = os.path.join(work.name, "cxx")
        build = os.path.join(work.name, "cxx-build")
        shutil.copytree(os.path.join(HERE, "cxx"), source)
        call(CMAKE, "-G", "Ninja", "-S", source, "-B", build, "-DCMAKE_PREFIX_PATH=" + PREFIX, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        call(CMAKE, "--build", build)
        for kind in ("tutti", "static"):
            program = os.path.join(build, "user-" + kind)
            self.assertEqual("libtutti" in call("ldd", program), kind == "tutti")
            self.assert_ranks(
                self.run_ranks(program),
                ["c++: rank 0 of 2: most 1, last 10", "c++: rank 1 of 2: most 1, last 10"],
            )

    def test_cmake__refuses_another_minor_version(self):
        source = os.path.join(work.name, "version")
        os.mkdir(source)
        with open(os.path.join(source, "CMakeLists.txt"), "w") as file:
            file.write("cmake_minimum_required(VERSION 3.16)\nproject(user LANGUAGES C)\n")
            file.write("find_package(tutti 0.2 REQUIRED)\n")
        with self.assertRaisesRegex(AssertionError, "not accepted:"):
            call(CMAKE, "-G", "Ninja", "-S", source, "-B", source + "-build", "-DCMAKE_PREFIX_PATH=" + PREFIX)

    def pkg_config(self, *words):
        folder = os.path.join(library_folder(), "pkgconfig")
        return call("pkg-config", *words, "tutti", PKG_CONFIG_PATH=folder).split()

    def build_c(self, name, flags):
        program = os.path.join(work.name, name)
        source = os.path.join(work.name, "main.c")
        shutil.copy(os.path.join(HERE, "c", "main.c"), source)
        call(COMPILER, "-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror", source, "-o", program, *flags)
        return program

    def check_c(self, program, **more):
        wanted = ["c: rank %d of 2: 2 4 6 8" % rank for rank in range(2)]
        self.assert_ranks(self.run_ranks(program, **more), wanted)

    def test_pkg_config__builds_against_the_shared_library(self):
        if shutil.which("pkg-config") is None:
            self.skipTest("no pkg-config here: install it")
        flags = self.pkg_config("--cflags", "--libs")
        self.assertIn("-ltutti", flags)
        self.assertNotIn("-lgrpc", flags)
        program = self.build_c("shared", flags)
        self.assertIn("libtutti.so.0", call("ldd", program, LD_LIBRARY_PATH=library_folder()))
        self.check_c(program, LD_LIBRARY_PATH=library_folder())

    def test_pkg_config__builds_against_the_static_library(self):
        if shutil.which("pkg-config") is None:
            self.skipTest("no pkg-config here: install it")
        flags = self.pkg_config("--static", "--cflags", "--libs")
        archive = os.path.join(library_folder(), "libtutti.a")
        self.assertIn("-lgrpc", flags)
        program = self.build_c("static", [archive if flag == "-ltutti" else flag for flag in flags])
        self.assertNotIn("libtutti", call("ldd", program))
        self.check_c(program)


class TestExports(unittest.TestCase):
    """What a program can link is what the headers declare: no more, no less."""

    def declared(self):
        names = set()
        folder = os.path.join(PREFIX, "include", "tutti")
        for name in os.listdir(folder):
            with open(os.path.join(folder, name)) as file:
                names |= set(re.findall(r"TUTTI_API[^;(]*?\b(tutti_\w+)\(", file.read()))
        return names

    def symbols(self, *words):
        if shutil.which("nm") is None:
            self.skipTest("no nm here: install binutils")
        lines = call("nm", "--defined-only", *words).split("\n")
        found = {line.split()[2].split("@")[0] for line in lines if len(line.split()) == 3}
        return found - {"TUTTI_0"}

    def test_shared_library__shows_the_public_functions_alone(self):
        found = self.symbols("-D", os.path.join(library_folder(), "libtutti.so"))
        self.assertGreater(len(found), 40)
        self.assertEqual(found, self.declared())

    def test_static_library__shows_the_public_functions_alone(self):
        found = self.symbols("-g", os.path.join(library_folder(), "libtutti.a"))
        self.assertEqual(found, self.declared())


if __name__ == "__main__":
    support.main()
