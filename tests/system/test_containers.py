"""Goal: what docker/ says about our programs is true: the image's Dockerfile holds what runs, and
compose.yaml starts a cluster that computes.

Method: the files are read; the services of compose.yaml run as processes of this machine with the
words and environment of the file (container_case.py). test_container_engine.py does it with containers.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

import support

try:
    import yaml
except ImportError:
    support.skip_all("no python3-yaml")
import numpy as np
import container_case
import metrics_page

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "clients"))
import worlds  # noqa: E402

DOCKER = os.path.join(support.SOURCE, "docker")


def read_dockerfile(name="Dockerfile"):
    """[(instruction, rest), ...] with lines joined."""
    with open(os.path.join(DOCKER, name)) as file:
        text = file.read()
    text = re.sub(r"^\s*#.*\n", "", text, flags=re.M).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def read_compose():
    with open(os.path.join(DOCKER, "compose.yaml")) as file:
        return yaml.safe_load(file)


def image_environment():
    words = [word for kind, rest in read_dockerfile() if kind == "ENV" for word in shlex.split(rest)]
    return dict(word.split("=", 1) for word in words)


class DockerfileTest(unittest.TestCase):
    def test_image__runs_as_nobody_of_importance_under_tini(self):
        found = dict(read_dockerfile())
        self.assertRegex(found["USER"], r"^[1-9]\d*:[1-9]\d*$")
        self.assertEqual(json.loads(found["ENTRYPOINT"]), ["/usr/bin/tini", "--"])
        self.assertEqual(sum(kind == "FROM" for kind, _ in read_dockerfile()), 2)

    def test_image__has_every_argument_that_is_spoken_of(self):
        with open(os.path.join(DOCKER, "Dockerfile")) as file:
            known = set(re.findall(r"^ARG (\w+)", file.read(), re.M))
        self.assertIn("CUDA", known)
        for path in ("docs/kubernetes.md", "docker/README.md", "docker/compose.yaml"):
            with open(os.path.join(support.SOURCE, path)) as file:
                self.assertEqual(set(re.findall(r"--build-arg (\w+)", file.read())) - known, set(), path)

    def test_image__copies_only_what_the_first_stage_made(self):
        last = [i for i, (kind, _) in enumerate(read_dockerfile()) if kind == "FROM"][-1]
        for kind, rest in read_dockerfile()[last:]:
            if kind in ("COPY", "ADD"):
                self.assertTrue(rest.startswith("--from=programs "), rest)

    def test_health_check__works_with_the_environment_of_the_image(self):
        rest = dict(read_dockerfile())["HEALTHCHECK"]
        words = json.loads(rest[rest.index("[") :])
        with tempfile.TemporaryDirectory(prefix="tutti-image-") as folder:
            one = container_case.Container(
                "image", ["tutti-coordinator"], image_environment(),
                container_case.free_network() + "1", {}, {"/run/tutti": folder, "/usr/bin": support.PROGRAMS},
            )
            code, _ = one.run(words)
            self.assertNotEqual(code, 0)
            one.start()
            try:
                one.wait_for("healthy", words)
                self.assertEqual(one.stop(), 0)
            finally:
                one.kill()

    def test_image__for_python_has_all_that_the_client_is_made_of(self):
        """Which folders that are, tests/clients knows, and installs from them alone."""
        found = read_dockerfile("python.Dockerfile")
        copied = [rest.split() for kind, rest in found if kind == "COPY"]
        self.assertEqual(sorted(one[0] for one in copied), sorted(worlds.SOURCES))
        for source, target in copied:
            self.assertEqual(target, "/src/" + source)
        self.assertRegex(dict(found)["USER"], r"^[1-9]\d*:[1-9]\d*$")

    def test_packages__are_asked_of_the_programs(self):
        """build.sh finds the packages behind the libraries that the programs load."""
        with tempfile.TemporaryDirectory(prefix="tutti-image-") as folder:
            os.makedirs(os.path.join(folder, "usr/bin"))
            os.makedirs(os.path.join(folder, "usr/lib"))
            for name in container_case.PROGRAMS:
                os.symlink(os.path.join(support.PROGRAMS, name), os.path.join(folder, "usr/bin", name))
            os.symlink(os.path.join(support.PROGRAMS, "libtutti.so.0"),
                       os.path.join(folder, "usr/lib/libtutti.so.0"))
            done = subprocess.run([os.path.join(DOCKER, "build.sh"), "needs", folder],
                                  stdout=subprocess.PIPE, close_fds=False, timeout=120)
        packages = done.stdout.decode().split()
        for name in ("libgrpc29", "libprotobuf-c1", "libucx0", "libmicrohttpd12", "libssl3"):
            self.assertIn(name, packages)
        self.assertLess(len(packages), 60)

    def test_packages__to_compile_with_are_those_of_run(self):
        with open(os.path.join(DOCKER, "build.sh")) as file:
            script = file.read()
        expression = re.search(r"sed -n '(.*?)' \"\$SOURCE/run\" \| sed '(.*?)'", script)
        self.assertIsNotNone(expression)
        done = subprocess.run(
            "sed -n '%s' run | sed '%s'" % expression.groups(), shell=True, cwd=support.SOURCE,
            stdout=subprocess.PIPE, close_fds=False,
        )
        words = done.stdout.decode().split()
        self.assertIn("libgrpc-dev", words)
        self.assertIn("libmicrohttpd-dev", words)
        self.assertTrue(all(re.match(r"^[a-z0-9][a-z0-9+.-]+$", word) for word in words), words)


class ComposeTest(unittest.TestCase):
    def test_services__share_what_they_must(self):
        compose = read_compose()
        ranks = []
        published = set()
        for name, service in compose["services"].items():
            self.assertEqual(service["image"], "tutti")
            self.assertTrue(service["read_only"])
            self.assertEqual(service["cap_drop"], ["ALL"])
            for port in service.get("ports", ()):
                host, outside, inside = port.rsplit(":", 2)
                self.assertEqual((host, inside), ("127.0.0.1", "29600"), name)
                self.assertNotIn(outside, published)
                published.add(outside)
            for other in service.get("depends_on", {}):
                self.assertIn(other, compose["services"])
            for volume in service["volumes"]:
                self.assertIn(volume.split(":")[0], compose["volumes"])
            ranks += [int(service["environment"]["TUTTI_RANK"])] if name.startswith("agent-") else []
        self.assertEqual(sorted(ranks), [0, 1, 2, 3])
        self.assertEqual(len(published), 5)

    def test_cluster__of_its_services_computes(self):
        with tempfile.TemporaryDirectory(prefix="tutti-compose-") as folder:
            cluster = Compose(folder)
            try:
                cluster.start()
                self.check_commands(cluster, folder)
                self.check_all_reduce(cluster, folder)
                self.check_strangers(cluster)
                for name, one in cluster.servers().items():
                    page = metrics_page.read(one.address + ":9464")
                    self.assertEqual(page.problems, [], name)
                for one in reversed(list(cluster.servers().values())):
                    self.assertEqual(one.stop(), 0, one.log())
            finally:
                cluster.kill()

    def check_commands(self, cluster, folder):
        """The servers are not refused with 0.0.0.0, which is not what they have here."""
        for name in ("coordinator", "agent-0"):
            service = cluster.services[name]
            certs = lambda text: text.replace("/certs", os.path.join(folder, "certs"))
            environment = dict(image_environment(), **service.get("environment", {}))
            container_case.check_starts(
                self, [certs(word) for word in service["command"]],
                {key: certs(value) for key, value in environment.items()},
            )

    def shown(self, one):
        return {"TUTTI_TLS_CA": one.here("/certs/ca.pem"), "TUTTI_TLS_CERT": one.here("/certs/client.pem"),
                "TUTTI_TLS_KEY": one.here("/certs/client.key"), "TUTTI_TLS_NAME": "localhost"}

    def check_all_reduce(self, cluster, folder):
        files = [os.path.join(folder, "in.%d.npy" % rank) for rank in range(4)]
        for rank, path in enumerate(files):
            np.save(path, np.full(5, rank, np.float32))
        one = cluster.running["agent-2"]
        words = ["all-reduce"] + files + ["-o", os.path.join(folder, "out.npy")]
        code, said, err = support.run("tutti", *words, "--agent", one.address + ":29600",
                                      environment=self.shown(one))
        self.assertEqual(code, 0, said + err)
        self.assertEqual(list(np.load(os.path.join(folder, "out.npy"))), [6.0] * 5)

    def check_strangers(self, cluster):
        """Without a certificate nobody gets in; health too."""
        one = cluster.running["coordinator"]
        shown = self.shown(one)
        for name in (one.address + ":29600", cluster.running["agent-1"].address + ":29600"):
            self.assertEqual(support.run("tutti", "health", name, environment=shown)[0], 0)
            for left_out in (("TUTTI_TLS_CERT", "TUTTI_TLS_KEY"), tuple(shown)):
                less = {key: value for key, value in shown.items() if key not in left_out}
                code, _, _ = support.run("tutti", "health", name, "--timeout", "2s", environment=less)
                self.assertNotEqual(code, 0, less)


def addresses_of(services):
    """One for each; and where names and published ports lead."""
    network = container_case.free_network()
    addresses = {name: network + str(i + 1) for i, name in enumerate(services)}
    hosts = dict(addresses)
    for name, service in services.items():
        for port in service.get("ports", ()):
            _, outside, inside = port.split(":")
            hosts["localhost:" + outside] = "%s:%s" % (addresses[name], inside)
    return addresses, hosts


class Compose:
    """The services in the order of their dependencies."""

    def __init__(self, folder):
        self.folder = folder
        self.services = read_compose()["services"]
        self.addresses, self.hosts = addresses_of(self.services)
        self.running = {}

    def servers(self):
        return {name: one for name, one in self.running.items() if name != "certs"}

    def start_one(self, name):
        service = self.services[name]
        paths = {"/run/tutti": os.path.join(self.folder, "run-" + name)}
        os.makedirs(paths["/run/tutti"])
        for volume in service["volumes"]:
            source, path = volume.split(":")[:2]
            paths[path] = os.path.join(self.folder, source)
            os.makedirs(paths[path], exist_ok=True)
        self.running[name] = container_case.Container(
            name, service["command"], dict(image_environment(), **service.get("environment", {})),
            self.addresses[name], self.hosts, paths,
        ).start()

    def start(self):
        for name, service in self.services.items():
            for other, wish in service.get("depends_on", {}).items():
                self.wait_for(other, wish["condition"])
            self.start_one(name)
        for name in self.servers():
            self.wait_for(name, "service_healthy")

    def wait_for(self, name, condition):
        one = self.running[name]
        if condition == "service_healthy":
            one.wait_for("healthy", ["tutti", "health", "unix:/run/tutti/tutti.sock"])
        else:
            assert condition == "service_completed_successfully", condition
            code = one.wait()
            assert code == 0, one.log()

    def kill(self):
        for one in self.running.values():
            one.kill()


if __name__ == "__main__":
    support.main()
