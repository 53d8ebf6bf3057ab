"""Goal: the coordinator's status page shows a job as it is, live and to nobody it is not for.
Method: a real coordinator and agents; what the page reads (/state, /ranks, /events), by plain HTTP.
"""

import http.client
import json
import os
import re
import signal
import tempfile
import time
import unittest

import support
import numpy as np
from cluster_case import LONG_S, Cluster, collectives, inline, types

from coordinator_case import Agent as Fake


def all_reduce(agent, array):
    request = collectives.AllReduceRequest(
        input=inline(array), reduce_op=types.REDUCE_OP_SUM, payload=array.tobytes()
    )
    return agent.ops.AllReduce.future(request, timeout=LONG_S)


def ask(address, path, method="GET", **headers):
    connection = http.client.HTTPConnection(address, timeout=support.CALL_S)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()
    finally:
        connection.close()


class Events:
    """The stream of /events."""

    def __init__(self, address, query=""):
        self.connection = http.client.HTTPConnection(address, timeout=support.CALL_S)
        self.connection.request("GET", "/events" + query)
        self.answer = self.connection.getresponse()

    def next(self):
        while True:
            line = self.answer.readline()
            assert line, "the stream has ended"
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def until(self, check):
        until = time.monotonic() + LONG_S
        while True:
            state = self.next()
            if check(state):
                return state
            assert time.monotonic() < until, state

    def close(self):
        self.connection.close()


class PageCase(unittest.TestCase):
    coordinator_options = ("--heartbeat-interval", "100ms", "--lost-grace", "100ms")

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-page-")
        self.addCleanup(self.folder.cleanup)

    def options(self, *more):
        self.path = os.path.join(self.folder.name, "metrics")
        return ("--metrics=127.0.0.1:0", "--metrics-port-file=" + self.path, *self.coordinator_options, *more)

    @property
    def address(self):
        with open(self.path) as file:
            return file.read().strip()

    def json(self, path):
        status, headers, body = ask(self.address, path)
        self.assertEqual((status, headers["Content-Type"]), (200, "application/json; charset=utf-8"))
        return json.loads(body)

    def follow(self, query=""):
        events = Events(self.address, query)
        self.addCleanup(events.close)
        return events


class Page(PageCase):
    def reduce(self, cluster, array):
        for call in [all_reduce(agent, array) for agent in cluster.agents]:
            call.result(LONG_S)

    def test_a_job_is_shown_as_it_is(self):
        cluster = Cluster(2, coordinator_options=self.options())
        self.addCleanup(cluster.kill)
        state = self.json("/state")
        self.assertEqual((state["jobs"], state["states"]), (["default"], "aa"))
        self.assertEqual((state["job"]["alive"], state["job"]["world_size"]), (2, 2))
        self.assertEqual([(one["name"], one["size"]) for one in state["groups"]], [("world", 2)])
        self.assertIn("job default: formed with 2 ranks", [note["text"] for note in state["notes"]])
        ranks = self.json("/ranks")["ranks"]
        self.assertEqual([one["rank"] for one in ranks], [0, 1])
        self.assertEqual({one["pid"] for one in ranks}, {agent.program.process.pid for agent in cluster.agents})
        self.assertEqual(self.json("/ranks?first=1")["ranks"], ranks[1:])
        self.assertEqual(self.json("/ranks?first=2")["ranks"], [])
        events = self.follow()
        events.next()
        array = np.arange(256, dtype=np.float32)
        self.reduce(cluster, array)
        events.until(lambda state: all(one["ops"] >= 1 for one in self.json("/ranks")["ranks"]))
        before = self.json("/state")["job"]
        self.reduce(cluster, array)
        # Heartbeats tell of it: an op of two ranks, of 1 KiB each.
        now = events.until(lambda state: state["job"]["ops"] >= before["ops"] + 2)["job"]
        self.assertGreaterEqual(now["bytes"], before["bytes"] + 2048)
        cluster.agents[1].program.send(signal.SIGKILL)
        state = events.until(lambda state: state["states"] == "al")
        self.assertEqual((state["job"]["alive"], state["job"]["lost"]), (1, 1))
        self.assertTrue(any("rank 1 on host" in note["text"] for note in state["notes"]))
        self.assertNotEqual(self.json("/ranks")["ranks"][1]["reason"], "")

    def test_an_op_that_waits_is_a_stall_in_words(self):
        cluster = Cluster(2, coordinator_options=self.options())
        self.addCleanup(cluster.kill)
        array = np.arange(4, dtype=np.float32)
        first = all_reduce(cluster.agents[0], array)
        state = self.follow().until(lambda state: state["stalls"])
        self.assertIn("1 of 2 ranks are in it", state["stalls"][0])
        self.assertIn("all_reduce(sum, FP32[4])", state["stalls"][0])
        all_reduce(cluster.agents[1], array).result(LONG_S)
        first.result(LONG_S)
        self.follow().until(lambda state: not state["stalls"])

    def test_texts_of_others_are_data(self):
        program = support.Program("tutti-coordinator", *self.options())
        self.addCleanup(program.kill)
        name = '</script><b>"\\'
        fake = Fake(program, 0, 77, 1, host=name)
        fake.joined()
        self.addCleanup(fake.channel.close)
        self.assertEqual(self.json("/ranks")["ranks"][0]["host"], name)
        self.assertIsNone(self.json("/state?job=" + 200 * "x")["job"])
        self.assertIsNone(self.json("/state?job=%3Cb%3E")["job"])
        self.assertEqual(self.json("/ranks?first=99999999999999999999")["ranks"], [])

    def test_it_is_read_only_and_of_this_machine(self):
        program = support.Program("tutti-coordinator", *self.options())
        self.addCleanup(program.kill)
        for path in ("/", "/state", "/ranks", "/events"):
            self.assertEqual(ask(self.address, path, "POST")[0], 405)
            self.assertEqual(ask(self.address, path, Host="evil.example")[0], 403)
            self.assertEqual(ask(self.address, path, Host="evil.example:80")[0], 403)
        for host in ("localhost", "127.0.0.1:9", "[::1]:9"):
            self.assertEqual(ask(self.address, "/", Host=host)[0], 200)
        self.assertEqual(ask(self.address, "/metrics", Host="evil.example")[0], 200)  # as ever: numbers alone
        self.assertEqual(ask(self.address, "/else")[0], 404)

    def test_it_may_be_opened_to_others_or_left_out(self):
        opened = support.Program("tutti-coordinator", *self.options("--metrics-open"))
        self.assertEqual(ask(self.address, "/state", Host="coordinator.example")[0], 200)
        opened.stop()
        closed = support.Program("tutti-coordinator", *self.options("--metrics-page=false"))
        self.assertEqual([ask(self.address, path)[0] for path in ("/", "/state", "/metrics")], [404, 404, 200])
        closed.stop()

    def test_the_page_loads_nothing_else(self):
        program = support.Program("tutti-coordinator", *self.options())
        self.addCleanup(program.kill)
        status, headers, body = ask(self.address, "/")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        text = body.decode()
        self.assertEqual(re.findall(r"https?://|@import|<script src|innerHTML|document\.write|eval\(", text), [])

    def test_a_watcher_does_not_hold_the_end_up(self):
        program = support.Program("tutti-coordinator", *self.options())
        events = [self.follow() for _ in range(40)]  # more than there are connections: the first have gone
        events[-1].next()
        self.assertEqual(ask(self.address, "/healthz")[0], 200)
        self.assertEqual(program.stop(), 0)


if __name__ == "__main__":
    support.main()
