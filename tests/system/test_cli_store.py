"""Goal: `tutti store` and `tutti init` do what the store and init addresses promise, so libtutti does.
Method: the command against a real coordinator and a real agent of one rank.
"""

import json
import os
import pty
import subprocess

import cli_case
import support
from cli_case import TUTTI, Case, environment, file_path, work


class StoreCase(Case):
    @classmethod
    def setUpClass(cls):
        cls.coordinator = support.Program("tutti-coordinator")
        cls.address = cls.coordinator.addresses[0]

    @classmethod
    def tearDownClass(cls):
        cls.coordinator.stop()

    def setUp(self):
        job = self.id().split(".")[-1]
        self.variables = {"TUTTI_COORDINATOR": self.address, "TUTTI_JOB": job}

    def store(self, *words, **more):
        return self.well("store", *words, **self.variables, **more).text

    def store_json(self, *words):
        return self.json("store", *words, **self.variables)

    def store_fails(self, *words, texts=(), **more):
        return self.fails(("store", *words), *texts, **self.variables, **more)


class Store(StoreCase):
    def test_values_grow_and_go_together(self):
        self.store("set", "foo", "po")
        self.assertEqual(self.store("append", "foo", "-", stdin=b"tato"), "6\n")
        self.store("multi-set", "a", "c", "b", "d")
        self.assertEqual(self.store("multi-get", "foo", "a", "b"), "potato\nc\nd\n")
        self.assertEqual(
            self.store_json("multi-get", "a"), {"keys": [{"key": "a", "value": "c"}]}
        )
        self.assertEqual(self.store("count"), "3\n")
        self.assertEqual(self.store_json("check", "a", "foo")["all_exist"], True)
        self.store_fails("check", "a", "x", texts=("x: there is no such key",))
        self.store_fails("multi-get", "a", "x", "--no-wait", texts=('keys are not there: "x"',))
        self.store_fails("multi-set", "a", "b", "c", texts=("a value for every key",), code=2)

    def test_queues_and_taking(self):
        self.assertEqual(self.store("push", "q", "1"), "1\n")
        self.assertEqual(self.store("push", "q", "2"), "2\n")
        self.assertEqual(self.store_json("len", "q")["length"], 2)
        self.assertEqual(self.store("pop", "q"), "1\n")
        self.assertEqual(self.store("pop", "q", "--raw"), "2")
        self.store_fails("pop", "q", "--no-wait", texts=('queue "q"', "is empty"))
        self.store_fails("pop", "q", "-t", "100ms", texts=("nothing came",))
        self.store("set", "k", "v")
        self.assertEqual(self.store_json("take", "k"), {"key": "k", "value": "v"})
        self.store_fails("take", "k", "--no-wait", texts=('no key "k"',))

    def test_a_prefix_is_part_of_the_keys(self):
        self.store("set", "foo", "bar", "--prefix", "p")
        self.assertEqual(self.store("get", "p/foo"), "bar\n")
        self.assertEqual(self.store("get", "foo", "--prefix", "p"), "bar\n")
        self.store_fails("check", "foo", texts=("no such key",))
        self.store("set", "x", "1", "--prefix", "p/q")
        self.assertEqual(self.store("get", "p/q/x"), "1\n")
        self.store("wait", "x", "--prefix", "p/q")
        self.assertEqual(self.store("count", "--prefix", "p"), "2\n")
        self.store_fails("get", "foo", "--prefix", "", texts=("without a prefix",))

    def test_callers_meet(self):
        words = ("--json", "store", "meet", "k", "-n", "2", "--name", "b", "--root")
        first = cli_case.start(*words, **self.variables)
        second = self.store_json("meet", "k", "-n", "2", "--name", "a")
        out = first.communicate(timeout=support.CALL_S)[0]
        self.assertEqual(first.returncode, 0)
        self.assertIn(b'"group_rank": 1', out)
        self.assertEqual((second["group_rank"], second["root_rank"]), (0, 1))
        self.store_fails(
            "meet", "k", "-n", "3", "-t", "100ms", texts=("2 of 3 callers did not come",)
        )


