"""Goal: "In five minutes" of docs/security.md does what it says, and no less closed.

Method: its block is pasted into a shell, with ports that are free; what is shown is left out, one thing at a time.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

PAGE = os.path.join(support.SOURCE, "docs", "security.md")
PORT = 29600  # of the page; the agents have the next two


def block():
    """The commands, as a person pastes them."""
    with open(PAGE) as file:
        text = re.search(r"## In five minutes\n.*?\n```\n(.*?)```", file.read(), re.S)[1]
    return re.sub(r"(?m)^\$ ", "", text)


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-page-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "leaks"), "w") as file:  # of c-ares, for each name that gRPC looks up
            file.write("leak:libcares\nleak:libcrypto\n")

    def paste(self, text):
        environment = dict(os.environ, PATH=support.PROGRAMS + ":" + os.environ["PATH"],
                           LSAN_OPTIONS="print_suppressions=0:suppressions=" + os.path.join(self.folder, "leaks"))
        done = subprocess.run(["bash", "-c", text], cwd=self.folder, env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, close_fds=False, timeout=200)
        return done.stdout.decode()

    def test_five_minutes(self):
        text, first = block(), support.free_port(3)
        commands, last = text.rstrip("\n").rsplit("\n", 1)
        self.assertEqual(last, "kill $(jobs -p)")
        ask = re.search(r"(?m)^tutti --agent .* status$", commands)[0]
        # Two seconds are enough for a person's machine, not for a busy one under sanitizers.
        wait = "for i in $(seq 600); do %s > answer && break; sleep 0.1; done" % ask
        self.assertIn("\nsleep 2\n", commands)
        commands = commands.replace("\nsleep 2\n", "\n%s 2> refused\n" % wait)
        for gone in ("TUTTI_TLS_CERT TUTTI_TLS_KEY", "TUTTI_TOKEN_FILE", "TUTTI_TLS_CA TUTTI_TLS_CERT TUTTI_TLS_KEY"):
            commands += "\necho '== without %s'; (unset %s; %s); echo \"rc $?\"" % (gone, gone, ask)
        for number in range(3):
            commands = commands.replace(str(PORT + number), str(first + number))
        said = self.paste(commands + "\n" + last + "\nwait")
        with_all, *less = said.split("== without ")
        self.assertIn("2 of 2 ranks alive", with_all, said)
        self.assertNotIn("could not reach", with_all)
        for one, words in zip(less, ("client certificate", "wants a bearer token", "could not reach")):
            self.assertIn(words, one)
            self.assertIn("rc 1", one)


if __name__ == "__main__":
    support.main()
