"""The reference of Python, from docstrings: griffe reads the sources, and nothing is imported or built.

The sources are those of tutti.aio; the build makes the blocking API from them by leaving `await` out.
"""

import os
import re

import griffe
from comments import Markdown

HEAD = """# Python

`import tutti` has the blocking calls of this page. `tutti.aio` has the same ones as coroutines
(`agent = await tutti.aio.connect(...)`): a call that waits for an agent is awaited there.
"""


def docstring_text(one):
    """A docstring; `Returns:` and the like hang, and what is below `Example:` is code already."""
    text = one.docstring.value if one.docstring else ""
    text = re.sub(r"^(Returns|Raises|Yields): (.*(?:\n +.*)*)", lambda m: "\n%s: %s\n" % (m[1], re.sub(r"\n +", " ", m[2])), text, flags=re.M)
    return re.sub(r"^(Examples?):\n", r"\n\1:\n\n", text, flags=re.M)


def parameter(one):
    stars = {"variadic positional": "*", "variadic keyword": "**"}.get(one.kind.value if one.kind else "", "")
    text = stars + one.name
    if one.annotation is not None:
        text += ": " + str(one.annotation).strip("\"'")
    if one.default is not None and not stars:
        text += (" = " if one.annotation is not None else "=") + str(one.default)
    return text


def signature(name, one):
    made, star = [], False
    for each in one.parameters:
        if each.name in ("self", "cls"):
            continue
        if each.kind and each.kind.value == "keyword-only" and not star:
            made.append("*")
            star = True
        star = star or bool(each.kind and each.kind.value == "variadic positional")
        made.append(parameter(each))
    returns = " -> " + str(one.returns).strip("\"'") if one.returns is not None else ""
    line = "%s(%s)%s" % (name, ", ".join(made), returns)
    return line if len(line) <= 100 else "%s(\n    %s,\n)%s" % (name, ",\n    ".join(made), returns)


def resolved(one):
    return one.final_target if one.is_alias else one


def public_members(one):
    found = {}
    for name, member in one.all_members.items():
        if not name.startswith("_"):
            found[name] = resolved(member)
    return sorted(found.items())


class Page:
    def __init__(self):
        self.markdown = Markdown(language="python")
        self.made = [HEAD]
        self.complaints = []

    def prose(self, one, name):
        text = docstring_text(one)
        if not text.strip():
            self.complaints.append("tutti.%s has no docstring" % name)
        return self.markdown.render(text)

    def function(self, name, one, level):
        self.made.append("(python-%s)=\n%s `%s`\n\n```python\n%s\n```\n" % (
            name, level, name, signature(name.split(".")[-1], one)))  # fmt: skip
        self.made.append(self.prose(one, name))

    def klass(self, name, one):
        self.made.append("(python-class-%s)=\n## class `%s`\n\n%s" % (name, name, self.prose(one, name)))
        fields = [(key, each) for key, each in public_members(one) if each.is_attribute and each.annotation is not None]
        for key, each in fields:
            about = " ".join(docstring_text(each).split())
            kind = "`%s`" % str(each.annotation).strip("\"'")
            self.made.append("`%s`\n: %s%s\n" % (key, kind, ". " + self.markdown.prose(about) if about else ""))
        for key, each in public_members(one):
            if each.is_function:
                self.function(name + "." + key, each, "###")


def write(source, target):
    """The page of Python, in `target`. Returns (names of pages, complaints)."""
    package = griffe.load("tutti", search_paths=[os.path.join(source, "client", "python", "src")], resolve_aliases=True)
    aio = package["aio"]
    page = Page()
    names = [str(one).strip("\"'") for one in aio.exports or []]
    for name in sorted(names, key=lambda name: (name[0].isupper(), name.lower())):
        one = resolved(aio.members[name])
        if one.is_function:
            page.function(name, one, "##")
        elif one.is_class:
            page.klass(name, one)
    os.makedirs(target, exist_ok=True)
    with open(os.path.join(target, "python.md"), "w") as file:
        file.write("\n".join(page.made))
    return ["python"], page.complaints
