"""What a folder may have after a power cut: what was waited for, and any sectors of what was not.

tests/store/power_cut.c writes down what a process did. A SIGKILL leaves all that in the kernel; a power cut does not, so the
folder is made anew from what it was and from that list.
"""

import os
import random
import shutil
import struct
import time

import support

LIBRARY = os.path.join(support.BUILD, "tests", "store", "libpower_cut.so")
WROTE, SYNCED, CUT, WROTE_FOR_GOOD, WAITS = 1, 2, 3, 4, 5
HEAD = struct.Struct("<IIQQ")
SECTOR = 512


class Disk:
    """A folder whose power can be cut."""

    def __init__(self, folder, place):
        """`place`: for the list, and what the folder was."""
        self.folder = folder
        self.log, self.before, self.held = (os.path.join(place, name) for name in ("done", "before", "held"))
        os.makedirs(folder, exist_ok=True)
        self.begin()

    def begin(self):
        """From now on; nobody has the folder open."""
        shutil.rmtree(self.before, ignore_errors=True)
        shutil.copytree(self.folder, self.before)
        open(self.log, "wb").close()

    def environment(self):
        return {"LD_PRELOAD": LIBRARY, "TUTTI_CUT_FOLDER": self.folder, "TUTTI_CUT_LOG": self.log, "TUTTI_CUT_HOLD": self.held}

    def hold(self):
        """The disk ends nothing more. Returns when somebody waits for what it has written: a power cut may lose that."""
        open(self.held, "wb").close()
        until = time.monotonic() + support.CALL_S
        while not any(one[0] == WAITS for one in self.done()):
            assert time.monotonic() < until, "nobody waited for the disk in %d s" % support.CALL_S
            time.sleep(0.001)

    def done(self):
        """(kind, name, offset, bytes) of each thing that was done; the last may be cut short."""
        with open(self.log, "rb") as file:
            while True:
                head = file.read(HEAD.size)
                if len(head) < HEAD.size:
                    return
                kind, name_size, offset, size = HEAD.unpack(head)
                name, data = file.read(name_size), file.read(size)
                if len(name) < name_size or len(data) < size:
                    return
                yield kind, name.decode(), offset, data

    def split(self):
        """What was waited for, and what was not."""
        sure, unsure = {}, {}
        for kind, name, offset, data in self.done():
            waiting = unsure.setdefault(name, [])
            if kind == SYNCED:
                sure.setdefault(name, []).extend(waiting)
                waiting.clear()
            elif kind == WROTE_FOR_GOOD:
                sure.setdefault(name, []).append((WROTE, offset, data))
            elif kind != WAITS:
                waiting.append((kind, offset, data))
        return sure, unsure

    def cut(self, keep):
        """The power is gone; of what was not waited for each sector is there with the probability `keep`. How many are not."""
        sure, unsure = self.split()
        lost = 0
        for name in os.listdir(self.folder):
            path, old = os.path.join(self.folder, name), os.path.join(self.before, name)
            if name in sure or name in unsure:
                with open(path, "wb") as file:
                    if os.path.exists(old):
                        file.write(open(old, "rb").read())
                    for one in sure.get(name, ()):
                        self.do(file, one, 1.0)
                    lost += sum(self.do(file, one, keep) for one in unsure.get(name, ()))
        if os.path.exists(self.held):
            os.unlink(self.held)
        return lost

    def do(self, file, one, keep):
        kind, offset, data = one
        if kind == CUT:
            if random.random() < keep:
                file.truncate(offset)
            return 0
        lost = 0
        for at in range(0, len(data), SECTOR):
            if random.random() < keep:
                file.seek(offset + at)
                file.write(data[at:at + SECTOR])
            else:
                lost += 1
        return lost
