"""Goal: tutti certs and tutti token make what servers take, and nothing that others can read;
certificates with a role are kept to it.
Method: the command, the openssl command, and real processes."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

import grpc  # noqa: E402

import tokens  # noqa: E402
from cluster_case import LONG_S, coordinator, coordinator_grpc  # noqa: E402
from secure_case import SecureProgram  # noqa: E402


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-commands-")
        self.addCleanup(self.folder.cleanup)

    def path(self, *names):
        return os.path.join(self.folder.name, *names)

    def well(self, *words, **more):
        code, out, err = support.run("tutti", *words, **more)
        self.assertEqual(code, 0, err)
        return out

    def fails(self, *words, says, code=1, reason=None):
        got, out, err = support.run("tutti", *words)
        self.assertEqual(got, code, out + err)
        self.assertIn(says, err)
        if reason:
            _, out, _ = support.run("tutti", "--json", *words)
            self.assertEqual(json.loads(out)["error"]["reason"], reason)

    def mode(self, *names):
        return stat.S_IMODE(os.stat(self.path(*names)).st_mode)

    def read(self, *names):
        with open(self.path(*names), "rb") as file:
            return file.read()


class Certs(Case):
    def make(self, *words):
        return self.well("certs", "make", self.path("certs"), *words)

    def test_what_is_made_is_good_and_keys_are_private(self):
        self.make("--address", "localhost,127.0.0.1,*.example")
        for name in ("ca", "server", "client"):
            self.assertEqual(self.mode("certs", name + ".key"), 0o600)
            self.assertEqual(self.mode("certs", name + ".pem"), 0o644)
        self.assertEqual(self.mode("certs"), 0o700)
        for name, purpose in (("server", "sslserver"), ("server", "sslclient"), ("client", "sslclient")):
            done = subprocess.run(
                ["openssl", "verify", "-x509_strict", "-purpose", purpose]
                + ["-CAfile", self.path("certs", "ca.pem"), self.path("certs", name + ".pem")],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                close_fds=False,
            )
            self.assertEqual(done.returncode, 0, done.stdout)
        shown = json.loads(self.well("certs", "show", self.path("certs", "server.pem"), "--json"))
        self.assertEqual(shown["subject"], "CN=server")
        self.assertIn("DNS:localhost, IP Address:127.0.0.1, DNS:*.example", shown["names"])
        self.assertIn(shown["days_left"], (89, 90))

    def test_nothing_is_written_over(self):
        self.make()
        before = {name: self.read("certs", name) for name in os.listdir(self.path("certs"))}
        self.fails("certs", "make", self.path("certs"), says="is there already", reason="FILE_EXISTS")
        self.make("--name", "more")
        for name, data in before.items():
            self.assertEqual(self.read("certs", name), data)

    def test_nonsense_is_refused(self):
        self.make()
        make = ("certs", "make", self.path("certs"))
        self.fails(*make, "--name", "../x", says="certificate")
        self.fails(*make, "--name", "ca", says="other than ca")
        self.fails(*make, "--name", "a", "--address", "host:80", says="without a port")
        self.fails(*make, "--name", "a", "--address", "", says="need a host name")
        self.fails(*make, "--name", "a", "--grant", "king", says="need client, agent or admin")
        self.fails(*make, "--name", "a", "--grant", "agent@a b", says="job")
        self.fails(*make, "--name", "a", "--days", "0", says="--days", code=2)
        with open(self.path("certs", "ca.pem"), "w") as file:
            file.write("garbage")
        self.fails(*make, "--name", "b", says="holds no authority", reason="NO_AUTHORITY")
        self.fails("certs", "show", self.path("certs", "ca.pem"), says="no certificate in it")
        self.assertFalse(os.path.exists(self.path("certs", "a.key")))

    def serve(self):
        self.make()
        return SecureProgram(
            "tutti-coordinator",
            *("--tls-cert", self.path("certs", "server.pem")),
            *("--tls-key", self.path("certs", "server.key")),
            *("--tls-client-ca", self.path("certs", "ca.pem")),
        )

    def channel(self, server, name):
        return server.channel(
            credentials=grpc.ssl_channel_credentials(
                self.read("certs", "ca.pem"),
                self.read("certs", name + ".key"),
                self.read("certs", name + ".pem"),
            )
        )

    def refusal(self, server, name, method="ListJobs", **fields):
        with self.channel(server, name) as channel:
            stub = coordinator_grpc.CoordinatorServiceStub(channel)
            try:
                getattr(stub, method)(
                    getattr(coordinator, method + "Request")(**fields), timeout=LONG_S
                )
                return ""
            except grpc.RpcError as error:
                return support.Failure(error).reason

    def test_a_certificate_with_a_role_is_kept_to_it(self):
        with self.serve() as server:
            for name, grant in (("mine", "client@train"), ("all", "admin"), ("king", "client")):
                self.make("--name", name, "--grant", grant)
            self.assertEqual(self.refusal(server, "client"), "")  # says nothing, so it may all
            self.assertEqual(self.refusal(server, "all"), "")
            self.assertEqual(self.refusal(server, "mine"), "FOREIGN_JOB")
            self.assertEqual(self.refusal(server, "mine", "GetJob", job="other"), "FOREIGN_JOB")
            self.assertEqual(self.refusal(server, "mine", "GetJob", job="train"), "NO_JOB")
            self.assertEqual(self.refusal(server, "mine", "Leave"), "WRONG_ROLE")

    def test_an_agents_certificate_is_for_its_rank(self):
        with self.serve() as server:
            self.make("--name", "agent-2", "--grant", "agent@default#2")
            words = ["--coordinator", server.address, "--world-size", "4", "--join-timeout", "20s"]
            for name, way in (("ca", "ca.pem"), ("cert", "agent-2.pem"), ("key", "agent-2.key")):
                words += ["--coordinator-" + name, self.path("certs", way)]
            code, _, err = support.run("tutti-agent", *words, "--rank", "3")
            self.assertEqual(code, 1)
            self.assertIn("you may speak for rank 2, not for rank 3", err)
            with support.Program("tutti-agent", *words, "--rank", "2") as agent:
                agent.wait_for_log("1 of 4 ranks are here")


class Tokens(Case):
    def serve(self, keys):
        return support.Program("tutti-coordinator", "--token-keys", keys)

    def call(self, server, token):
        with server.channel() as channel:
            stub = coordinator_grpc.CoordinatorServiceStub(channel)
            metadata = [("authorization", "Bearer " + token.strip())]
            return stub.ListJobs(coordinator.ListJobsRequest(), metadata=metadata, timeout=LONG_S)

    def test_each_algorithm_signs_and_checks(self):
        for algorithm in ("HS256", "RS256", "ES256"):
            key = self.path("key-" + algorithm)
            made = json.loads(
                self.well("token", "key", key, "--algorithm", algorithm, "--json")
            )
            self.assertEqual(stat.S_IMODE(os.stat(key).st_mode), 0o600)
            token = self.well("token", "make", key, "--role", "admin")
            with self.serve(made["check_with"]) as server:
                self.call(server, token)
                wrong = tokens.hs256(tokens.claims("admin"))
                with self.assertRaises(grpc.RpcError) as caught:
                    self.call(server, wrong)
                self.assertEqual(support.Failure(caught.exception).reason, "BAD_TOKEN")

    def test_a_token_says_what_was_asked_for(self):
        self.well("token", "key", self.path("secret"))
        before = int(time.time())
        self.well(
            *("token", "make", self.path("secret"), "--role", "agent", "--job", "train"),
            *("--ranks", "0-3,7", "--subject", "me", "--issuer", "us", "--audience", "you"),
            *("--expires", "8h", "--key-id", "k1", "-o", self.path("token")),
        )
        self.assertEqual(self.mode("token"), 0o600)
        shown = self.well("token", "show", self.path("token"))
        said = json.loads(shown[: shown.rindex("}") + 1])
        self.assertEqual(said["header"], {"alg": "HS256", "typ": "JWT", "kid": "k1"})
        claims = said["claims"]
        self.assertTrue(before + 28800 <= claims.pop("exp") <= before + 28830)
        claims.pop("iat")
        self.assertEqual(
            claims,
            {"role": "agent", "job": "train", "ranks": "0-3,7", "sub": "me", "iss": "us", "aud": "you"},
        )
        self.assertIn("signature not checked", shown)

    def test_nonsense_is_refused(self):
        self.well("token", "key", self.path("secret"))
        make = ("token", "make", self.path("secret"))
        self.fails("token", "key", self.path("secret"), says="is there already")
        self.fails("token", "key", self.path("k"), "--algorithm", "none", says="HS256", code=2)
        self.fails(*make, "--role", "king", says="need client, agent or admin")
        self.fails(*make, "--ranks", "3-1", says="need the like of 0-3,7")
        self.fails(*make, "--job", "a b", says="job")
        self.fails(*make, "--expires", "10ms", says="--expires", code=2)
        self.fails("token", "make", "/dev/null", says="no key that signs")
        self.fails("token", "show", "/dev/null", says="no JSON web token")
        self.fails("token", "show", "/nonexistent", says="/nonexistent")

    def test_a_pair_of_keys_is_made_whole_or_not_at_all(self):
        with open(self.path("pair.pub"), "w"):
            pass
        make = ("token", "key", self.path("pair"), "--algorithm", "ES256")
        self.fails(*make, says="pair.pub is there already")
        self.assertFalse(os.path.exists(self.path("pair")))
        self.fails("token", "key", "k" * 4090, says="a path of 4090 bytes, need at most 4000")

    def test_a_secret_may_end_with_the_byte_0(self):
        with open(self.path("secret"), "wb") as file:
            file.write(bytes(range(33, 103)) + b"\0\n")  # HMAC adds zeros itself up to 64 bytes
        token = self.well("token", "make", self.path("secret"), "--role", "admin")
        with self.serve(self.path("secret")) as server:
            self.call(server, token)

    def test_the_command_shows_a_token(self):
        self.well("token", "key", self.path("secret"))
        token = self.path("token")
        self.well("token", "make", self.path("secret"), "--role", "client", "-o", token)
        with self.serve(self.path("secret")) as server:
            words = ("--coordinator", server.address, "store", "check", "a")
            code, _, err = support.run("tutti", *words)
            self.assertIn("wants a bearer token: give one: --token-file FILE (TUTTI_TOKEN_FILE)", err)
            code, _, err = support.run("tutti", *words, environment={"TUTTI_TOKEN_FILE": token})
            self.assertNotIn("token", err)


if __name__ == "__main__":
    support.main()
