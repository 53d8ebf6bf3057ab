"""The reference of the protos, from their comments: protoc's descriptor set has them."""

import os
import subprocess
import tempfile

from comments import Markdown, within
from google.protobuf import descriptor_pb2

FIELD = descriptor_pb2.FieldDescriptorProto
# Numbers of the fields in descriptor.proto: the path of a comment is made of them.
MESSAGES, ENUMS, SERVICES = 4, 5, 6
MESSAGE_FIELDS, MESSAGE_NESTED, MESSAGE_ENUMS, ENUM_VALUES, SERVICE_METHODS = 2, 3, 4, 2, 2


def descriptors(source):
    """The files of proto/, with their comments."""
    with tempfile.TemporaryDirectory(prefix="tutti-protoset-") as folder:
        made = os.path.join(folder, "set")
        root = os.path.join(source, "proto")
        names = sorted(
            os.path.relpath(os.path.join(at, file), root)
            for at, _, files in os.walk(root)
            for file in files
            if file.endswith(".proto")
        )
        words = ["protoc", "-I", root, "--include_source_info", "--descriptor_set_out=" + made]
        subprocess.run(words + names, check=True)
        found = descriptor_pb2.FileDescriptorSet()
        with open(made, "rb") as file:
            found.ParseFromString(file.read())
    return list(found.file)


class Page:
    def __init__(self, file, known):
        self.file = file
        self.comments = {tuple(one.path): one for one in file.source_code_info.location}
        self.known = known
        self.markdown = Markdown(language="text")
        self.made = ["# %s\n" % file.name, self.head()]

    def head(self):
        """What stands above `syntax`."""
        syntax = self.comments.get((12,))
        texts = [*syntax.leading_detached_comments, syntax.leading_comments] if syntax else []
        return "".join(self.rendered(text) for text in texts)

    def rendered(self, text):
        lines = [line.removeprefix(" ") for line in text.split("\n")]
        return self.markdown.render("\n".join(lines))

    def about(self, *path):
        one = self.comments.get(path)
        return self.rendered(one.leading_comments + one.trailing_comments) if one else ""

    def type_of(self, field):
        repeated = "repeated " if field.label == FIELD.LABEL_REPEATED else ""
        repeated = "optional " if field.proto3_optional else repeated
        name = field.type_name.lstrip(".")
        if name in self.known:
            return "%s[`%s`](#%s)" % (repeated, name.split(".")[-1], anchor(name))
        return repeated + "`%s`" % (name or FIELD.Type.Name(field.type)[5:].lower())

    def entry(self, name, prose, level="##"):
        self.made.append("(%s)=\n%s `%s`\n\n%s" % (anchor(name), level, name.removeprefix("tutti.v1."), prose))

    def enum(self, one, name, path):
        self.entry(name, self.about(*path), "###")
        for place, value in enumerate(one.value):
            about = self.about(*path, ENUM_VALUES, place)
            self.made.append("`%s` = %d\n: %s\n" % (value.name, value.number, within(about).strip() or "(no comment)"))

    def message(self, one, name, path):
        self.entry(name, self.about(*path), "###")
        for place, field in enumerate(one.field):
            about = within(self.about(*path, MESSAGE_FIELDS, place)).strip()
            kind = self.type_of(field)
            self.made.append("`%s` = %d\n: %s. %s\n" % (field.name, field.number, kind, about))
        for place, nested in enumerate(one.nested_type):
            if not nested.options.map_entry:
                self.message(nested, name + "." + nested.name, (*path, MESSAGE_NESTED, place))
        for place, nested in enumerate(one.enum_type):
            self.enum(nested, name + "." + nested.name, (*path, MESSAGE_ENUMS, place))

    def method(self, one, path):
        asks, answers = one.input_type.lstrip("."), one.output_type.lstrip(".")
        line = "(%s[`%s`](#%s)) returns (%s[`%s`](#%s))" % (
            "stream " if one.client_streaming else "", asks.split(".")[-1], anchor(asks),
            "stream " if one.server_streaming else "", answers.split(".")[-1], anchor(answers),
        )  # fmt: skip
        self.made.append("### rpc `%s`\n\n%s\n\n%s" % (one.name, line, self.about(*path)))

    def text(self):
        package = self.file.package
        for place, one in enumerate(self.file.service):
            self.entry(package + "." + one.name, self.about(SERVICES, place))
            for number, method in enumerate(one.method):
                self.method(method, (SERVICES, place, SERVICE_METHODS, number))
        if self.file.message_type or self.file.enum_type:
            self.made.append("## Messages\n")
        for place, one in enumerate(self.file.message_type):
            self.message(one, package + "." + one.name, (MESSAGES, place))
        for place, one in enumerate(self.file.enum_type):
            self.enum(one, package + "." + one.name, (ENUMS, place))
        return "\n".join(self.made)


def anchor(name):
    return "proto-" + name.replace(".", "-").lower()


def names_of(file):
    def of(prefix, messages, enums):
        for one in enums:
            yield prefix + one.name
        for one in messages:
            yield prefix + one.name
            yield from of(prefix + one.name + ".", one.nested_type, one.enum_type)

    return set(of(file.package + ".", file.message_type, file.enum_type))


def silent(page):
    """Services and methods without a comment."""
    found = []
    for place, one in enumerate(page.file.service):
        if not page.about(SERVICES, place).strip():
            found.append("%s: %s has no comment" % (page.file.name, one.name))
        for number, method in enumerate(one.method):
            if not page.about(SERVICES, place, SERVICE_METHODS, number).strip():
                found.append("%s: %s.%s has no comment" % (page.file.name, one.name, method.name))
    return found


def write(source, target):
    """Pages of all protos, in `target`. Returns (names of pages, complaints)."""
    files = descriptors(source)
    known = set().union(*(names_of(file) for file in files))
    os.makedirs(target, exist_ok=True)
    pages, complaints = [], []
    for file in files:
        page = Page(file, known)
        complaints += silent(page)
        name = os.path.basename(file.name).removesuffix(".proto")
        with open(os.path.join(target, name + ".md"), "w") as opened:
            opened.write(page.text())
        pages.append(name)
    return pages, complaints
