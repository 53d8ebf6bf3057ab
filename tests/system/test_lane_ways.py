"""Goal: which way calls go (a lane, or gRPC and why) is told by `tutti status` and `tutti explain` and is true; lanes
end with the token of their stream; 1 000 clients have one each; a client in another network namespace, or of another user,
goes without.

Method: as test_lanes.py; messages that came by lanes are counted by the agents' /metrics.
"""

import json
import os
import resource
import shutil
import subprocess
import tempfile
import time

import support
import tokens
from cluster_case import LONG_S
from lane_case import PROGRAM, Client, LaneCase, Watched

MANY = 1000
PROCESSES = 20  # of one process 100 at most: its clients share a connection, which carries 100 streams
FILES_OF_A_CLIENT = 8  # more than the agent, or the client, has of descriptors for each
OFFER_S = 20
SKEW_S = 30  # of clocks, which a token may be late by


class Ways(LaneCase):
    """What the command says."""

    def tell(self, rank=0, **environment):
        """Of `status` and `explain`: the way, and the reason why it is gRPC."""
        address = self.cluster.agents[rank].program.address
        words = ["tutti", "--agent", address, "--coordinator", self.cluster.coordinator.address, "--no-progress"]
        code, out, err = support.run(*words, "status", "--json", timeout=LONG_S, environment=environment)
        self.assertEqual(code, 0, out + err)
        one = json.loads(out)["ranks"][rank]
        code, out, err = support.run(*words, "explain", "all_reduce", "--json", timeout=LONG_S, environment=environment)
        self.assertEqual(code, 0, out + err)
        why = json.loads(out)
        self.assertEqual((one["calls"], one.get("no_lane")), (why["calls"], why.get("no_lane")))
        code, text, err = support.run(*words, "status", timeout=LONG_S, environment=environment)
        self.assertEqual(code, 0, text + err)
        code, said, err = support.run(*words, "explain", "all_reduce", timeout=LONG_S, environment=environment)
        self.assertEqual(code, 0, said + err)
        reason = one["no_lane"]["reason"] if "no_lane" in one else ""
        self.assertIn("gRPC (%s)" % reason if reason else " lane ", text)
        self.assertIn("by gRPC: " if reason else "through a lane", said)
        return one["calls"], reason


class Usual(Ways):
    size = 1

    def test_a_client_here_has_a_lane_and_its_ops_go_through_it(self):
        self.assertEqual(self.tell(), ("lane", ""))
        client = Client(self, self.cluster.agents[0])
        before = self.cluster.agents[0].messages()
        for word in ("ops", "queue", "fd", "line"):
            client.say(word, 200)
            self.assertEqual(client.hear(), "ok")
        # Two calls of a client go by themselves, before it opens a stream.
        self.assertGreaterEqual(self.cluster.agents[0].messages() - before, 4 * 200 - 2)

    def test_a_client_that_says_no_goes_by_grpc(self):
        self.assertEqual(self.tell(TUTTI_NO_LANE="1"), ("grpc", "LANE_UNWANTED"))
        self.assertEqual(self.tell(TUTTI_NO_LANE="0"), ("lane", ""))
        client = Client(self, self.cluster.agents[0], TUTTI_NO_LANE="1")
        for word in ("ops", "queue", "fd", "line"):
            client.say(word, 20)
            self.assertEqual(client.hear(), "ok")
        self.assertEqual(self.cluster.agents[0].messages(), 0)

    def test_a_client_of_another_host_goes_by_grpc(self):
        self.assertEqual(self.tell(TUTTI_HOST_ID="elsewhere"), ("grpc", "OTHER_HOST"))
        client = Client(self, self.cluster.agents[0], TUTTI_HOST_ID="elsewhere")
        client.say("queue", 20)
        self.assertEqual(client.hear(), "ok")
        self.assertEqual(self.cluster.agents[0].messages(), 0)


class Off(Ways):
    size = 1
    options = ("--no-lane",)

    def test_an_agent_without_lanes_says_so(self):
        self.assertEqual(self.tell(), ("grpc", "LANES_OFF"))


