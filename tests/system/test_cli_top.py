#!/usr/bin/python3
"""Goal: `tutti top` shows the job in a terminal, follows its size, moves through ranks, ends with q and gives the terminal
back; without one it shows all of it once. Method: the command in a pseudo terminal, beside a local cluster.
"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time

import cli_case
import support
from cli_case import ClusterCase, RANKS, TUTTI, environment, tutti

BEGIN_PAGE, END_PAGE = b"\033[?1049h", b"\033[?1049l"


class Terminal:
    """The command in a terminal of its own; pages are what it has drawn, each a list of lines without codes."""

    def __init__(self, *words, lines=30, columns=100):
        self.bytes = b""
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            os.chdir(cli_case.work.name)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            os.execvpe(TUTTI, [TUTTI, *words], environment(TERM="xterm"))
        self.before = termios.tcgetattr(self.master)[3]

    def resize(self, lines, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def send(self, keys):
        os.write(self.master, keys)

    def read(self):
        ready, _, _ = select.select([self.master], [], [], 0.2)
        try:
            more = os.read(self.master, 65536) if ready else b""
        except OSError:
            return False  # it has ended
        self.bytes += more
        return True

    def pages(self):
        drawn = self.bytes.split(b"\033[H")[1:]
        whole = [page.split(b"\033[J")[0] for page in drawn if b"\033[J" in page]
        return [re.sub(r"\033\[[0-9;]*[mK]", "", page.decode()).split("\r\n") for page in whole]

    def wait(self, fits):
        """Until a page fits; that page."""
        until = time.monotonic() + support.START_S
        seen = 0
        while True:
            pages = self.pages()
            for page in pages[seen:]:
                if fits(page):
                    self.bytes = b""  # what comes is another page
                    return page
            seen = len(pages)
            assert time.monotonic() < until and self.read(), "no such page: %r" % self.bytes[-3000:]

    def end(self):
        """Its exit code, when it ends by itself."""
        until = time.monotonic() + support.STOP_S
        while self.read():
            assert time.monotonic() < until, "it does not end"
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.master)
        return code


def has_ranks(page):
    return any(line.startswith("RANK") for line in page)


class Top(ClusterCase):
    def shown(self, page):
        """Numbers of the ranks of a page."""
        at = next(i for i, line in enumerate(page) if line.startswith("RANK"))
        return [int(line.split()[0]) for line in page[at + 1:] if re.match(r" *\d+ +(alive|lost|free|waiting|leaving) ", line)]

    def test_it_follows_the_size_and_ends_with_q(self):
        top = Terminal("top", "--interval", "200ms")
        page = top.wait(has_ranks)
        self.assertIn("%d of %d ranks alive, 0 lost" % (RANKS, RANKS), page[0])
        self.assertEqual(self.shown(page), list(range(RANKS)))
        self.assertTrue(any(line.startswith("groups (1): world [%d]" % RANKS) for line in page))
        self.assertFalse(termios.tcgetattr(top.master)[3] & termios.ECHO)
        top.resize(8, 40)
        page = top.wait(lambda page: has_ranks(page) and max(map(len, page)) <= 40)
        self.assertLessEqual(len(page), 8)
        self.assertLess(len(self.shown(page)), RANKS)
        self.assertEqual(self.shown(page)[0], 0)
        top.send(b"j")
        self.assertEqual(self.shown(top.wait(lambda page: has_ranks(page) and 0 not in self.shown(page)))[0], 1)
        top.send(b"\033[A")
        top.wait(lambda page: has_ranks(page) and 0 in self.shown(page))
        top.send(b"q")
        top.bytes = b""
        self.assertEqual(top.end(), 0)
        self.assertIn(END_PAGE, top.bytes)

    def test_the_key_s_sorts(self):
        top = Terminal("top", "--interval", "200ms")
        top.wait(lambda page: has_ranks(page) and "s sorts (now by rank)" in page[-1])
        for order in ("state", "host", "ops/s", "bytes/s", "ops", "rank"):
            top.send(b"s")
            page = top.wait(lambda page: has_ranks(page) and "s sorts (now by %s)" % order in page[-1])
            self.assertEqual(sorted(self.shown(page)), list(range(RANKS)))
        top.send(b"q")
        self.assertEqual(top.end(), 0)

    def test_a_signal_gives_the_terminal_back(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            top = Terminal("top")
            top.wait(has_ranks)
            os.kill(top.pid, number)
            self.assertEqual(top.end(), 0)
            self.assertIn(END_PAGE, top.bytes)
        top = Terminal("top", "-t", "1s", "--interval", "100ms")
        top.wait(has_ranks)
        self.assertEqual(top.end(), 0)

    def test_a_lost_rank_and_its_event_appear(self):
        self.well("cluster", "start", "-n", "2", "--name", "lossy")
        try:
            top = Terminal("top", "--cluster", "lossy", "--interval", "200ms")
            top.wait(has_ranks)
            agents = self.json("cluster", "status", "--name", "lossy")["agents"]
            os.kill(agents[1]["pid"], signal.SIGKILL)
            top.wait(lambda page: any(re.match(r" *1 +lost ", line) for line in page))
            top.wait(lambda page: "1 of 2 ranks alive, 1 lost" in page[0])  # it asks for the job and the ranks one after the other
            top.wait(lambda page: any("rank 1 lost" in line for line in page))
            top.send(b"q")
            self.assertEqual(top.end(), 0)
        finally:
            tutti("cluster", "stop", "--name", "lossy")

    def test_it_goes_on_while_the_coordinator_is_away(self):
        coordinator = support.Program("tutti-coordinator")
        agent = support.Program("tutti-agent", "--coordinator", coordinator.address, "--world-size", "1",
                                "--memory-limit", "16MiB")
        try:
            agent.wait_for_log("joined")
            top = Terminal("top", "--coordinator", coordinator.address, "--interval", "200ms")
            top.wait(has_ranks)
            coordinator.kill()
            top.wait(lambda page: coordinator.address in page[2])
            top.send(b"q")
            self.assertEqual(top.end(), 0)
        finally:
            agent.kill()

    def test_without_a_terminal_it_is_shown_once(self):
        text = self.well("top", "--interval", "100ms").text
        self.assertEqual(self.shown(text.splitlines()), list(range(RANKS)))
        self.assertNotIn("\033", text)
        found = self.json("top", "--interval", "100ms")
        self.assertEqual([one["state"] for one in found["ranks"]], ["alive"] * RANKS)
        self.assertEqual((found["alive"], found["lost"], found["stalls"]), (RANKS, 0, []))
        self.assertEqual([one["name"] for one in found["groups"]], ["world"])
        self.assertEqual(found["events"], [])
        self.fails(("top", "--sort", "size"), "need rank, state, host, ops/s, bytes/s or ops", code=2)
        self.fails(("top", "--interval", "1ms"), "need a time from 100ms to 1h", code=2)
        self.fails(("top", "--coordinator", "127.0.0.1:1", "--job", "none"))

    def test_ops_and_bytes_are_counted(self):
        for _ in range(3):
            self.well("barrier")
        until = time.monotonic() + support.START_S
        while True:
            found = self.json("top", "--interval", "100ms")
            if found["ops"] >= 3 * RANKS:
                break
            self.assertLess(time.monotonic(), until)  # heartbeats tell of it
        self.assertTrue(all(one["ops"] >= 3 for one in found["ranks"]))


if __name__ == "__main__":
    support.main()
