"""A cluster of one machine, of which docs/kubernetes.md and the manifests do not know: objects are applied,
containers run as processes (container_case.py), probes are asked as the kubelet asks them.

It understands the kubectl commands of docs/kubernetes.md, and no others.
"""

import os
import re
import shlex
import tempfile
import time

import container_case
import kube_render
import kube_rules
import metrics_page
import support

LONG_S = container_case.LONG_S


class Pod:
    def __init__(self, cluster, name, spec, index, address):
        self.name = name
        self.spec = spec
        self.address = address
        self.boxes = {}
        self.index = index
        self.cluster = cluster
        self.folder = os.path.join(cluster.folder.name, "p%d" % len(cluster.pods))

    def paths(self, box):
        """Where its volumes are on this machine."""
        found = {}
        for mount in box.get("volumeMounts", ()):
            path = os.path.join(self.folder, mount["name"])
            found[mount["mountPath"]] = path
            if os.path.isdir(path):
                continue
            os.makedirs(path)
            for volume in self.spec.get("volumes", ()):
                if volume["name"] == mount["name"]:
                    self.cluster.fill(volume, path, self.spec)
        return found

    def environment(self, box):
        here = {"status.podIP": self.address, "metadata.name": self.name}
        found = dict(self.cluster.image_environment) if "python" not in box["image"] else {}
        if self.index is not None:
            found["JOB_COMPLETION_INDEX"] = str(self.index)
        for env in box.get("env", ()):
            field = env.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            found[env["name"]] = env["value"] if "value" in env else here[field]
        if "python" in box["image"]:
            found["PYTHONPATH"] = self.cluster.python_path()
        return found

    def start_box(self, box):
        environment = self.environment(box)
        words = list(box.get("command", ())) + list(box.get("args", ()))
        words = [re.sub(r"\$\(([A-Z_]+)\)", lambda m: environment[m.group(1)], word) for word in words]
        if words[0] == "python3":
            words[0] = "/usr/bin/python3"  # where Debian's grpcio is
        one = container_case.Container(
            "%s/%s" % (self.name, box["name"]), words, environment, self.address,
            self.cluster.hosts(), self.paths(box),
        )
        self.boxes[box["name"]] = one
        return one.start()

    def start(self):
        """Sidecars serve before what comes after them is started."""
        for box in self.spec.get("initContainers", ()):
            assert box["restartPolicy"] == "Always", "only sidecars"
            self.start_box(box)
        self.waiting = list(self.spec["containers"])
        if not self.spec.get("initContainers"):
            self.go_on()

    def go_on(self):
        for box in self.spec.get("initContainers", ()):
            self.wait_probe(box, "startupProbe")
        while self.waiting:
            self.start_box(self.waiting.pop(0))

    def probe(self, box, kind):
        port_of = {port["name"]: port["containerPort"] for port in box.get("ports", ())}
        probe = box[kind]
        if "grpc" in probe:
            code, _ = self.boxes[box["name"]].run(
                ["tutti", "health", "%s:%d" % (self.address, probe["grpc"]["port"]), "--timeout", "2s"]
            )
            return code == 0
        port = probe["httpGet"]["port"]
        try:
            status, _ = metrics_page.fetch(
                "%s:%d" % (self.address, port_of.get(port, port)), probe["httpGet"]["path"]
            )
        except OSError:
            return False
        return 200 <= status < 400

    def wait_probe(self, box, kind):
        until = time.monotonic() + LONG_S
        while not self.probe(box, kind):
            one = self.boxes[box["name"]]
            assert one.process.poll() is None, "%s ended: %s" % (one.name, one.log())
            assert time.monotonic() < until, "%s: no %s: %s" % (one.name, kind, one.log())
            time.sleep(0.1)

    def wait_ready(self):
        self.go_on()
        for box in self.spec["containers"]:
            for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
                if kind in box:
                    self.wait_probe(box, kind)

    def wait_succeeded(self):
        """The containers end with 0; then the sidecars are told to stop, last ones first."""
        self.go_on()
        for box in self.spec["containers"]:
            one = self.boxes[box["name"]]
            code = one.wait()
            assert code == 0, "%s: exit code %d: %s" % (one.name, code, one.log())
        for box in reversed(self.spec.get("initContainers", ())):
            one = self.boxes[box["name"]]
            code = one.stop()
            assert code == 0, "%s: exit code %d: %s" % (one.name, code, one.log())

    def stop(self):
        for one in self.boxes.values():
            code = one.stop()
            assert code == 0, "%s: exit code %d: %s" % (one.name, code, one.log())

    def kill(self):
        for one in self.boxes.values():
            one.kill()


