#!/usr/bin/env python3
"""Delay between hosts for kernels without netem: a switch of our own that keeps each frame for a while.

usage: relay.py MS NAMESPACE ...        until its standard input ends; says "ready" when it carries

Each namespace gets an interface, delay0 with address 198.19.NET.I/24, that leads to this process instead of a wire. What
passes takes MS milliseconds, in order, and a little of a processor: it is for the cost of rounds, not of bytes.
"""
import collections
import ctypes
import fcntl
import os
import select
import struct
import subprocess
import sys
import time

INTERFACE = "delay0"
NET = "198.19.%d.%d"  # beside the 198.18 of tests/support/namespaces.py
MTU = 60000
CLONE_NEWNET, TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x40000000, 0x400454CA, 0x0002, 0x1000
QUEUE_MAX = 4096  # frames on their way; what comes then is lost, as on a wire

libc = ctypes.CDLL(None, use_errno=True)


def run(*words):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def enter(name):
    """This process' new interfaces belong to that namespace from now on."""
    with open("/run/netns/" + name) as file:
        if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "could not enter " + name)


def make_tap(name, index):
    enter(name)
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", INTERFACE.encode(), IFF_TAP | IFF_NO_PI))
    run("ip", "address", "add", NET % (os.getppid() % 256, index + 1) + "/24", "dev", INTERFACE)
    run("ip", "link", "set", INTERFACE, "mtu", str(MTU), "up")
    return tap


class Relay:
    def __init__(self, delay_s, taps):
        self.delay_s, self.taps, self.where = delay_s, taps, {}
        self.queue = collections.deque()  # of (when, tap that it goes to, frame)

    def take(self, tap):
        try:
            frame = os.read(tap, MTU + 64)
        except (BlockingIOError, OSError):
            return
        to, sender = frame[:6], frame[6:12]
        self.where[sender] = tap
        known = self.where.get(to)
        for other in [known] if known is not None else self.taps:
            if other != tap and len(self.queue) < QUEUE_MAX:
                self.queue.append((time.monotonic() + self.delay_s, other, frame))

    def give(self):
        """What is due; how long until the next, None = nothing waits."""
        while self.queue:
            left = self.queue[0][0] - time.monotonic()
            if left > 0:
                return left
            _, tap, frame = self.queue.popleft()
            try:
                os.write(tap, frame)
            except OSError:
                pass  # full, or its host is gone
        return None

    def serve(self, stop):
        while True:
            readable, _, _ = select.select(self.taps + [stop], [], [], self.give())
            if stop in readable:
                return
            for tap in readable:
                self.take(tap)


class Delay:
    """With `hosts` of a namespaces.Network: agents are to use their `interface`, which is delay0 from now on."""

    def __init__(self, hosts, ms):
        words = [sys.executable, os.path.abspath(__file__), str(ms)] + [host.name for host in hosts]
        self.hosts = hosts
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        if self.process.stdout.readline() != b"ready\n":
            raise OSError("no relay: see above")
        for host in hosts:
            host.interface = INTERFACE

    def close(self):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
        for host in self.hosts:
            del host.interface


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.split("\n\n")[1])
    taps = [make_tap(name, index) for index, name in enumerate(sys.argv[2:])]
    print("ready", flush=True)
    Relay(float(sys.argv[1]) * 1e-3, taps).serve(sys.stdin.fileno())


if __name__ == "__main__":
    main()
