"""Goal: calls of the store through streams that stay open, by gRPC and through shared memory, do what unary calls do, whoever dies;
who cannot have a stream or a lane makes the same calls without.

Method: tests/client/store_program.c makes calls by libtutti; stubs speak the stream, and write into a lane what no client
writes; the coordinators' /metrics say by which way calls came. What a single stream does is in
tests/server/coordinator/service/test_store_stream_pb.c.
"""

import os
import queue
import signal
import tempfile
import time
import unittest
from concurrent import futures

import support
import grpc
import tokens
from store_stream_case import Case, Client, Coordinator, Lane, LONG_S, pb, store_grpc

CODE = grpc.StatusCode
LANES_MAX = 5


class Ways(Case):
    def test_calls_go_through_a_lane(self):
        client = self.client()
        self.assertEqual(client.ask("adds", 500), "ok 500")
        self.assertEqual(self.coordinator.lanes(), 1)
        self.assertGreaterEqual(self.coordinator.messages(), 498)  # the first two go by themselves
        self.assertEqual(self.coordinator.calls("Add"), 500)
        client.process.stdin.close()
        self.wait_lanes(0)

    def test_every_call_is_the_same_by_each_way(self):
        for environment in ({}, {"TUTTI_NO_LANE": "1"}, {"TUTTI_HOST_ID": "another"}):
            before = self.coordinator.messages()
            client = self.client(**environment)
            for words in (("calls",), ("sets", 100), ("large", 1), ("large", 15), ("large", 17), ("large", 1000),
                          ("threads", 8)):
                self.assertEqual(client.ask(*words), "ok", (environment, words))
            self.assertEqual(self.coordinator.messages() > before, not environment, environment)
            client.process.stdin.close()
            self.wait_lanes(0)
        self.assertGreaterEqual(self.coordinator.calls("Run"), 3)

    def test_a_value_that_comes_is_waited_for(self):
        waits, sets = self.client(), self.client()
        self.assertEqual(waits.ask("adds", 10), "ok 10")
        self.assertRegex(waits.ask("comes", 50), "^TIMEOUT")
        waits.say("comes", LONG_S * 1000)
        self.assertEqual(sets.ask("put"), "ok")
        self.assertEqual(waits.hear(), "ok")

    def test_a_killed_client_frees_its_lane(self):
        client = self.client()
        self.assertEqual(client.ask("adds", 10), "ok 10")
        client.say("adds", 1000000)
        time.sleep(0.1)
        client.process.kill()
        self.wait_lanes(0)
        self.assertEqual(self.client().ask("sets", 10), "ok")

    def test_a_stopped_coordinator_goes_on_where_it_was(self):
        client = self.client()
        self.assertEqual(client.ask("adds", 10), "ok 10")
        self.coordinator.send(signal.SIGSTOP)
        client.say("adds", 10)
        time.sleep(0.3)
        self.coordinator.send(signal.SIGCONT)
        self.assertEqual(client.hear(), "ok 20")


class Durable(Ways):
    options = ("--store", "lmdb:FOLDER", "--store-sync", "full")


class Off(Case):
    options = ("--no-lane",)

    def test_a_coordinator_without_lanes_has_streams(self):
        client = self.client()
        self.assertEqual(client.ask("calls"), "ok")
        self.assertEqual(client.ask("adds", 100), "ok 100")
        self.assertEqual(self.coordinator.messages(), 0)
        client.process.stdin.close()
        client.process.wait()
        self.assertEqual(self.coordinator.calls("Run"), 1)


class Busy(Case):
    options = ("--busy-poll", "100us")

    def test_a_coordinator_that_polls_answers_the_same(self):
        client = self.client()
        self.assertEqual(client.ask("calls"), "ok")
        self.assertEqual(client.ask("adds", 1000), "ok 1000")


class BusyForMany(Case):
    options = ("--busy-poll", "10ms")  # so that it is busy between any two calls

    def test_a_coordinator_that_polls_answers_the_client_that_it_has_not_heard_of_lately(self):
        for count in (2, 4, 64):
            with self.subTest(clients=count):
                client = self.client()
                self.assertEqual(client.ask("many", count), "ok")
                self.assertEqual(client.ask("turns", 3), "ok")
                self.assertGreaterEqual(self.coordinator.lanes(), count)
                client.process.stdin.close()
                self.wait_lanes(0)


class Limits(Case):
    options = ("--lanes-max", str(LANES_MAX))

    def test_clients_beyond_the_limit_go_by_grpc(self):
        client = self.client()
        self.assertEqual(client.ask("many", 3 * LANES_MAX), "ok")
        self.assertEqual(self.coordinator.lanes(), LANES_MAX)
        client.process.stdin.close()
        self.wait_lanes(0)


