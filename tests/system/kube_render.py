"""What kustomize and helm do, as far as docker/kubernetes uses them; anything else is an error.

kustomization.yaml: resources, namespace, images, patches (JSON 6902, inline or in a file).
Helm templates: {{ .Values.a.b }}, {{ .Release.Name }}, {{ .Release.Namespace }}, {{ .Chart.AppVersion }},
`| quote`, and {{- if .Values.a }} ... {{- end }} on lines of their own.
"""

import copy
import json
import os
import re
import shutil
import subprocess

import yaml

KNOWN = {"apiVersion", "kind", "resources", "namespace", "images", "patches"}
CLUSTER_WIDE = ("Namespace",)


def load(path):
    with open(path) as file:
        return [document for document in yaml.safe_load_all(file) if document is not None]


# ---------------------------------------------------------------------------- kustomize


def kustomize(folder):
    (rules,) = load(os.path.join(folder, "kustomization.yaml"))
    unknown = set(rules) - KNOWN
    assert not unknown, "%s: this renderer does not know %s" % (folder, sorted(unknown))
    objects = []
    for name in rules["resources"]:
        path = os.path.normpath(os.path.join(folder, name))
        objects += kustomize(path) if os.path.isdir(path) else load(path)
    for patch in rules.get("patches", ()):
        _patch(folder, patch, objects)
    for one in objects:
        if "namespace" in rules and one["kind"] not in CLUSTER_WIDE:
            one["metadata"]["namespace"] = rules["namespace"]
        for image in rules.get("images", ()):
            _rename_images(one, image)
    return objects


def _patch(folder, patch, objects):
    if "path" in patch:
        (steps,) = load(os.path.join(folder, patch["path"]))
    else:
        steps = yaml.safe_load(patch["patch"])
    target = patch["target"]
    found = [one for one in objects if one["kind"] == target["kind"]
             and one["metadata"]["name"] == target["name"]]
    assert found, "%s: nothing is %s" % (folder, target)
    for one in found:
        kind = one["kind"]
        for step in steps:
            _apply(one, step)
        assert one["kind"] == kind or patch.get("options", {}).get("allowKindChange"), "%s: kind of %s" % (folder, target)


def _apply(document, step):
    """One step of JSON Patch: add, replace and remove."""
    words = [word.replace("~1", "/").replace("~0", "~") for word in step["path"].split("/")[1:]]
    for word in words[:-1]:
        document = document[int(word)] if isinstance(document, list) else document[word]
    last = words[-1]
    if step["op"] == "remove":
        del document[int(last) if isinstance(document, list) else last]
        return
    value = copy.deepcopy(step["value"])
    if isinstance(document, list):
        if last == "-":
            assert step["op"] == "add"
            document.append(value)
        elif step["op"] == "add":
            document.insert(int(last), value)
        else:
            document[int(last)] = value
        return
    assert step["op"] == "add" or (step["op"] == "replace" and last in document), step
    document[last] = value


def _rename_images(value, image):
    if isinstance(value, dict):
        name, _, _ = value.get("image", "").partition(":") if isinstance(value.get("image"), str) else ("", "", "")
        if name == image["name"]:
            value["image"] = "%s:%s" % (image["newName"], image["newTag"])
        value = list(value.values())
    for one in value if isinstance(value, list) else ():
        _rename_images(one, image)


def _is_old(program):
    """Debian 12's kubectl 1.20 has a kustomize of 2019, which does not know these files."""
    words = [program, "version", "--client", "--output=json"]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, close_fds=False)
    said = json.loads(done.stdout or b"{}").get("clientVersion", {})
    return int(said.get("minor", "99").rstrip("+")) < 22


def real_kustomize(folder):
    """What the real one makes of it; None when there is none."""
    for words in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(words[0]) and not (words[0] == "kubectl" and _is_old(words[0])):
            done = subprocess.run(words + [folder], stdout=subprocess.PIPE, check=True, close_fds=False)
            return [one for one in yaml.safe_load_all(done.stdout) if one is not None]
    return None


