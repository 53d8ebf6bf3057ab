#!/usr/bin/python3
"""Goal: libtutti-rpc can be used outside of the tree, with what is installed alone: examples/rpc.

Method: install into a folder, move it, build examples/rpc there by find_package, and by the plain commands of
docs/rpc.md; run server and client, with wrong input too, and call the server by grpcio.

usage: test_rpc_install.py CMAKE sanitizers=[LIST] C-COMPILER
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap  # noqa: E402

CMAKE, SANITIZERS, COMPILER = sys.argv[1:4]
del sys.argv[1:4]
SOURCE, BUILD = os.environ["TUTTI_SOURCE"], os.environ["TUTTI_BUILD"]
LONG_S = 120
WANTED = "call: hello ada\nstream: hello ada\nstream: hello grace\n"
work = tempfile.TemporaryDirectory(prefix="tutti-rpc-inst-")
PREFIX = os.path.join(work.name, "moved")
GREETER = os.path.join(work.name, "greeter")


def call(*words, code=0, **more):
    """Run a program, which has to end with `code`; what it prints."""
    environment = dict(os.environ, **more)
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=GREETER,
                          env=environment, timeout=LONG_S)
    if done.returncode != code:
        raise AssertionError("%s: exit code %d\n%s%s" % (" ".join(words), done.returncode, done.stdout, done.stderr))
    return done.stdout if code == 0 else done.stderr


def folder_of(name):
    for root, _, files in os.walk(PREFIX):
        if name in files:
            return root
    raise AssertionError("no %s below %s" % (name, PREFIX))


def setUpModule():
    first = os.path.join(work.name, "first")
    shutil.copytree(os.path.join(SOURCE, "examples", "rpc"), GREETER)
    call(CMAKE, "--install", BUILD, "--prefix", first)
    os.rename(first, PREFIX)
    call(CMAKE, "-G", "Ninja", "-B", "build", "-DCMAKE_PREFIX_PATH=" + PREFIX, "-DCMAKE_C_COMPILER=" + COMPILER,
         "-DCMAKE_C_FLAGS=-std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror")
    call(CMAKE, "--build", "build")


class Server:
    """A greeter-server on any port; ends with 0 when it is asked to."""

    def __init__(self, program="build/greeter-server", **more):
        self.process = subprocess.Popen([os.path.join(GREETER, program), "127.0.0.1:0"], stdout=subprocess.PIPE,
                                        text=True, env=dict(os.environ, **more))

    def __enter__(self):
        self.address = self.process.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.code = self.process.wait(LONG_S)
        self.process.stdout.close()


@unittest.skipIf(SANITIZERS.split("=", 1)[1], "a library built with sanitizers is not one to install")
class Greeter(unittest.TestCase):
    def client(self, address, *names, code=0):
        return call("build/greeter-client", address, *names, code=code)

    def test_a_client_calls_and_streams(self):
        with Server() as server:
            self.assertEqual(self.client(server.address, "ada", "grace"), WANTED)
        self.assertEqual(server.code, 0)

    def test_the_static_library_serves(self):
        self.assertNotIn("libtutti", call("ldd", "build/greeter-server-static"))
        with Server("build/greeter-server-static") as server:
            self.assertEqual(self.client(server.address, "ada", "grace"), WANTED)
        self.assertEqual(server.code, 0)

    def test_an_error_arrives_with_code_reason_and_text(self):
        with Server() as server:
            said = self.client(server.address, "", code=1)
        self.assertEqual(said, "greeter-client: INVALID_ARGUMENT NO_NAME: name is empty: give one\n")

    def test_a_server_that_is_not_there_is_named(self):
        with Server() as server:
            address = server.address
        said = self.client(address, "ada", code=1)
        self.assertIn("greeter-client: UNAVAILABLE UNREACHABLE: ", said)
        self.assertIn(address, said)

    def test_addresses_that_cannot_be_served_are_refused(self):
        said = call("build/greeter-server", "0.0.0.0:0", code=1)
        self.assertIn("greeter-server: ", said)
        self.assertIn("0.0.0.0", said)
        self.assertIn("nowhere", call("build/greeter-server", "nowhere", code=1))

    def test_grpcio_calls_it_and_finds_health_and_reflection(self):
        try:
            import grpc
        except ImportError:
            self.skipTest("no grpcio here: Debian's python3-grpcio")
        with Server() as server, grpc.insecure_channel(server.address) as channel:
            hello = channel.unary_unary("/greeter.Greeter/SayHello")
            self.assertEqual(hello(b"\n\x03ada", timeout=LONG_S), b"\n\x09hello ada")
            names = channel.stream_stream("/greeter.Greeter/GreetAll")
            got = list(names(iter([b"\n\x01a", b"\n\x01b"]), timeout=LONG_S))
            self.assertEqual(got, [b"\n\x07hello a", b"\n\x07hello b"])
            health = channel.unary_unary("/grpc.health.v1.Health/Check")
            self.assertEqual(health(b"", timeout=LONG_S), b"\x08\x01")
            reflect = channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
            listed = list(reflect(iter([b"\x3a\x01*"]), timeout=LONG_S))
            self.assertIn(b"greeter.Greeter", b"".join(listed))
            with self.assertRaises(grpc.RpcError) as caught:
                hello(b"\n\x02\xff\xff", timeout=LONG_S)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_a_client_that_leaves_ends_its_stream(self):
        try:
            import grpc
        except ImportError:
            self.skipTest("no grpcio here: Debian's python3-grpcio")
        with Server() as server, grpc.insecure_channel(server.address) as channel:
            begun = channel.stream_stream("/greeter.Greeter/GreetAll")(iter(()), timeout=LONG_S)
            begun.cancel()
            self.assertEqual(self.client(server.address, "ada", "grace"), WANTED)
        self.assertEqual(server.code, 0)

    def test_the_plain_commands_of_the_docs_build_it(self):
        with open(os.path.join(SOURCE, "docs", "rpc.md")) as file:
            lines = re.search(r"```sh\n(.*?)```", file.read(), re.S)[1]
        libraries = folder_of("libtutti-rpc.so")
        more = {"PKG_CONFIG_PATH": os.path.join(libraries, "pkgconfig")}
        call("sh", "-e", "-c", lines, **more)
        with Server("greeter-server", LD_LIBRARY_PATH=libraries) as server:
            self.assertEqual(self.client(server.address, "ada", "grace"), WANTED)

    def test_it_shows_the_public_functions_alone(self):
        declared = set()
        for name in os.listdir(os.path.join(PREFIX, "include", "tutti-rpc")):
            with open(os.path.join(PREFIX, "include", "tutti-rpc", name)) as file:
                declared |= set(re.findall(r"TUTTIRPC_API[^;(]*?\b(tuttirpc_\w+)\(", file.read()))
        self.assertGreater(len(declared), 30)
        for words in (["-D", "libtutti-rpc.so"], ["-g", "libtutti-rpc.a"]):
            path = os.path.join(folder_of(words[1]), words[1])
            rows = [line.split() for line in call("nm", "--defined-only", words[0], path).split("\n")]
            found = {row[2].split("@")[0] for row in rows if len(row) == 3} - {"TUTTI_RPC_0"}
            self.assertEqual(found, declared, words[1])


if __name__ == "__main__":
    tap.main()
