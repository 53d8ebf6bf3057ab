"""What a test shares with the agent that it spoils (lib/coll/fault_inject/fault_inject.h)."""

import mmap
import struct
import tempfile


class Page:
    """The mapped file of one agent's TUTTI_CHAOS: a rule, its generation, how many have struck."""

    LAYOUT = "=120sII"

    def __init__(self):
        self.file = tempfile.NamedTemporaryFile(prefix="tutti-chaos-")
        self.path = self.file.name
        self.file.truncate(struct.calcsize(self.LAYOUT))
        self.map = mmap.mmap(self.file.fileno(), struct.calcsize(self.LAYOUT))

    @property
    def struck(self):
        return struct.unpack_from(self.LAYOUT, self.map)[2]

    def set(self, rule):
        self.map[:120] = rule.encode().ljust(120, b"\0")
        generation = struct.unpack_from(self.LAYOUT, self.map)[1]
        struct.pack_into("=I", self.map, 120, generation + 1)

    def close(self):
        self.map.close()
        self.file.close()