class Deaths(Case):
    """A coordinator that is killed again and again, on a folder that keeps what it answered."""

    options = ("--store", "lmdb:FOLDER", "--store-sync", "full")

    def setUp(self):
        self.port = support.free_port()
        super().setUp()

    def start(self, *options, **more):
        return super().start(*options, listen="127.0.0.1:%d" % self.port)

    def check_adds(self, stop, **environment):
        client = self.client(**environment)
        self.assertEqual(client.ask("adds", 10), "ok 10")
        client.say("adds", 3000)
        for _ in range(5):
            time.sleep(0.15)
            stop(self.coordinator)
            self.coordinator = self.start(*self.options)
        self.assertEqual(client.hear(), "ok 3010")
        self.assertEqual(client.ask("adds", 1), "ok 3011")

    def test_an_add_is_neither_lost_nor_done_twice(self):
        self.check_adds(Coordinator.kill)

    def test_nor_without_a_lane(self):
        self.check_adds(Coordinator.kill, TUTTI_NO_LANE="1")

    def test_nor_when_it_drains(self):
        self.check_adds(Coordinator.stop)


class Refused(unittest.TestCase):
    def test_an_older_coordinator_gets_unary_calls(self):
        """One that has neither Run nor OpenLane."""
        counts = {}

        class Older(store_grpc.StoreServiceServicer):
            def Add(self, request, context):
                counts["Add"] = counts.get("Add", 0) + request.delta
                return pb.StoreServiceAddResponse(value=counts["Add"])

        server = grpc.server(futures.ThreadPoolExecutor(4))
        store_grpc.add_StoreServiceServicer_to_server(Older(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(server.stop, 0)
        client = Client(self, "127.0.0.1:%d" % port)
        self.assertEqual(client.ask("adds", 20), "ok 20")
        self.assertEqual(client.ask("adds", 20), "ok 40")

    def test_a_stream_that_does_not_find_its_lane_goes_by_grpc(self):
        """Of a server whose streams end up elsewhere: another one behind the same name has made the lane."""
        counts = {"Add": 0, "Run": 0}
        info = support.foreign("google.rpc.ErrorInfo")(reason="NO_LANE", domain="tutti")
        status = support.foreign("google.rpc.Status")(code=CODE.FAILED_PRECONDITION.value[0], message="elsewhere")
        status.details.add(type_url="type.googleapis.com/google.rpc.ErrorInfo", value=info.SerializeToString())
        other = Coordinator()
        self.addCleanup(other.kill)
        with other.channel() as channel:

            class Behind(store_grpc.StoreServiceServicer):
                def Add(self, request, context):
                    counts["Add"] += 1
                    return pb.StoreServiceAddResponse(value=counts["Add"])

                def OpenLane(self, request, context):
                    return store_grpc.StoreServiceStub(channel).OpenLane(request, timeout=support.CALL_S)

                def Run(self, requests, context):
                    if "tutti-lane" in dict(context.invocation_metadata()):
                        context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
                        context.abort(CODE.FAILED_PRECONDITION, "elsewhere")
                    for request in requests:
                        counts["Run"] += 1
                        counts["Add"] += 1
                        yield pb.StoreServiceRunResponse(
                            id=request.id, add=pb.StoreServiceAddResponse(value=counts["Add"]))

            server = grpc.server(futures.ThreadPoolExecutor(4))
            store_grpc.add_StoreServiceServicer_to_server(Behind(), server)
            address = "127.0.0.1:%d" % server.add_insecure_port("127.0.0.1:0")
            server.start()
            client = Client(self, address)
            self.assertEqual(client.ask("adds", 20), "ok 20")
            self.assertEqual(counts["Run"], 17)  # two before the first stream, and the one that looked for the lane
            client.process.stdin.close()
            client.process.wait()
            server.stop(0)

    def test_a_standby_says_who_leads(self):
        """One that waits for etcd, which is not there."""
        port = support.free_port()
        with support.Program("tutti-coordinator", "--store", "etcd:127.0.0.1:%d/x" % port) as program:
            with program.channel() as channel:
                stub = store_grpc.StoreServiceStub(channel)
                for call in (lambda: list(stub.Run(iter([pb.StoreServiceRunRequest()]), timeout=support.CALL_S)),
                             lambda: stub.OpenLane(pb.StoreServiceOpenLaneRequest(), timeout=support.CALL_S)):
                    with self.assertRaises(grpc.RpcError) as caught:
                        call()
                    failure = support.Failure(caught.exception)
                    self.assertEqual((failure.code, failure.reason), (CODE.UNAVAILABLE, "NOT_LEADER"))


class Hostile(Case):
    def ends(self, lane, requests=()):
        asked = queue.SimpleQueue()
        for request in requests:
            asked.put(request)
        call = self.stub().Run(iter(asked.get, None), metadata=lane.metadata, timeout=LONG_S)
        call.initial_metadata()
        lane.ring()
        with self.assertRaises(grpc.RpcError) as caught:
            list(call)
        asked.put(None)
        return support.Failure(caught.exception).reason

    def test_a_scribbled_ring_ends_its_stream_alone(self):
        good = self.client()
        self.assertEqual(good.ask("adds", 10), "ok 10")
        for scribble in (
            lambda lane: lane.write(lane.TAIL_DOWN, "<I", 0xFFFFFFF8),  # more than a ring holds
            lambda lane: lane.write(lane.TAIL_DOWN, "<I", 5),  # no multiple of 8
            lambda lane: (lane.write(lane.RING_DOWN, "<II", 1 << 20, 0), lane.write(lane.TAIL_DOWN, "<I", 64)),
            lambda lane: (lane.write(lane.RING_DOWN, "<II", 0, 77), lane.write(lane.TAIL_DOWN, "<I", 8)),
        ):
            lane = Lane(self.stub())
            scribble(lane)
            self.assertEqual(self.ends(lane), "BROKEN_LANE")
            lane.close()
        self.assertEqual(good.ask("adds", 10), "ok 20")
        self.wait_lanes(1)

    def test_what_is_no_message_ends_its_stream_alone(self):
        good = self.client()
        self.assertEqual(good.ask("adds", 10), "ok 10")
        lane = Lane(self.stub())
        lane.write(lane.RING_DOWN, "<II8s", 8, 0, b"\xff" * 8)
        lane.write(lane.TAIL_DOWN, "<I", 16)
        self.assertNotEqual(self.ends(lane), "")
        lane.close()
        self.assertEqual(good.ask("adds", 10), "ok 20")

    def test_a_lane_that_nobody_takes_and_one_that_is_not_there(self):
        lane = Lane(self.stub())
        lane.token = bytes(16)
        self.assertEqual(self.ends(lane), "NO_LANE")
        lane.close()
        self.wait_lanes(0)

    def test_a_client_that_reads_no_answers_is_not_read_from(self):
        """It sends without an end, and others are served; what it holds is bounded by its connection."""
        value = b"x" * (1 << 18)
        self.stub().Set(pb.StoreServiceSetRequest(key=b"big", value=value), timeout=support.CALL_S)
        get = pb.StoreServiceRunRequest(get=pb.StoreServiceGetRequest(key=b"big"))
        sent = []

        def requests():
            for number in range(20000):
                sent.append(number)
                get.id = number
                yield get

        call = self.stub().Run(requests(), timeout=LONG_S)
        good = self.client()
        until = time.monotonic() + 2
        while time.monotonic() < until:
            self.assertRegex(good.ask("adds", 10), "^ok")
        self.assertLess(self.coordinator.calls("Get"), 1000)
        call.cancel()


class Tokens(Case):
    def setUp(self):
        keys = tempfile.NamedTemporaryFile(prefix="tutti-store-keys-")
        self.addCleanup(keys.close)
        keys.write(tokens.SECRET)
        keys.flush()
        self.options = ("--token-keys", keys.name)
        super().setUp()

    def token(self, role="client", job="default", lasts=60):
        return tokens.hs256(tokens.claims(role, job, lasts=lasts))

    def test_each_command_needs_the_right_to_its_job(self):
        metadata = [("authorization", "Bearer " + self.token(job="mine"))]
        commands = [pb.StoreServiceRunRequest(id=number, set=pb.StoreServiceSetRequest(job=job, key=b"k"))
                    for number, job in enumerate(("mine", "other", "mine"), 1)]
        answers = list(self.stub().Run(iter(commands), metadata=metadata, timeout=LONG_S))
        self.assertEqual([answer.WhichOneof("result") for answer in answers], ["set", "error", "set"])
        self.assertEqual(answers[1].error.code, CODE.PERMISSION_DENIED.value[0])

    def test_a_token_that_ends_is_replaced_without_an_error(self):
        path = os.path.join(self.folder.name, "token")
        with open(path, "w") as file:
            file.write(self.token(lasts=-27))  # three seconds are left of the skew
        client = self.client(path)
        self.assertEqual(client.ask("adds", 100), "ok 100")
        with open(path + ".new", "w") as file:
            file.write(self.token())
        os.rename(path + ".new", path)
        done, until = 100, time.monotonic() + 6
        while time.monotonic() < until:
            done += 10
            self.assertEqual(client.ask("adds", 10), "ok %d" % done)
        self.assertGreater(self.coordinator.messages(), 100)


if __name__ == "__main__":
    support.main()
