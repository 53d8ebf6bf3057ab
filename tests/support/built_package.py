"""The Python package of client/python, built into the build folder without pip: for tests that drive it."""

import fcntl
import importlib
import os
import shutil
import sys

SOURCE = os.environ["TUTTI_SOURCE"]
OUT = os.path.join(os.environ["TUTTI_BUILD"], "python-package")
SOURCES = ("client/python", "proto", "lib/rpc/proto")


NATIVE = os.path.join(os.environ["TUTTI_BUILD"], "python", "_native.abi3.so")


def _newest():
    found = os.stat(NATIVE).st_mtime if os.path.exists(NATIVE) else 0
    for path in SOURCES:
        for folder, _, names in os.walk(os.path.join(SOURCE, path)):
            found = max([found] + [os.stat(os.path.join(folder, name)).st_mtime for name in names])
    return found


def _copy():
    made = shutil.ignore_patterns("build", "*.egg-info", "*.protoset", "__pycache__")
    for path in SOURCES:
        to = os.path.join(OUT, path)
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(os.path.join(SOURCE, path), to, ignore=made)
    if os.path.exists(NATIVE):
        shutil.copy2(NATIVE, os.path.join(OUT, "client", "python", "src", "tutti"))


def _make():
    """What the package's build makes: the descriptors, and the blocking twin."""
    sys.path.insert(0, os.path.join(OUT, "client", "python", "backend"))
    try:
        importlib.import_module("tutti_build")._make()
    finally:
        sys.path.pop(0)


def build():
    """The folder for PYTHONPATH."""
    if os.environ.get("TUTTI_STUBS") == "made":  # tests/gpu: by another machine, from the same sources
        return os.path.join(OUT, "client", "python", "src")
    stamp = os.path.join(OUT, "stamp")
    os.makedirs(OUT, exist_ok=True)
    with open(os.path.join(OUT, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        if not os.path.exists(stamp) or os.stat(stamp).st_mtime < _newest():
            _copy()
            _make()
            with open(stamp, "w"):
                pass
    return os.path.join(OUT, "client", "python", "src")


def load(stubs):
    """The module `tutti`, which has the generated stubs of a folder as tutti.v1 beside it."""
    sys.path.insert(0, build())
    module = importlib.import_module("tutti")
    module.__path__.append(os.path.join(stubs, "tutti"))
    return module
