"""What the clients' tests share: a cluster of real processes, and the Pythons that clients run in."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time

for folder in ("system", "support"):
    sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", folder))
import support  # noqa: E402
import tap  # noqa: E402
from secrets_of_tests import Secrets  # noqa: E402

tap.ON_FAILURE.append(support.tell_logs)

WORK = os.path.join(support.BUILD, "clients")
INSTALL_S = 240
SOURCES = ("client/python", "proto", "lib/rpc/proto")
NATIVE = os.path.join(support.BUILD, "python", "_native.abi3.so")


STANDIN = os.path.join(support.BUILD, "standin")  # for CUDA and NCCL


class Cluster:
    """A coordinator and agents, as another program would find them."""

    def __init__(
        self,
        size,
        secure=False,
        listen=None,
        gpus=False,
        coordinator_options=(),
        agent_options=(),
        agent_environment=(),
    ):
        """
        listen  of agents; a %d in it is the rank's
        gpus    they have cuda:0, over the stand-ins of tests/support
        agent_options  or a function that makes them of the Secrets
        """
        self.gpus = gpus
        self.secrets = Secrets() if secure else None
        self.agents = []
        options = self.secrets.server_options() if secure else []
        self.coordinator = support.Program("tutti-coordinator", *options, *coordinator_options)
        options = self.secrets.agent_options() if secure else []
        options = [*options, *(agent_options(self.secrets) if callable(agent_options) else agent_options)]
        known = dict(agent_environment)
        if gpus:
            options += ["--device", "cpu,cuda:0", "--allow-shared-gpu"]
            known["TUTTI_MODULES"] = STANDIN
        try:
            for rank in range(size):
                words = ["--coordinator", self.coordinator.address, "--world-size", str(size)]
                words += ["--rank", str(rank)]
                where = listen % rank if listen else None
                self.agents.append(support.Program("tutti-agent", *words, *options, listen=where, environment=known))
        except BaseException:
            self.kill()
            raise

    def environment(self):
        """For clients: where it is, and what they have to show."""
        found = {
            "TUTTI_TEST_AGENTS": " ".join(agent.address for agent in self.agents),
            "TUTTI_TEST_COORDINATOR": self.coordinator.address,
        }
        found.update(self.secrets.environment() if self.secrets else {})
        found.update({"TUTTI_TEST_DEVICE": "cuda:0"} if self.gpus else {})
        return found

    def programs(self):
        return self.agents + [self.coordinator]

    def kill(self):
        for program in self.programs():
            program.kill()
        self.forget()

    def forget(self):
        if self.secrets:
            self.secrets.remove()

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            support.tell_logs(sys.stdout)
        for program in self.agents:
            if program.process.poll() is None:
                program.send(signal.SIGTERM)
        for program in self.programs():
            code = program.stop()
            assert code == 0, "exit code %d: %s" % (code, program.log())
        self.forget()


# ------------------------------------------------------------------------------ building


def call(words, **more):
    done = subprocess.run(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        timeout=INSTALL_S,
        close_fds=False,
        **more,
    )
    return done.returncode, done.stdout.decode(errors="replace")


def must(words, **more):
    code, said = call(words, **more)
    if code != 0:
        raise AssertionError("%s: exit code %d\n%s" % (" ".join(words), code, said))
    return said


def compile_c(compiler, source):
    """A C or C++ program against the built libtutti."""
    program = os.path.join(WORK, os.path.basename(source).replace(".", "_"))
    words = [compiler, "-Wall", "-Wextra", "-Werror", "-o", program, source]
    for root in (support.SOURCE, support.BUILD):
        words += ["-I", os.path.join(root, "include")]
    must(words + ["-L", support.BUILD, "-ltutti", "-Wl,-rpath," + support.BUILD])
    return program


# ------------------------------------------------------------------------------ Pythons


def copy_sources(name):
    """The package's sources in the build folder: building leaves files among them."""
    root = os.path.join(WORK, name)
    shutil.rmtree(root, ignore_errors=True)
    for path in SOURCES:
        made = shutil.ignore_patterns("build", "*.egg-info", "*.protoset", "__pycache__")
        shutil.copytree(os.path.join(support.SOURCE, path), os.path.join(root, path), ignore=made)
    package = os.path.join(root, "client", "python")
    if os.path.exists(NATIVE):
        shutil.copy2(NATIVE, os.path.join(package, "src", "tutti"))
    return package


def install_debian(name):
    """With pip, the system's setuptools and protoc, and nothing from the network."""
    if call(["/usr/bin/python3", "-m", "pip", "--version"])[0] != 0:
        support.skip_all("no pip: install python3-pip")
    # Each script has a copy of its own: tests run side by side, and a copy is made anew.
    script = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    name = "-".join([name, script] + [word for word in sys.argv[1:] if word.isalnum()])
    folder = os.path.join(WORK, "python-" + name)
    shutil.rmtree(folder, ignore_errors=True)
    words = ["/usr/bin/python3", "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps"]
    words += ["--no-index", "--disable-pip-version-check", "--target", folder]
    must(words + [copy_sources("sources-" + name)])
    return "/usr/bin/python3", folder


def environment(*packages, name="venv"):
    """A virtual environment with packages from PyPI; where there is no PyPI the test is skipped."""
    root = os.path.join(WORK, name)
    os.makedirs(WORK, exist_ok=True)
    with open(os.path.join(WORK, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        python = os.path.join(root, "bin", "python")
        if not os.path.exists(python):
            code, said = call(["/usr/bin/python3", "-m", "venv", root])
            if code != 0:
                support.skip_all("no virtual environments: install python3-venv: " + last(said))
        pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        began = time.monotonic()
        code, said = call(pip + ["--retries", "1", "--timeout", "20"] + list(packages))
        if code != 0 and ("Connection" in said or "No matching distribution" in said):
            support.skip_all("PyPI cannot be reached: " + last(said))
        assert code == 0, said
        print("# pip: %.0f s" % (time.monotonic() - began), flush=True)
    return python


def last(text):
    return (text.strip().split("\n") or [""])[-1][:200]


def install_pypi():
    """As a user would: pip fetches what the package needs, and what it is built with."""
    python = environment(copy_sources("sources-pypi") + "[dtypes]", "mypy")
    show = "import grpc, google.protobuf as p; print('grpcio', grpc.__version__, 'protobuf', p.__version__)"
    print("# " + must([python, "-c", show]).strip(), flush=True)
    return python, ""


def install(world, name="debian"):
    """The Python to run, and the folder for PYTHONPATH."""
    return install_debian(name) if world == "debian" else install_pypi()
