#!/usr/bin/python3
"""Goal: README's two commands, `./run install` and `./run wheel` need nothing of a machine but a bare Debian 12.

Method: a root folder by mmdebstrap (minbase: no git, no compiler, no Python). In it somebody logs in whose home is closed to others,
unpacks this tree and types the commands; then a C program and a Python program use what was installed. All of it is in namespaces
of its own: whatever ends this script, no process and no mount is left. Skips with the reason where a root folder cannot be had.

usage: test_bare.py [--clone] [--user] [--keep] [words for ./run test]
  --clone  the tree is cloned by git, as it was committed; else unpacked as it is, and there is no git
  --user   for a user with sudo, and without a password; else for root
  --keep   leave the root folder, and say where it is
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(SOURCE, "tests", "support"), os.path.join(SOURCE, "cmake")]
import bare_debian as bare  # noqa: E402
import installed  # noqa: E402
import tree  # noqa: E402

LEAST = 8400  # tests that pass in a whole `./run test`
USER = "someone"

# Its own processes and mounts, on a root of its own rather than by chroot, in which nobody may make a user namespace.
ENTER = """set -e
mount --bind "$1" "$1"
cd "$1"
mount --rbind /sys sys && mount --rbind /dev dev
mount -t tmpfs tmpfs dev/shm && mount -t proc proc proc
mkdir -p .host && pivot_root . .host && umount -l .host && rmdir .host
ulimit -Sn 1024
shift
chroot . "$@"
exit 0 # by this shell, process 1, which reaps orphans meanwhile
"""


class Failed(Exception):
    """A command did not do what README says."""


class Machine:
    """A bare Debian, and who is logged in there."""

    def __init__(self, user):
        self.user = user
        self.home = "/root" if user == "root" else "/home/" + user
        bare.make_root(variant="minbase")
        shutil.copyfile("/etc/hosts", self.path("/etc/hosts"))
        with open(self.path("/etc/environment"), "a") as file:
            file.writelines("%s=%s\n" % pair for pair in os.environ.items() if pair[0].lower().endswith("_proxy"))

    def path(self, inside):
        return bare.ROOT + inside

    def run(self, *words, show=True):
        """A program as root; what it says, which is shown too. It has to succeed."""
        enter = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER,
                 "sh", bare.ROOT]
        said = []
        with subprocess.Popen(enter + list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}, text=True, errors="replace") as process:
            for line in process.stdout:
                said.append(line)
                if show:
                    print("#   " + line, end="", flush=True)
        if process.returncode != 0:
            raise Failed("%s: exit code %d\n%s" % (words[-1], process.returncode, "" if show else "".join(said)))
        return "".join(said)

    def type(self, line, **more):
        """A line that who is logged in types, in the tree."""
        return self.run("su", "-", self.user, "-c", "cd tutti && " + line, **more)

    def install(self, *packages):
        """By hand, as people do who want more than README's commands bring."""
        self.run("sh", "-c", "apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "
                 + " ".join(packages), show=False)

    def packages(self):
        """Those that somebody has asked for."""
        return set(self.run("apt-mark", "showmanual", show=False).split())

    def leave_alone(self, packages):
        """Only these stay, and what they need: what was installed for one command does not help the next."""
        more = self.packages() - packages
        self.run("sh", "-c", "apt-mark auto %s && apt-get -qq autoremove --purge -y" % " ".join(sorted(more)), show=False)

    def welcome(self):
        if self.user != "root":
            self.install("sudo")
            self.run("useradd", "-m", "-s", "/bin/bash", self.user)
            with open(self.path("/etc/sudoers.d/" + self.user), "w") as file:
                file.write("%s ALL=(ALL) NOPASSWD: ALL\n" % self.user)
        self.run("chmod", "700", self.home)

    def give(self, name, data):
        """A file in the home of who is logged in."""
        with open(self.path(os.path.join(self.home, name)), "wb") as file:
            file.write(data)
        self.run("chown", self.user + ":", os.path.join(self.home, name))


def archive():
    """The tree as it is, without git, as a tar."""
    words = ["tar", "-C", SOURCE, "--transform", "s,^,tutti/,", "--null", "-T", "-", "-cf", "-"]
    return subprocess.run(words, input=b"\0".join(map(os.fsencode, tree.files(SOURCE, new=True))), stdout=subprocess.PIPE, check=True).stdout


def bundle():
    """What is committed, for `git clone`."""
    words = ["git", "-c", "safe.directory=*", "-C", SOURCE, "bundle", "create", "-q", "-", "HEAD"]
    return subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout


def bring(machine, clone):
    if clone:
        machine.install("git", "ca-certificates")
        machine.give("tutti.bundle", bundle())
        machine.run("su", "-", machine.user, "-c", "git -c advice.detachedHead=false clone -q tutti.bundle tutti")
    else:
        machine.give("tutti.tar", archive())
        machine.run("su", "-", machine.user, "-c", "tar -xf tutti.tar")


def test(machine, words):
    said = machine.type("./run test " + shlex.join(words))
    passed, failed = map(int, re.findall(r"^(\d+) passed, (\d+) failed", said, re.M)[-1])
    if failed or (not words and passed < LEAST):
        raise Failed("%d passed, %d failed; at least %d have to pass" % (passed, failed, LEAST))


def assert_sums(machine, line):
    said = machine.type(line)
    if not said.endswith(installed.SUMS):
        raise Failed("%s, of two ranks, said:\n%s" % (line, said))


def install(machine):
    """The prefix is below the home, the programs outside of the tree."""
    before = machine.packages()
    needs = "cd; " + installed.exports(machine.type("./run install ~/prefix")) + "; "
    machine.give("prog.c", installed.C_PROGRAM.encode())
    machine.give("prog.py", installed.PYTHON_PROGRAM.encode())
    machine.install("python3-numpy", "python3-protobuf")
    machine.type(needs + installed.BUILD)
    assert_sums(machine, needs + installed.RUN_C)
    assert_sums(machine, needs + installed.RUN_PYTHON)
    machine.leave_alone(before)


def wheel(machine):
    machine.type("./run wheel")
    machine.install("python3-venv")
    machine.type("python3 -m venv --system-site-packages ~/venv && ~/venv/bin/pip install -q --no-index build/wheel/tutti-*.whl")
    assert_sums(machine, "cd; . venv/bin/activate; " + installed.RUN_PYTHON)


def steps(machine, clone, words):
    yield "somebody logs in", machine.welcome
    yield "the tree is there", lambda: bring(machine, clone)
    yield "./run demo", lambda: machine.type("./run demo")
    yield "./run install, and programs in C and Python", lambda: install(machine)
    yield " ".join(["./run test"] + words), lambda: test(machine, words)
    yield "./run wheel, and a program", lambda: wheel(machine)


def main():
    words = sys.argv[1:]
    flags = {word for word in words if word in ("--clone", "--user", "--keep")}
    words = [word for word in words if word not in flags and word != "--"]
    machine, number = Machine(USER if "--user" in flags else "root"), 0
    try:
        for number, (name, step) in enumerate(steps(machine, "--clone" in flags, words), 1):
            print("# " + name, flush=True)
            step()
            print("ok %d - %s" % (number, name), flush=True)
    except Failed as error:
        print("not ok %d - %s" % (number, name))
        print("".join("# %s\n" % line for line in str(error).splitlines()), flush=True)
        sys.exit(1)
    finally:
        print("1..%d" % number, flush=True)
        if "--keep" in flags:
            print("# the root folder is " + bare.ROOT)
        else:
            bare.remove_root()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