class Limit(Ways):
    size = 1
    options = ("--lanes-max", "1")

    def test_the_limit_is_told_and_room_is_found_again(self):
        agent = self.cluster.agents[0]
        first = Client(self, agent)
        first.say("queue", 10)
        self.assertEqual(first.hear(), "ok")
        self.assertEqual(self.tell(), ("grpc", "LANE_LIMIT"))
        second = Client(self, agent)
        second.say("line", 10)
        self.assertEqual(second.hear(), "ok")
        before = agent.messages()
        second.say("line", 10)
        self.assertEqual(second.hear(), "ok")
        self.assertEqual(agent.messages(), before)
        first.process.stdin.close()
        self.wait_lanes(0)
        until = time.monotonic() + LONG_S
        while agent.messages() == before:  # it asks again, but not for each stream
            self.assertLess(time.monotonic(), until)
            second.say("line", 10)
            self.assertEqual(second.hear(), "ok")
            time.sleep(0.1)
        self.assertEqual(self.tell(), ("lane", ""))


class Foreign(Ways):
    """A socket in a folder is reached from every network namespace; that of lanes is not."""

    size = 1

    def setUp(self):
        self.sockets = tempfile.TemporaryDirectory(prefix="tutti-lane-")
        self.addCleanup(self.sockets.cleanup)
        self.options = ("--listen", "unix:" + os.path.join(self.sockets.name, "agent"))
        super().setUp()

    def test_another_network_namespace_goes_by_grpc(self):
        inside = ("unshare", "--net")
        if shutil.which("unshare") is None or subprocess.run([*inside, "true"], capture_output=True).returncode != 0:
            self.skipTest("this user cannot make a network namespace (unshare --net)")
        agent = self.cluster.agents[0]
        path = [one for one in agent.program.addresses if one.startswith("unix:")][0]
        agent.program.address = path
        client = Client(self, agent, before=inside)
        for word in ("ops", "queue", "fd", "line"):
            client.say(word, 20)
            self.assertEqual(client.hear(), "ok")
        self.assertEqual(agent.messages(), 0)
        words = [*inside, os.path.join(support.PROGRAMS, "tutti"), "--agent", path, "explain", "all_reduce", "--json"]
        out = subprocess.run(words, capture_output=True, text=True, timeout=LONG_S, check=True).stdout
        self.assertEqual(json.loads(out)["no_lane"]["reason"], "NO_SHARE_SOCKET")
        here = Client(self, agent)
        here.say("queue", 20)
        self.assertEqual(here.hear(), "ok")
        self.assertGreater(agent.messages(), 0)


class Stranger(Ways):
    """Of clients of another user than the agent's, for whom the programs are copied: the tree may lie in a closed home."""

    size = 1
    before = ("setpriv", "--reuid", "64123", "--regid", "64123", "--clear-groups")

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("only root can become another user")
        folder = tempfile.TemporaryDirectory(prefix="tutti-lane-")
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        for path in (PROGRAM, *(os.path.join(support.PROGRAMS, name) for name in ("tutti", "libtutti.so.0"))):
            shutil.copy(path, folder.name)
        self.folder = folder.name
        super().setUp()

    def run_here(self, *words):
        """The command `tutti` of another user; what it says."""
        done = subprocess.run([*self.before, os.path.join(self.folder, "tutti"), *words], capture_output=True, text=True,
                              timeout=LONG_S, check=True, env=dict(os.environ, LD_LIBRARY_PATH=self.folder))
        return done.stdout

    def run_some(self):
        """All kinds of calls of one client; what came of them by a lane, and `explain` of the same user."""
        agent = self.cluster.agents[0]
        program = os.path.join(self.folder, os.path.basename(PROGRAM))
        client = Client(self, agent, before=self.before, program=program, LD_LIBRARY_PATH=self.folder)
        for word in ("ops", "queue", "fd", "line"):
            client.say(word, 20)
            self.assertEqual(client.hear(), "ok")
        words = ["--agent", agent.program.address, "explain", "all_reduce"]
        return agent.messages(), json.loads(self.run_here(*words, "--json")), self.run_here(*words)


class Strangers(Stranger):
    def test_another_user_goes_by_grpc_and_is_told_why(self):
        messages, said, text = self.run_some()
        self.assertEqual(messages, 0)
        self.assertEqual((said["calls"], said["no_lane"]["reason"]), ("grpc", "OTHER_USER"))
        self.assertIn("--share-any-user", said["no_lane"]["text"])
        self.assertIn("by gRPC: ", text)
        began = time.monotonic()
        self.wait_lanes(0)  # what was offered for nothing counts for 5 s, and not for those 30 of a tensor
        self.assertLess(time.monotonic() - began, OFFER_S)
        here = Client(self, self.cluster.agents[0])
        here.say("queue", 20)
        self.assertEqual(here.hear(), "ok")
        self.assertGreater(self.cluster.agents[0].messages(), 0)


