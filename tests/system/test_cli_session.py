#!/usr/bin/python3
"""Goal: people drive all agents of a group with `tutti session`, by script and at a prompt, and call
functions, exchange metadata, and see jobs and capabilities.

Method: the program itself on a cluster of four agents; the prompt is typed at through a
pseudo-terminal.
"""

import json
import os
import pty
import select
import subprocess
import threading

import support
from cli_case import RANKS, ClusterCase, environment, file_path, tutti

import numpy as np

PROGRAM = os.path.join(support.BUILD, "tutti")


class Typing:
    """A person at a terminal: what is typed, and what is seen."""

    def __init__(self, test, *words, home):
        master, slave = pty.openpty()
        env = environment(TERM="xterm", HOME=home, XDG_STATE_HOME=os.path.join(home, "state"))
        self.test = test
        self.master = master
        self.seen = ""
        self.process = subprocess.Popen(
            [PROGRAM, "session", *words], stdin=slave, stdout=slave, stderr=slave, env=env,
            start_new_session=True,
        )
        os.close(slave)

    def wait(self, text):
        """All that is seen up to a text that is still to come."""
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], support.START_S)
            self.test.assertTrue(ready, "never saw %r in %r" % (text, self.seen))
            try:
                self.seen += os.read(self.master, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                self.test.fail("ended without %r: %r" % (text, self.seen))
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, text):
        os.write(self.master, text.encode())

    def leave(self):
        """Ctrl-U and Ctrl-D until they are heard: before the prompt is the editor's, the terminal swallows them, or
        puts them into the next line."""
        for _ in range(support.START_S):
            self.type("\x15\x04")
            try:
                self.process.wait(timeout=1)
                break
            except subprocess.TimeoutExpired:
                continue
        return self.end()

    def end(self):
        code = self.process.wait(timeout=support.START_S)
        os.close(self.master)
        return code


