#!/usr/bin/python3
"""Goal: the commands for a machine with a GPU show all they should in the first try, on a system that is not ours.

Method: a kit of this build with the stand-ins for CUDA and NCCL; a bare Debian 13 without network, compiler and protoc, whose Python has grpcio,
protobuf and numpy; in it the two calls of README.md. Torch is not there. Skips with the reason where a root folder cannot be had.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(SOURCE, "tests", "support"), os.path.join(SOURCE, "cmake")]
import bare_debian as bare  # noqa: E402
import tap  # noqa: E402
import tree  # noqa: E402

BUILD = os.environ["TUTTI_BUILD"]
PLACE = os.path.join(bare.ROOT, "root", "tutti")
# Steps that may be left out there, and what they have to say of it.
LEFT_OUT = {"torch": "lacks torch", "beside NCCL (two rows)": "no CUDA, nccl.h or libnccl when this was built"}
CALLS = ("^(what|tensor suite|first|conf|faults|tensors|events|grad)", "^(upload|torch|beside)")


def setUpModule():
    bare.make_root("python3", "python3-grpcio", "python3-protobuf", "python3-numpy", "iproute2", suite="trixie")
    for name in tree.files(SOURCE, new=True):
        os.makedirs(os.path.dirname(os.path.join(PLACE, name)), exist_ok=True)
        shutil.copy2(os.path.join(SOURCE, name), os.path.join(PLACE, name), follow_symlinks=False)
    words = ["/usr/bin/python3", os.path.join(HERE, "make_kit.py"), "--stand-in", BUILD, os.path.join(PLACE, "build", "gpu-kit")]
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def tearDownModule():
    bare.remove_root()


def rows(table):
    """Of run_all.py's table: the name of a step -> how it ended, and what it said."""
    found = re.findall(r"^\| (.+?) \| (\w+) \| [\d.]+ \| (.*) \|$", table, re.M)
    return {name: (ended, said) for name, ended, said in found}


class Rehearsal(unittest.TestCase):
    def call(self, number, steps):
        """One command, as on the machine with a GPU; its table, out of the archive that it leaves."""
        out = "/tmp/out%d" % number
        line = ("ip link set lo up && cd /root/tutti && chmod -R go-w build/gpu-kit && export NCCL_SOCKET_IFNAME=lo && "
                "python3 tests/gpu/run_all.py --stand-in --build build/gpu-kit --out %s --minutes 8 --pack %s.tgz --only '%s'")
        said = bare.inside("unshare", "--net", "sh", "-c", line % (out, out, steps))
        print("".join("# %s\n" % one for one in said.splitlines()), flush=True)
        with tarfile.open(bare.ROOT + out + ".tgz") as archive:
            return rows(archive.extractfile("gpu/table.md").read().decode())

    def assert_shown(self, table, at_least):
        self.assertGreaterEqual(len(table), at_least)
        left_out = {name: said for name, (ended, said) in table.items() if ended != "passed"}
        wrong = {name: said for name, said in left_out.items() if LEFT_OUT.get(name, "\n") not in said}
        self.assertEqual(wrong, {})

    def test_first_call_shows_what_goes_by_nccl(self):
        table = self.call(1, CALLS[0])
        self.assert_shown(table, 8)
        self.assertGreater(int(table["conformance"][1].split(" passed")[0]), 300)

    def test_second_call_shows_the_rest(self):
        table = self.call(2, CALLS[1])
        self.assert_shown(table, 3)


if __name__ == "__main__":
    tap.main()
