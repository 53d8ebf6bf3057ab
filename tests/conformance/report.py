"""What people and programs read: a line per failing case, or JSON, or TAP; counts at the end."""

import json


class Report:
    def __init__(self, stream, form, total):
        self.stream = stream
        self.form = form  # "text", "json" or "tap"
        self.counts = {"passed": 0, "failed": 0, "skipped": 0}
        self.reasons = {}
        if form == "tap":
            self._say("1..%d" % total)

    def _say(self, line):
        self.stream.write(line + "\n")
        self.stream.flush()

    def add(self, case, result, detail, seconds, ways):
        self.counts[result] += 1
        if result == "skipped":
            self.reasons[detail] = self.reasons.get(detail, 0) + 1
        getattr(self, "_" + self.form)(case, result, detail, seconds, ways)

    def _text(self, case, result, detail, _seconds, _ways):
        if result == "failed":
            self._say("FAILED %s: %s" % (case["id"], " ".join(detail.split())))

    def _json(self, case, result, detail, seconds, ways):
        line = {
            "id": case["id"],
            "kind": case["kind"],
            "result": result,
            "detail": detail,
            "ways": ways,
            "seconds": round(seconds, 3),
        }
        self._say(json.dumps(line))

    def _tap(self, case, result, detail, _seconds, _ways):
        number = sum(self.counts.values())
        detail = " ".join(detail.split())
        if result == "skipped":
            self._say("ok %d - %s # SKIP %s" % (number, case["id"], detail))
        elif result == "passed":
            self._say("ok %d - %s" % (number, case["id"]))
        else:
            self._say("not ok %d - %s" % (number, case["id"]))
            self._say("# " + detail)

    def finish(self):
        counts = "%d passed, %d failed, %d skipped" % (
            self.counts["passed"],
            self.counts["failed"],
            self.counts["skipped"],
        )
        if self.form == "text":
            for reason, count in sorted(self.reasons.items(), key=lambda pair: -pair[1]):
                self._say("skipped %d: %s" % (count, reason))
        if self.form == "tap":
            counts = "# " + counts
        if self.form != "json":
            self._say(counts)
        return self.counts["failed"] == 0
