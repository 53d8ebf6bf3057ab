"""Ports for programs that are started a moment later, or again.

The kernel gives ports of its range (ip_local_port_range) to any connection and any listener on port 0, also one that
somebody meant to have back: a client that looks for a killed server may even get the server's own port, and be
connected with itself. So these ports lie below the range. Each caller on this machine gets another one.
"""

import fcntl
import os
import socket
import tempfile

COUNT = 20000


def free_port(count=1):
    """A port that nobody has; the first of `count` in a row."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        most = int(file.read().split()[0])
    least = max(most - COUNT, 1024)
    with open(os.path.join(tempfile.gettempdir(), "tutti-ports-%d" % os.getuid()), "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        first = int(file.read() or least)
        for _ in range(COUNT):
            first = first if least <= first <= most - count else least
            if all(_is_free(first + place) for place in range(count)):
                file.truncate(0)
                file.write(str(first + count))
                return first
            first += 1
    raise AssertionError("no free port from %d to %d" % (least, most))


def _is_free(port):
    with socket.socket() as one:
        try:
            one.bind(("0.0.0.0", port))
            return True
        except OSError:
            return False