def on_terminal(*words, **variables):
    """What the command writes to a terminal."""
    ours, theirs = pty.openpty()
    try:
        done = subprocess.run([TUTTI, *words], stdin=subprocess.DEVNULL, stdout=theirs, cwd=work.name,
                              env=environment(**variables), timeout=support.START_S, close_fds=False)
        assert done.returncode == 0, done
        os.write(theirs, b"\0")  # behind all that it has written
        said = b""
        while not said.endswith(b"\0"):
            said += os.read(ours, 65536)
        return said[:-1].decode()
    finally:
        os.close(ours)
        os.close(theirs)


class Terminals(StoreCase):
    def test_keys_and_values_do_not_steer_a_terminal(self):
        evil = "\x1b[2J\x9b31m\u202e\u00e4"
        shown = "\\x1b[2J\\xc2\\x9b31m\\xe2\\x80\\xae\u00e4"
        self.store("set", evil, evil)
        listed = self.store("list")
        self.assertEqual(listed.count(shown), 2, listed)
        self.assertEqual(self.store("get", evil), evil + "\n")  # a program gets what it is
        words = on_terminal("store", "get", evil, **self.variables)
        self.assertEqual(words.strip(), shown)
        raw = on_terminal("store", "get", evil, "--raw", **self.variables)
        self.assertEqual(raw.strip(), evil)
        words = on_terminal("--json", "store", "get", evil, **self.variables)
        self.assertTrue(words.replace("\r", "").replace("\n", "").isprintable(), words)
        self.assertEqual(json.loads(words)["value"], evil)


class Init(StoreCase):
    def test_an_address_is_shown(self):
        url = "tcp://%s?rank=0&world_size=4" % self.address
        self.assertEqual(
            self.json("init", url),
            {"scheme": "tcp", "rank": 0, "world_size": 4, "coordinator": self.address},
        )
        host, port = self.address.rsplit(":", 1)
        shown = self.json(
            "init", "env://?rank=1", RANK="0", WORLD_SIZE="2", MASTER_ADDR=host, MASTER_PORT=port
        )
        self.assertEqual((shown["rank"], shown["world_size"]), (1, 2))
        self.assertEqual(shown["coordinator"], self.address)

    def test_a_bad_address_says_what_is_missing(self):
        for url, words in (
            ("tcp://127.0.0.1?rank=0&world_size=1", "port number missing"),
            ("tcp://127.0.0.1:23456?world_size=1", "rank parameter missing"),
            ("file:///tmp/foo?rank=0", "world size parameter missing"),
            ("invalid://", "known are env://, tcp://, file://"),
        ):
            self.fails(("init", url), words, code=2)
            done = cli_case.tutti("--json", "init", url)
            self.assertEqual(done.json["error"]["reason"], "BAD_URL")
        done = cli_case.tutti("init", "env://", RANK=None, MASTER_ADDR="h", MASTER_PORT="1")
        self.assertIn("environment variable RANK expected, but not set", done.err)

    def test_an_agent_and_its_client_meet_by_a_file(self):
        path = file_path("meeting")
        url = "file://%s?rank=0&world_size=1" % path
        job = self.variables["TUTTI_JOB"]
        waiting = cli_case.start("status", "--agent", url, "-t", "20s", TUTTI_JOB=job)
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(self.address + "\n")
        os.rename(path + ".new", path)
        agent = support.Program("tutti-agent", "--coordinator", url, "--job", job)
        out, err = waiting.communicate(timeout=support.CALL_S)
        self.assertEqual((waiting.returncode, err), (0, b""))
        self.assertIn(b"1 of 1 ranks alive", out)
        self.fails(
            ("status", "--agent", url.replace("size=1", "size=2")),
            "the init address says 2 ranks",
            TUTTI_JOB=job,
        )
        agent.stop()


if __name__ == "__main__":
    support.main()
