"""Goal: every method of every service is closed to who shows no token, a wrong one, one that has
expired, or one of another role, job or rank; what a token allows works.
Method: the methods come from the descriptor set of the programs, so a new one is tested by being
there; tokens are made by tokens.py, which knows nothing of ours; a real coordinator and an agent."""

import json
import os
import queue
import re
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
import support  # noqa: E402

import grpc  # noqa: E402
from google.protobuf import descriptor_pb2  # noqa: E402

import tokens  # noqa: E402
from cluster_case import LONG_S, coordinator, coordinator_grpc, tensors  # noqa: E402
from commands_stream import commands, commands_grpc  # noqa: E402
from tokens import claims, hs256  # noqa: E402
from tutti.v1 import rendezvous_service_pb2 as rendezvous  # noqa: E402
from tutti.v1 import rendezvous_service_pb2_grpc as rendezvous_grpc  # noqa: E402

JOB = "train"
CODE = grpc.StatusCode


class Method:
    def __init__(self, service, method):
        self.path = "/%s/%s" % (service, method.name)
        self.input = method.input_type.lstrip(".")
        self.arity = (method.client_streaming, method.server_streaming)


def read_methods():
    """Every method the programs know of, from what they embed."""
    path = os.path.join(support.BUILD, "gen", "tutti_descriptor_set.pb")
    with open(path, "rb") as file:
        files = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
    found = []
    for one in files:
        for service in one.service:
            name = "%s.%s" % (one.package, service.name)
            found += [Method(name, method) for method in service.method]
    return found


def read_fields():
    """The names of the fields of every message the programs know of."""
    path = os.path.join(support.BUILD, "gen", "tutti_descriptor_set.pb")
    with open(path, "rb") as file:
        files = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
    return {
        "%s.%s" % (one.package, message.name): [item.name for item in message.field]
        for one in files
        for message in one.message_type
    }


def field(data, number=1):
    """A field of bytes, text or a message on the wire."""
    return bytes([number << 3 | 2, len(data)]) + data


def read_table():
    """The rows of lib/auth/roles.c: path -> (roles, scope, open)."""
    path = os.path.join(support.SOURCE, "lib", "auth", "roles.c")
    with open(path) as file:
        rows = re.findall(r'\{"(/[^"]+)", (\w+), (\w+), (\w+)\}', file.read())
    roles = {"CLIENT": {"client"}, "AGENT": {"agent"}, "BOTH": {"client", "agent"}, "ADMIN": set()}
    return {row[0]: (roles[row[1]], row[2], row[3] == "true") for row in rows}


def ask(channel, path, arity, token, body=b"", timeout=LONG_S):
    """A Failure, or None: the handler has had it. Raw bytes, so that any method can be called."""
    call = {
        (False, False): channel.unary_unary,
        (False, True): channel.unary_stream,
        (True, False): channel.stream_unary,
        (True, True): channel.stream_stream,
    }[arity](path)
    metadata = [("authorization", "Bearer " + token)] if token is not None else []
    request = iter([body]) if arity[0] else body
    try:
        answer = call(request, metadata=metadata, timeout=timeout)
        if arity[1]:
            next(answer)
            answer.cancel()
        return None
    except StopIteration:
        return None
    except grpc.RpcError as error:
        return support.Failure(error)


def is_let_in(failure):
    """What a handler says is not for the guard to say."""
    return failure is None or failure.code not in (CODE.UNAUTHENTICATED, CODE.PERMISSION_DENIED) or (
        failure.reason in ("NO_MODULES", "NOT_ALLOWED", "BAD_SECRET")
    )


class Channels:
    """A coordinator and an agent of one rank that ask for tokens."""

    def __init__(self, keys, *options, rank=0):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-tokens-")
        own = self.write("agent", hs256(claims("agent", JOB, "0")))
        asks = ["--token-keys", keys] + list(options)
        self.coordinator = support.Program("tutti-coordinator", *asks)
        words = ["--coordinator", self.coordinator.address, "--coordinator-token", own]
        self.agent = support.Program(
            "tutti-agent", *words, "--job", JOB, "--rank", str(rank), *asks
        )
        self.agent.wait_for_log("joined job")
        self.to_coordinator = self.coordinator.channel()
        self.to_agent = self.agent.channel()

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path + ".new", "w") as file:
            file.write(text)
        os.rename(path + ".new", path)
        return path

    def of(self, path):
        """Where a method is served: coordinator or agent."""
        here = ("Tensors", "Collectives", "Diagnostics", "Tracers", "Commands", "Functions", "Session")
        return self.to_agent if any(path.startswith("/tutti.v1." + at) for at in here) else (
            self.to_coordinator
        )

    def stop(self):
        self.to_agent.close()
        self.to_coordinator.close()
        for program in (self.agent, self.coordinator):
            code = program.stop()
            assert code == 0, program.log()
        self.folder.cleanup()


