#!/usr/bin/env python3
"""Moves an installation from a folder into a prefix: all of it, or nothing if anything goes wrong.

usage: prefix.py FOLDER PREFIX

Files are copied into a folder of the prefix first, so that a full disk is noticed there. Then only names change; what had them
before is kept until the last one has changed.
"""

import contextlib
import os
import shutil
import signal
import sys


class Prefix:
    def __init__(self, prefix):
        self.prefix, self.undo = prefix, []
        self.aside = os.path.join(prefix, ".tutti-install-%d" % os.getpid())

    def make(self, folder):
        """A folder, and those it lies in."""
        if os.path.isdir(folder):
            return
        self.make(os.path.dirname(folder))
        os.mkdir(folder)
        self.undo.append(lambda: os.rmdir(folder))

    def rename(self, old, new):
        os.rename(old, new)
        self.undo.append(lambda: os.rename(new, old))

    def put(self, source, name):
        """A file takes its name; another one that has it goes aside."""
        target, old = os.path.join(self.prefix, name), os.path.join(self.aside, "old", name)
        self.make(os.path.dirname(target))
        if os.path.isdir(target) and not os.path.islink(target):
            raise IsADirectoryError("%s is a folder, and a file of Tutti has that name" % target)
        if os.path.lexists(target):
            self.make(os.path.dirname(old))
            self.rename(target, old)
        self.rename(source, target)

    def take(self, folder):
        new = os.path.join(self.aside, "new")
        self.make(self.aside)
        self.undo.append(lambda: shutil.rmtree(new))
        shutil.copytree(folder, new, symlinks=True)
        for at, _, names in list(os.walk(new)):
            for name in names:
                self.put(os.path.join(at, name), os.path.relpath(os.path.join(at, name), new))
        shutil.rmtree(self.aside)

    def give_back(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for undo in reversed(self.undo):
            with contextlib.suppress(OSError):  # somebody else's file came into a folder
                undo()


def main(folder, prefix):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    place = Prefix(os.path.abspath(prefix))
    try:
        place.take(folder)
    except BaseException as error:
        place.give_back()
        if not isinstance(error, (OSError, shutil.Error)):
            raise
        sys.exit("%s is as it was: %s" % (prefix, error))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
