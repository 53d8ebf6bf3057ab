#!/usr/bin/python3
"""Goal: docs/sessions.md says what happens: each line of its notebook prints what the page shows; so does README.md's.

Method: doctest in the world of Debian's grpcio; four agents, and beside each a host with the page's own
module demo.
"""

import doctest
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap
import worlds
from worlds import support

PAGE = os.path.join(support.SOURCE, "docs", "sessions.md")
WORK = os.path.join(worlds.WORK, "session-docs")
LONG_S = 60

if __name__ == "__main__" and "TUTTI_TEST_PACKAGE" not in os.environ:
    python, folder = worlds.install("debian", "session-docs-package")
    known = {"TUTTI_TEST_PACKAGE": folder, "PYTHONPATH": os.pathsep.join([folder, WORK])}
    words = [python, os.path.abspath(__file__)]
    sys.exit(subprocess.run(words, env=dict(os.environ, **known), close_fds=False).returncode)

import tutti


def blocks(page=PAGE):
    with open(page) as file:
        return re.findall(r"^```python\n(.*?)^```$", file.read(), re.M | re.S)


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (module,) = [text for text in blocks() if not text.startswith(">>>")]
        os.makedirs(WORK, exist_ok=True)
        with open(os.path.join(WORK, "demo.py"), "w") as file:
            file.write(module)
        cls.cluster = worlds.Cluster(4, agent_options=("--functions", "demo"))
        cls.hosts = [cls.start_host(agent.address) for agent in cls.cluster.agents]
        for host in cls.hosts:
            assert b"serving demo.mlp" in host.stdout.readline()

    @staticmethod
    def start_host(address):
        words = [sys.executable, "-m", "tutti.host", "--agent", address, "demo"]
        return subprocess.Popen(words, stdout=subprocess.PIPE, close_fds=False)

    @classmethod
    def tearDownClass(cls):
        for host in cls.hosts:
            host.terminate()
            host.communicate(timeout=LONG_S)
        cls.cluster.__exit__(None, None, None)

    def test_every_line_prints_what_the_page_shows(self):
        os.environ["TUTTI_AGENT"] = self.cluster.agents[0].address
        with open(PAGE) as file:
            test = doctest.DocTestParser().get_doctest(file.read(), {}, "sessions.md", PAGE, 0)
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        said = []
        runner = doctest.DocTestRunner(optionflags=flags)
        runner.run(test, out=said.append)
        print("# " + "".join(said).replace("\n", "\n# "))
        self.assertEqual(runner.failures, 0)
        self.assertGreater(len(test.examples), 90)
        test.globs.clear()
        for agent in self.cluster.agents:
            with tutti.connect(agent.address) as one:
                self.assertEqual(one.tensors(), [])

    def test_the_session_of_the_readme_prints_what_it_shows(self):
        (text,) = [one for one in blocks(os.path.join(support.SOURCE, "README.md")) if "tutti.session" in one]
        known = {"TUTTI_AGENT": self.cluster.agents[1].address}
        done = subprocess.run([sys.executable, "-c", text], env=dict(os.environ, **known), stdout=subprocess.PIPE,
                              timeout=LONG_S, close_fds=False)
        self.assertEqual(done.returncode, 0)
        shown = re.findall(r"^ *print\(.*\) +# (.*)$", text, re.M)
        self.assertGreater(len(shown), 1)
        self.assertEqual(done.stdout.decode().splitlines(), shown)

    def test_every_builtin_of_the_agents_is_on_the_page(self):
        with open(os.path.join(support.SOURCE, "server/agent/function/builtins.c")) as file:
            known = set(re.findall(r'^    \{"([a-z0-9_.]+)"', file.read(), re.M))
        with open(PAGE) as file:
            text = file.read()
        self.assertGreater(len(known), 10)
        self.assertEqual({name for name in known if "`%s`" % name not in text}, set())


if __name__ == "__main__":
    tap.main()
