#!/usr/bin/env python3
"""The protos keep the rules for public interfaces, and break no program that is already out there.

usage: check_protos.py [--root FOLDER] [--update [--break]]

Rules are buf's STANDARD and those of the house (docs/decisions, proto comments). What exists is written
in FOLDER/baseline.txt, one line for each thing that a program may depend on: a line of it that is
not true any more is a breaking change. --update writes down what is new; what is gone only with --break,
which says that no released program can depend on it.
"""

import os
import re
import subprocess
import sys
import tempfile

try:
    from google.protobuf import descriptor_pb2
except ImportError:
    sys.exit("this Python has no protobuf: apt-get install python3-protobuf, and run /usr/bin/python3")

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BASELINE = "baseline.txt"
PAYLOAD = 100  # the field of bulk bytes: lib/rpc/message.h

# What is not as the rules have it, and why it stays.
EXCEPTIONS = {
    "tutti.v1.FORM_CONCAT": "a form that is not said is this one",
    "tutti/v1/parts.proto": "its messages are part of collectives_service.proto, which was too long",
    "tutti/v1/members.proto": "likewise: its messages were in coordinator_service.proto",
    "tutti/v1/group.proto": "its messages were in coordinator_service.proto: stubs keep finding them",
}

FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {number: name[5:].lower() for name, number in FIELD.Type.items()}

# ------------------------------------------------------------------------------ reading


def descriptors(root):
    """The files of a proto folder; protoc's warnings are errors."""
    names = []
    for folder, _, files in os.walk(root):
        paths = [os.path.join(folder, name) for name in files if name.endswith(".proto")]
        names += [os.path.relpath(path, root) for path in paths]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "set")
        done = subprocess.run(
            ["protoc", "-I" + root, "-I/usr/include", "--descriptor_set_out=" + path]
            + sorted(names),
            stderr=subprocess.PIPE,
        )
        said = done.stderr.decode().strip()
        if done.returncode != 0 or said:
            sys.exit(said or "protoc failed")
        with open(path, "rb") as file:
            return list(descriptor_pb2.FileDescriptorSet.FromString(file.read()).file)


def messages_of(file):
    """All messages with their full names, the nested ones too."""
    queue = [(file.package + "." + one.name, one) for one in file.message_type]
    while queue:
        name, message = queue.pop(0)
        yield name, message
        queue += [(name + "." + one.name, one) for one in message.nested_type]


def enums_of(file):
    for one in file.enum_type:
        yield file.package + "." + one.name, one
    for name, message in messages_of(file):
        for one in message.enum_type:
            yield name + "." + one.name, one


# ------------------------------------------------------------------------------ rules

