"""Goal: the image of docker/Dockerfile builds, and containers of it are a cluster.

Method: podman without a daemon, where this machine lets it run: a base made by debootstrap, build with
chroot isolation, crun in a mount namespace of its own with a fresh cgroup2, on the network of this
machine and on a bridge. Says which way it ran; takes minutes the first time, so only ./run test
containers asks for it.
Everything lies in engine/ of the build folder; mounts end with their namespace.
"""

import ctypes
import os
import shutil
import subprocess
import tempfile
import time
import unittest

import support

if not os.environ.get("TUTTI_ENGINE"):
    support.skip_all("takes minutes: ./run test containers")
try:
    import yaml  # noqa: F401
except ImportError:
    support.skip_all("no python3-yaml")
import container_case
import test_containers
import numpy as np

WORK = os.path.join(support.BUILD, "engine")
MIRROR = "http://deb.debian.org/debian"
LONG_S = 120
CONF = """[containers]
cgroups = "disabled"
cgroupns = "host"
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
runtime = "crun"
"""
STORAGE = '[storage]\ndriver = "%s"\ngraphroot = "%s/storage"\nrunroot = "%s/run"\n'
NETWORKS = '[network]\nnetwork_config_dir = "%s/networks"\n'
IN_NAMESPACE = "mount -t cgroup2 none /sys/fs/cgroup 2>/dev/null; echo; exec cat"


