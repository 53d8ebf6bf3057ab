"""Goal: what was not opened can be reached from this machine alone: an agent's data plane keeps to loopback
where its --listen does, whatever carries it.
Method: real programs; where they listen is read from /proc."""

import ipaddress
import os
import re
import struct
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

LISTEN = "0A"


def _address(text):
    """Of /proc/net/tcp: words of four bytes as this machine has them."""
    words = [int(text[at : at + 8], 16) for at in range(0, len(text), 8)]
    found = ipaddress.ip_address(b"".join(struct.pack("=I", word) for word in words))
    return getattr(found, "ipv4_mapped", None) or found


def listening(pid):
    """The IP addresses on which the process listens."""
    sockets = set()
    for name in os.listdir("/proc/%d/fd" % pid):
        try:
            found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink("/proc/%d/fd/%s" % (pid, name)))
        except OSError:
            continue  # closed meanwhile
        if found:
            sockets.add(found[1])
    addresses = []
    for table in ("tcp", "tcp6"):
        with open("/proc/%d/net/%s" % (pid, table)) as file:
            rows = [line.split() for line in file.readlines()[1:]]
        addresses += [_address(row[1].split(":")[0]) for row in rows if row[3] == LISTEN and row[9] in sockets]
    return addresses


class Plane(unittest.TestCase):
    def heard_by_others(self, *options, listen="127.0.0.1:0"):
        """At how many sockets; and at least one more is there."""
        words = ["--coordinator", "127.0.0.1:1", *options]  # there is none: it waits, and listens
        with support.Program("tutti-agent", *words, listen=listen) as agent:
            found = listening(agent.process.pid)
        self.assertTrue(found)
        return len([one for one in found if not one.is_loopback])

    def test_keeps_to_loopback_where_listen_does(self):
        with tempfile.TemporaryDirectory(prefix="tutti-local-") as folder:
            for listen in ("127.0.0.1:0", "[::1]:0,127.0.0.1:0", "unix:" + os.path.join(folder, "agent")):
                for transports in ("tcp", "ucx"):
                    found = self.heard_by_others("--transports", transports, listen=listen)
                    self.assertEqual(found, 0, (listen, transports))

    def test_is_heard_by_others_where_listen_is(self):
        own = ("--insecure", "--net-devices", "lo")
        self.assertEqual(self.heard_by_others(*own, listen="0.0.0.0:0"), 1)  # gRPC
        self.assertGreater(self.heard_by_others("--insecure", listen="0.0.0.0:0"), 1)

    def test_who_joins_elsewhere_is_told(self):
        words = ["--join-timeout", "1s", "--coordinator", "nobody.invalid:1"]
        _, _, err = support.run("tutti-agent", *words)
        self.assertIn("agents of other hosts cannot reach this one", err)
        _, _, err = support.run("tutti-agent", *words, "--net-devices", "lo")
        self.assertNotIn("cannot reach this one", err)


if __name__ == "__main__":
    support.main()
