"""Goal: what dies takes its part of a session with it and nothing else, and who may not act for a rank
does not.

Method: real agents that are killed, stopped and started again under a session; a cluster with TLS
whose agents ask for tokens of certain ranks.
"""

import os
import signal
import tempfile
import threading
import time
import unittest

import support
import grpc
import numpy as np

import tokens
from cluster_case import LONG_S, Cluster, tensors, types
from secure_case import Certificates, SecureAgent, SecureCluster
from session_stream import Failed, Session, sessions

CODE = grpc.StatusCode
UNAVAILABLE = int(CODE.UNAVAILABLE.value[0])
SOON_S = 1  # in which everybody hears of a process that died


def reduce_of(src, **fields):
    return {"all_reduce": sessions.DriveReduce(src=src, reduce_op=types.REDUCE_OP_SUM, **fields)}


class Silence(unittest.TestCase):
    """A leader that the coordinator takes for dead, because it says nothing."""

    def setUp(self):
        options = ("--heartbeat-interval", "100ms", "--heartbeat-timeout", "1500ms")
        self.cluster = Cluster(3, coordinator_options=options)

    def tearDown(self):
        self.cluster.agents[0].program.send(signal.SIGCONT)
        self.cluster.kill()

    def test_a_leader_that_lost_its_seat_ends_its_sessions_and_names_itself(self):
        session = Session(self.cluster.agents[0], linger=True)
        session.wait(session.empty(1, [1]))
        other = self.cluster.agents[1]
        epoch = other.describe().epoch
        self.cluster.agents[0].program.send(signal.SIGSTOP)
        until = time.monotonic() + LONG_S
        while other.describe().epoch == epoch:
            self.assertLess(time.monotonic(), until, "nobody hears of the leader's silence")
        self.cluster.agents[0].program.send(signal.SIGCONT)
        with self.assertRaises(grpc.RpcError) as caught:
            next(session.call)
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (CODE.UNAVAILABLE, "RANK_LOST"))
        self.assertIn("rank 0, which led the session, lost its seat", failure.text)
        self.assertIn("no heartbeat for 1500 ms", failure.text)


class Away(unittest.TestCase):
    """The coordinator is away for a moment."""

    def test_opening_waits_for_the_coordinator(self):
        with tempfile.TemporaryDirectory(prefix="tutti-away-") as folder:
            options = ("--store", "lmdb:" + folder)
            cluster = Cluster(2, coordinator_options=options)
            try:
                address = cluster.coordinator.address
                cluster.coordinator.kill()
                opened = []
                opening = threading.Thread(target=lambda: opened.append(Session(cluster.agents[1])))
                opening.start()
                cluster.coordinator = support.Program("tutti-coordinator", *options, listen=address)
                opening.join(LONG_S)
                self.assertEqual(len(opened), 1)
                opened[0].wait(opened[0].empty(1, [1]))
                opened[0].close()
            finally:
                cluster.kill()


