"""Goal: the objects of docker/kubernetes are ones that Kubernetes takes, and their pods work: a manifest
that drifts from the programs, or from itself, fails. docs/kubernetes.md does what it says.

Method: kustomizations and the chart are rendered by kube_render.py (and by kubectl and helm where they
are), checked by kube_rules.py, and their containers run as processes (kube_local.py).
"""

import copy
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import support

try:
    import yaml  # noqa: F401
except ImportError:
    support.skip_all("no python3-yaml")
import container_case
import kube_local
import kube_render
import kube_rules
import metrics_page
import test_containers
import tokens

sys.path.insert(0, os.path.join(support.SOURCE, "tests", "clients"))
import worlds  # noqa: E402

KUBERNETES = os.path.join(support.SOURCE, "docker", "kubernetes")
CHART = os.path.join(KUBERNETES, "helm")
ISSUER = "https://kubernetes.default.svc.cluster.local"
GIVEN = ("Secret/tutti-tls", "Secret/tutti-client-tls", "Secret/tutti-etcd-tls", "ConfigMap/tutti-token-keys")
FOLDERS = ("overlays/cpu", "overlays/gpu", "overlays/ha", "overlays/tls", "overlays/insecure", "worker")
CHART_VALUES = (
    {},
    {"tls": {"tokens": True}},
    {"tls": {"enabled": False}},
    {"agents": {"gpu": True, "count": 7}},
    {"coordinator": {"etcd": "etcd:2379/tutti"}},
    {"networkPolicy": False, "image": {"tag": "x"}},
)

_python_path = []


def python_path():
    if not _python_path:
        _python_path.append(worlds.install_debian("kubernetes")[1])
    return _python_path[0]


def rendered():
    """(name, objects) of all that there is."""
    for folder in FOLDERS:
        yield folder, kube_render.kustomize(os.path.join(KUBERNETES, folder))
    for values in CHART_VALUES:
        yield "helm %s" % values, kube_render.helm(CHART, values)
    accounts = [one for one in kube_render.kustomize(os.path.join(KUBERNETES, "overlays/cpu"))
                if one["kind"] == "ServiceAccount"]
    for name in ("jobset", "client"):
        yield name, accounts + kube_render.load(os.path.join(KUBERNETES, "examples", name + ".yaml"))


def find(objects, *kinds):
    return [one for one in objects if one["kind"] in kinds][0]


class Secrets:
    """What a person makes for TLS, and a cluster's tokens."""

    def __init__(self, folder):
        self.folder = folder
        code, _, words = support.run("tutti", "certs", "make", os.path.join(folder, "certs"),
                                     "--address", "tutti-coordinator,tutti-agents")
        assert code == 0, words
        self.key, public = tokens.make_key(folder, "RS256")
        self.files = {
            "Secret/tutti-tls": {name: self.read("certs/" + name) for name in
                                 ("ca.pem", "server.pem", "server.key")},
            "Secret/tutti-client-tls": {name: self.read("certs/" + name) for name in
                                        ("ca.pem", "client.pem", "client.key")},
            "Secret/tutti-etcd-tls": {name: self.read("certs/" + name) for name in
                                      ("ca.pem", "client.pem", "client.key")},
            "ConfigMap/tutti-token-keys": {"jwks.json": json.dumps({"keys": [tokens.jwk_rsa(public, "k8s")]})},
        }

    def read(self, name):
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def token(self, account, audience):
        now = int(time.time())
        claims = {"aud": [audience], "exp": now + 3600, "iat": now, "nbf": now, "iss": ISSUER,
                  "sub": "system:serviceaccount:tutti:" + account}
        return tokens.rs256(claims, self.key, kid="k8s")


def local(secrets=None):
    return kube_local.Local(
        test_containers.image_environment(), python_path,
        secrets.files if secrets else None, secrets.token if secrets else None,
    )


def on_cpu(objects):
    """This machine has no GPU, and the agent of this build would say so."""
    for one in objects:
        template = kube_rules.pod_of(one)
        for box in template["spec"]["containers"] if template else ():
            box["env"] = [env for env in box.get("env", ()) if env["name"] != "TUTTI_DEVICE"]
    return objects


