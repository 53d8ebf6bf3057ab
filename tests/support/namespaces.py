"""Hosts of a cluster on one machine: network namespaces, joined by veth pairs to a bridge of their own.

    reason = namespaces.why_not()       # None, or why this machine cannot
    with namespaces.Network(3, rate="1gbit") as network:
        a, b, c = network.hosts
        process = a.start(["tutti-coordinator", "--listen", a.address + ":7400"])
        network.part([a, b], [c])       # nothing passes between them, and nobody is told
        network.join()                  # and all is as it was

We are outside and reach every host at its address (`network.outside` is ours), whatever is cut between hosts. The
bridge has a namespace of its own: outside only one interface appears. It has no address, so that programs that run
beside us do not take it for a network of theirs; ours is at lo. All names carry our process id. What a process that
was killed left is swept away when the next Network is made. Not for several threads at once.
"""

import atexit
import fcntl
import functools
import os
import re
import secrets
import shutil
import signal
import subprocess

LEFT = re.compile(r"^tutti-(\d+)-\w+-\w+$")  # process, network, host
LEFT_ADDRESS = re.compile(r"inet (\S+) .*\blo:(\d+)-\w+")
NET = "198.18.%d."  # 198.18.0.0/15 is for tests of networks (RFC 2544); a /24 of it for each Network
NETS = 256
LOCK = "/tmp/tutti-namespaces.lock"  # who makes networks takes turns
BURST_BYTES = 256 * 1024  # of a slow host; must hold what comes in one go
WAIT_MS = 200  # that tbf keeps a packet before it drops it
_made = []  # networks of ours that are not closed


class Unable(Exception):
    """A command of ip, tc or iptables failed."""


def _run(*words):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                          close_fds=False)
    if done.returncode != 0:
        raise Unable("%s: %s" % (" ".join(words), done.stderr.decode().strip() or done.stdout.decode().strip()))
    return done.stdout.decode()


def _batch(name, lines):
    """Several commands of ip in one namespace; None = outside."""
    words = ["ip"] + (["-n", name] if name else []) + ["-batch", "-"]
    done = subprocess.run(words, input="\n".join(lines).encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          close_fds=False)
    if done.returncode != 0:
        raise Unable("ip in %s: %s" % (name or "our own namespace", done.stderr.decode().strip()))


@functools.lru_cache(None)
def why_not():
    """Why this machine cannot make networks; None when it can. It tries."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program, package in (("ip", "iproute2"), ("tc", "iproute2"), ("iptables", "iptables")):
        if shutil.which(program) is None:
            return "no %s: install %s" % (program, package)
    try:
        with Network(1, rate="1gbit") as network:
            network.hosts[0].drop("192.0.2.1")
    except (Unable, OSError) as error:
        return "no network namespaces here: %s" % error
    return None


@functools.lru_cache(None)
def has_netem():
    """Can this kernel delay packets? tbf, drops and partitions need no such thing."""
    if why_not() is not None:
        return False
    with Network(1) as network:
        try:
            network.hosts[0].tc("qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
        except Unable:
            return False
    return True


def sweep():
    """Take away what dead processes left: their namespaces, and the programs that run in them."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else ():
        match = LEFT.match(name)
        if match and not os.path.exists("/proc/" + match.group(1)):
            _delete(name)
    for address, pid in LEFT_ADDRESS.findall(_run("ip", "-o", "-4", "address", "show", "dev", "lo")):
        if not os.path.exists("/proc/" + pid):
            _forget(address)


def _delete(name):
    """A namespace with the programs in it; its interfaces go with it."""
    try:
        for pid in _run("ip", "netns", "pids", name).split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        _run("ip", "netns", "delete", name)
    except Unable:
        pass  # it is gone already


def _forget(address):
    try:
        _run("ip", "address", "del", address, "dev", "lo")
    except Unable:
        pass  # it is gone already


@atexit.register
def _close_all():
    for network in list(_made):
        network.close()