class Table(unittest.TestCase):
    """Every method with every kind of bad token."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-tokens-")
        cls.keys = os.path.join(cls.folder.name, "secret")
        with open(cls.keys, "wb") as file:
            file.write(tokens.SECRET)
        cls.servers = Channels(cls.keys, "--token-issuer", "")
        cls.table = read_table()
        cls.kinds = read_fields()
        # One without a row is told of by a test of its own.
        known = [method for method in read_methods() if method.path in cls.table]
        cls.methods = [method for method in known if not cls.table[method.path][2]]

    @classmethod
    def tearDownClass(cls):
        cls.servers.stop()
        cls.folder.cleanup()

    def of_job(self, method, job):
        """A request that names a job, as its type has it."""
        kind = self.kinds.get(method.input, [])
        body = field(job.encode())  # `job` and `member` are number 1 everywhere
        if "member" in kind or ("open" in kind and not method.path.endswith("/Drive")):
            body = field(body)
        return field(body) if "open" in kind and not method.path.endswith("/Drive") else body

    def check_all(self, token, code, reason, body=None, only=lambda row: True):
        """Every method is refused so; how many there were."""
        wrong, count = [], 0
        for method in self.methods:
            row = self.table[method.path]
            if not only(row):
                continue
            count += 1
            found = ask(
                self.servers.of(method.path),
                method.path,
                method.arity,
                token,
                body(method) if body else b"",
            )
            if found is None or (found.code, found.reason) != (code, reason):
                wrong.append((method.path, found))
        self.assertEqual(wrong, [])
        self.assertGreater(count, 0)
        return count

    def test_every_method_has_a_row_and_every_row_a_method(self):
        paths = {method.path for method in read_methods()}
        self.assertEqual(paths - set(self.table), set(), "add a row to lib/auth/roles.c")
        self.assertEqual(set(self.table) - paths, set(), "rows of lib/auth/roles.c")
        self.assertGreater(len(paths), 60)
        self.assertEqual(list(self.table), sorted(self.table), "the table has to be sorted")

    def test_without_a_token(self):
        self.check_all(None, CODE.UNAUTHENTICATED, "NO_TOKEN")

    def test_with_what_is_none(self):
        for token in ("nonsense", "a.b.c", "a" * 8000):
            self.check_all(token, CODE.UNAUTHENTICATED, "BAD_TOKEN")

    def test_signed_with_another_secret(self):
        token = hs256(claims("admin"), b"some other secret of thirty-two bytes")
        self.check_all(token, CODE.UNAUTHENTICATED, "BAD_TOKEN")

    def test_expired(self):
        self.check_all(hs256(claims("admin", lasts=-60)), CODE.UNAUTHENTICATED, "TOKEN_EXPIRED")

    def test_for_another_audience(self):
        token = hs256(claims("admin", aud="others"))
        self.check_all(token, CODE.UNAUTHENTICATED, "WRONG_AUDIENCE")

    def test_of_no_role(self):
        self.check_all(hs256(claims()), CODE.PERMISSION_DENIED, "NO_ROLE")
        self.check_all(hs256(claims("emperor")), CODE.PERMISSION_DENIED, "NO_ROLE")

    def test_of_the_wrong_role(self):
        for role in ("client", "agent"):
            token = hs256(claims(role, JOB))
            self.check_all(
                token, CODE.PERMISSION_DENIED, "WRONG_ROLE", only=lambda row: role not in row[0]
            )

    def test_of_a_foreign_job(self):
        """In every form in which a method can say for which job it is."""
        for role in ("client", "agent", "admin"):
            token = hs256(claims(role, "other"))
            may = lambda row: role in row[0] or role == "admin"  # noqa: E731
            self.check_all(
                token,
                CODE.PERMISSION_DENIED,
                "FOREIGN_JOB",
                body=lambda method: self.of_job(method, JOB),
                only=lambda row: may(row) and row[1] != "NONE",
            )

    def test_of_the_default_job_where_none_is_named(self):
        token = hs256(claims("admin", "other"))
        self.check_all(
            token,
            CODE.PERMISSION_DENIED,
            "FOREIGN_JOB",
            only=lambda row: row[1] in ("SERVER", "EARLY", "ALL"),
        )

    def test_of_another_rank_on_an_agent(self):
        token = hs256(claims("admin", JOB, "1-7"))
        self.check_all(
            token,
            CODE.PERMISSION_DENIED,
            "FOREIGN_RANK",
            only=lambda row: row[1] in ("SERVER", "EARLY"),
        )

    def members(self):
        """Methods whose request has a place for a member, and such a request without one."""
        found = []
        for method in self.methods:
            kind = self.kinds.get(method.input, [])
            if "member" in kind:
                found.append((method, b""))
            elif "open" in kind and not method.path.endswith("/Drive"):  # that one opens a session
                found.append((method, field(b"")))
        self.assertGreater(len(found), 8)
        return found

    def refusals_without_a_member(self, token):
        found = set()
        for method, body in self.members():
            failure = ask(self.servers.of(method.path), method.path, method.arity, token, body)
            found.add((failure.code, failure.reason, failure.text) if failure else method.path)
        return found

    def test_who_names_no_member_learns_nothing(self):
        """Not of a foreign job, and not of his own: no rank, no host, no process."""
        for job in ("other", JOB):
            ((code, reason, text),) = self.refusals_without_a_member(hs256(claims("agent", job)))
            self.assertEqual((code, reason), (CODE.PERMISSION_DENIED, "FOREIGN_JOB"), text)
        ((code, reason, text),) = self.refusals_without_a_member(hs256(claims("agent", "default")))
        self.assertEqual((code, reason), (CODE.INVALID_ARGUMENT, "NO_MEMBER"), text)

    def test_callers_meet_as_ranks_of_their_token(self):
        def meet(**more):
            request = rendezvous.RendezvousServiceMeetRequest(job=JOB, key=b"k", count=1, **more)
            metadata = [("authorization", "Bearer " + hs256(claims("client", JOB, "0,2")))]
            return stub.Meet(request, metadata=metadata, timeout=LONG_S)

        stub = rendezvous_grpc.RendezvousServiceStub(self.servers.to_coordinator)
        for words in ({"group_rank": 1}, {}):
            with self.assertRaises(grpc.RpcError) as caught:
                meet(**words)
            failure = support.Failure(caught.exception)
            wanted = (CODE.PERMISSION_DENIED, "FOREIGN_RANK")
            self.assertEqual((failure.code, failure.reason), wanted, failure)
        self.assertEqual(meet(group_rank=0).group_rank, 0)

    def test_right_ones_are_let_in(self):
        wrong = []
        for method in self.methods:
            if method.path.endswith(("/Join", "/Session")):
                continue  # what their agent does all the time
            roles = self.table[method.path][0]
            for role in sorted(roles | {"admin"}):
                token = hs256(claims(role))
                server = self.servers.of(method.path)
                # Who is let in may wait there: that is an answer, too.
                found = ask(server, method.path, method.arity, token, timeout=0.5)
                if not is_let_in(found):
                    wrong.append((method.path, role, found))
        self.assertEqual(wrong, [])

    def test_the_key_of_the_data_plane_is_for_agents(self):
        stub = coordinator_grpc.CoordinatorServiceStub(self.servers.to_coordinator)
        for role, wanted in (("client", False), ("agent", True), ("admin", True)):
            metadata = [("authorization", "Bearer " + hs256(claims(role, JOB)))]
            request = coordinator.LookupRanksRequest(job=JOB)
            answer = stub.LookupRanks(request, metadata=metadata, timeout=LONG_S)
            self.assertEqual(len(answer.ranks[0].agent.data_address) > 16, wanted, role)
            self.assertTrue(answer.ranks[0].agent.addresses)

    def test_a_command_is_looked_at_like_a_call(self):
        """What a stream carries needs a token that is good when it comes."""
        asked = queue.SimpleQueue()
        stub = commands_grpc.CommandsServiceStub(self.servers.to_agent)
        metadata = [("authorization", "Bearer " + hs256(claims("client", JOB, "0", lasts=-27)))]
        call = stub.Run(iter(asked.get, None), metadata=metadata, timeout=LONG_S)
        number, reason, until = 0, "", time.monotonic() + LONG_S
        while reason == "":  # three seconds are left of the skew
            number += 1
            asked.put(commands.RunRequest(id=number, list=tensors.ListRequest()))
            answer = next(call)
            self.assertEqual(answer.id, number)
            reason = answer.error.reason if answer.HasField("error") else ""
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        self.assertEqual(reason, "TOKEN_EXPIRED")
        self.assertGreater(number, 1)
        asked.put(None)
        self.assertEqual(list(call), [])

    def test_health_needs_none(self):
        health = support.call_foreign(
            self.servers.to_agent,
            "/grpc.health.v1.Health/Check",
            "grpc.health.v1.HealthCheckRequest",
            "grpc.health.v1.HealthCheckResponse",
        )
        self.assertEqual(health.status, 1)


class Early(unittest.TestCase):
    """An agent that has not joined yet: there is no coordinator."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tutti-tokens-")
        self.addCleanup(folder.cleanup)
        self.keys = os.path.join(folder.name, "secret")
        with open(self.keys, "wb") as file:
            file.write(tokens.SECRET)
        self.table = read_table()

    def answers(self, ranks, *options):
        """What every method of an agent says to a token for these ranks, by its scope."""
        words = ["--coordinator", "127.0.0.1:1", "--job", JOB, "--token-keys", self.keys]
        token = hs256(claims("admin", JOB, ranks))
        found = {"SERVER": set(), "EARLY": set()}
        with support.Program("tutti-agent", *words, *options) as agent, agent.channel() as channel:
            for method in read_methods():
                scope = self.table[method.path][1]
                if scope in found:
                    failure = ask(channel, method.path, method.arity, token, timeout=0.5)
                    let_in = is_let_in(failure) and failure.reason != "NOT_JOINED" if failure else True
                    found[scope].add("let in" if let_in else failure.reason)
        return found

    def test_is_for_the_rank_it_will_ask_for(self):
        foreign = {"SERVER": {"FOREIGN_RANK"}, "EARLY": {"FOREIGN_RANK"}}
        self.assertEqual(self.answers("7", "--rank", "0"), foreign)

    def test_without_one_is_for_nobody_who_is_bound_to_ranks(self):
        waiting = {"SERVER": {"NOT_JOINED"}, "EARLY": {"let in"}}
        self.assertEqual(self.answers("7"), waiting)


