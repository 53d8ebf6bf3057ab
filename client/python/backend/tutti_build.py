"""Builds the package: setuptools, after making what is made from other sources.

* src/tutti/tutti.protoset: the descriptors of proto/ and lib/rpc/proto, made by protoc (the one on
  the PATH, else that of grpcio-tools). Message classes are made from it at run time, so one wheel
  works with every protobuf runtime; generated modules would tie it to one.
* src/tutti/sync/*.py: the blocking API, from src/tutti/aio/*.py by leaving `async` and `await` out.

A source distribution carries both; without proto/ beside it they are taken as they are.
"""

import glob
import os
import re
import shutil
import subprocess
import sys

from setuptools import build_meta as _setuptools
from setuptools.build_meta import *  # noqa: F401,F403: the hooks that need nothing of ours

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TREE = os.path.dirname(os.path.dirname(HERE))
ROOTS = [os.path.join(TREE, "proto"), os.path.join(TREE, "lib", "rpc", "proto")]
PROTOSET = os.path.join(HERE, "src", "tutti", "tutti.protoset")
AIO = os.path.join(HERE, "src", "tutti", "aio")
SYNC = os.path.join(HERE, "src", "tutti", "sync")

TWINS = ("_waits.py", "_call_native.py", "_call_grpc.py", "_pipe.py", "_engine.py")  # written twice: they are what differs

WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\bAsync(Iterator|Generator)\b", r"\1"),
    (r"\bAwaitable\[(\w+)\]", r"\1"),
    (r"\btutti\.aio\b", "tutti"),
]

# ------------------------------------------------------------------------------ descriptors


def _protos():
    """The names of all proto files, as the files import each other."""
    found = []
    for root in ROOTS:
        for path in glob.glob(os.path.join(root, "**", "*.proto"), recursive=True):
            found.append(os.path.relpath(path, root))
    return sorted(found)


def _protoc():
    """The first words of a protoc command line."""
    if shutil.which("protoc"):
        return ["protoc"]
    import grpc_tools

    include = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    return [sys.executable, "-m", "grpc_tools.protoc", "-I" + include]


def make_protoset():
    names = _protos()
    if not names and os.path.exists(PROTOSET):
        return
    if not names:
        raise RuntimeError("no protos in %s: build in the source tree" % " or ".join(ROOTS))
    words = _protoc() + ["-I" + root for root in ROOTS]
    words += ["--include_imports", "--descriptor_set_out=" + PROTOSET] + names
    subprocess.run(words, check=True)


# ------------------------------------------------------------------------------ the blocking twin


def without_async(text, name):
    """The same code without async and await, which blocks its caller."""
    for pattern, plain in WORDS:
        text = re.sub(pattern, plain, text)
    return "# Made from aio/%s when the package was built.\n%s" % (name, text)


def make_sync():
    for path in sorted(glob.glob(os.path.join(AIO, "*.py"))):
        name = os.path.basename(path)
        if name in TWINS:
            continue
        with open(path, encoding="utf-8") as file:
            text = without_async(file.read(), name)
        with open(os.path.join(SYNC, name), "w", encoding="utf-8") as file:
            file.write(text)


# ------------------------------------------------------------------------------ hooks


def _make():
    make_protoset()
    make_sync()


def _requires(found):
    needs_protoc = _protos() and not shutil.which("protoc")
    return found + (["grpcio-tools"] if needs_protoc else [])


def get_requires_for_build_wheel(config_settings=None):
    return _requires(_setuptools.get_requires_for_build_wheel(config_settings))


def get_requires_for_build_sdist(config_settings=None):
    return _requires(_setuptools.get_requires_for_build_sdist(config_settings))


def get_requires_for_build_editable(config_settings=None):
    return _requires(_setuptools.get_requires_for_build_editable(config_settings))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    _make()
    return _setuptools.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    _make()
    return _setuptools.build_sdist(sdist_directory, config_settings)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    _make()
    return _setuptools.build_editable(wheel_directory, config_settings, metadata_directory)
