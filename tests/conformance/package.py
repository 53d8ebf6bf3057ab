"""The Python package `tutti`, built from the tree: what drives sessions."""

import importlib
import os
import shutil
import sys
import tempfile

from wire import Failed, Missing, Refused, support

SOURCES = ("client/python", "proto", "lib/rpc/proto")  # tests/clients/worlds.py has the same
_found = []
_folder = tempfile.TemporaryDirectory(prefix="tutti-package-")  # runs may be side by side


def _build():
    """Its sources in a folder of this run, with what the build makes among them."""
    made = shutil.ignore_patterns("build", "*.egg-info", "*.protoset", "__pycache__")
    for path in SOURCES:
        there = os.path.join(_folder.name, path)
        shutil.copytree(os.path.join(support.SOURCE, path), there, ignore=made)
    root = os.path.join(_folder.name, "client", "python")
    sys.path.insert(0, os.path.join(root, "backend"))
    try:
        importlib.import_module("tutti_build")._make()
    except (ImportError, OSError) as error:
        raise Missing("the Python package cannot be built: %s" % error) from None
    return os.path.join(root, "src")


def load():
    """The module; Missing where it cannot be built."""
    if not _found:
        sys.path.insert(0, _build())
        # The stubs are in a package of the same name, and stay loaded as tutti.v1.
        stubs = sys.modules.pop("tutti", None)
        _found.append(importlib.import_module("tutti"))
        if stubs is not None:
            _found[0].v1 = sys.modules["tutti.v1"]
    return _found[0]


def failed(error):
    """A TuttiError as the runner has it."""
    return Failed(error.code.name, error.reason, error.text)


def open_session(address, **how):
    """A session; Refused with what the agents say."""
    tutti = load()
    try:
        return tutti.session(address, **how)
    except tutti.TuttiError as error:
        raise Refused(failed(error)) from None