# ---------------------------------------------------------------------------- helm


def _look_up(name, scope):
    value = scope
    for word in name.strip().split(".")[1:]:
        assert isinstance(value, dict) and word in value, "no value %s" % name
        value = value[word]
    return value


def _fill(match, scope):
    words = [word.strip() for word in match.group(1).strip("- ").split("|")]
    value = _look_up(words[0], scope)
    assert words[1:] in ([], ["quote"]), "this renderer does not know %s" % match.group(0)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return '"%s"' % text.replace('"', '\\"') if words[1:] else text


def _template(text, scope):
    lines, shown = [], [True]
    for line in text.splitlines():
        condition = re.match(r"^\s*\{\{-? *(if not|if|else|end)\s*(\S*)\s*-?\}\}\s*$", line)
        if condition is None:
            if all(shown):
                lines.append(re.sub(r"\{\{(.*?)\}\}", lambda match: _fill(match, scope), line))
        elif condition.group(1).startswith("if"):
            shown.append(bool(_look_up(condition.group(2), scope)) != ("not" in condition.group(1)))
        elif condition.group(1) == "else":
            shown[-1] = not shown[-1]
        else:
            shown.pop()
    assert shown == [True], "an if without its end"
    return "\n".join(lines) + "\n"


def helm(folder, values=None, release="tutti", namespace="tutti"):
    (chart,) = load(os.path.join(folder, "Chart.yaml"))
    (defaults,) = load(os.path.join(folder, "values.yaml"))
    scope = {
        "Values": merge(defaults, values or {}),
        "Release": {"Name": release, "Namespace": namespace},
        "Chart": {"AppVersion": chart["appVersion"]},
    }
    objects = []
    templates = os.path.join(folder, "templates")
    for name in sorted(os.listdir(templates)):
        if name.endswith(".yaml"):
            with open(os.path.join(templates, name)) as file:
                text = _template(file.read(), scope)
            objects += [one for one in yaml.safe_load_all(text) if one is not None]
    for one in objects:
        one["metadata"].setdefault("namespace", namespace)
    return objects


def real_helm(folder, release="tutti", namespace="tutti"):
    if not shutil.which("helm"):
        return None
    done = subprocess.run(["helm", "template", release, folder, "--namespace", namespace],
                          stdout=subprocess.PIPE, check=True, close_fds=False)
    return [one for one in yaml.safe_load_all(done.stdout) if one is not None]


def merge(under, over):
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    merged = dict(under)
    for key, value in over.items():
        merged[key] = merge(under[key], value) if key in under else value
    return merged


# ---------------------------------------------------------------------------- JSON schema


def check_schema(schema, value, path="values"):
    """What is wrong, by the few words of JSON Schema that values.schema.json uses."""
    known = {"$schema", "title", "description", "type", "properties", "required", "additionalProperties",
             "minimum", "maximum", "pattern", "enum", "items"}
    assert set(schema) <= known, "this check does not know %s" % sorted(set(schema) - known)
    kinds = {"object": dict, "string": str, "integer": int, "boolean": bool, "array": list}
    kind = kinds[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        return ["%s: %r is no %s" % (path, value, schema["type"])]
    wrong = []
    if "enum" in schema and value not in schema["enum"]:
        wrong.append("%s: %r is none of %s" % (path, value, schema["enum"]))
    if "pattern" in schema and not re.search(schema["pattern"], value):
        wrong.append("%s: %r does not fit %s" % (path, value, schema["pattern"]))
    if kind is int and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        wrong.append("%s: %d is out of range" % (path, value))
    if kind is dict:
        wrong += ["%s: no %s" % (path, key) for key in schema.get("required", ()) if key not in value]
        for key, one in value.items():
            if key in schema["properties"]:
                wrong += check_schema(schema["properties"][key], one, path + "." + key)
            elif schema.get("additionalProperties") is False:
                wrong.append("%s: unknown %s" % (path, key))
    return wrong
