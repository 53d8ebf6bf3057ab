"""A bare Debian in a root folder of its own, by mmdebstrap with this machine's sources: for tests of what is installed.

A test that has imported this calls make_root(), then inside(), and at the end remove_root().
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WORK = tempfile.mkdtemp(prefix="tutti-test-root-")
ROOT = os.path.join(WORK, "root")
LONG_S = 900
# Each call has /proc of its own mount namespace: nothing stays mounted.
ENTER = 'mount -t proc proc "$1/proc" && root=$1 && shift && exec chroot "$root" "$@"'


def skip_all(reason):
    """This machine cannot have one."""
    print("1..0 # SKIP " + reason)
    remove_root()
    sys.exit(77)  # what CTest counts as skipped


def words_in(*words):
    return ["unshare", "--mount", "sh", "-c", ENTER, "sh", ROOT] + list(words)


def inside(*words, **more):
    """Run a program in the root folder; what it says. It has to succeed."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "HOME": "/root",
                   "LC_ALL": "C.UTF-8", "XDG_RUNTIME_DIR": "/run/root"}
    environment.update(more)
    done = subprocess.run(words_in(*words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=environment, timeout=LONG_S, close_fds=False)
    said = done.stdout.decode(errors="replace")
    if done.returncode != 0:
        raise AssertionError("%s: exit code %d\n%s" % (" ".join(words), done.returncode, said[-4000:]))
    return said


def options_of_apt():
    """How this machine reaches its mirror, for the apt of the root folder."""
    said = subprocess.run(["apt-config", "dump"], stdout=subprocess.PIPE, check=True).stdout.decode()
    lines = re.findall(r'^(Acquire::(?:Check|http|https|Retries)\S* ".+";)$', said, re.M)
    return ["--aptopt=" + line for line in lines]


def sources_of(suite):
    """A file with this machine's first source, for that suite; None: there is none that can be read so."""
    path = "/etc/apt/sources.list.d/debian.sources"
    if not os.path.exists(path):
        return None
    with open(path) as file:
        first = file.read().strip().split("\n\n")[0]
    found = os.path.join(WORK, suite + ".sources")
    with open(found, "w") as file:
        file.write(re.sub(r"^Suites:.*$", "Suites: " + suite, first, flags=re.M) + "\n")
    return found


def make_root(*packages, suite="bookworm", variant="apt"):
    """With these packages, or patterns of apt's, beside what apt needs. Skips the test where that is impossible."""
    if os.getuid() != 0:
        skip_all("needs root: a root folder of its own")
    if shutil.which("mmdebstrap") is None:
        skip_all("no mmdebstrap here: Debian's package of that name")
    sources = glob.glob("/etc/apt/sources.list.d/debian.sources") + glob.glob("/etc/apt/sources.list")
    if suite != "bookworm":
        sources = [sources_of(suite)]
        if sources[0] is None:
            skip_all("no debian.sources here, whose mirror could have the suite " + suite)
    words = ["mmdebstrap", "--quiet", "--mode=root", "--variant=" + variant] + options_of_apt() + ["--include=" + ",".join(packages)] * bool(packages) + [suite, ROOT]
    done = subprocess.run(words + sources[:1], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=LONG_S)
    if done.returncode != 0:
        skip_all("mmdebstrap: " + " / ".join(done.stdout.decode().strip().splitlines()[-3:])[:400])
    shutil.copyfile("/etc/resolv.conf", os.path.join(ROOT, "etc", "resolv.conf"))


def remove_root():
    shutil.rmtree(WORK, ignore_errors=True)


def python_of_readme():
    with open(os.path.join(SOURCE, "README.md")) as file:
        (block,) = re.findall(r"^From Python.*?^```python\n(.*?)^```", file.read(), re.S | re.M)
    before = "import numpy as np\nimport tutti\nx = np.arange(4, dtype=np.float32)\nw = np.ones(3)\n"
    return before + block + "    print(x.tolist(), weights.numpy().tolist())\n"
