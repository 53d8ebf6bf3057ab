#!/usr/bin/python3
"""Goal: Debian's Python gRPC and ours understand each other, in both directions.

Method: a C server in a process of its own and Python clients, then a Python server and a C client.
Stubs are made here, into a folder of the build; modules are loaded by their path, because packages
called grpc and google.rpc would hide the real ones.

usage: test_rpc_python.py SERVER CLIENT PROTO-ROOT RPC-PROTO-ROOT FOLDER
"""
import concurrent.futures
import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "support"))
import tap  # noqa: E402

SERVER, CLIENT, PROTO_ROOT, RPC_PROTO_ROOT, FOLDER = sys.argv[1:6]
GRPC_PROTO_ROOT = "/usr/share/grpc-proto"
ECHO = "/rpctest.v1.EchoService/"


def generate(root, path, *flags):
    subprocess.run(["protoc", "-I", root, "-I", "/usr/include", "--python_out=" + FOLDER, *flags, path], check=True)
    stem = os.path.join(FOLDER, path[: -len(".proto")])
    return load(stem + "_pb2.py")


def load(path):
    name = os.path.basename(path)[:-3]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


os.makedirs(FOLDER, exist_ok=True)
sys.path.insert(0, os.path.join(FOLDER, "stubs"))
os.makedirs(os.path.join(FOLDER, "stubs"), exist_ok=True)
subprocess.run(["protoc", "-I", PROTO_ROOT, "--python_out=" + FOLDER + "/stubs",
                "--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin",
                "--grpc_python_out=" + FOLDER + "/stubs", "rpctest/v1/echo_service.proto"], check=True)
from rpctest.v1 import echo_service_pb2 as echo  # noqa: E402
from rpctest.v1 import echo_service_pb2_grpc as echo_grpc  # noqa: E402

health = generate(GRPC_PROTO_ROOT, "grpc/health/v1/health.proto")
v1 = generate(GRPC_PROTO_ROOT, "grpc/reflection/v1/reflection.proto")
os.makedirs(FOLDER + "/alpha", exist_ok=True)
status_proto = generate(RPC_PROTO_ROOT, "google/rpc/status.proto")
details_proto = generate(RPC_PROTO_ROOT, "google/rpc/error_details.proto")

from google.protobuf import any_pb2, descriptor_pb2  # noqa: E402


class Server:
    """The C server as a process."""

    def __init__(self, *flags):
        self.port_file = os.path.join(FOLDER, f"ports-{os.getpid()}-{time.monotonic_ns()}")
        self.process = subprocess.Popen([SERVER, "--port-file", self.port_file, *flags])
        end = time.monotonic() + 20
        while not os.path.exists(self.port_file):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the server did not start")
            time.sleep(0.01)
        with open(self.port_file) as file:
            self.addresses = file.read().split()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(30)
        os.unlink(self.port_file)
        return code


def upload_for_ever(address):
    """What a process does that is going to be killed."""
    with grpc.insecure_channel(address) as channel:
        def requests():
            while True:
                yield echo.EchoRequest(payload=bytes(1000))
                time.sleep(0.001)
        echo_grpc.EchoServiceStub(channel).Upload(requests())


