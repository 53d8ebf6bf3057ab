"""Reads a page of Prometheus' text format 0.0.4, and says what is wrong with it."""

import re
import urllib.error
import urllib.request

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\["\\n])*"'
SAMPLE = re.compile(r"^(%s)(?:\{((?:%s)(?:,(?:%s))*)\})? ([-+0-9.eEInfNa]+)$" % (NAME, LABEL, LABEL))
PAIR = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
TYPES = ("counter", "gauge", "histogram")
BAD_UNITS = ("milliseconds", "ms", "us", "ns", "kilobytes", "kb", "mb", "minutes")


class Page:
    """families: name -> type; samples: (name, sorted labels) -> value; problems: sentences."""

    def __init__(self, text):
        self.families = {}
        self.helps = set()
        self.samples = {}
        self.problems = []
        self.closed = set()
        self.current = None
        if not text.endswith("\n"):
            self.problems.append("the last line does not end")
        for line in text.splitlines():
            self._read(line)
        for name in self.families:
            self._check_family(name)

    def value(self, name, **labels):
        return self.samples.get((name, tuple(sorted(labels.items()))))

    def sum(self, name, **labels):
        """Of all samples of that name that have these labels, whatever others they have."""
        wanted = set(labels.items())
        return sum(v for (n, pairs), v in self.samples.items() if n == name and wanted <= set(pairs))

    def _say(self, line, words):
        self.problems.append("%s: %s" % (words, line))

    def _read(self, line):
        if line.startswith("# "):
            word, name, rest = (line[2:].split(" ", 2) + ["", ""])[:3]
            if word == "HELP":
                self._begin(line, name)
                if not rest.strip():
                    self._say(line, "a HELP without words")
                self.helps.add(name)
            elif word == "TYPE":
                if rest not in TYPES:
                    self._say(line, "an unknown TYPE")
                if name not in self.helps:
                    self._say(line, "TYPE without HELP before it")
                self.families[name] = rest
            return
        match = SAMPLE.match(line)
        if match is None:
            self._say(line, "not a sample")
            return
        name, labels, value = match.groups()
        pairs = PAIR.findall(labels or "")
        if len({key for key, _ in pairs}) != len(pairs):
            self._say(line, "a label twice")
        key = (name, tuple(sorted(pairs)))
        if key in self.samples:
            self._say(line, "a sample twice")
        self.samples[key] = float(value)
        if self._family_of(name) != self.current:
            self._say(line, "a sample outside its family")

    def _begin(self, line, name):
        if name in self.helps:
            self._say(line, "a family twice")
        self.current = name

    def _family_of(self, name):
        for tail in ("_bucket", "_sum", "_count"):
            stem = name[: -len(tail)]
            if name.endswith(tail) and self.families.get(stem) == "histogram":
                return stem
        return name

    def _check_family(self, name):
        kind = self.families[name]
        if (kind == "counter") != name.endswith("_total"):
            self._say(name, "only counters, and all of them, end in _total")
        if kind == "histogram" and not name.endswith(("_seconds", "_bytes")):
            self._say(name, "a histogram without its unit")
        if any(word in BAD_UNITS for word in name.split("_")):
            self._say(name, "a unit that is not a base unit")
        if kind == "histogram":
            self._check_histogram(name)

    def _check_histogram(self, name):
        series = {}
        for (sample, pairs), value in self.samples.items():
            if sample == name + "_bucket":
                rest = tuple(pair for pair in pairs if pair[0] != "le")
                series.setdefault(rest, []).append((float(dict(pairs)["le"]), value))
        for rest, buckets in series.items():
            counts = [value for _, value in sorted(buckets)]
            if counts != sorted(counts):
                self._say(name + str(rest), "buckets that fall")
            if sorted(buckets)[-1][0] != float("inf"):
                self._say(name + str(rest), "no bucket +Inf")
            if self.samples.get((name + "_count", rest)) != counts[-1]:
                self._say(name + str(rest), "_count is not the last bucket")
            if (name + "_sum", rest) not in self.samples:
                self._say(name + str(rest), "no _sum")


def fetch(address, path, method="GET", data=None):
    """Status and text."""
    request = urllib.request.Request("http://%s%s" % (address, path), method=method, data=data)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def read(address):
    status, text = fetch(address, "/metrics")
    assert status == 200, "%d %s" % (status, text)
    return Page(text)