class Seats(unittest.TestCase):
    """An agent is bound to its rank."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-tokens-")
        cls.keys = os.path.join(cls.folder.name, "secret")
        with open(cls.keys, "wb") as file:
            file.write(tokens.SECRET)
        cls.server = support.Program("tutti-coordinator", "--token-keys", cls.keys)

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0, cls.server.log()
        cls.folder.cleanup()

    def join(self, body, *words):
        path = os.path.join(self.folder.name, "token")
        with open(path, "w") as file:
            file.write(hs256(body))
        return support.run(
            "tutti-agent",
            *("--coordinator", self.server.address, "--coordinator-token", path),
            *("--world-size", "8", "--join-timeout", "2s"),
            *words,
        )

    def test_a_token_for_rank_2_does_not_join_as_rank_3(self):
        code, _, err = self.join(claims("agent", "default", "2"), "--rank", "3")
        self.assertEqual(code, 1)
        self.assertIn("you may speak for rank 2, not for rank 3", err)

    def test_nor_as_whatever_is_free(self):
        code, _, err = self.join(claims("agent", "default", "2"))
        self.assertEqual(code, 1)
        self.assertIn("say which one you are", err)

    def test_nor_in_another_job(self):
        code, _, err = self.join(claims("agent", "default", "2"), "--rank", "2", "--job", "x")
        self.assertEqual(code, 1)
        self.assertIn("you may work with job default", err)

    def test_nor_as_a_client(self):
        code, _, err = self.join(claims("client"), "--rank", "2")
        self.assertEqual(code, 1)
        self.assertIn("needs the role agent or admin, you have client", err)

    def test_it_joins_as_rank_2(self):
        path = os.path.join(self.folder.name, "right")
        with open(path, "w") as file:
            file.write(hs256(claims("agent", "default", [2, 5])))
        with support.Program(
            "tutti-agent",
            *("--coordinator", self.server.address, "--coordinator-token", path),
            *("--world-size", "8", "--rank", "2"),
        ) as agent:
            agent.wait_for_log("1 of 8 ranks are here")


class Renewal(unittest.TestCase):
    def test_an_agent_waits_for_a_new_token(self):
        """The coordinator comes back while the agent's token has expired."""
        folder = tempfile.TemporaryDirectory(prefix="tutti-tokens-")
        self.addCleanup(folder.cleanup)

        def write(name, data):
            path = os.path.join(folder.name, name)
            with open(path + ".new", "wb") as file:
                file.write(data)
            os.rename(path + ".new", path)
            return path

        keys = write("secret", tokens.SECRET)
        own = write("token", hs256(claims("agent")).encode())
        first = support.Program("tutti-coordinator", "--token-keys", keys)
        way = ("--coordinator", first.address, "--coordinator-token", own)
        with support.Program("tutti-agent", *way) as agent:
            agent.wait_for_log("joined job")
            write("token", hs256(claims("agent", lasts=-600)).encode())
            time.sleep(1.2)  # the file is looked at once a second
            self.assertEqual(first.stop(), 0)
            with support.Program(
                "tutti-coordinator", "--token-keys", keys, listen=first.address
            ):
                agent.wait_for_log("the bearer token has expired")
                self.assertIsNone(agent.process.poll())
                write("token", hs256(claims("agent")).encode())
                agent.wait_for_log("in touch with the coordinator again")