class Welcome(Stranger):
    options = ("--share-any-user",)

    def test_another_user_has_a_lane_where_the_agent_says_so(self):
        messages, said, _ = self.run_some()
        self.assertGreaterEqual(messages, 4 * 20 - 2)
        self.assertEqual(said["calls"], "lane")


class Thousand(LaneCase):
    size = 1

    def test_1000_clients_have_a_lane_each(self):
        need = MANY * FILES_OF_A_CLIENT
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most != resource.RLIM_INFINITY and most < need:
            self.skipTest("the agent needs %d descriptors, and the hard limit is %d (ulimit -Hn)" % (need, most))
        clients = [Client(self, self.cluster.agents[0]) for _ in range(PROCESSES)]
        self.assertEqual(self.all_say(clients, "many", MANY // PROCESSES), ["ok"] * PROCESSES)
        until = time.monotonic() + LONG_S
        while self.lanes() != MANY:  # a client whose lane does not come in a second asks later for another one
            self.assertLess(time.monotonic(), until)
            self.assertEqual(self.all_say(clients, "again", 0), ["ok"] * PROCESSES)
        before = self.cluster.agents[0].messages()
        self.assertEqual(self.all_say(clients, "again", 0), ["ok"] * PROCESSES)
        self.assertGreaterEqual(self.cluster.agents[0].messages() - before, 4 * MANY)
        clients[0].process.kill()
        self.wait_lanes(MANY - MANY // PROCESSES)
        for client in clients[1:]:
            client.process.stdin.close()
        self.wait_lanes(0)


class Tokens(LaneCase):
    """A token that a stream began with ends, while its lane is open."""

    size = 1

    def setUp(self):
        self.secrets = tempfile.TemporaryDirectory(prefix="tutti-lane-")
        self.addCleanup(self.secrets.cleanup)
        keys = self.write("keys", tokens.SECRET.decode())
        self.write("token", tokens.hs256(tokens.claims("client", "default", "0")))
        own = self.write("own", tokens.hs256(tokens.claims("agent")))
        self.coordinator = support.Program("tutti-coordinator", "--token-keys", keys)
        self.addCleanup(self.coordinator.stop)
        words = ("--token-keys", keys, "--coordinator-token", own)
        self.agent = Watched.__new__(Watched)
        self.agent.program = self.agent.start(
            "--coordinator", self.coordinator.address, "--world-size", "1", "--rank", "0", *words)
        self.addCleanup(self.agent.program.stop)
        self.addCleanup(self.agent.folder.cleanup)

    def write(self, name, text):
        path = os.path.join(self.secrets.name, name)
        with open(path + ".new", "w") as file:
            file.write(text)
        os.rename(path + ".new", path)
        return path

    def until_refused(self, client, word):
        until = time.monotonic() + LONG_S
        said = "ok"
        while said == "ok":
            self.assertLess(time.monotonic(), until)
            client.say(word, 5)
            said = client.hear()
            time.sleep(0.02)
        self.assertEqual(said.split(" ")[1], "TOKEN_EXPIRED", said)

    def test_its_ops_are_refused_and_a_new_token_has_a_lane_again(self):
        path = os.path.join(self.secrets.name, "token")
        client = Client(self, self.agent, TUTTI_TOKEN_FILE=path)
        client.say("ops", 10)
        self.assertEqual(client.hear(), "ok")
        self.write("token", tokens.hs256(tokens.claims("client", "default", "0", lasts=4 - SKEW_S)))
        other = Client(self, self.agent, TUTTI_TOKEN_FILE=path)
        for word in ("ops", "queue"):
            other.say(word, 10)
            self.assertEqual(other.hear(), "ok")
        self.assertGreaterEqual(self.agent.messages(), 10)
        self.until_refused(other, "hang")
        self.until_refused(other, "wait")
        self.write("token", tokens.hs256(tokens.claims("client", "default", "0")))
        until = time.monotonic() + LONG_S
        said = ""
        while said != "ok":  # the file is looked at once a second
            self.assertLess(time.monotonic(), until, said)
            other.say("wait", 5)
            said = other.hear()
        before = self.agent.messages()
        while self.agent.messages() - before < 40:  # it asks for a lane again, but not for each call
            self.assertLess(time.monotonic(), until)
            other.say("ops", 5)
            self.assertEqual(other.hear(), "ok")
        client.say("queue", 10)
        self.assertEqual(client.hear(), "ok")


if __name__ == "__main__":
    support.main()
