#!/usr/bin/env python3
"""The Python package as one wheel: with the programs, libtutti, and all libraries they need but glibc.

usage: wheel.py BUILD FOLDER      writes FOLDER/tutti-VERSION-cp311-abi3-manylinux_2_XX_ARCH.whl

The tag says the glibc of this machine, which is what the files were linked with. Libraries have names of
their own ("libgrpc-tutti.so.29"), so the loader never takes them for those of another package in the same
process (grpcio, torch), nor theirs for ours; but for UCX's, which find their parts by name.
"""

import base64
import glob
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from bundle import Bundle  # noqa: E402

SOURCE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NATIVE = "_native.abi3.so"
KEEPS_NAME = re.compile(r"^lib(ucp|uct|ucs|ucm)\.")
SCRIPTS = """[console_scripts]
tutti = tutti._programs:tutti
tutti-agent = tutti._programs:agent
tutti-coordinator = tutti._programs:coordinator
"""


def gather(build):
    """The folder of a bundle, with the extension in it."""
    bundle = Bundle(build, False)
    bundle.take_programs()
    bundle.take_modules()
    bundle.take_transports()
    native = os.path.join(build, "python", NATIVE)
    bundle.take_libraries(native)
    bundle.take(native, NATIVE, rpath="$ORIGIN/_bundle/lib")
    bundle.take_words(SOURCE)
    return bundle


def elf_files(folder):
    for root, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(root, name)
            with open(path, "rb") as file:
                if file.read(4) == b"\x7fELF":
                    yield path


def rename(folder):
    """Names of their own for the libraries."""
    lib = os.path.join(folder, "lib")
    new = {}
    for name in sorted(os.listdir(lib)):
        if os.path.isfile(os.path.join(lib, name)) and not KEEPS_NAME.match(name):
            new[name] = name.replace(".so", "-tutti.so", 1)
    for name, other in new.items():
        os.rename(os.path.join(lib, name), os.path.join(lib, other))
        subprocess.run(["patchelf", "--set-soname", other, os.path.join(lib, other)], check=True)
    words = [word for pair in new.items() for word in ("--replace-needed", *pair)]
    for path in elf_files(folder):
        subprocess.run(["patchelf", *words, path], check=True)


def pure_wheel(folder):
    """The package alone, made by its own build."""
    sources = os.path.join(folder, "sources")
    for path in ("client/python", "proto", "lib/rpc/proto"):
        made = shutil.ignore_patterns("build", "*.egg-info", "*.protoset", "__pycache__", "_native*.so")
        shutil.copytree(os.path.join(SOURCE, path), os.path.join(sources, path), ignore=made)
    words = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index"]
    words += ["--disable-pip-version-check", "-w", folder, os.path.join(sources, "client/python")]
    subprocess.run(words, check=True)
    return glob.glob(os.path.join(folder, "*.whl"))[0]


def tag():
    major, minor = platform.libc_ver()[1].split(".")[:2]
    return "cp311-abi3-manylinux_%s_%s_%s" % (major, minor, platform.machine())


class Wheel:
    """A wheel that is written: RECORD comes last."""

    def __init__(self, path):
        self.archive = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, mode=0o644):
        info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
        info.external_attr = (0o100000 | mode) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.archive.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append("%s,sha256=%s,%d" % (name, digest, len(data)))

    def close(self, record):
        self.record.append(record + ",,")
        self.archive.writestr(record, "\n".join(self.record) + "\n")
        self.archive.close()


def read(path):
    with open(path, "rb") as file:
        return file.read()


def join(pure, bundle, out):
    """One wheel of the package and the bundle."""
    wheel, record = Wheel(out), None
    with zipfile.ZipFile(pure) as old:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(".dist-info/RECORD"):
                record = name
                continue
            if name.endswith(".dist-info/WHEEL"):
                text = re.sub(r"Root-Is-Purelib: \w+", "Root-Is-Purelib: false", data.decode())
                data = re.sub(r"Tag: \S+", "Tag: " + tag(), text).encode()
            if name.endswith(".dist-info/METADATA"):  # libtutti makes the calls
                data = re.sub(r"(?m)^Requires-Dist: grpcio\b.*\n", "", data.decode()).encode()
            wheel.add(name, data)
    wheel.add(record.replace("RECORD", "entry_points.txt"), SCRIPTS.encode())
    for root, _, names in os.walk(bundle.folder):
        for name in sorted(names):
            path = os.path.join(root, name)
            place = os.path.relpath(path, bundle.folder)
            place = "tutti/" + (NATIVE if name == NATIVE else "_bundle/" + place)
            wheel.add(place, read(path), os.stat(path).st_mode & 0o777)
    wheel.close(record)


def main():
    build, folder = map(os.path.abspath, sys.argv[1:3])
    os.makedirs(folder, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        pure = pure_wheel(work)
        version = os.path.basename(pure).split("-")[1]
        bundle = gather(build)
        rename(bundle.folder)
        out = os.path.join(folder, "tutti-%s-%s.whl" % (version, tag()))
        join(pure, bundle, out)
        shutil.rmtree(os.path.dirname(bundle.folder))
    print("%s: %.0f MiB" % (out, os.path.getsize(out) / (1 << 20)))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
