"""Goal: "In five minutes" of docs/security.md does what it says, and no less closed.
Method: its block, line by line, as real processes: ports that are free, this machine for the page's
nodes, two agents for the one line."""

import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
import support  # noqa: E402

PAGE = os.path.join(support.SOURCE, "docs", "security.md")
WORLD = 2


def lines():
    """The commands, each on one line."""
    with open(PAGE) as file:
        text = re.search(r"## In five minutes\n\n```\n(.*?)```", file.read(), re.S)[1]
    return [line for line in text.replace("\\\n", " ").split("\n") if line]


class Page(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-page-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.hush_leaks_of_names()
        self.environment = {}
        self.coordinator, self.agents, self.ran = None, [], []

    def hush_leaks_of_names(self):
        """Under the leak sanitizer c-ares keeps a few bytes for each name that gRPC looks up."""
        path = os.path.join(self.folder, "leaks")
        with open(path, "w") as file:
            file.write("leak:libcares\nleak:libcrypto\n")
        options = {"LSAN_OPTIONS": "print_suppressions=0:suppressions=" + path}
        patch = unittest.mock.patch.dict(os.environ, options)
        patch.start()
        self.addCleanup(patch.stop)

    def stop(self, program):
        self.assertEqual(program.stop(), 0, program.log())

    def here(self, word):
        """The page's words on this machine."""
        if word.startswith("certs/") or word in ("secret", "agent.token", "client.token"):
            return os.path.join(self.folder, word)
        word = word.replace("node-1.example:41234", "localhost:%s" % self.port(self.agents))
        word = word.replace("node-1.example:29600", "localhost:%s" % self.port([self.coordinator]))
        return word.replace("node-1.example", socket.gethostname())

    @staticmethod
    def port(programs):
        return programs[0].address.rsplit(":", 1)[1] if programs and programs[0] else ""

    def serve(self, words):
        place = words.index("--listen")
        rest = [self.here(word) for word in words[1:place] + words[place + 2 :]]
        self.assertTrue(words[place + 1].startswith("0.0.0.0:"))
        program = support.Program(words[0], *rest, listen="0.0.0.0:0")
        self.addCleanup(self.stop, program)
        return program

    def command(self, words):
        self.ran.append(words[0])
        if words[0] == "tutti-coordinator":
            self.coordinator = self.serve(words)
        elif words[0] == "tutti-agent":
            self.assertIn(str(WORLD), words)
            self.agents = [self.serve(words) for _ in range(WORLD)]
            for agent in self.agents:
                agent.wait_for_log("joined job train")
        elif words[0] == "export":
            pairs = [word.split("=") for word in words[1:]]
            self.environment.update({name: self.here(value) for name, value in pairs})
        else:
            self.assertEqual(words[0], "tutti")
            return self.run_tutti([self.here(word) for word in words[1:]], self.environment)
        return ""

    def run_tutti(self, words, environment, wanted=0):
        done = subprocess.run(
            [os.path.join(support.PROGRAMS, "tutti")] + words,
            cwd=self.folder,
            env=dict(os.environ, **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            close_fds=False,
            timeout=120,
        )
        self.assertEqual(done.returncode, wanted, done.stdout)
        return done.stdout.decode()

    def test_five_minutes(self):
        said = ""
        for line in lines():
            self.assertEqual(line[:2], "$ ")
            said = self.command(line[2:].split())
        self.assertIn("2 of 2 ranks alive", said)
        self.assertNotIn("could not reach", said)
        for word in ("tutti-coordinator", "tutti-agent", "export", "tutti"):
            self.assertIn(word, self.ran)
        self.check_closed(["--agent", self.here("node-1.example:41234"), "status"])

    def check_closed(self, words):
        """Each part of what was shown is needed."""
        for name in ("TUTTI_TLS_CA", "TUTTI_TOKEN_FILE"):
            less = {key: value for key, value in self.environment.items() if key != name}
            said = self.run_tutti(["--timeout", "20s"] + words, less, wanted=1)
        self.assertIn("wants a bearer token", said)


if __name__ == "__main__":
    support.main()