class PythonClient(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.sockets = tempfile.mkdtemp(prefix="tutti-rpc-")  # a build folder's path may be too long
        cls.server = Server("--listen", f"127.0.0.1:0,unix:{cls.sockets}/echo.sock", "--reflection")
        cls.channel = grpc.insecure_channel(cls.server.addresses[0])
        cls.stub = echo_grpc.EchoServiceStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        assert cls.server.stop() == 0
        os.rmdir(cls.sockets)  # nothing is left in it

    def stats(self):
        text = self.stub.Unary(echo.EchoRequest(text="/stats")).text
        return {key: int(value) for key, value in (word.split("=") for word in text.split())}

    def await_stats(self, **wanted):
        end = time.monotonic() + 20
        while any(self.stats()[key.replace("_", "-")] < value for key, value in wanted.items()):
            self.assertLess(time.monotonic(), end, self.stats())
            time.sleep(0.01)

    def test_unary(self):
        response = self.stub.Unary(echo.EchoRequest(text="café", payload=b"\x01\x02\x03"))
        self.assertEqual((response.text, response.number, response.sum), ("café", 3, 6))
        self.assertEqual(self.stub.Unary(echo.EchoRequest(text="/later")).text, "/later")
        self.assertEqual(self.stub.Unary(echo.EchoRequest(text="/payload", count=100000)).payload,
                         b"\x07" * 100000)

    def test_streams(self):
        up = self.stub.Upload(echo.EchoRequest(payload=b"\x01" * 100) for _ in range(50))
        self.assertEqual((up.count, up.number, up.sum), (50, 5000, 5000))
        down = [one.number for one in self.stub.Download(echo.EchoRequest(count=50, number=10))]
        self.assertEqual(down, list(range(50)))
        chat = self.stub.Chat(echo.EchoRequest(text=str(i)) for i in range(50))
        self.assertEqual([one.text for one in chat], [str(i) for i in range(50)])

    def test_error_details(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub.Unary(echo.EchoRequest(fail=9))
        error = caught.exception
        self.assertEqual(error.code(), grpc.StatusCode.FAILED_PRECONDITION)
        text = "café 100%: rank 3 called all_reduce(FP16[1024])"
        self.assertEqual(error.details(), text)
        trailer = dict(error.trailing_metadata())["grpc-status-details-bin"]
        status = status_proto.Status.FromString(trailer)
        self.assertEqual((status.code, status.message, len(status.details)), (9, text, 1))
        info = details_proto.ErrorInfo()
        self.assertTrue(status.details[0].Unpack(info))
        self.assertEqual((info.reason, info.domain), ("SHAPE_MISMATCH", "tutti"))
        self.assertEqual(dict(info.metadata),
                         {"group": "tp/0", "sequence": "41", "rank": "3", "scope": "group"})

    def test_metadata_and_deadline(self):
        request = echo.EchoRequest(text="/metadata")
        self.assertEqual(self.stub.Unary(request, metadata=[("x-echo", "hello")]).text, "hello")
        left = self.stub.Unary(echo.EchoRequest(text="/deadline"), timeout=5).number
        self.assertTrue(4000 < left <= 5100, left)
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub.Park(request, timeout=0.1)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        self.await_stats(cancelled=1)

    def test_unknown_methods_are_refused_at_once(self):
        before = time.monotonic()
        for method in (ECHO + "Missing", "/no.such.Service/Method"):
            with self.assertRaises(grpc.RpcError) as caught:
                self.channel.unary_unary(method)(b"", timeout=30)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        self.assertLess(time.monotonic() - before, 10)

    def test_malformed_requests_are_refused(self):
        for wire in (b"\xff\xff", b"\x0a\x05hi", b"\x0a\x01\xff", b"\x20\x63"):
            with self.assertRaises(grpc.RpcError) as caught:
                self.channel.unary_unary(ECHO + "Unary")(wire)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_compressed_requests_are_refused(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub.Unary(echo.EchoRequest(payload=bytes(1 << 20)), compression=grpc.Compression.Gzip)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_payload_before_other_fields(self):
        wire = b"\xa2\x06\x03\x01\x02\x03" + b"\x0a\x02hi"
        got = self.channel.unary_unary(ECHO + "Unary")(wire)
        self.assertEqual(echo.EchoResponse.FromString(got).sum, 6)

    def test_cancelled_stream(self):
        before = self.stats()["cancelled"]
        call = self.stub.Download(echo.EchoRequest(count=1000000, number=1000))
        next(call)
        call.cancel()
        self.await_stats(cancelled=before + 1)

    def test_client_killed_in_an_upload(self):
        before = self.stats()
        child = subprocess.Popen([sys.executable, *sys.argv[:6], "upload", self.server.addresses[0]])
        self.await_stats(messages=before["messages"] + 10)
        child.kill()
        child.wait()
        self.await_stats(cancelled=before["cancelled"] + 1, ended=before["ended"] + 1)
        self.assertEqual(self.stats()["half-closed"], before["half-closed"])

    def test_unix_socket(self):
        with grpc.insecure_channel(self.server.addresses[1]) as channel:
            stub = echo_grpc.EchoServiceStub(channel)
            self.assertEqual(stub.Unary(echo.EchoRequest(text="/peer")).text[:5], "unix:")

    def test_health_check(self):
        check = self.channel.unary_unary("/grpc.health.v1.Health/Check",
                                         health.HealthCheckRequest.SerializeToString,
                                         health.HealthCheckResponse.FromString)
        self.assertEqual(check(health.HealthCheckRequest()).status, 1)
        self.assertEqual(check(health.HealthCheckRequest(service="rpctest.v1.EchoService")).status, 1)
        with self.assertRaises(grpc.RpcError) as caught:
            check(health.HealthCheckRequest(service="nobody"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def reflect(self, version, **asked):
        info = self.channel.stream_stream(f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
                                          v1.ServerReflectionRequest.SerializeToString,
                                          v1.ServerReflectionResponse.FromString)
        answers = list(info(iter([v1.ServerReflectionRequest(host="h", **asked)])))
        self.assertEqual(len(answers), 1)
        self.assertEqual(answers[0].valid_host, "h")
        self.assertEqual(answers[0].original_request, v1.ServerReflectionRequest(host="h", **asked))
        return answers[0]

    def test_reflection(self):
        for version in ("v1", "v1alpha"):
            services = self.reflect(version, list_services="").list_services_response.service
            self.assertEqual({one.name for one in services},
                             {"rpctest.v1.EchoService", "grpc.health.v1.Health",
                              "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"})
            for asked in ({"file_by_filename": "rpctest/v1/echo_service.proto"},
                          {"file_containing_symbol": "rpctest.v1.EchoService"},
                          {"file_containing_symbol": "rpctest.v1.EchoService.Chat"},
                          {"file_containing_symbol": "rpctest.v1.EchoRequest"},
                          {"file_containing_symbol": "rpctest.v1.EchoRequest.payload"},
                          {"file_containing_symbol": "rpctest.v1.Colour"}):
                files = self.reflect(version, **asked).file_descriptor_response.file_descriptor_proto
                names = [descriptor_pb2.FileDescriptorProto.FromString(one).name for one in files]
                self.assertEqual(names, ["rpctest/v1/echo_service.proto"], asked)

    def test_reflection_brings_dependencies(self):
        answer = self.reflect("v1", file_by_filename="google/rpc/status.proto")
        files = answer.file_descriptor_response.file_descriptor_proto
        names = [descriptor_pb2.FileDescriptorProto.FromString(one).name for one in files]
        self.assertEqual(names, ["google/rpc/status.proto", "google/protobuf/any.proto"])

    def test_reflection_says_what_it_does_not_know(self):
        for asked in ({"file_by_filename": "nobody.proto"}, {"file_containing_symbol": "rpctest.v1.Nobody"},
                      {"file_containing_symbol": "rpctest.v1"}, {"file_containing_symbol": ""},
                      {"file_containing_symbol": "rpctest.v1.EchoService.Nobody"},
                      {"file_containing_extension": v1.ExtensionRequest(containing_type="rpctest.v1.EchoRequest",
                                                                        extension_number=7)},
                      {"all_extension_numbers_of_type": "rpctest.v1.Nobody"}):
            self.assertEqual(self.reflect("v1", **asked).error_response.error_code, 5, asked)
        self.assertEqual(self.reflect("v1").error_response.error_code, 3)
        known = self.reflect("v1", all_extension_numbers_of_type="rpctest.v1.EchoRequest")
        self.assertEqual(known.all_extension_numbers_response.base_type_name, "rpctest.v1.EchoRequest")


class HealthWatch(unittest.TestCase):
    """Changes of health, and the end of the server, as a load balancer sees them."""

    def test_watch(self):
        server = Server()
        with grpc.insecure_channel(server.addresses[0]) as channel:
            watch = channel.unary_stream("/grpc.health.v1.Health/Watch",
                                         health.HealthCheckRequest.SerializeToString,
                                         health.HealthCheckResponse.FromString)
            known = watch(health.HealthCheckRequest(service="rpctest.v1.EchoService"))
            unknown = watch(health.HealthCheckRequest(service="nobody"))
            whole = watch(health.HealthCheckRequest())
            self.assertEqual(next(known).status, 1)
            self.assertEqual(next(unknown).status, 3)
            self.assertEqual(next(whole).status, 1)
            server.process.send_signal(signal.SIGUSR1)
            self.assertEqual(next(known).status, 2)
            self.assertEqual(server.stop(), 0)
            self.assertEqual(next(whole).status, 2)  # before the door closed
            for call in (known, unknown, whole):
                with self.assertRaises(grpc.RpcError) as caught:
                    next(call)
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)


class Drain(unittest.TestCase):
    """A client that stays connected without a call does not look at its connection for seconds."""

    def test_an_idle_client_does_not_keep_the_server(self):
        server = Server("--drain-grace", "30s")
        with grpc.insecure_channel(server.addresses[0]) as channel:
            stub = echo_grpc.EchoServiceStub(channel)
            self.assertEqual(stub.Unary(echo.EchoRequest(text="hi")).text, "hi")
            before = time.monotonic()
            self.assertEqual(server.stop(), 0)
            self.assertLess(time.monotonic() - before, 2)


class Token(unittest.TestCase):
    def test_health_needs_no_token_and_all_else_does(self):
        path = os.path.join(FOLDER, "token")
        with open(path, "w") as file:
            file.write("s3cret\n")
        server = Server("--token-file", path, "--reflection")
        with grpc.insecure_channel(server.addresses[0]) as channel:
            stub = echo_grpc.EchoServiceStub(channel)
            check = channel.unary_unary("/grpc.health.v1.Health/Check",
                                        health.HealthCheckRequest.SerializeToString,
                                        health.HealthCheckResponse.FromString)
            self.assertEqual(check(health.HealthCheckRequest()).status, 1)
            with self.assertRaises(grpc.RpcError) as caught:
                stub.Unary(echo.EchoRequest())
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            with self.assertRaises(grpc.RpcError) as caught:
                next(channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")(iter([b""])))
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            for value in ("Bearer s3cret", "bearer s3cret"):
                stub.Unary(echo.EchoRequest(), metadata=[("authorization", value)])
            for value in ("s3cret", "Basic s3cret", "Bearer ", "Bearer s3cret2"):
                with self.assertRaises(grpc.RpcError) as caught:
                    stub.Unary(echo.EchoRequest(), metadata=[("authorization", value)])
                self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            with self.assertRaises(grpc.RpcError) as caught:
                stub.Unary(echo.EchoRequest(), metadata=[("authorization", "Bearer s3cret")] * 2)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
        self.assertEqual(server.stop(), 0)


class EchoServicer(echo_grpc.EchoServiceServicer):
    """What rpc_echo_client expects."""

    def Unary(self, request, context):
        if request.fail == 0:
            return echo.EchoResponse(text=request.text, number=len(request.payload), payload=b"abc")
        context.set_code(grpc.StatusCode.FAILED_PRECONDITION)
        context.set_details("just text")
        if request.text == "details":
            info = any_pb2.Any()
            info.Pack(details_proto.ErrorInfo(reason="SHAPE_MISMATCH", domain="tutti",
                                              metadata={"group": "world", "rank": "3", "sequence": "41"}))
            status = status_proto.Status(code=9, message="ranks differ", details=[info])
            context.set_trailing_metadata([("grpc-status-details-bin", status.SerializeToString())])
        return echo.EchoResponse()

    def Upload(self, requests, context):
        return echo.EchoResponse(count=sum(1 for _ in requests))

    def Download(self, request, context):
        for number in range(request.count):
            yield echo.EchoResponse(number=number)

    def Chat(self, requests, context):
        for request in requests:
            yield echo.EchoResponse(text=request.text)


class PythonServer(unittest.TestCase):
    def run_client(self, compression):
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), compression=compression)
        echo_grpc.add_EchoServiceServicer_to_server(EchoServicer(), server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        done = subprocess.run([CLIENT, f"127.0.0.1:{port}"], timeout=60, stderr=subprocess.PIPE)
        server.stop(None)
        return done

    def test_our_client(self):
        done = self.run_client(None)
        self.assertEqual((done.returncode, done.stderr), (0, b""))

    def test_our_client_refuses_compressed_answers(self):
        done = self.run_client(grpc.Compression.Gzip)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"Compression algorithm 'gzip' is disabled", done.stderr)


if __name__ == "__main__":
    if sys.argv[6:7] == ["upload"]:
        upload_for_ever(sys.argv[7])
    else:
        tap.main()
