"""The rules of Kubernetes' objects that matter here: a list of objects, and what is wrong with them."""

import re

NAME = re.compile(r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
QUANTITY = re.compile(r"^(\d+(?:\.\d+)?)(m|Ki|Mi|Gi|Ti|k|M|G|T)?$")
SCALE = {None: 1, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
         "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
API = {
    "Namespace": "v1", "ServiceAccount": "v1", "Service": "v1", "ConfigMap": "v1", "Pod": "v1",
    "StatefulSet": "apps/v1", "Deployment": "apps/v1", "Job": "batch/v1", "PodDisruptionBudget": "policy/v1",
    "NetworkPolicy": "networking.k8s.io/v1", "JobSet": "jobset.x-k8s.io/v1alpha2",
}
TOP = {"apiVersion", "kind", "metadata", "spec"}
EXTRA = {"ServiceAccount": {"automountServiceAccountToken"}, "ConfigMap": {"data"}}
FIELDS = {
    "metadata": {"name", "namespace", "labels", "annotations"},
    "Service": {"clusterIP", "selector", "ports", "publishNotReadyAddresses"},
    "service port": {"name", "port", "targetPort", "protocol", "appProtocol"},
    "StatefulSet": {"serviceName", "replicas", "selector", "template", "volumeClaimTemplates"},
    "Deployment": {"replicas", "selector", "template", "strategy"},
    "Job": {"completionMode", "completions", "parallelism", "backoffLimit", "template"},
    "JobSet": {"network", "replicatedJobs", "failurePolicy", "successPolicy"},
    "PodDisruptionBudget": {"minAvailable", "maxUnavailable", "selector", "unhealthyPodEvictionPolicy"},
    "NetworkPolicy": {"podSelector", "policyTypes", "ingress", "egress"},
    "pod": {"serviceAccountName", "automountServiceAccountToken", "terminationGracePeriodSeconds",
            "securityContext", "containers", "initContainers", "volumes", "restartPolicy", "subdomain",
            "tolerations", "nodeSelector", "affinity"},
    "container": {"name", "image", "imagePullPolicy", "command", "args", "env", "ports", "startupProbe",
                  "readinessProbe", "livenessProbe", "resources", "securityContext", "volumeMounts",
                  "restartPolicy", "workingDir"},
    "probe": {"grpc", "httpGet", "exec", "tcpSocket", "periodSeconds", "failureThreshold",
              "timeoutSeconds", "initialDelaySeconds", "successThreshold"},
    "env": {"name", "value", "valueFrom"},
    "container port": {"name", "containerPort", "protocol"},
    "mount": {"name", "mountPath", "readOnly", "subPath"},
    "volume": {"name", "emptyDir", "secret", "configMap", "projected"},
}
FIELD_PATHS = ("status.podIP", "metadata.name", "metadata.namespace", "spec.nodeName")


def quantity(text):
    match = QUANTITY.match(str(text))
    return None if match is None else float(match.group(1)) * SCALE[match.group(2)]


def pod_of(one):
    """The pod template of an object, or None. Of a JobSet the first one."""
    if one["kind"] == "Pod":
        return one
    if one["kind"] == "JobSet":
        return one["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    return one.get("spec", {}).get("template") if one["kind"] in ("StatefulSet", "Deployment", "Job") else None


def fits(selector, labels):
    return bool(selector) and all(labels.get(key) == value for key, value in selector.items())


class Rules:
    """[in] given: names of secrets and config maps that a person makes, "Secret/tutti-tls"."""

    def __init__(self, objects, given=()):
        self.objects = objects
        self.given = set(given)
        self.problems = []
        self.where = ""
        self.labels = [pod_of(one)["metadata"].get("labels", {}) for one in objects if pod_of(one)]
        seen = set()
        for one in objects:
            self.where = "%s %s" % (one.get("kind"), one.get("metadata", {}).get("name"))
            if self.where in seen:
                self.say("is there twice")
            seen.add(self.where)
            self.check_object(one)

    def say(self, words):
        self.problems.append("%s: %s" % (self.where, words))

    def find(self, kind, name):
        return [one for one in self.objects if one["kind"] == kind and one["metadata"]["name"] == name]

    def known(self, what, value):
        unknown = set(value) - FIELDS[what]
        if unknown:
            self.say("%s has no field %s" % (what, ", ".join(sorted(unknown))))

    def name(self, name, what="name"):
        if not isinstance(name, str) or not NAME.match(name):
            self.say("%s %r is no DNS label" % (what, name))

    def check_object(self, one):
        kind = one.get("kind")
        if API.get(kind) != one.get("apiVersion"):
            self.say("apiVersion %s" % one.get("apiVersion"))
            return
        unknown = set(one) - TOP - EXTRA.get(kind, set())
        if unknown:
            self.say("has no field %s" % ", ".join(sorted(unknown)))
        self.known("metadata", one["metadata"])
        self.name(one["metadata"].get("name"))
        check = getattr(self, "check_" + kind, None)
        if check is not None:
            self.known(kind, one.get("spec", {}))
            check(one["spec"])
        template = pod_of(one)
        if template is not None:
            self.check_pod(template["spec"], one)

    # ------------------------------------------------------------------------ kinds

    def check_Service(self, spec):
        if not any(fits(spec.get("selector"), labels) for labels in self.labels):
            self.say("its selector fits no pod")
        ports = {}
        for one in self.objects:
            template = pod_of(one)
            if template and fits(spec.get("selector"), template["metadata"].get("labels", {})):
                for box in self.boxes(template["spec"]):
                    for port in box.get("ports", ()):
                        ports[port["name"]] = ports[port["containerPort"]] = port["containerPort"]
        for port in spec["ports"]:
            self.known("service port", port)
            self.name(port["name"], "port")
            if ports.get(port.get("targetPort")) is None:
                self.say("port %s leads to none of a pod" % port["name"])
            if spec.get("clusterIP") == "None" and ports.get(port.get("targetPort")) != port["port"]:
                self.say("headless: port %s has to be that of the pod" % port["name"])

    def check_StatefulSet(self, spec):
        self.check_selector(spec)
        services = self.find("Service", spec["serviceName"])
        if not services or services[0]["spec"].get("clusterIP") != "None":
            self.say("serviceName %s is no headless service" % spec["serviceName"])
        for claim in spec.get("volumeClaimTemplates", ()):
            if quantity(claim["spec"]["resources"]["requests"]["storage"]) is None:
                self.say("storage of claim %s" % claim["metadata"]["name"])

    def check_Deployment(self, spec):
        self.check_selector(spec)
        rolling = spec.get("strategy", {}).get("rollingUpdate", {})
        if rolling.get("maxSurge", 1) == 0 and rolling.get("maxUnavailable", 1) == 0:
            self.say("maxSurge and maxUnavailable are both 0")

    def check_selector(self, spec):
        labels = spec["template"]["metadata"].get("labels", {})
        if not fits(spec["selector"].get("matchLabels"), labels):
            self.say("its selector does not fit its own pods")

    def check_Job(self, spec):
        if spec.get("completionMode") == "Indexed" and spec.get("completions") != spec.get("parallelism"):
            self.say("ranks wait for each other: parallelism has to be completions")
        if spec["template"]["spec"].get("restartPolicy") not in ("Never", "OnFailure"):
            self.say("restartPolicy of a job is Never or OnFailure")
        subdomain = spec["template"]["spec"].get("subdomain")
        if subdomain and not self.find("Service", subdomain):
            self.say("subdomain %s is no service" % subdomain)
        self.check_world(spec)

    def check_world(self, spec):
        for box in self.boxes(spec["template"]["spec"]):
            for env in box.get("env", ()):
                if env["name"] == "TUTTI_WORLD_SIZE" and env.get("value") != str(spec.get("completions")):
                    self.say("TUTTI_WORLD_SIZE %s of %s pods" % (env.get("value"), spec.get("completions")))

    def check_JobSet(self, spec):
        for job in spec["replicatedJobs"]:
            self.name(job["name"], "job")
            self.known("Job", job["template"]["spec"])
            self.check_Job(job["template"]["spec"])

    def check_PodDisruptionBudget(self, spec):
        if ("minAvailable" in spec) == ("maxUnavailable" in spec):
            self.say("needs one of minAvailable and maxUnavailable")
        if not any(fits(spec["selector"].get("matchLabels"), labels) for labels in self.labels):
            self.say("its selector fits no pod")

    def check_NetworkPolicy(self, spec):
        if not any(fits(spec["podSelector"].get("matchLabels"), labels) for labels in self.labels):
            self.say("its selector fits no pod")
        ports = {port["containerPort"] for one in self.objects if pod_of(one)
                 for box in self.boxes(pod_of(one)["spec"]) for port in box.get("ports", ())}
        for rule in spec.get("ingress", ()):
            for port in rule.get("ports", ()):
                if port["port"] not in ports:
                    self.say("port %s is none of a pod" % port["port"])

    # ------------------------------------------------------------------------ pods

    @staticmethod
    def boxes(pod):
        return list(pod.get("initContainers", ())) + list(pod["containers"])

    def check_pod(self, pod, owner):
        self.known("pod", pod)
        account = pod.get("serviceAccountName")
        if account and not self.find("ServiceAccount", account):
            self.say("no service account %s" % account)
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        volumes |= {claim["metadata"]["name"] for claim in owner["spec"].get("volumeClaimTemplates", ())}
        for volume in pod.get("volumes", ()):
            self.check_volume(volume)
        security = pod.get("securityContext", {})
        if not security.get("runAsNonRoot") or not security.get("runAsUser"):
            self.say("runs as root")
        if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            self.say("no seccomp profile")
        names = [box["name"] for box in self.boxes(pod)]
        if len(set(names)) != len(names):
            self.say("two containers of one name")
        for box in self.boxes(pod):
            self.check_box(box, volumes)
        used = {mount["name"] for box in self.boxes(pod) for mount in box.get("volumeMounts", ())}
        for name in volumes - used:
            self.say("volume %s is mounted nowhere" % name)

    def check_volume(self, volume):
        self.known("volume", volume)
        if len(volume) != 2:
            self.say("volume %s needs one source" % volume.get("name"))
        for kind, key, field in (("Secret", "secret", "secretName"), ("ConfigMap", "configMap", "name")):
            if key in volume and not self.find(kind, volume[key][field]):
                if "%s/%s" % (kind, volume[key][field]) not in self.given:
                    self.say("no %s %s" % (kind, volume[key][field]))
        for source in volume.get("projected", {}).get("sources", ()):
            token = source["serviceAccountToken"]
            if token.get("expirationSeconds", 3600) < 600 or not token.get("path") or not token.get("audience"):
                self.say("token of volume %s" % volume["name"])

    def check_box(self, box, volumes):
        self.known("container", box)
        self.name(box["name"], "container")
        if not box.get("image") or not (box.get("args") or box.get("command")):
            self.say("%s has no image or no command" % box["name"])
        ports = {}
        for port in box.get("ports", ()):
            self.known("container port", port)
            ports[port["name"]] = ports[port["containerPort"]] = port["containerPort"]
        for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
            if kind in box:
                self.check_probe(box, kind, ports)
        for mount in box.get("volumeMounts", ()):
            self.known("mount", mount)
            if mount["name"] not in volumes or not mount["mountPath"].startswith("/"):
                self.say("%s mounts %s, which is no volume" % (box["name"], mount["name"]))
        self.check_env(box)
        self.check_resources(box)
        security = box.get("securityContext", {})
        if security.get("allowPrivilegeEscalation") is not False or not security.get("readOnlyRootFilesystem"):
            self.say("%s may become more than it is" % box["name"])
        if security.get("capabilities", {}).get("drop") != ["ALL"]:
            self.say("%s keeps capabilities" % box["name"])

    def check_probe(self, box, kind, ports):
        probe = box[kind]
        self.known("probe", probe)
        ways = [way for way in ("grpc", "httpGet", "exec", "tcpSocket") if way in probe]
        if len(ways) != 1:
            self.say("%s of %s needs one way" % (kind, box["name"]))
            return
        port = probe[ways[0]].get("port") if ways[0] != "exec" else None
        if ways[0] == "grpc" and not isinstance(port, int):
            self.say("%s of %s: gRPC wants a number" % (kind, box["name"]))
        if ways[0] != "exec" and port not in ports:
            self.say("%s of %s: port %s is none of its own" % (kind, box["name"], port))
        if ways[0] == "grpc" and any("--tls-cert" in word for word in box.get("args", ())):
            self.say("%s of %s: the kubelet speaks no TLS" % (kind, box["name"]))

    def check_env(self, box):
        names = [env["name"] for env in box.get("env", ())]
        if len(set(names)) != len(names):
            self.say("%s: a variable twice" % box["name"])
        for env in box.get("env", ()):
            self.known("env", env)
            if ("value" in env) == ("valueFrom" in env):
                self.say("%s needs a value" % env["name"])
            if "value" in env and not isinstance(env["value"], str):
                self.say("%s: %r is no text" % (env["name"], env["value"]))
            path = env.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            if "valueFrom" in env and path not in FIELD_PATHS:
                self.say("%s: no field %s" % (env["name"], path))
        for word in list(box.get("args", ())) + list(box.get("command", ())):
            for name in re.findall(r"\$\(([A-Z_]+)\)", word):
                if name not in names:
                    self.say("%s: no variable %s" % (word, name))

    def check_resources(self, box):
        resources = box.get("resources", {})
        for kind in ("requests", "limits"):
            for key, value in resources.get(kind, {}).items():
                if quantity(value) is None:
                    self.say("%s: %s %s" % (box["name"], key, value))
        for key in ("cpu", "memory"):
            least = quantity(resources.get("requests", {}).get(key, "?"))
            most = quantity(resources.get("limits", {}).get(key, "0"))
            if least is None:
                self.say("%s requests no %s" % (box["name"], key))
            elif most and most < least:
                self.say("%s: a limit of %s below the request" % (box["name"], key))
        if "memory" not in resources.get("limits", {}):
            self.say("%s has no limit of memory" % box["name"])