class RenderTest(unittest.TestCase):
    def test_objects__keep_the_rules(self):
        for name, objects in rendered():
            self.assertEqual(kube_rules.Rules(objects, GIVEN).problems, [], name)
            self.assertGreater(len(objects), 2, name)

    def test_objects__are_rendered_alike_by_kubectl(self):
        for folder in FOLDERS:
            path = os.path.join(KUBERNETES, folder)
            real = kube_render.real_kustomize(path)
            if real is None:
                self.skipTest("neither kubectl (1.22 or newer) nor kustomize is there")
            key = lambda one: (one["kind"], one["metadata"]["name"])
            self.assertEqual(sorted(kube_render.kustomize(path), key=key), sorted(real, key=key))

    def test_chart__is_rendered_alike_by_helm(self):
        real = kube_render.real_helm(CHART)
        if real is None:
            self.skipTest("no helm")
        for one in real:
            one["metadata"].setdefault("namespace", "tutti")
        key = lambda one: (one["kind"], one["metadata"]["name"])
        self.assertEqual(sorted(kube_render.helm(CHART), key=key), sorted(real, key=key))

    def test_chart__holds_what_the_overlays_hold(self):
        """The same kinds, container words and probes; names and images differ."""
        for values, folder in (({}, "overlays/cpu"), ({"tls": {"tokens": True}}, "overlays/tls"),
                               ({"agents": {"gpu": True}}, "overlays/gpu"),
                               ({"coordinator": {"etcd": "etcd-0.etcd:2379,etcd-1.etcd:2379,etcd-2.etcd:2379/tutti"}},
                                "overlays/ha"),
                               ({"tls": {"enabled": False}}, "overlays/insecure")):
            chart = kube_render.helm(CHART, values)
            overlay = kube_render.kustomize(os.path.join(KUBERNETES, folder))
            kinds = lambda objects: sorted(one["kind"] for one in objects if one["kind"] != "Namespace")
            self.assertEqual(kinds(chart), kinds(overlay))
            for kind in (("StatefulSet", "Deployment"), ("Job",)):
                left, right = [kube_rules.pod_of(find(objects, *kind))["spec"]["containers"][0]
                               for objects in (chart, overlay)]
                for part in ("args", "env", "ports", "readinessProbe", "livenessProbe", "securityContext"):
                    words = json.dumps(left.get(part)).replace("--coordinator-name=tutti-coordinator", "NAME")
                    wanted = json.dumps(right.get(part)).replace("--coordinator-name=tutti-coordinator", "NAME")
                    unordered = lambda text: sorted(json.loads(text), key=str) if text[0] == "[" else text
                    self.assertEqual(unordered(words), unordered(wanted), (folder, kind, part))

    def test_schema__takes_good_values_and_no_others(self):
        (schema,) = kube_render.load(os.path.join(CHART, "values.schema.json"))
        (defaults,) = kube_render.load(os.path.join(CHART, "values.yaml"))
        for values in CHART_VALUES:
            self.assertEqual(kube_render.check_schema(schema, kube_render.merge(defaults, values)), [])
        for bad in ({"agents": {"count": 0}}, {"agents": {"count": "4"}}, {"agents": {"gpus": True}},
                    {"job": ""}, {"job": "a b"}, {"image": {"pullPolicy": "Sometimes"}},
                    {"coordinator": {"memory": "1GiB"}}, {"networkPolicy": 1}, {"tsl": {}}):
            self.assertNotEqual(
                kube_render.check_schema(schema, kube_render.merge(defaults, bad)), [], bad
            )

    def test_versions__are_that_of_the_programs(self):
        version = support.run("tutti", "--version")[1].split()[-1]
        (chart,) = kube_render.load(os.path.join(CHART, "Chart.yaml"))
        self.assertEqual((chart["version"], chart["appVersion"]), (version, version))
        for name, objects in rendered():
            for image in re.findall(r'"image": "([^"]+)"', json.dumps(objects)):
                if "x" not in image.split(":")[-1]:
                    self.assertRegex(image, r"^registry\.example/tutti(-python)?:%s(-cuda)?$" % version, name)