PASCAL = re.compile(r"^([A-Z][a-z0-9]*)+$")
SNAKE = re.compile(r"^[a-z][a-z0-9]*(_[a-z0-9]+)*$")
UPPER = re.compile(r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*$")


def upper_of(pascal):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", pascal).upper()


def lint_file(file):
    folder, name = os.path.split(file.name)
    if file.package.replace(".", "/") != folder:
        yield file.name, "package %s does not lie in its folder" % file.package
    if not re.search(r"\.v[0-9]+((alpha|beta)[0-9]+)?$", file.package):
        yield file.name, "package %s has no version" % file.package
    if not SNAKE.match(name[: -len(".proto")]):
        yield file.name, "the file's name is not lower_snake_case"
    if file.syntax != "proto3":
        yield file.name, "the syntax is not proto3"
    for place in file.public_dependency:
        yield file.dependency[place], "imported publicly by " + file.name


def lint_enum(name, enum):
    scope = name.rpartition(".")[0]
    prefix = upper_of(enum.name) + "_"
    if not PASCAL.match(enum.name):
        yield name, "not PascalCase"
    if enum.options.allow_alias:
        yield name, "two values have one number"
    for value in enum.value:
        full = scope + "." + value.name
        if not UPPER.match(value.name) or not value.name.startswith(prefix):
            yield full, "not %sUPPER_SNAKE_CASE" % prefix
        if value.number == 0 and value.name != prefix + "UNSPECIFIED":
            yield full, "0 is not %sUNSPECIFIED" % prefix


def lint_message(name, message):
    if not PASCAL.match(message.name):
        yield name, "not PascalCase"
    if message.options.map_entry:
        yield name, "maps: the C generator has none"
    for oneof in message.oneof_decl:
        if not SNAKE.match(oneof.name) and not oneof.name.startswith("_"):
            yield name + "." + oneof.name, "a oneof is not lower_snake_case"
    for field in message.field:
        full = name + "." + field.name
        if not SNAKE.match(field.name):
            yield full, "not lower_snake_case"
        if field.proto3_optional:
            yield full, "optional: the C generator has none, put it into a oneof"
        if field.name == "payload" and (field.number, field.type) != (PAYLOAD, FIELD.TYPE_BYTES):
            yield full, "a payload is bytes with the number %d" % PAYLOAD
        if field.number > PAYLOAD:
            yield full, "a number behind the payload's"


def lint_service(file, service, used):
    name = file.package + "." + service.name
    if not PASCAL.match(service.name) or not service.name.endswith("Service"):
        yield name, "not PascalCase with the suffix Service"
    for method in service.method:
        full = name + "." + method.name
        if not PASCAL.match(method.name):
            yield full, "not PascalCase"
        for kind, end in ((method.input_type, "Request"), (method.output_type, "Response")):
            if kind in used:
                yield full, "%s is also that of %s" % (kind.lstrip("."), used[kind])
            used[kind] = full
            short = kind.rpartition(".")[2]
            if short not in (method.name + end, service.name + method.name + end):
                yield full, "%s is neither %s%s nor %s%s%s" % (
                    short,
                    method.name,
                    end,
                    service.name,
                    method.name,
                    end,
                )


def lint_recursion(files):
    """A message in itself: the C generator cannot free it."""
    inside = {}
    for file in files:
        for name, message in messages_of(file):
            inside[name] = {f.type_name.lstrip(".") for f in message.field if f.type_name}
    for name in inside:
        seen, queue = set(), list(inside[name])
        while queue:
            one = queue.pop()
            if one == name:
                yield name, "is inside of itself"
                break
            if one not in seen:
                seen.add(one)
                queue += inside.get(one, ())


def lint(files):
    """(what, complaint) of everything that is against the rules."""
    used = {}
    for file in files:
        yield from lint_file(file)
        for name, enum in enums_of(file):
            yield from lint_enum(name, enum)
        for name, message in messages_of(file):
            yield from lint_message(name, message)
        for service in file.service:
            yield from lint_service(file, service, used)
    yield from lint_recursion(files)


# ------------------------------------------------------------------------------ breaking


def type_of(field):
    words = ["repeated"] if field.label == FIELD.LABEL_REPEATED else []
    return " ".join(words + [field.type_name.lstrip(".") or TYPES[field.type]])


def describe(files):
    """Lines for all that a program may depend on. The file of a message is not: stubs include it."""
    for file in files:
        for name, enum in enums_of(file):
            for value in enum.value:
                yield "enum %s %d = %s" % (name, value.number, value.name)
        for name, message in messages_of(file):
            yield "message %s" % name
            for field in message.field:
                where = ""
                if field.HasField("oneof_index"):
                    where = " in " + message.oneof_decl[field.oneof_index].name
                words = (name, field.number, field.name, type_of(field), where)
                yield "field %s %d = %s: %s%s" % words
        for service in file.service:
            for one in service.method:
                sides = ("stream " if one.client_streaming else "", one.input_type.lstrip("."))
                back = ("stream " if one.server_streaming else "", one.output_type.lstrip("."))
                yield "rpc %s.%s.%s: %s%s -> %s%s" % (
                    (file.package, service.name, one.name) + sides + back
                )


def read_baseline(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [line.rstrip("\n") for line in file if line.strip() and line[0] != "#"]


def write_baseline(path, lines):
    with open(path, "w") as file:
        file.write(
            "# What programs depend on; cmake/check_protos.py compares it with the protos.\n"
        )
        file.write("".join(line + "\n" for line in sorted(lines)))


def main(words):
    root = words[words.index("--root") + 1] if "--root" in words else os.path.join(HERE, "proto")
    path = os.path.join(root, BASELINE)
    files = descriptors(root)
    wrong = ["%s: %s" % one for one in lint(files) if one[0] not in EXCEPTIONS]
    known, here = read_baseline(path), set(describe(files))
    gone = [] if "--break" in words else [line for line in known if line not in here]
    wrong += ["breaks programs: gone or changed: " + line for line in gone]
    for line in wrong:
        print(line)
    if "--update" in words and not gone:
        write_baseline(path, here)
    new = len(here - set(known)) if "--update" not in words else 0
    print("protos: %d wrong, %d not in the baseline yet" % (len(wrong), new))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