class Faults(unittest.TestCase):
    size = 3

    def setUp(self):
        self.cluster = Cluster(self.size, "--op-timeout", "20s")

    def tearDown(self):
        self.cluster.stop()

    def open(self, leader=0, **fields):
        return Session(self.cluster.agents[leader], **fields)

    def tensors_of(self, rank):
        return self.cluster.agents[rank].stats().tensor_count

    def fails(self, session, **command):
        with self.assertRaises(Failed) as caught:
            session.do(**command)
        return caught.exception

    def ends(self, session):
        """How, within a minute."""
        with self.assertRaises(grpc.RpcError) as caught:
            while True:
                session.sync(session.opened.leader)
        return support.Failure(caught.exception)

    def test_followers_free_all_when_the_leader_is_killed(self):
        session = self.open(leader=1)
        for register in range(1, 20):
            session.wait(session.empty(register, [100]))
        self.assertEqual([self.tensors_of(rank) for rank in (0, 2)], [19, 19])
        self.cluster.agents[1].program.kill()
        until = time.monotonic() + SOON_S
        while any(self.tensors_of(rank) for rank in (0, 2)):
            self.assertLess(time.monotonic(), until, "tensors of a dead session stay")
        self.assertEqual(self.ends(session).code, CODE.UNAVAILABLE)

    def test_followers_free_all_when_the_leader_is_killed_in_the_middle_of_a_pipeline(self):
        session = self.open(leader=1)
        session.fill(self.cluster, 1, [np.ones(1000, np.float32)] * 3)
        numbers = [session.send(**reduce_of(1, into=register)) for register in range(2, 900)]
        session.wait(numbers[50])  # the others are on their way
        self.cluster.agents[1].program.kill()
        until = time.monotonic() + SOON_S
        while any(self.tensors_of(rank) for rank in (0, 2)):
            self.assertLess(time.monotonic(), until, "tensors of a dead session stay")
        self.assertEqual(self.ends(session).code, CODE.UNAVAILABLE)

    def test_a_worker_that_is_killed_is_named_and_the_others_go_on(self):
        session = self.open()
        session.wait(session.empty(1, [1]))
        self.cluster.agents[2].program.kill()
        error = self.fails(session, **reduce_of(1, into=2))
        self.assertEqual((error.code, error.reason), (UNAVAILABLE, "RANK_LOST"))
        self.assertIn("rank 2 is gone", error.text)
        before = time.monotonic()
        error = self.fails(session, **reduce_of(1, into=2))
        self.assertLess(time.monotonic() - before, SOON_S)
        self.assertEqual((error.reason, error.workers), ("RANK_LOST", [2]))
        self.assertEqual(self.fails(session, sync=sessions.DriveSync()).workers, [2])
        self.assertEqual(self.fails(session, copy=sessions.DriveCopy(src=1, into=3)).workers, [2])
        session.do(copy=sessions.DriveCopy(src=1, into=4, workers=[0, 1]))
        session.do(drop=sessions.DriveDrop(registers=[1, 3, 4]))
        session.sync(0, 1)
        until = time.monotonic() + LONG_S  # the op that failed may hold its input a little longer
        while any(self.tensors_of(rank) for rank in (0, 1)):
            self.assertLess(time.monotonic(), until)
        session.close()

    def test_groups_without_the_worker_that_is_killed_go_on(self):
        cluster = Cluster(4, "--op-timeout", "20s")
        self.addCleanup(cluster.stop)
        session = Session(cluster.agents[0], num_groups=2)
        session.fill(cluster, 1, [np.full(2, rank + 1, np.float32) for rank in range(4)])
        cluster.agents[3].program.kill()
        self.assertEqual(self.fails(session, sync=sessions.DriveSync()).workers, [3])
        move = sessions.DriveMove(src=1, into=3, in_group=True)
        for command in (reduce_of(1, into=2, in_group=True), {"all_gather": move},
                        {"gather_to_worker0": move}, {"broadcast_from_worker0": move},
                        {"scatter_from_worker0": move}):
            error = self.fails(session, **command)
            self.assertEqual((error.reason, error.workers), ("RANK_LOST", [2, 3]))
            self.assertIn("ranks 2, 3: rank 3 is gone", error.text)
        for rank in (0, 1):
            self.assertEqual(list(session.read(cluster, 2, rank)), [3, 3])
            self.assertEqual(session.read(cluster, 3, rank), 1)  # scattered: one element, no dimension
        self.assertEqual(self.fails(session, **reduce_of(1, into=2)).workers, [3])  # of all
        session.close()

    def test_commands_that_run_fail_when_a_worker_is_killed(self):
        session = self.open(num_groups=3)
        session.wait(session.empty(1, [1]))
        waits = session.send(recv_from_prev_group=sessions.DriveMove(into=2))
        behind = session.send(sync=sessions.DriveSync(workers=[1]))
        session.flush()
        self.cluster.agents[1].program.kill()
        for number in (waits, behind):
            with self.assertRaises(Failed) as caught:
                session.wait(number)
            self.assertEqual(caught.exception.reason, "RANK_LOST")
            self.assertIn("rank 1", caught.exception.text)
        session.close()

    def test_a_session_of_those_that_are_left_and_of_all_again(self):
        session = self.open()
        self.cluster.agents[2].program.kill()
        self.assertEqual(self.fails(session, sync=sessions.DriveSync()).reason, "RANK_LOST")
        self.cluster.group("left", [0, 1])
        left = self.open(group="left")
        left.fill(self.cluster, 1, [np.ones(1, np.float32)] * 2)
        left.do(**reduce_of(1, dst=1))
        self.assertEqual(list(left.read(self.cluster, 1, 1)), [2])
        with self.assertRaises(grpc.RpcError) as caught:
            self.open()
        failure = support.Failure(caught.exception)
        self.assertEqual(failure.code, CODE.UNAVAILABLE)
        self.assertIn("rank 2", failure.text)
        left.close()
        self.cluster.replace(2)
        again = self.open()
        again.fill(self.cluster, 1, [np.ones(1, np.float32)] * 3)
        again.do(**reduce_of(1, dst=1))
        self.assertEqual(list(again.read(self.cluster, 1, 2)), [3])
        again.close()
        session.close()

    def test_a_leader_that_is_told_to_stop_says_so(self):
        session = self.open()
        session.wait(session.empty(1, [1]))
        self.cluster.agents[0].program.send(signal.SIGTERM)
        failure = self.ends(session)
        self.assertEqual((failure.code, failure.reason), (CODE.UNAVAILABLE, "STOPPING"))
        self.assertEqual(self.cluster.agents[0].program.wait(), 0)
        until = time.monotonic() + LONG_S
        while any(self.tensors_of(rank) for rank in (1, 2)):
            self.assertLess(time.monotonic(), until)

    def test_a_worker_that_is_told_to_stop_is_lost(self):
        session = self.open()
        self.cluster.agents[1].program.send(signal.SIGTERM)
        self.assertEqual(self.cluster.agents[1].program.wait(), 0)
        error = self.fails(session, **reduce_of(1, into=2))
        self.assertEqual((error.reason, error.workers), ("RANK_LOST", [1]))
        session.close()

    def test_a_session_survives_its_leader_if_it_lingers(self):
        session = self.open(leader=0, linger=True)
        session.fill(self.cluster, 1, [np.ones(1, np.float32)] * 3)
        self.cluster.agents[0].program.kill()
        self.ends(session)
        with self.assertRaises(grpc.RpcError) as caught:  # its tensors went with it
            Session(self.cluster.agents[1], resume=session.opened.session,
                    secret=session.opened.secret)
        self.assertIn("rank 0", support.Failure(caught.exception).text)
        # Register 0 says what the session was.
        self.assertEqual([self.tensors_of(rank) for rank in (1, 2)], [2, 2])

    def test_meshes_go_with_their_sessions_and_with_their_leaders(self):
        for leader in range(3):
            self.open(leader).close()
        self.open(1)
        self.cluster.agents[1].program.kill()
        until = time.monotonic() + LONG_S
        while self.meshes():
            self.assertLess(time.monotonic(), until, "meshes stay: %s" % self.meshes())

    def meshes(self):
        from tutti.v1 import mesh_service_pb2 as mesh
        from tutti.v1 import mesh_service_pb2_grpc as mesh_grpc

        stub = mesh_grpc.MeshServiceStub(self.cluster.coordinator_channel)
        return stub.ListMeshes(mesh.ListMeshesRequest(), timeout=LONG_S).meshes