def container(objects):
    return kube_rules.pod_of(find(objects, "Job"))["spec"]["containers"][0]


def change(path, value):
    """Sets one thing of the agents' job, "containers.0.ports"; None takes it away."""

    def apply(objects):
        at = kube_rules.pod_of(find(objects, "Job"))["spec"]
        words = [int(word) if word.isdigit() else word for word in path.split("/")]
        for word in words[:-1]:
            at = at[word]
        if value is None:
            del at[words[-1]]
        else:
            at[words[-1]] = value

    return apply


def change_object(kind, path, value):
    def apply(objects):
        at = find(objects, kind)
        words = [int(word) if word.isdigit() else word for word in path.split("/")]
        for word in words[:-1]:
            at = at[word]
        at[words[-1]] = value

    return apply


MISTAKES = (
    (change("containers/0/image", None), "no image"),
    (change("containers/0/volumeMounts/0/name", "other"), "is no volume"),
    (change("containers/0/readinessProbe/grpc/port", 29601), "none of its own"),
    (change("containers/0/livenessProbe/httpGet/port", "http"), "none of its own"),
    (change("containers/0/comand", ["x"]), "no field comand"),
    (change("containers/0/args/3", "--advertise=$(IP):1"), "no variable IP"),
    (change("containers/0/env/1/value", "5"), "TUTTI_WORLD_SIZE"),
    (change("containers/0/env/1/value", 4), "no text"),
    (change("containers/0/resources/limits/memory", "1Gi"), "below the request"),
    (change("containers/0/resources/limits/memory", "2GiB"), "memory 2GiB"),
    (change("containers/0/securityContext/readOnlyRootFilesystem", False), "more than it is"),
    (change("securityContext/runAsUser", 0), "root"),
    (change("serviceAccountName", "nobody"), "no service account"),
    (change("subdomain", "nowhere"), "is no service"),
    (change("restartPolicy", "Always"), "Never or OnFailure"),
    (change_object("Job", "spec/parallelism", 3), "has to be completions"),
    (change_object("Job", "apiVersion", "batch/v1beta1"), "apiVersion"),
    (change_object("Service", "spec/ports/0/targetPort", "http"), "leads to none"),
    (change_object("Service", "spec/selector", {"app": "x"}), "fits no pod"),
    (change_object("StatefulSet", "spec/serviceName", "tutti"), "no headless service"),
    (change_object("StatefulSet", "spec/selector/matchLabels", {"a": "b"}), "its own pods"),
    (change_object("PodDisruptionBudget", "spec/selector/matchLabels", {"a": "b"}), "fits no pod"),
    (change_object("PodDisruptionBudget", "spec/maxUnavailable", 1), "one of"),
    (change_object("NetworkPolicy", "spec/ingress/0/ports", [{"port": 1}]), "none of a pod"),
    (change_object("Namespace", "metadata/name", "Tutti_1"), "no DNS label"),
)
MISTAKES_OF_HA = (
    (change_object("Deployment", "spec/selector/matchLabels", {"a": "b"}), "its own pods"),
    (change_object("Deployment", "spec/strategy/rollingUpdate/maxUnavailable", 0), "both 0"),
)


class RulesTest(unittest.TestCase):
    def test_rules__find_each_mistake(self):
        self.find_each("overlays/insecure", MISTAKES)
        self.find_each("overlays/ha", MISTAKES_OF_HA)

    def find_each(self, folder, mistakes):
        good = kube_render.kustomize(os.path.join(KUBERNETES, folder))
        for number, (mistake, words) in enumerate(mistakes):
            objects = copy.deepcopy(good)
            mistake(objects)
            problems = kube_rules.Rules(objects, GIVEN).problems
            self.assertTrue(any(words in problem for problem in problems), (number, words, problems))

    def test_rules__know_who_speaks_no_tls(self):
        objects = kube_render.kustomize(os.path.join(KUBERNETES, "overlays/tls"))
        container(objects)["readinessProbe"] = {"grpc": {"port": 29600}}
        problems = kube_rules.Rules(objects, GIVEN).problems
        self.assertTrue(any("speaks no TLS" in problem for problem in problems), problems)

    def test_rules__ask_for_secrets(self):
        objects = kube_render.kustomize(os.path.join(KUBERNETES, "overlays/tls"))
        problems = kube_rules.Rules(objects).problems
        self.assertTrue(any("no Secret tutti-tls" in problem for problem in problems), problems)

    def test_pods__with_words_that_the_programs_do_not_know_fail(self):
        objects = kube_render.kustomize(os.path.join(KUBERNETES, "overlays/insecure"))
        kube_rules.pod_of(find(objects, "StatefulSet"))["spec"]["containers"][0]["args"].append("--metric=1")
        cluster = local()
        try:
            cluster.apply([one for one in objects if one["kind"] in ("Namespace", "StatefulSet", "Service")])
            with self.assertRaisesRegex(AssertionError, "metric"):
                cluster.kubectl("kubectl -n tutti rollout status statefulset/tutti-coordinator")
        finally:
            cluster.close()


