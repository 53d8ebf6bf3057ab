"""Goal: what is built keeps what makes a fault in memory harder to exploit (cmake/harden.cmake); and the one
function of gRPC that newer ones lack is called only where it is.

Method: readelf over the programs and the library of this build folder; rpc_log.c is compiled against a
header of gRPC's log that has no gpr_set_log_function.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

BUILD = os.environ["TUTTI_BUILD"]
PROGRAMS = ("tutti", "tutti-agent", "tutti-coordinator")
LIBRARIES = ("libtutti.so", "libtutti-rpc.so")
HARDENED = os.environ["TUTTI_HARDENED"] == "ON"
CET = os.environ["TUTTI_CET"] == "ON"
ENDBR64 = bytes.fromhex("f30f1efa")


def readelf(name, *options):
    words = ["readelf", "-W", *options, os.path.join(BUILD, name)]
    return subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout.decode()


def imports(name):
    """Names of functions that it takes from other libraries."""
    found = re.findall(r"\bUND (\S+?)(?:@\S+)?(?: \(\d+\))?$", readelf(name, "--dyn-syms"), re.M)
    return set(found)


def functions(name, table):
    """(name, address) of the functions that it has, by its table of symbols."""
    rows = re.findall(r"^ *\d+: ([0-9a-f]+) +\d+ FUNC +\S+ +\S+ +\d+ (\S+)", readelf(name, table), re.M)
    return {symbol.split("@")[0]: int(address, 16) for address, symbol in rows}


def starts_of(name, addresses):
    """The first four bytes of each function."""
    row = re.search(r"\.text +PROGBITS +([0-9a-f]+) +([0-9a-f]+) +([0-9a-f]+)", readelf(name, "-S"))
    base, offset, size = (int(number, 16) for number in row.groups())
    with open(os.path.join(BUILD, name), "rb") as file:
        file.seek(offset)
        text = file.read(size)
    return [text[at - base : at - base + 4] for at in addresses]


@unittest.skipUnless(HARDENED, "a build with sanitizers")
class Elf(unittest.TestCase):
    def test_programs_are_position_independent(self):
        for name in PROGRAMS:
            self.assertRegex(readelf(name, "-h"), r"Type: +DYN", name)
            self.assertRegex(readelf(name, "-d"), r"\(FLAGS_1\).*\bPIE\b", name)

    def test_relocations_are_made_at_the_start_and_read_only_then(self):
        for name in PROGRAMS + LIBRARIES:
            self.assertIn("GNU_RELRO", readelf(name, "-l"), name)
            self.assertRegex(readelf(name, "-d"), r"\(FLAGS_1\).*\bNOW\b", name)

    def test_no_stack_can_be_executed(self):
        for name in PROGRAMS + LIBRARIES:
            self.assertRegex(readelf(name, "-l"), r"GNU_STACK +(0x\S+ +)+RW +0x", name)

    def test_buffers_on_the_stack_are_guarded(self):
        for name in PROGRAMS + LIBRARIES:
            self.assertTrue(imports(name) >= {"__stack_chk_fail"}, name)

    def test_libc_is_called_with_the_sizes_of_buffers(self):
        for name in PROGRAMS + LIBRARIES:
            self.assertTrue(imports(name) >= {"__snprintf_chk", "__memcpy_chk"}, name)

    @unittest.skipUnless(CET, "this processor has no branch targets, or this compiler does not know them")
    def test_functions_begin_with_a_branch_target(self):
        for name in PROGRAMS:
            self.assertEqual(starts_of(name, [functions(name, "-s")["main"]]), [ENDBR64], name)
        for name in LIBRARIES:
            public = {word: at for word, at in functions(name, "--dyn-syms").items() if at != 0}
            self.assertGreater(len(public), 30, name)
            self.assertEqual(set(starts_of(name, public.values())), {ENDBR64}, name)


class Log(unittest.TestCase):
    def test_builds_without_a_function_that_newer_grpc_lacks(self):
        words = [os.environ["TUTTI_CC"], "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror"]
        words += ["-Wmissing-prototypes", "-fsyntax-only"]
        with tempfile.TemporaryDirectory() as newer:
            os.makedirs(os.path.join(newer, "grpc", "support"))
            with open(os.path.join(newer, "grpc", "support", "log.h"), "w") as header:
                header.write("#include <grpc/support/port_platform.h>\n")
            for folder in (newer, os.path.join(SOURCE, "include"), os.path.join(BUILD, "include")):
                words += ["-I", folder]
            words += ["-I", os.path.join(SOURCE, "lib"), os.path.join(SOURCE, "lib/rpc/util/log.c")]
            done = subprocess.run(words, stderr=subprocess.PIPE)
        self.assertEqual(done.returncode, 0, done.stderr.decode())


if __name__ == "__main__":
    tap.main()