class TestScripts(ClusterCase):
    def script(self, text, *words):
        path = file_path("script.tutti")
        with open(path, "w") as file:
            file.write(text)
        try:
            return tutti("session", path, *words)
        finally:
            os.unlink(path)

    def test_session__runs_a_file_of_lines(self):
        x = self.save("x.npy", np.arange(8, dtype=np.float32).reshape(RANKS, 2))
        done = self.script(
            f"""# every worker gets the file of worker 0
x = put {x}
x = broadcast_from_worker0 x
sum = all_reduce x op=sum   # all of them
part = scatter_from_worker0 x
read sum {file_path('sum.npy')} worker=3
show part workers=1-2
n = set 3; get n
drop x part
registers
""")
        self.assertEqual((done.code, done.err), (0, ""), done)
        self.assert_same(self.load("sum.npy"), np.arange(8, dtype=np.float32).reshape(4, 2) * RANKS)
        os.unlink(file_path("sum.npy"))
        lines = done.text.splitlines()
        self.assertEqual(lines[0], "worker 1  FP32[2]  2 3")
        self.assertEqual(lines[1], "worker 2  FP32[2]  4 5")
        self.assertEqual(lines[2:6], ["worker %d  3" % worker for worker in range(RANKS)])
        self.assertEqual([line.split()[0] for line in lines[6:]], ["sum", "n"])

    def test_session__stops_at_the_line_that_fails(self):
        text = "x = empty FP32[2]\ny = copy z\nw = set 1\n"
        done = self.script(text + "get w\n")
        self.assertEqual(done.code, 1)
        self.assertIn('line 2: copy: nothing is called "z"', done.err)
        self.assertEqual(done.text, "")
        done = self.script(text + "get w\n", "--keep-going")
        self.assertEqual(done.code, 1)
        self.assertIn("worker 3  1", done.text)

    def test_session__names_workers_that_failed(self):
        lines = "x = empty INT32[3] workers=0-1; y = copy x"
        done = tutti("session", "-e", lines, "--json")
        self.assertEqual(done.code, 1)
        self.assertIn("(on workers 2-3)", done.err)
        answers = [json.loads(line) for line in done.text.splitlines()]
        self.assertEqual([answer["command"] for answer in answers], ["empty", "copy"])
        self.assertEqual(answers[0]["register"], 1)
        self.assertEqual([one["worker"] for one in answers[1]["failed"]], [2, 3])

    def test_session__says_what_is_wrong_with_a_line(self):
        for line, words in [
            ("x = all_redcue y", "did you mean all_reduce?"),
            ("x = empty FP32[2", "a bracket is not closed"),
            ("x = empty FP99[2]", "is no dtype with a shape"),
            ("empty FP32[2]", "give the result a name: x = empty DTYPE[DIMS]"),
            ("x = empty", "words are missing: write empty DTYPE[DIMS]"),
            ("x = sync", 'sync has no result for "x"'),
            ("1x = set 1", '"1x" is no name'),
            ("x = set 'one", "a quote (') is not closed"),
            ("x =", 'no command behind "x ="'),
            ("x = set 1; y = all_reduce x op=mul", "need sum, prod, min, max or avg"),
            ("x = put nowhere.npy", "nowhere.npy: could not open it"),
            ("x = empty FP32[2] workers=9", "worker 9"),
        ]:
            done = tutti("session", "-e", line)
            self.assertEqual(done.code, 1, line)
            self.assertIn(words, done.err)

    def test_session__of_groups_sends_to_the_next(self):
        lines = ("x = empty FP32[2]; s = all_reduce x in_group op=max; send_to_next_group x; "
                 "y = recv_from_prev_group; show y workers=2-3; sync")
        done = tutti("session", "-e", lines, "--num-groups", "2")
        self.assertEqual((done.code, done.err), (0, ""))
        self.assertEqual(done.text.splitlines(),
                         ["worker 2  FP32[2]  0 0", "worker 3  FP32[2]  0 0"])
        done = tutti("session", "-e", "workers", "--num-groups", "3")
        self.assertEqual(done.code, 1)
        self.assertIn("3 groups of the 4 ranks", done.err)

    def test_session__calls_functions_on_workers(self):
        lines = ("id = get_function runtime.disco.worker_id; call id; "
                 "call runtime.disco.world_size workers=1; r = call id; get r; call nobody")
        done = tutti("session", "-e", lines, "--rank", "2")
        self.assertEqual(done.code, 1)
        lines = done.text.splitlines()
        ids = ["worker %d  %d" % (worker, worker) for worker in range(RANKS)]
        self.assertEqual(lines, ids + ["worker 1  4"] + ids)
        self.assertIn('no function is called "nobody"', done.err)


