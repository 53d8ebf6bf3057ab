"""What cmake/layers.txt says: which room may use which. Read by check_layers.py (includes), check_calls.py (calls)."""
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Layers:
    """Rooms in their order, lowest first, what each may use, and the exceptions."""

    def __init__(self, root=ROOT):
        self.root = root
        self.rights = {}  # room -> words of its line
        self.parent = {}  # room inside a folder -> that folder
        self.order = []
        self.exceptions = {}  # (file, symbol or header) -> reason
        folder = None
        for line in open(os.path.join(root, "cmake/layers.txt")):
            text = line.split("#")[0].rstrip()
            if not text:
                continue
            if text.startswith("except "):
                path, name, reason = re.match(r"except (\S+) (\S+): (.+)", text).groups()
                self.exceptions[path, name] = reason
                continue
            name, _, rights = text.strip().partition(":")
            if text[0] == " ":
                name = folder + "/" + name
                self.parent[name] = folder
                self.rights[name] = rights.split() or self.rights[folder]
            else:
                folder = name
                self.rights[name] = rights.split()
            self.order.append(name)

    def room_of(self, path):
        fits = [room for room in self.rights if path.startswith(room + "/")]
        return max(fits, key=len) if fits else None

    def top_of(self, room):
        return self.parent.get(room, room)

    def _family(self, user, used):
        """Of two rooms of one folder: None when they are not, else whether `user` may use `used`."""
        if self.top_of(user) != self.top_of(used):
            return None
        if user == self.top_of(user) or user == used:
            return True  # a folder's own files stand above its rooms
        return used in self.parent and self.order.index(used) < self.order.index(user)

    def may_include(self, user, used, header):
        """`header` as it is named, of the room `used`."""
        inside = self._family(user, used)
        if inside is not None:
            return inside or used == self.parent.get(user)  # a folder's own headers are its doors
        if "open" in self.rights[self.top_of(used)]:
            used = self.top_of(used)
        short = used[4:] if used.startswith("lib/") else used
        return short in self.rights[user] or header in self.rights[user]

    def may_call(self, user, used):
        """Whether code of one room may use a symbol that is defined in the other."""
        inside = self._family(user, used)
        if inside is not None:
            return inside
        if self.top_of(used) in ("client", "lib/base"):
            if "libtutti" in self.rights[user]:
                return True  # include/tutti; the linker hides all else of libtutti
        top = self.top_of(used)
        short = top[4:] if top.startswith("lib/") else top
        return any(right == short or right.startswith(short + "/") and right.endswith(".h")
                   for right in self.rights[user])