class PodsTest(unittest.TestCase):
    """Rank by index, sockets, probes and sums, of each set of objects."""

    def check_secured(self, objects, job="Job"):
        with tempfile.TemporaryDirectory(prefix="tutti-kube-") as folder:
            self.check(objects, Secrets(folder), job)

    def check(self, objects, secrets=None, job="Job"):
        cluster = local(secrets)
        cluster.namespaced = ()  # helm makes it
        try:
            cluster.apply(objects)
            agents = []
            for one in objects:
                if one["kind"] in ("StatefulSet", job):
                    pods = cluster.owned(one["kind"], one["metadata"]["name"])
                    for pod in pods:
                        pod.wait_ready()
                    agents = pods if one["kind"] == job else agents
            for rank, pod in enumerate(agents):
                code, said = list(pod.boxes.values())[0].run(
                    ["tutti", "status", "--json", "--agent", "unix:/run/tutti/tutti.sock"] +
                    (["--timeout", "20s"])
                ) if secrets is None else (0, None)
                self.assertEqual(code, 0, said)
            self.check_metrics(agents)
            for pod, _ in reversed(list(cluster.pods.values())):
                pod.stop()
        finally:
            cluster.close()

    def check_metrics(self, agents):
        for rank, pod in enumerate(agents):
            words = " ".join(pod.spec["containers"][0]["args"])
            if "--metrics=" in words:
                page = metrics_page.read(pod.address + ":9464")
                (found,) = [dict(pairs) for name, pairs in page.samples if name == "tutti_agent_info"]
                self.assertEqual(found["rank"], str(rank))

    def test_pods__of_the_overlay_for_gpus_run_without_one(self):
        objects = kube_render.kustomize(os.path.join(KUBERNETES, "overlays/gpu"))
        device = [env for env in container(objects)["env"] if env["name"] == "TUTTI_DEVICE"]
        self.assertEqual(device[0]["value"], "cuda:0")
        self.check_secured(on_cpu(objects))

    def on_etcd(self, objects, etcd):
        """This machine's etcd speaks plaintext."""
        for one in objects:
            if one["kind"] == "Deployment":
                box = kube_rules.pod_of(one)["spec"]["containers"][0]
                words = [word for word in box["args"] if not word.startswith("--etcd-")]
                box["args"] = ["--store=etcd:localhost:%d/tutti" % etcd.ports[0][0] if word.startswith("--store=") else word
                               for word in words]
        return objects

    def check_ha(self, objects):
        """Three coordinators; the one that leads goes, and agents find the next."""
        if shutil.which("etcd") is None or shutil.which("etcdctl") is None:
            self.skipTest("no etcd")
        import test_leaders

        with tempfile.TemporaryDirectory(prefix="tutti-kube-") as folder:
            etcd = test_leaders.Etcd(folder)
            cluster = local(Secrets(folder))
            cluster.namespaced = ()
            try:
                cluster.apply(self.on_etcd(objects, etcd))
                coordinators = cluster.owned("Deployment", "tutti-coordinator")
                agents = cluster.owned("Job", "tutti-agents")
                self.assertEqual((len(coordinators), len(agents)), (3, 4))
                for pod in coordinators + agents:
                    pod.wait_ready()
                leads = lambda pod: "this coordinator leads" in list(pod.boxes.values())[0].log()
                (leader,) = [pod for pod in coordinators if leads(pod)]
                leader.kill()
                until = time.monotonic() + 60
                while not any(leads(pod) for pod in coordinators if pod is not leader):
                    self.assertLess(time.monotonic(), until)
                    time.sleep(0.05)
                for pod in agents:
                    box = list(pod.boxes.values())[0]
                    while "in touch with the coordinator again" not in box.log():
                        self.assertLess(time.monotonic(), until, box.log())
                        time.sleep(0.05)
            finally:
                cluster.close()
                etcd.close()

    def test_pods__of_the_ha_overlay_go_on_without_their_leader(self):
        self.check_ha(kube_render.kustomize(os.path.join(KUBERNETES, "overlays/ha")))

    def test_pods__of_the_chart_with_etcd_go_on_without_their_leader(self):
        self.check_ha(kube_render.helm(CHART, {"coordinator": {"etcd": "etcd:2379/tutti"}}))

    def test_pods__of_the_chart_run(self):
        self.check_secured(kube_render.helm(CHART, {"agents": {"count": 2}}))

    def test_pods__of_the_chart_run_with_tokens(self):
        self.check_secured(kube_render.helm(CHART, {"agents": {"count": 2}, "tls": {"tokens": True}}))

    def test_pods__of_the_insecure_overlay_run(self):
        self.check(kube_render.kustomize(os.path.join(KUBERNETES, "overlays/insecure")))

    def test_overlays__ask_for_certificates_but_the_one_that_says_so(self):
        for folder in FOLDERS:
            objects = kube_render.kustomize(os.path.join(KUBERNETES, folder))
            boxes = [box for one in objects if kube_rules.pod_of(one)
                     for part in ("containers", "initContainers")
                     for box in kube_rules.pod_of(one)["spec"].get(part, ()) if "args" in box]
            self.assertEqual(len(boxes), 2, folder)
            for box in boxes:
                self.assertEqual("--insecure" in box["args"], folder == "overlays/insecure", folder)
                self.assertEqual("--tls-client-ca=/etc/tutti/tls/ca.pem" in box["args"],
                                 folder != "overlays/insecure", folder)

    def test_client__shows_a_token_of_its_service_account(self):
        """What docs/kubernetes.md says of clients under TLS; and without the token nothing is told."""
        program = (
            "import sys, numpy as np, tutti\n"
            "certs = sys.argv[2] + '/certs/'\n"
            "how = dict(tls_ca=certs + 'ca.pem', tls_name='tutti-coordinator', timeout=30)\n"
            "if sys.argv[4]: how.update(tls_cert=certs + 'client.pem', tls_key=certs + 'client.key')\n"
            "how.update(dict(token_file=sys.argv[3]) if sys.argv[3] else {})\n"
            "ranks = tutti.connect_job(sys.argv[1], job='train', **how)\n"
            "print(len(ranks), ranks[0].put(np.ones(3, np.float32)).numpy().tolist())\n"
        )
        with tempfile.TemporaryDirectory(prefix="tutti-kube-") as folder:
            secrets = Secrets(folder)
            cluster = local(secrets)
            path = os.path.join(folder, "token")
            with open(path, "w") as file:
                file.write(secrets.token("tutti-client", "tutti"))
            try:
                cluster.apply(kube_render.kustomize(os.path.join(KUBERNETES, "overlays/tls")))
                cluster.kubectl("kubectl -n tutti wait --for=condition=Ready pod -l "
                                "app.kubernetes.io/component=agent")
                address = cluster.hosts()["tutti-coordinator"] + ":29600"
                run = lambda token, cert="yes": subprocess.run(
                    ["/usr/bin/python3", "-c", program, address, folder, token, cert],
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, close_fds=False, timeout=120,
                    env=dict(os.environ, PYTHONPATH=python_path()))
                self.assertEqual(run(path).stdout.decode(), "4 [1.0, 1.0, 1.0]\n")
                self.assertIn("NO_TOKEN", run("").stdout.decode())
                self.assertIn("client certificate", run(path, "").stdout.decode())
            finally:
                cluster.close()

    def test_pods__of_the_job_set_run(self):
        base = kube_render.kustomize(os.path.join(KUBERNETES, "overlays/cpu"))
        base = [one for one in base if one["kind"] != "Job"]
        examples = os.path.join(KUBERNETES, "examples", "jobset.yaml")
        self.check_secured(base + kube_render.load(examples), job="JobSet")


