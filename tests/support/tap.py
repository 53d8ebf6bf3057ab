"""unittest results as TAP lines on standard output; for test scripts that need nothing else."""

import sys
import traceback
import unittest


ON_FAILURE = []  # functions of the stream, which show more


class _Result(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.count = 0

    def _say(self, word, test, comment=""):
        self.count += 1
        name = test.id().split("__main__.")[-1]
        print("%s %d - %s%s" % (word, self.count, name, comment), flush=True)

    def _explain(self, text):
        for line in text.rstrip().split("\n"):
            print("# " + line, flush=True)

    def addSuccess(self, test):
        self._say("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._say("ok", test, " # SKIP " + reason)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._say("not ok", test)
        self._explain(self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        if isinstance(test, unittest.TestCase):
            self._say("not ok", test)
        else:  # setUpClass failed
            self.count += 1
            print("not ok %d - %s" % (self.count, test), flush=True)
        self._explain(self.errors[-1][1])

    def addSubTest(self, test, subtest, err):
        """unittest tells of a test's parts here, and calls none of the above for one that failed."""
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._say("not ok", subtest)
            self._explain("".join(traceback.format_exception(*err)))


def main():
    """Run all tests of the calling script."""
    result = _Result()
    unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"]).run(result)
    print("1..%d" % result.count)
    sys.exit(0 if result.wasSuccessful() and result.count > 0 else 1)