class Host:
    """One namespace: `address` is its own, `interface` (eth0) leads to the bridge.

    `processors` of the machine's that it has for itself, "0,1" as taskset takes it; "" = it shares all of them.
    """

    interface = "eth0"
    processors = ""

    def __init__(self, network, index):
        self.network, self.index = network, index
        self.name = network.prefix + str(index)
        self.address = network.net + str(index + 1)
        self.port = "port%d" % index  # the other end of its interface, at the bridge
        self.processes = []

    def words(self, *words):
        """The command that runs `words` here; it becomes the program, so its process id is the program's."""
        return [*self.pin(), "ip", "netns", "exec", self.name, *words]

    def pin(self):
        """What a command begins with that runs on its processors."""
        return ["taskset", "-c", self.processors] if self.processors else []

    def start(self, words, **options):
        """subprocess.Popen in here. close() of the network kills what still runs."""
        process = subprocess.Popen(self.words(*words), **options)
        self.processes.append(process)
        return process

    def run(self, *words):
        """To its end; its output. Unable when it fails."""
        return _run(*self.words(*words))

    def tc(self, *words):
        _run("tc", "-n", self.name, *words)

    # ------------------------------------------------------------------ what is spoilt

    def slow(self, rate):
        """At most so much ("100mbit") leaves it and comes to it; None = as fast as it goes. By tbf."""
        for name, interface in ((self.name, self.interface), (self.network.switch, self.port)):
            if rate is None:
                _run("tc", "-n", name, "qdisc", "del", "dev", interface, "root")
            else:
                _run("tc", "-n", name, "qdisc", "replace", "dev", interface, "root", "tbf", "rate", rate,
                     "burst", str(BURST_BYTES), "latency", "%dms" % WAIT_MS)
        self.is_slow = rate is not None

    is_slow = False

    def delay(self, ms):
        """What leaves it takes so long; 0 = no longer. By netem (has_netem()), instead of slow()."""
        if ms:
            self.tc("qdisc", "replace", "dev", self.interface, "root", "netem", "delay", "%gms" % ms)
        else:
            self.tc("qdisc", "del", "dev", self.interface, "root")

    def drop(self, *addresses, every=1):
        """What comes from these addresses is dropped: all of it, or one packet in `every`. Nobody is told."""
        share = "-m statistic --mode nth --every %d --packet 0 " % every if every > 1 else ""
        rules = ["-A INPUT -s %s %s-j DROP" % (address, share) for address in addresses]
        self._restore(["*filter"] + rules + ["COMMIT"])
        self.is_deaf = True

    is_deaf = False

    def drop_nothing(self):
        if self.is_deaf:
            self._restore(["*filter", "-F INPUT", "COMMIT"])
        self.is_deaf = False

    def _restore(self, lines):
        """All rules in one command: each takes some ten milliseconds."""
        done = subprocess.run(self.words("iptables-restore", "-w", "--noflush"), input="\n".join(lines + [""]).encode(),
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, close_fds=False)
        if done.returncode != 0:
            raise Unable("iptables in %s: %s" % (self.name, done.stderr.decode().strip()))


class Network:
    """`count` hosts; `rate` limits each of them at once. OSError or Unable where it cannot be made."""

    def __init__(self, count, rate=None):
        assert 0 < count <= 200, count
        self.is_open = True
        mark = secrets.token_hex(2)  # a process may make several, and process ids come again
        self.prefix = "tutti-%d-%s-" % (os.getpid(), mark)
        self.switch = self.prefix + "switch"
        self.interface = "tu%d-%s" % (os.getpid(), mark)  # 15 characters at most, as for the label
        self.label = "lo:%d-%s" % (os.getpid(), mark)
        _made.append(self)
        try:
            with open(LOCK, "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                sweep()
                self.net = self._free_net()
                self.outside = self.net + "254"
                self._make_switch()
            self.hosts = []
            for index in range(count):
                self.hosts.append(Host(self, index))
                self._make_host(self.hosts[-1])
                if rate is not None:
                    self.hosts[-1].slow(rate)
        except BaseException:
            self.close()
            raise

    def _free_net(self):
        taken = _run("ip", "-o", "-4", "address")
        for number in range(NETS):
            net = NET % ((os.getpid() + number) % NETS)
            if " " + net not in taken:
                return net
        raise Unable("all of %s0/24 to %s0/24 are taken" % (NET % 0, NET % (NETS - 1)))

    def _make_switch(self):
        _run("ip", "netns", "add", self.switch)
        _batch(self.switch, [
            "link set lo up", "link add bridge type bridge", "link set bridge up",
            "link add %s type veth peer name outside" % self.interface,
            "link set outside master bridge up", "link set %s netns %d" % (self.interface, os.getpid()),
        ])
        _batch(None, [
            "link set %s addrgenmode none" % self.interface, "link set %s up" % self.interface,
            "address add %s/32 dev lo label %s" % (self.outside, self.label),
            "route add %s0/24 dev %s src %s" % (self.net, self.interface, self.outside),
        ])

    def _make_host(self, host):
        _run("ip", "netns", "add", host.name)
        _batch(self.switch, [
            "link add %s type veth peer name %s netns %s" % (host.port, host.interface, host.name),
            "link set %s master bridge up" % host.port,
        ])
        _batch(host.name, ["link set lo up", "address add %s/24 dev %s" % (host.address, host.interface),
                           "link set %s up" % host.interface])

    def part(self, ones, others):
        """Nothing passes between any of `ones` and any of `others`, either way, and nobody is told."""
        for side, far in ((ones, others), (others, ones)):
            for host in side:
                host.drop(*(other.address for other in far))

    def share_out_processors(self):
        """Give each host some of the machine's processors for what it starts from now on: how many; 0 = too few."""
        ours = sorted(os.sched_getaffinity(0))
        each = len(ours) // len(self.hosts)
        for index, host in enumerate(self.hosts):
            host.processors = ",".join(str(one) for one in ours[index * each:(index + 1) * each])
        return each

    def join(self):
        """Take back part(), drop() and slow()."""
        for host in self.hosts:
            host.drop_nothing()
            if host.is_slow:
                host.slow(None)

    def close(self):
        """End what runs in the hosts, and take them away. Twice is fine."""
        if not self.is_open:
            return
        self.is_open = False
        _made.remove(self)
        hosts = getattr(self, "hosts", [])
        for name in [host.name for host in hosts] + [self.switch]:
            _delete(name)
        if hasattr(self, "outside"):
            _forget(self.outside + "/32")
        for host in hosts:
            for process in host.processes:
                process.wait()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close()
