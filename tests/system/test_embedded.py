"""Goal: a program that launches its coordinator and agent gets them quietly, and leaves nothing behind,
however it ends.

Method: launch_program, a rank on libtutti, in one or two processes; killed with SIGKILL, too; a
temporary folder of their own.
"""

import os
import subprocess
import tempfile
import time
import unittest

import support

PROGRAM = os.path.join(support.BUILD, "tests", "client", "launch_program")
GONE_S = 2  # what tutti/launch.h says, and what a busy machine may add:
BUSY_S = 8


def servers_of(pid):
    """Pids of servers that follow a process."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % name, "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if b"--parent-pid" in words and words[words.index(b"--parent-pid") + 1] == b"%d" % pid:
            found.append(int(name))
    return found


class Embedded(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.environment = dict(os.environ, TMPDIR=self.folder.name, TUTTI_PROGRAMS=support.PROGRAMS)

    def start(self, *words, **changes):
        environment = {**self.environment, **changes}
        process = subprocess.Popen(
            [PROGRAM, *map(str, words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
            env={name: value for name, value in environment.items() if value is not None},
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def pair(self):
        first = self.start(0, 2)
        address = first.stdout.readline().strip()
        second = self.start(1, 2, address)
        self.assertEqual(second.stdout.readline().strip(), address)
        for one in (first, second):
            self.assertEqual(one.stdout.readline(), "2\n")
        return first, second

    def assert_gone(self, *pids):
        began = time.monotonic()
        while any(servers_of(pid) for pid in pids):
            self.assertLess(time.monotonic() - began, GONE_S + BUSY_S)
            time.sleep(0.01)
        return time.monotonic() - began

    def assert_left_nothing(self):
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_two_ranks_sum_and_end_without_a_word(self):
        first, second = self.pair()
        self.assertEqual(len(servers_of(first.pid)), 2)
        self.assertEqual(len(servers_of(second.pid)), 1)
        for one in (second, first):
            self.assertEqual(one.communicate(), ("", ""))
            self.assertEqual(one.returncode, 0)
            self.assertEqual(servers_of(one.pid), [])
        self.assert_left_nothing()

    def test_all_at_once_end_without_a_word(self):
        both = self.pair()
        for one in both:
            one.stdin.close()
        for one in both:
            self.assertEqual(one.wait(60), 0)
            self.assertEqual((one.stdout.read(), one.stderr.read()), ("", ""))
            one.stdin = None
        self.assert_gone(*[one.pid for one in both])
        self.assert_left_nothing()

    def test_killed_programs_leave_nothing(self):
        both = self.pair()
        for one in both:
            one.kill()
        took = self.assert_gone(*[one.pid for one in both])
        print("# gone after %.2f s" % took)
        for one in both:
            self.assertEqual(one.communicate(), ("", ""))
        self.assert_left_nothing()

    def test_one_killed_program_leaves_the_other_ones_servers(self):
        first, second = self.pair()
        second.kill()
        self.assert_gone(second.pid)
        self.assertEqual(len(servers_of(first.pid)), 2)
        self.assertEqual(first.communicate(), ("", ""))
        self.assert_left_nothing()

    def test_an_agent_brings_its_coordinator_and_both_go_with_the_parent(self):
        parent = subprocess.Popen(["sleep", "1000"])
        self.addCleanup(parent.kill)
        agent = subprocess.Popen(
            [os.path.join(support.PROGRAMS, "tutti-agent"), "--with-coordinator", "--world-size", "1",
             "--parent-pid", str(parent.pid), "--log", "warn"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.addCleanup(agent.kill)
        until = time.monotonic() + 60
        while not servers_of(agent.pid):  # the coordinator follows the agent
            self.assertLess(time.monotonic(), until)
            self.assertIsNone(agent.poll())
        parent.kill()
        parent.wait()
        self.assertEqual(agent.communicate(timeout=60)[0], "")
        self.assert_gone(agent.pid, parent.pid)

    def test_what_is_missing_is_said_by_name(self):
        cases = [
            ({"TUTTI_PROGRAMS": "/nowhere"}, (0, 1),
             "NO_PROGRAM: there is no program tutti-coordinator in /nowhere ($TUTTI_PROGRAMS)"),
            ({}, (3, 2), "RANK_RANGE: rank 3 in a world of 2"),
            ({}, (0, 0), "RANK_RANGE: rank 0 in a world of 0"),
            ({"TUTTI_MEMORY_LIMIT": "much"}, (0, 1), "ended before it listened"),
        ]
        for changes, words, text in cases:
            one = self.start(*words, **changes)
            out = one.communicate()[0]
            self.assertEqual(one.returncode, 1)
            self.assertIn(text, out)
            self.assertEqual(servers_of(one.pid), [])
        self.assert_left_nothing()


if __name__ == "__main__":
    support.main()