class TestLinger(ClusterCase):
    """Sessions that stay when the command ends, and are resumed by another one."""

    def setUp(self):
        super().setUp()
        self.ticket = file_path("kept.ticket")
        self.addCleanup(lambda: os.path.exists(self.ticket) and os.unlink(self.ticket))

    def keep(self, lines, *words):
        return tutti("session", "-e", lines, "--linger", "30s", "--ticket", self.ticket, *words)

    def write_ticket(self, text):
        with open(os.open(self.ticket, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)

    def test_session__that_lingers_is_resumed_with_its_names(self):
        done = self.keep("x = empty FP32[2]; n = set 7; y = copy x; drop y")
        self.assertEqual((done.code, done.text), (0, ""), done)
        self.assertIn("lingers for 30 s; go on with: tutti session --resume " + self.ticket, done.err)
        self.assertEqual(os.stat(self.ticket).st_mode & 0o777, 0o600)
        with open(self.ticket) as file:
            lines = file.read().splitlines()
        self.assertRegex(lines[0], r"^[0-9a-f]{16}\.[0-9a-f]{32}$")
        self.assertEqual([line.split()[0] for line in lines[1:]], ["x", "n"])
        self.assertNotIn(lines[0].split(".")[1], done.err)  # the secret is in the file alone
        done = tutti("session", "-e", "get n workers=1; z = copy x", "--resume", self.ticket, "--linger", "20s",
                     "--rank", "2")
        self.assertEqual((done.code, done.text), (0, "worker 1  7\n"), done)
        done = tutti("session", "-e", "show z workers=3; new = set 1; get n workers=0", "--resume", self.ticket)
        self.assertEqual((done.code, done.err), (0, ""), done)
        self.assertEqual(done.text.splitlines(), ["worker 3  FP32[2]  0 0", "worker 0  7"])
        self.assertFalse(os.path.exists(self.ticket))  # it has ended

    def test_session__that_is_over_is_not_resumed(self):
        self.assertEqual(self.keep("x = set 1").code, 0)
        with open(self.ticket) as file:
            text = file.read()
        self.assertEqual(tutti("session", "-e", "get x", "--resume", self.ticket).code, 0)
        self.write_ticket(text)
        done = tutti("session", "-e", "get x", "--resume", self.ticket)
        self.assertEqual(done.code, 1)
        self.assertIn("it is over", done.err)

    def test_session__that_was_killed_is_resumed(self):
        process = subprocess.Popen(
            [PROGRAM, "session", "--linger", "30s", "--ticket", self.ticket], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env=environment())
        process.stdin.write(b"x = set 5\nget x workers=0\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), b"worker 0  5\n")
        process.kill()
        process.communicate()
        done = tutti("session", "-e", "get x workers=3", "--resume", self.ticket)
        self.assertEqual((done.code, done.text), (0, "worker 3  5\n"), done)

    def test_session__says_what_is_wrong_with_a_ticket(self):
        self.write_ticket("7f3a.00\n")
        os.chmod(self.ticket, 0o644)
        for words, code, said in [
            (["--resume", self.ticket], 1, "can be read by others"),
            (["--resume", "nowhere"], 1, "could not open nowhere"),
            (["--linger", "soon"], 2, '--linger takes a time, 30s or 5m, and not "soon"'),
            (["--linger", "2h"], 1, "--session-linger"),
            (["--ticket", self.ticket], 2, "give --linger"),
            (["--resume", self.ticket, "--num-groups", "2"], 2, "has its own"),
        ]:
            done = tutti("session", "-e", "registers", *words)
            self.assertEqual(done.code, code, done)
            self.assertIn(said, done.err)
        os.chmod(self.ticket, 0o600)
        ticket = "7f3a9c12e4b07d55.00112233445566778899aabbccddeeff\n"
        for text, said in [
            ("7f3a.00\n", "is no ticket of a session"),
            ("", "is no ticket of a session"),
            (ticket + "x one\n", '"x one'),
            (ticket + "x 1\nx 2\n", '"x 2'),
            (ticket, "session 7f3a9c12e4b07d55 cannot be resumed"),
        ]:
            self.write_ticket(text)
            done = tutti("session", "-e", "workers", "--resume", self.ticket)
            self.assertEqual(done.code, 1)
            self.assertIn(said, done.err)

    def test_session__without_a_ticket_named_keeps_it_among_the_state(self):
        home = file_path("state")
        os.makedirs(home, exist_ok=True)
        done = subprocess.run(
            [PROGRAM, "session", "-e", "x = set 1", "--linger", "10s"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment(XDG_STATE_HOME=home))
        self.assertEqual(done.returncode, 0, done)
        path = done.stderr.decode().split("--resume ")[1].strip()
        self.assertTrue(path.startswith(os.path.join(home, "tutti", "session-")), path)
        self.assertEqual(tutti("session", "-e", "get x", "--resume", path).code, 0)


class TestPrompt(ClusterCase):
    def setUp(self):
        super().setUp()
        self.home = file_path("home")
        os.makedirs(self.home, exist_ok=True)

    def test_prompt__goes_on_behind_errors_and_remembers_lines(self):
        typing = Typing(self, home=self.home)
        typing.wait("4 workers)> ")
        typing.type("y = copy x\n")
        typing.wait('nothing is called "x"')
        typing.type("x = empty FP32[2]\n")
        typing.wait("> ")
        typing.type("show x workers=0\n")
        typing.wait("worker 0  FP32[2]  0 0")
        typing.wait("> ")
        typing.type("quit\n")
        self.assertEqual(typing.end(), 0)
        if not linked_with_libedit():
            self.skipTest("built without libedit")
        path = os.path.join(self.home, "state", "tutti", "session_history")
        with open(path) as file:
            self.assertIn("show\\040x", file.read())
        again = Typing(self, home=self.home)
        again.wait("> ")
        again.type("x = empty FP32[2]\n")
        again.wait("\n")
        again.wait("> ")
        again.type("\x1b[A\x1b[A\x1b[A\n")  # up: the line above, quit, show
        again.wait("worker 0  FP32[2]  0 0")
        self.assertEqual(again.leave(), 0)
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)

    def test_prompt__completes_commands_names_and_functions(self):
        if not linked_with_libedit():
            self.skipTest("built without libedit")
        typing = Typing(self, home=self.home)
        typing.wait("> ")
        typing.type("weights = emp\tFP32[2]\n")
        typing.wait("> ")
        typing.type("show wei\tworkers=1\n")
        typing.wait("worker 1  FP32[2]  0 0")
        typing.type("call runtime.disco.worker_i\t\n")
        typing.wait("worker 3  3")
        self.assertEqual(typing.leave(), 0)


def linked_with_libedit():
    return b"libedit.so" in open(PROGRAM, "rb").read()


class TestCalls(ClusterCase):
    def test_call__prints_what_a_function_returns(self):
        self.assertEqual(self.well("call", "runtime.disco.worker_id", "--rank", "3").text, "3\n")
        done = self.json("call", "runtime.disco.world_size")
        self.assertEqual(done["result"], {"kind": "int", "value": RANKS})
        done = tutti("call", "nobody", "1", "[2,3]")
        self.assertEqual(done.code, 1)
        self.assertIn('no function is called "nobody"', done.err)
        done = tutti("call", "f", "dtype:FP99")
        self.assertIn('"FP99": need a dtype', done.err)

    def test_functions__are_listed_with_their_sources(self):
        functions = {one["name"]: one for one in self.json("functions")["functions"]}
        self.assertEqual(functions["runtime.disco.worker_id"]["source"], "builtin")

    def test_jobs_and_capabilities__are_shown(self):
        (job,) = self.json("jobs")["jobs"]
        self.assertEqual((job["world_size"], job["alive"]), (RANKS, RANKS))
        can = {(one["backend"], one["dtype"]): one for one in self.json("capabilities")["capabilities"]}
        self.assertIn("sum", can["host", "FP32"]["reduce_ops"])
        self.assertEqual(can["host", "FP8_E4M3"]["reduce_ops"], [])
        self.assertIn("none: it is moved", self.well("capabilities").text)

    def all_ranks(self, *words):
        done = [None] * RANKS

        def call(rank):
            done[rank] = tutti(*[str(word).format(rank=rank) for word in words],
                                    "--rank", str(rank))

        threads = [threading.Thread(target=call, args=(rank,)) for rank in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return done

    def test_metadata__goes_between_all_members(self):
        for one in self.all_ranks("metadata", "all-gather", "host-{rank}"):
            self.assertEqual(one.text.split(), ["host-%d" % rank for rank in range(RANKS)], one)
        for one in self.all_ranks("metadata", "broadcast", "value-{rank}", "--root", "2", "--json"):
            self.assertEqual(json.loads(one.text), {"value": "value-2"}, one)

    def test_metadata__names_who_did_not_come(self):
        done = tutti("metadata", "all-gather", "x", "--key", "alone", "--rank", "0",
                          "--timeout", "3s")
        self.assertEqual(done.code, 1)
        self.assertIn("missing ranks 1-3", done.err)
        done = tutti("metadata", "broadcast", "x", "--root", "9", "--rank", "0")
        self.assertIn("need a group rank below", done.err)


if __name__ == "__main__":
    support.main()