class TokenAgent(SecureAgent):
    """Its stubs show the cluster's token, its channel `bare` none."""

    def __init__(self, cluster, rank, *options):
        super().__init__(cluster, rank, *options)
        self.bare = self.program.channel(credentials=cluster.without_token)

    def close(self):
        self.bare.close()
        super().close()


class TokenCluster(SecureCluster):
    """Stubs show the token of somebody who may do everything."""

    agent_class = TokenAgent

    def __init__(self, size, certificates, token, *options, **more):
        self.token = token
        super().__init__(size, certificates, *options, **more)

    @property
    def credentials(self):
        call = grpc.access_token_call_credentials(self.token)
        return grpc.composite_channel_credentials(self.without_token, call)

    @credentials.setter
    def credentials(self, channel):
        self.without_token = channel


class Rights(unittest.TestCase):
    """TLS everywhere, and tokens of agents and callers."""

    @classmethod
    def setUpClass(cls):
        cls.certificates = Certificates()
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-tokens-")
        keys = os.path.join(cls.folder.name, "keys")
        with open(keys, "wb") as file:
            file.write(tokens.SECRET)
        own = os.path.join(cls.folder.name, "own")
        with open(own, "w") as file:
            file.write(tokens.hs256(tokens.claims("agent")))
        asks = ("--token-keys", keys)
        admin = tokens.hs256(tokens.claims("admin"))
        cls.cluster = TokenCluster(
            2, cls.certificates, admin, *asks, "--coordinator-token", own, coordinator_options=asks
        )

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()
        cls.folder.cleanup()
        cls.certificates.remove()

    def open(self, token, leader=0, **fields):
        metadata = [("authorization", "Bearer " + token)] if token else []
        return Session(self.cluster.agents[leader], metadata=metadata,
                       channel=self.cluster.agents[leader].bare, **fields)

    def refused(self, token, code, reason, *words):
        with self.assertRaises(grpc.RpcError) as caught:
            self.open(token)
        failure = support.Failure(caught.exception)
        self.assertEqual((failure.code, failure.reason), (code, reason), failure)
        for word in words:
            self.assertIn(word, failure.text)

    def test_the_workers_see_the_token_of_the_caller(self):
        session = self.open(tokens.hs256(tokens.claims("client", sub="ada")))
        session.fill(self.cluster, 1, [np.ones(1, np.float32)] * 2)
        session.do(**reduce_of(1, into=2))
        for agent in self.cluster.agents:
            page = agent.tensors.List(tensors.ListRequest(), timeout=LONG_S)
            self.assertEqual({info.owner for info in page.tensors}, {"ada"})
        session.close()

    def test_who_may_act_for_some_ranks_drives_no_others(self):
        token = tokens.hs256(tokens.claims("client", ranks="0"))
        self.refused(token, CODE.PERMISSION_DENIED, "FOREIGN_RANK", "rank 1")
        self.refused(None, CODE.UNAUTHENTICATED, "NO_TOKEN")
        self.refused(tokens.hs256(tokens.claims("agent")), CODE.PERMISSION_DENIED, "WRONG_ROLE")
        self.cluster.group("alone", [0])
        session = self.open(token, group="alone")
        session.wait(session.empty(1, [1]))
        session.close()


if __name__ == "__main__":
    support.main()