class Keys(unittest.TestCase):
    """What signs a token, and what only looks as if."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-tokens-")
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, data):
        with open(self.path(name + ".new"), "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        os.rename(self.path(name + ".new"), self.path(name))
        return self.path(name)

    def serve(self, keys, *options):
        server = support.Program("tutti-coordinator", "--token-keys", keys, *options)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0, server.log()))
        channel = server.channel()
        self.addCleanup(channel.close)
        return lambda token: ask(
            channel, "/tutti.v1.CoordinatorService/ListJobs", (False, False), token
        )

    def refused(self, failure, reason="BAD_TOKEN"):
        self.assertIsNotNone(failure)
        self.assertEqual((failure.code, failure.reason), (CODE.UNAUTHENTICATED, reason), failure)

    def test_public_keys_of_both_kinds(self):
        rsa, rsa_public = tokens.make_key(self.folder.name, "RS256")
        ec, ec_public = tokens.make_key(self.folder.name, "ES256")
        both = open(rsa_public).read() + open(ec_public).read()
        call = self.serve(self.write("both.pem", both))
        self.assertIsNone(call(tokens.rs256(claims("admin"), rsa)))
        self.assertIsNone(call(tokens.es256(claims("admin"), ec)))
        good = tokens.es256(claims("client"), ec).split(".")
        forged = tokens.b64(json.dumps(claims("admin")).encode())
        self.refused(call(".".join([good[0], forged, good[2]])))

    def test_a_public_key_is_nobodys_secret(self):
        """The signature of HS256 over the PEM, which everybody has."""
        _, public = tokens.make_key(self.folder.name, "RS256")
        call = self.serve(public)
        with open(public, "rb") as file:
            pem = file.read()
        for secret in (pem, pem.strip(), pem + b"\0"):
            self.refused(call(hs256(claims("admin"), secret)))

    def test_none_is_no_algorithm(self):
        call = self.serve(self.write("secret", tokens.SECRET))
        for name in ("none", "None", "NONE", "", "HS384", "hs256"):
            text = tokens.unsigned(claims("admin"), name)
            self.refused(call(text + "."))
            self.refused(call(text + "." + tokens.b64(b"x" * 32)))
            signature = hs256(claims("admin")).split(".")[2]
            self.refused(call(text + "." + signature))

    def test_a_key_set_with_ids(self):
        rsa, rsa_public = tokens.make_key(self.folder.name, "RS256")
        ec, ec_public = tokens.make_key(self.folder.name, "ES256")
        keys = [tokens.jwk_rsa(rsa_public, "one"), tokens.jwk_ec(ec_public, "two")]
        keys.append({"kty": "oct", "k": tokens.b64(tokens.SECRET), "kid": "three"})
        keys.append({"kty": "OKP", "crv": "Ed25519", "x": "AAAA"})  # passed over
        call = self.serve(self.write("jwks", json.dumps({"keys": keys})))
        self.assertIsNone(call(tokens.rs256(claims("admin"), rsa, kid="one")))
        self.assertIsNone(call(tokens.es256(claims("admin"), ec, kid="two")))
        self.assertIsNone(call(hs256(claims("admin"), kid="three")))
        self.assertIsNone(call(tokens.rs256(claims("admin"), rsa)))
        self.refused(call(tokens.rs256(claims("admin"), rsa, kid="two")))
        self.refused(call(hs256(claims("admin"), kid="four")))
        self.refused(call(hs256(claims("admin"), kid="three", crit=["b64"], b64=False)))

    def test_keys_change_with_their_file(self):
        path = self.write("secret", tokens.SECRET)
        call = self.serve(path)
        old = hs256(claims("admin"))
        fresh = hs256(claims("admin"), b"the next secret, of more than 32 bytes")
        self.assertIsNone(call(old))
        self.refused(call(fresh))
        self.write("secret", "too short")
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            self.assertIsNone(call(old))  # what cannot be used is not taken
            time.sleep(0.2)
        self.write("secret", "the next secret, of more than 32 bytes")
        until = time.monotonic() + LONG_S
        while call(fresh) is not None:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.05)
        self.refused(call(old))

    def test_times_and_issuer(self):
        call = self.serve(self.write("secret", tokens.SECRET), "--token-issuer", "https://us")
        now = int(time.time())
        good = lambda **more: hs256(claims("admin", iss="https://us", **more))  # noqa: E731
        self.assertIsNone(call(good()))
        self.assertIsNone(call(good(lasts=-10)))  # within the skew
        self.refused(call(good(lasts=-40)), "TOKEN_EXPIRED")
        self.assertIsNone(call(good(nbf=now + 10)))
        self.refused(call(good(nbf=now + 60)), "TOKEN_NOT_YET")
        self.refused(call(good(exp=None)))
        self.refused(call(good(exp="soon")))
        self.refused(call(good(exp=1e300)))
        self.assertIsNone(call(good(aud=["others", "tutti"])))
        self.refused(call(good(aud=None)), "WRONG_AUDIENCE")
        self.refused(call(hs256(claims("admin", iss="https://them"))), "WRONG_ISSUER")
        self.refused(call(hs256(claims("admin"))), "WRONG_ISSUER")

    def test_a_service_account_of_kubernetes(self):
        rsa, public = tokens.make_key(self.folder.name, "RS256")
        keys = self.write("jwks", json.dumps({"keys": [tokens.jwk_rsa(public, "k8s")]}))
        call = self.serve(
            keys,
            *("--token-issuer", "https://kubernetes.default.svc.cluster.local"),
            "--token-subjects",
            "system:serviceaccount:ml:agents=agent@train system:serviceaccount:ops:*=admin",
        )

        def token(namespace, name):
            now = int(time.time())
            return tokens.rs256(
                {
                    "aud": ["tutti"],
                    "exp": now + 3607,
                    "iat": now,
                    "nbf": now,
                    "iss": "https://kubernetes.default.svc.cluster.local",
                    "kubernetes.io": {
                        "namespace": namespace,
                        "pod": {"name": "x-0", "uid": "8c5f"},
                        "serviceaccount": {"name": name, "uid": "9d4e"},
                    },
                    "sub": "system:serviceaccount:%s:%s" % (namespace, name),
                },
                rsa,
                kid="k8s",
            )

        self.assertIsNone(call(token("ops", "anybody")))
        self.assertEqual(call(token("ml", "agents")).reason, "FOREIGN_JOB")  # all jobs are not his
        self.assertEqual(call(token("ml", "others")).reason, "NO_ROLE")

    def test_files_that_are_no_keys(self):
        private, _ = tokens.make_key(self.folder.name, "ES256")
        small = self.path("small.pub")
        tokens.openssl("genrsa", "-out", self.path("small.key"), "1024")
        tokens.openssl("rsa", "-in", self.path("small.key"), "-pubout", "-out", small)
        for path, words in (
            (private, "a private key"),
            (small, "at least 2048 bits"),
            (self.write("short", "123456"), "secret of 6 bytes, need at least 32"),
            (self.write("broken", "{nonsense"), "no JSON"),
            (self.write("empty", '{"keys": []}'), "no key in it"),
            (self.path("nothing"), "No such file"),
        ):
            code, _, err = support.run("tutti-coordinator", "--token-keys", path)
            self.assertNotEqual(code, 0)
            self.assertIn(words, err)
            self.assertIn(path, err)


if __name__ == "__main__":
    support.main()