class Local:
    def __init__(self, image_environment, python_path, secrets=None, token=None):
        self.image_environment = image_environment
        self.python_path = python_path
        self.secrets = secrets or {}  # "Secret/name" -> {file: bytes}
        self.token = token  # (service account) -> text
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-kube-")
        self.network = container_case.free_network()
        self.objects = []
        self.pods = {}
        self.namespaced = ("tutti",)  # names that have to be made before

    # ------------------------------------------------------------------------ what pods find

    def hosts(self):
        """Names of services, the first pod behind each; and of the pods behind them. The name of a Deployment's is all of its
        pods: programs here are told their addresses, as no DNS of a cluster is here to ask."""
        found = {}
        for one in self.objects:
            if one["kind"] != "Service":
                continue
            for pod, labels in self.pods.values():
                if kube_rules.fits(one["spec"]["selector"], labels):
                    found.setdefault(one["metadata"]["name"], pod.address)
                    found["%s.%s" % (pod.name, one["metadata"]["name"])] = pod.address
            for other in self.objects:
                labels = kube_rules.pod_of(other)["metadata"].get("labels", {}) if other["kind"] == "Deployment" else {}
                if kube_rules.fits(one["spec"]["selector"], labels):
                    pods = self.owned(other["kind"], other["metadata"]["name"])
                    for port in one["spec"]["ports"]:
                        place = "%s:%d" % (one["metadata"]["name"], port["port"])
                        found[place] = ",".join("%s:%d" % (pod.address, port["port"]) for pod in pods)
        return found

    def fill(self, volume, path, spec):
        files = {}
        if "configMap" in volume:
            name = volume["configMap"]["name"]
            found = [one for one in self.objects if one["kind"] == "ConfigMap"
                     and one["metadata"]["name"] == name]
            files = found[0]["data"] if found else self.secrets["ConfigMap/" + name]
        elif "secret" in volume:
            files = self.secrets["Secret/" + volume["secret"]["secretName"]]
        elif "projected" in volume:
            source = volume["projected"]["sources"][0]["serviceAccountToken"]
            files = {source["path"]: self.token(spec["serviceAccountName"], source["audience"])}
        for name, data in files.items():
            with open(os.path.join(path, name), "wb") as file:
                file.write(data if isinstance(data, bytes) else data.encode())

    # ------------------------------------------------------------------------ kubectl

    def apply(self, objects):
        """What is new is started."""
        fresh = []
        here = {(one["kind"], one["metadata"]["name"]) for one in self.objects}
        objects = [one for one in objects if (one["kind"], one["metadata"]["name"]) not in here]
        self.objects += objects
        for one in objects:
            self.check_namespace(one)
            template = kube_rules.pod_of(one)
            for name, index in self.names(one):
                address = self.network + str(len(self.pods) + 1)
                pod = Pod(self, name, template["spec"], index, address)
                self.pods[name] = (pod, template["metadata"].get("labels", {}))
                fresh.append(pod)
        for pod in fresh:
            pod.start()
        return "".join("%s/%s created\n" % (one["kind"].lower(), one["metadata"]["name"]) for one in objects)

    def check_namespace(self, one):
        name = one["metadata"].get("namespace", "default")
        there = [ns for ns in self.objects if ns["kind"] == "Namespace" and ns["metadata"]["name"] == name]
        assert one["kind"] == "Namespace" or there or name not in self.namespaced, "no namespace " + name

    @staticmethod
    def names(one):
        """Of its pods, each with its index or None. Those of jobs end in something random."""
        name = one["metadata"]["name"]
        if one["kind"] == "Pod":
            return [(name, None)]
        if one["kind"] == "StatefulSet":
            return [("%s-%d" % (name, i), None) for i in range(one["spec"]["replicas"])]
        if one["kind"] == "Deployment":
            return [("%s-6d4cf56db6-x7k2%d" % (name, i), None) for i in range(one["spec"]["replicas"])]
        if one["kind"] == "Job":
            return [("%s-%d-x7k2q" % (name, i), i) for i in range(one["spec"]["completions"])]
        if one["kind"] == "JobSet":
            job = one["spec"]["replicatedJobs"][0]
            count = job["template"]["spec"]["completions"]
            return [("%s-%s-0-%d-x7k2q" % (name, job["name"], i), i) for i in range(count)]
        return []

    def owned(self, kind, name):
        found = [one for one in self.objects if one["kind"].lower() == kind.lower()
                 and one["metadata"]["name"] == name]
        assert found, "there is no %s/%s" % (kind, name)
        return [self.pods[pod][0] for pod, _ in self.names(found[0])]

    def labelled(self, selector):
        wanted = dict(pair.split("=") for pair in selector.split(","))
        found = [pod for pod, labels in self.pods.values() if kube_rules.fits(wanted, labels)]
        assert found, "no pod is %s" % selector
        return found

    def kubectl(self, line):
        """One command; what it prints."""
        words = shlex.split(line)
        assert words.pop(0) == "kubectl", line
        if words[:2] == ["-n", "tutti"]:
            words = words[2:]
        return getattr(self, "do_" + words[0])(words[1:])

    def do_apply(self, words):
        path = os.path.join(support.SOURCE, words[1])
        assert words[0] in ("-k", "-f") and os.path.exists(path), words
        return self.apply(kube_render.kustomize(path) if words[0] == "-k" else kube_render.load(path))

    def do_rollout(self, words):
        kind, name = words[1].split("/")
        for pod in self.owned(kind, name):
            pod.wait_ready()
        return ""

    def do_wait(self, words):
        condition = [word for word in words if word.startswith("--for=")][0][6:]
        if "-l" in words:
            pods = self.labelled(words[words.index("-l") + 1])
        else:
            pods = self.owned(*[word for word in words if "/" in word][0].split("/"))
        for pod in pods:
            if condition == "condition=Ready":
                pod.wait_ready()
            else:
                assert condition in ("jsonpath={.status.phase}=Succeeded", "condition=Complete"), condition
        if condition != "condition=Ready":
            for pod in pods:
                pod.go_on()
            for pod in pods:
                pod.wait_succeeded()
        return ""

    def do_logs(self, words):
        if words[0] == "-l":
            pods = self.labelled(words[1])
        else:
            pods = self.owned(*words[0].split("/")) if "/" in words[0] else [self.pods[words[0]][0]]
        box = words[words.index("-c") + 1] if "-c" in words else None
        return "".join(pod.boxes[box or pod.spec["containers"][0]["name"]].log() for pod in pods)

    def do_exec(self, words):
        pod = self.owned(*words[0].split("/"))[0] if "/" in words[0] else self.pods[words[0]][0]
        code, said = pod.boxes[pod.spec["containers"][0]["name"]].run(words[words.index("--") + 1 :])
        assert code == 0, "%s: %s" % (words, said)
        return said

    def do_delete(self, words):
        if words[0] == "-k":
            path = os.path.join(support.SOURCE, words[1])
            objects = kube_render.kustomize(path)
        elif words[0] == "-f":
            objects = kube_render.load(os.path.join(support.SOURCE, words[1]))
        else:
            kind, name = words[0].split("/")
            objects = [one for one in self.objects if one["kind"].lower() == kind
                       and one["metadata"]["name"] == name]
        for one in reversed(objects):
            for name, _ in self.names(one):
                self.pods[name][0].stop()
        gone = {(one["kind"], one["metadata"]["name"]) for one in objects}
        self.objects = [one for one in self.objects if (one["kind"], one["metadata"]["name"]) not in gone]
        return ""

    def close(self):
        for pod, _ in self.pods.values():
            pod.kill()
        self.folder.cleanup()