class CommandsTest(unittest.TestCase):
    def test_commands__are_not_refused_as_they_stand(self):
        """The addresses of the manifests, not those of this machine, with --insecure."""
        image = test_containers.image_environment()
        for kind in ("StatefulSet", "Job"):
            objects = kube_render.kustomize(os.path.join(KUBERNETES, "overlays/insecure"))
            box = kube_rules.pod_of(find(objects, kind))["spec"]["containers"][0]
            environment = {env["name"]: env["value"] for env in box.get("env", ()) if "value" in env}
            words = [word for word in box["args"] if not word.startswith(("--store", "--coordinator="))]
            words = [word.replace("$(POD_IP)", "127.0.0.1") for word in words]
            container_case.check_starts(self, words, dict(image, **environment))


class PageTest(unittest.TestCase):
    """docs/kubernetes.md, block by block."""

    def blocks(self):
        with open(os.path.join(support.SOURCE, "docs", "kubernetes.md")) as file:
            return re.findall(r"```(sh|text)\n(.*?)```", file.read(), re.S)

    def test_page__does_what_it_says(self):
        self.said, self.shown, self.ran = "", [], set()
        with tempfile.TemporaryDirectory(prefix="tutti-page-") as folder:
            self.secrets = Secrets(folder)
            self.folder = folder
            self.cluster = local()
            try:
                for kind, text in self.blocks():
                    if kind == "text":
                        self.assertEqual(sorted(text.splitlines()), sorted(self.said.splitlines()))
                        self.shown.append(text)
                    for line in text.splitlines() if kind == "sh" else ():
                        self.command(line)
            finally:
                self.cluster.close()
        self.assertEqual(len(self.shown), 2)
        for word in ("apply", "wait", "logs", "exec", "rollout", "delete", "create", "build", "certs"):
            self.assertIn(word, self.ran)

    def command(self, line):
        words = line.split()
        self.ran |= set(words)
        if words[0] == "docker":
            path = os.path.join(support.SOURCE, words[words.index("-f") + 1])
            self.assertTrue(os.path.exists(path), line)
        elif words[:2] == ["tutti", "certs"]:
            done = subprocess.run([os.path.join(support.PROGRAMS, "tutti")] + words[1:],
                                  cwd=tempfile.mkdtemp(dir=self.folder), close_fds=False,
                                  stdout=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, line)
        elif "create" in words:
            self.create(line)
        else:
            if "apply" in words and words[-1].endswith("namespace.yaml"):
                self.fresh()
            self.said = self.cluster.kubectl(line)

    def fresh(self):
        """A cluster of its own for each chapter."""
        self.cluster.close()
        self.cluster = local(self.secrets)

    def create(self, line):
        """The secret and the config map: each file that an overlay mounts is named."""
        words = line.split()
        self.assertTrue(any(one["kind"] == "Namespace" for one in self.cluster.objects), line)
        kind, name = ("Secret", words[6]) if words[4] == "secret" else ("ConfigMap", words[5])
        files = sorted(os.path.basename(word) for word in re.findall(r"--from-file=(\S+)", line))
        self.assertEqual(files, sorted(self.secrets.files["%s/%s" % (kind, name)]), line)
        if shutil.which("kubectl"):  # it can do this much without a cluster
            with open(os.path.join(self.folder, "jwks.json"), "w") as file:
                file.write(self.secrets.files["ConfigMap/tutti-token-keys"]["jwks.json"])
            done = subprocess.run(words + ["--dry-run=client", "-o", "json"], cwd=self.folder,
                                  stdout=subprocess.PIPE, close_fds=False, timeout=60)
            self.assertEqual(done.returncode, 0, line)
            self.assertEqual(sorted(json.loads(done.stdout)["data"]), files)


if __name__ == "__main__":
    support.main()