class Namespace:
    """A mount namespace for all that we do with the engine, so that a network which one command has
    mounted is there for the next. It ends with us: its process reads from our pipe."""

    def __init__(self):
        self.process = subprocess.Popen(["unshare", "-m", "sh", "-c", IN_NAMESPACE], close_fds=False,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdout.readline()  # it has mounted what it could

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(60)


def words_of(*words):
    return ["nsenter", "-t", str(namespace.process.pid), "-m", "podman"] + list(words)


def environment():
    return dict(os.environ, CONTAINERS_CONF=os.path.join(WORK, "containers.conf"),
                CONTAINERS_STORAGE_CONF=os.path.join(WORK, "storage.conf"))


def podman(*words, timeout=600):
    """Exit code and all it said."""
    done = subprocess.run(words_of(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          stdin=subprocess.DEVNULL, env=environment(), close_fds=False, timeout=timeout)
    return done.returncode, done.stdout.decode(errors="replace")


def last_lines(text, count=3):
    return " / ".join(text.strip().splitlines()[-count:])[:400]


def prepare():
    """A folder for the engine and a base image; skips with the reason where that cannot be."""
    if os.getuid() != 0:
        support.skip_all("needs root: mount namespaces and debootstrap")
    for name in ("podman", "crun", "unshare", "debootstrap"):
        if shutil.which(name) is None:
            support.skip_all("no %s: ./run test containers installs it" % name)
    os.makedirs(os.path.join(WORK, "networks"), exist_ok=True)
    with open(os.path.join(WORK, "containers.conf"), "w") as file:
        file.write(CONF + NETWORKS % WORK)
    reason = "podman did not run at all"
    for driver in ("overlay", "vfs"):
        with open(os.path.join(WORK, "storage.conf"), "w") as file:
            file.write(STORAGE % (driver, WORK, WORK))
        code, said = podman("info", "--format", "{{.Store.GraphDriverName}} {{.Host.OCIRuntime.Name}}")
        if code == 0:
            print("# engine: podman, %s, chroot builds" % said.split("\n")[-2], flush=True)
            return base()
        reason = last_lines(said)
    support.skip_all("podman cannot run here: " + reason)


def base():
    if podman("image", "exists", "tutti-base")[0] == 0:
        return
    root = os.path.join(WORK, "rootfs")
    shutil.rmtree(root, ignore_errors=True)
    done = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", root, MIRROR],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, close_fds=False)
    if done.returncode != 0:
        support.skip_all("debootstrap: " + last_lines(done.stdout.decode()))
    for name in ("apt.conf.d", "sources.list.d"):  # how this machine reaches its mirror
        folder = os.path.join("/etc/apt", name)
        for one in os.listdir(folder) if os.path.isdir(folder) else ():
            shutil.copy(os.path.join(folder, one), os.path.join(root, "etc/apt", name, one))
    shutil.rmtree(os.path.join(root, "var/cache/apt/archives"), ignore_errors=True)
    shutil.rmtree(os.path.join(root, "var/lib/apt/lists"), ignore_errors=True)
    tar = subprocess.Popen(["tar", "-C", root, "-c", "."], stdout=subprocess.PIPE, close_fds=False)
    done = subprocess.run(words_of("import", "-", "tutti-base"), stdin=tar.stdout, env=environment(),
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, close_fds=False)
    tar.stdout.close()
    tar.wait()
    shutil.rmtree(root)
    if done.returncode != 0:
        support.skip_all("podman import: " + last_lines(done.stdout.decode()))


def context(folder):
    """What the build reads: docker/, run, and the programs of this build folder."""
    shutil.copytree(os.path.join(support.SOURCE, "docker"), os.path.join(folder, "docker"))
    shutil.copy(os.path.join(support.SOURCE, "run"), folder)
    image = os.path.join(folder, "build", "image")
    os.makedirs(os.path.join(image, "usr/bin"))
    os.makedirs(os.path.join(image, "usr/lib"))
    for name in container_case.PROGRAMS:
        target = os.path.join(image, "usr/bin", name)
        shutil.copy(os.path.join(support.PROGRAMS, name), target)
        subprocess.run(["strip", target], check=True, close_fds=False)
    for name in ("libtutti.so.0",):
        shutil.copy(os.path.realpath(os.path.join(support.PROGRAMS, name)),
                    os.path.join(image, "usr/lib", name))
    packages = subprocess.run([os.path.join(support.SOURCE, "docker/build.sh"), "needs", image],
                              stdout=subprocess.PIPE, check=True, close_fds=False).stdout
    with open(os.path.join(image, "packages"), "wb") as file:
        file.write(packages)


class Box:
    """A container of a service of compose.yaml, on this machine's network."""

    def __init__(self, folder, name, service, hosts):
        self.name = "tutti-%d-%s" % (os.getpid(), name)
        given = container_case.Container(
            name, service["command"], service.get("environment", {}), hosts[name], hosts, {})
        options = ["run", "--rm", "--name", self.name, "--network=host", "--cap-drop=ALL"]
        options += ["--read-only", "--read-only-tmpfs=false"]  # as Kubernetes: no /tmp either
        # Other interfaces of this machine come and go while it runs: other tests' bridges, say.
        for key, value in dict(given.environment, TUTTI_NET_DEVICES="lo").items():
            options += ["--env", "%s=%s" % (key, value)]
        volumes = dict(volume.split(":")[:2] for volume in service["volumes"])
        volumes["run-" + name] = "/run/tutti"
        for source, path in volumes.items():
            here = os.path.join(folder, source)
            os.makedirs(here, exist_ok=True)
            os.chown(here, 10001, 10001)
            options += ["--volume", "%s:%s" % (here, path)]
        self.log_path = os.path.join(folder, name + ".log")
        with open(self.log_path, "wb") as log:
            self.process = subprocess.Popen(words_of(*options, "tutti", *given.words), stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL, env=environment(), close_fds=False)

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def run(self, *words):
        return podman("exec", self.name, *words, timeout=LONG_S)

    def wait_healthy(self):
        until = time.monotonic() + LONG_S
        while self.run("/usr/bin/tutti", "health", "unix:/run/tutti/tutti.sock", "--timeout", "2s")[0] != 0:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < until, self.log()
            time.sleep(0.1)

    def stop(self):
        """podman hands SIGTERM to tini, and tini to the program."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.process.wait(LONG_S)

    def kill(self):
        if self.process.poll() is None:
            podman("kill", self.name)
            try:
                self.process.wait(LONG_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Bridged(Box):
    """A container with a network of its own."""

    def __init__(self, network, address, *words):
        self.name = "tutti-%d-%s" % (os.getpid(), address.split(".")[-1])
        options = ["run", "--rm", "--name", self.name, "--network", network, "--ip", address]
        options += ["--cap-drop=ALL", "--tmpfs=/run/tutti:mode=0777", "tutti"]
        self.file = tempfile.NamedTemporaryFile(prefix="tutti-engine-")
        self.log_path = self.file.name
        self.process = subprocess.Popen(words_of(*options, *words), stdout=self.file, stderr=self.file,
                                        stdin=subprocess.DEVNULL, env=environment(), close_fds=False)


class EngineTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="tutti-image-") as folder:
            context(folder)
            began = time.monotonic()
            code, said = podman(
                "build", "--isolation=chroot", "--network=host", "--format=docker",
                "--build-arg=BASE=localhost/tutti-base", "--build-arg=COMPILE=no",
                "--file=%s/docker/Dockerfile" % folder, "--tag=tutti", folder,
            )
            cls.build_s = time.monotonic() - began
        assert code == 0, said[-4000:]

    def test_image__is_as_docker_and_the_dockerfile_say(self):
        code, said = podman("image", "inspect", "tutti", "--format",
                            "{{.Size}} {{.Config.User}} {{.Config.Healthcheck.Test}}")
        self.assertEqual(code, 0, said)
        size, user, health = said.strip().splitlines()[-1].split(" ", 2)
        base_size = int(podman("image", "inspect", "tutti-base", "--format", "{{.Size}}")[1].split()[-1])
        print("# image: %.0f MB, %.0f MB of them the base; built in %.0f s"
              % (int(size) / 1e6, base_size / 1e6, self.build_s), flush=True)
        self.assertEqual(user, "10001:10001")
        self.assertIn("/usr/bin/tutti health unix:/run/tutti/tutti.sock", health)
        self.assertLess(int(size) - base_size, 120e6)

    def test_containers__are_a_cluster(self):
        services = test_containers.read_compose()["services"]
        addresses, hosts = test_containers.addresses_of(services)
        boxes = {}
        with tempfile.TemporaryDirectory(prefix="tutti-engine-") as folder:
            try:
                boxes["certs"] = Box(folder, "certs", services["certs"], hosts)
                self.assertEqual(boxes["certs"].process.wait(LONG_S), 0, boxes["certs"].log())
                began = time.monotonic()
                boxes["coordinator"] = Box(folder, "coordinator", services["coordinator"], hosts)
                boxes["coordinator"].wait_healthy()
                print("# coordinator: SERVING after %.2f s" % (time.monotonic() - began), flush=True)
                began = time.monotonic()
                for rank in range(4):
                    name = "agent-%d" % rank
                    boxes[name] = Box(folder, name, services[name], hosts)
                for rank in range(4):
                    boxes["agent-%d" % rank].wait_healthy()
                print("# four agents: SERVING after %.2f s" % (time.monotonic() - began), flush=True)
                self.check_inside(boxes["agent-1"])
                self.check_doctor(boxes["agent-0"])
                self.check_all_reduce(folder, addresses["agent-3"])
                for name in reversed(list(boxes)):
                    self.assertEqual(boxes[name].stop(), 0, boxes[name].log())
            finally:
                for one in boxes.values():
                    one.kill()

    def test_containers__reach_each_other_on_a_bridge(self):
        """Each has a network of its own, and no name but its address."""
        name, subnet = "tutti-%d" % os.getpid(), "10.213.%d" % (os.getpid() % 250)
        code, said = podman("network", "create", "--disable-dns", "--subnet=%s.0/24" % subnet, name)
        if code != 0:
            self.skipTest("no bridge here: " + last_lines(said))
        listen = ["--listen=unix:/run/tutti/tutti.sock,0.0.0.0:29600", "--insecure"]
        boxes = []
        try:
            boxes.append(Bridged(name, subnet + ".2", "tutti-coordinator", *listen))
            boxes[0].wait_healthy()
            for number in (3, 4):
                address = "%s.%d" % (subnet, number)
                words = ["--coordinator=%s.2:29600" % subnet, "--world-size=2", "--memory-limit=64MiB"]
                words.append("--advertise=%s:29600" % address)
                boxes.append(Bridged(name, address, "tutti-agent", *words, *listen))
            for one in boxes:
                one.wait_healthy()
            for words in (["doctor"], ["barrier"]):
                code, said = boxes[1].run("tutti", *words, "--agent", "unix:/run/tutti/tutti.sock")
                self.assertEqual(code, 0, said)
            print("# bridge: two agents reach each other and their coordinator", flush=True)
            for one in reversed(boxes):
                self.assertEqual(one.stop(), 0, one.log())
        finally:
            for one in boxes:
                one.kill()
            podman("network", "rm", "-f", name)

    def check_inside(self, one):
        self.assertEqual(one.run("cat", "/proc/1/comm")[1].split()[-1], "tini")
        self.assertEqual(one.run("id", "-u")[1].split()[-1], "10001")
        self.assertNotEqual(one.run("touch", "/usr/bin/x")[0], 0)

    def check_doctor(self, one):
        """Nothing is broken between containers; what it says goes to docs/measured."""
        code, said = one.run(
            "tutti", "doctor", "--agent", "unix:/run/tutti/tutti.sock", "--tls-ca", "/certs/ca.pem",
            "--tls-cert", "/certs/client.pem", "--tls-key", "/certs/client.key", "--tls-name", "localhost")
        for line in said.splitlines():
            print("# doctor: " + line, flush=True)
        self.assertEqual(code, 0, said)

    def check_all_reduce(self, folder, address):
        shown = {"TUTTI_TLS_CA": "ca.pem", "TUTTI_TLS_CERT": "client.pem", "TUTTI_TLS_KEY": "client.key"}
        shown = {key: os.path.join(folder, "certs", name) for key, name in shown.items()}
        files = [os.path.join(folder, "in.%d.npy" % rank) for rank in range(4)]
        for rank, path in enumerate(files):
            np.save(path, np.full(5, rank, np.float32))
        code, said, err = support.run(
            "tutti", "all-reduce", *files, "-o", os.path.join(folder, "out.npy"), "--agent",
            address + ":29600", environment=dict(shown, TUTTI_TLS_NAME="localhost"))
        self.assertEqual(code, 0, said + err)
        self.assertEqual(list(np.load(os.path.join(folder, "out.npy"))), [6.0] * 5)


def adopt():
    """What containers leave behind ends with us, not with whoever is process 1 here."""
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER


def reap():
    until = time.monotonic() + 5
    try:
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(0.05)
    except ChildProcessError:
        pass  # nobody is left


if __name__ == "__main__":
    adopt()
    namespace = Namespace()
    try:
        prepare()
        support.main()
    finally:
        namespace.close()
        reap()
