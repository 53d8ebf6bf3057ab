"""Goal: every header compiles alone, with all warnings; the public ones as C11 and as C++11 without
anything of ours but include/.

Method: the compilers' syntax check over one line that includes the header.
"""

import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys
import unittest

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
import tap  # noqa: E402

BUILD = os.environ["TUTTI_BUILD"]
C = os.environ.get("TUTTI_CC", "cc")
CXX = os.environ.get("TUTTI_CXX", "c++")
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]
PUBLIC = ["-I", os.path.join(SOURCE, "include"), "-I", os.path.join(BUILD, "include")]
# As rooms see each other (cmake/options.cmake); generated code is not ours to warn about.
INSIDE = ["-D_GNU_SOURCE", "-I", SOURCE, "-I", os.path.join(SOURCE, "lib")]
INSIDE += ["-isystem", os.path.join(BUILD, "gen")]
# CUDA's headers need not be installed.
INSIDE += ["-isystem", os.path.join(SOURCE, "tests/support/cuda_standin/include")]
INSIDE += ["-isystem", os.path.join(SOURCE, "tests/support/nccl_standin/include")]
# Without CPython's the headers of the Python package's extension are left out.
PYTHON = sorted(glob.glob("/usr/include/python3.*/"))[-1:]
INSIDE += ["-isystem", *PYTHON] if PYTHON else []


def headers(pattern):
    found = glob.glob(os.path.join(SOURCE, pattern), recursive=True)
    return sorted(os.path.relpath(path, SOURCE) for path in found)


def complaint(words, header):
    """What a compiler says about a header alone; "" when it is content."""
    text = '#include "%s"\n' % os.path.join(SOURCE, header)
    done = subprocess.run(
        words + ["-"], input=text.encode(), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
    )
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace")


class Headers(unittest.TestCase):
    def compile_all(self, words, paths):
        self.assertTrue(paths, "no headers found: the pattern is wrong")
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            said = list(pool.map(lambda path: complaint(words, path), paths))
        self.assertEqual("".join(said), "")

    def test_public_headers_compile_alone_as_c11(self):
        words = [C, "-x", "c", "-std=c11", "-Wstrict-prototypes"] + WARNINGS + PUBLIC
        self.compile_all(words, headers("include/tutti*/*.h"))

    def test_public_headers_compile_alone_as_cxx11(self):
        if shutil.which(CXX) is None:
            self.skipTest("no C++ compiler: install g++")
        words = [CXX, "-x", "c++", "-std=c++11"] + WARNINGS + PUBLIC
        self.compile_all(words, headers("include/tutti*/*.h"))

    def test_headers_of_the_rooms_compile_alone(self):
        words = [C, "-x", "c", "-std=c11", "-Wstrict-prototypes"] + WARNINGS + PUBLIC + INSIDE
        paths = [path for room in ("lib/**", "store/**", "server/**", "client/**", "bench")
                 for path in headers(room + "/*.h")]
        paths = [path for path in paths if PYTHON or not path.startswith("client/python/")]
        self.compile_all(words, sorted(set(paths)))

    def test_a_header_that_lacks_an_include_is_found(self):
        path = os.path.join(BUILD, "tests", "house", "bad.h")
        with open(path, "w") as file:
            file.write("size_t nobody_has_declared_this_type(void);\n")
        words = [C, "-x", "c", "-std=c11"] + WARNINGS
        self.assertIn("size_t", complaint(words, path))


if __name__ == "__main__":
    tap.main()
