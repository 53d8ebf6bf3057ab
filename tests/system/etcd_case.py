"""etcd for tests: processes that are started here and gone when the test ends."""

import atexit
import os
import shutil
import signal
import subprocess
import time

import support
from support import free_port

running = set()  # processes of ours: none is to outlive us


@atexit.register
def _end_all():
    for process in list(running):
        process.kill()


def is_there():
    return shutil.which("etcd") is not None and shutil.which("etcdctl") is not None


def skip_all_without():
    if not is_there():
        support.skip_all("no etcd: apt-get install etcd-server etcd-client")


def spawn(host, words, log):
    """A process on a host (None = here), whose output goes to the file `log`."""
    with open(log, "ab") as file:
        process = subprocess.Popen(
            host.words(*words) if host is not None else words,
            stdin=subprocess.DEVNULL, stdout=file, stderr=file, close_fds=False,
        )
    running.add(process)
    return process


def end(process, number=signal.SIGKILL):
    if process.poll() is None:
        process.send_signal(number)
        process.send_signal(signal.SIGCONT)
    code = process.wait(support.STOP_S)
    running.discard(process)
    return code


class Etcd:
    """`count` members, which listen on one host."""

    def __init__(self, folder, host=None, count=1, *options, scheme="http", shown=()):
        """`shown`: what etcdctl needs to be let in."""
        self.folder, self.host, self.options = folder, host, options
        self.scheme, self.shown = scheme, shown
        self.address = host.address if host is not None else "127.0.0.1"
        self.ports = [(free_port(), free_port()) for _ in range(count)]
        self.members = [None] * count
        for number in range(count):
            self.start(number)
        self.wait()

    def start(self, number):
        url = lambda port, scheme="http": "%s://%s:%d" % (scheme, self.address, port)  # noqa: E731
        clients, peers = self.ports[number]
        cluster = ",".join("m%d=%s" % (place, url(pair[1])) for place, pair in enumerate(self.ports))
        self.members[number] = spawn(self.host, [
            "etcd", "--name", "m%d" % number, "--data-dir", os.path.join(self.folder, "etcd%d" % number),
            "--listen-client-urls", url(clients, self.scheme), "--advertise-client-urls", url(clients, self.scheme),
            "--listen-peer-urls", url(peers), "--initial-advertise-peer-urls", url(peers),
            "--initial-cluster", cluster, "--heartbeat-interval", "50", "--election-timeout", "500", *self.options,
        ], os.path.join(self.folder, "etcd.log"))

    def restore(self, snapshot):
        """The only member dies, and begins again with what `etcdctl snapshot save` has kept."""
        end(self.members[0])
        shutil.rmtree(os.path.join(self.folder, "etcd0"))
        url = "http://%s:%d" % (self.address, self.ports[0][1])
        subprocess.run([shutil.which("etcdutl") or "etcdctl", "snapshot", "restore", snapshot, "--name", "m0",
                        "--data-dir", os.path.join(self.folder, "etcd0"), "--initial-cluster", "m0=" + url,
                        "--initial-advertise-peer-urls", url], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       env=dict(os.environ, ETCDCTL_API="3"))
        self.start(0)
        self.wait()

    def endpoints(self):
        return ",".join("%s:%d" % (self.address, pair[0]) for pair in self.ports)

    def ctl(self, *words, check=True):
        done = subprocess.run(["etcdctl", "--endpoints", self.endpoints(), *self.shown, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, close_fds=False, env=dict(os.environ, ETCDCTL_API="3"))
        assert not check or done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def wait(self):
        """Until all members answer."""
        until = time.monotonic() + support.START_S
        while "header" not in self.ctl("get", "-w", "json", "nothing", check=False):
            assert time.monotonic() < until, "etcd does not answer"
        while self.ctl("endpoint", "status", check=False).count("\n") < len(self.members):
            assert time.monotonic() < until, "not all members of etcd answer"

    def close(self):
        for member in self.members:
            if member is not None:
                end(member)
