"""Goal: the real coordinator keeps every promise of CoordinatorService, to any gRPC client, and
behaves as a program of an operator.
Method: the program on a free port, driven by Python stubs of stock protoc; nothing waits for long
that is not an event.
"""

import queue
import signal
import time
import unittest

import support
import grpc
from coordinator_case import CALL_S, CODE, NAME, Agent, Case, Services

from tutti.v1 import coordinator_service_pb2 as pb
from tutti.v1 import store_service_pb2 as store
from tutti.v1 import types_pb2 as types


class Join(Case):
    def test_a_world_forms_and_all_hear_the_same(self):
        agents = self.world(4)
        results = [agent.result for agent in agents]
        self.assertEqual([r.rank for r in results], [0, 1, 2, 3])
        self.assertEqual({r.epoch for r in results}, {1})
        self.assertEqual({r.world_size for r in results}, {4})
        self.assertEqual(len({r.job_id for r in results}), 1)
        self.assertEqual(results[0].heartbeat_interval_ms, 2000)
        self.assertEqual(results[0].heartbeat_timeout_ms, 10000)

    def test_ranks_are_assigned_by_host_name_as_people_order_it(self):
        hosts = ["host-10", "host-2", "host-1"]
        agents = [self.agent(None, 100 + i, 3, host=host) for i, host in enumerate(hosts)]
        self.assertEqual([agent.joined().rank for agent in agents], [2, 1, 0])

    def test_progress_names_who_is_missing(self):
        agent = self.agent(2, 5, 4)
        answer = next(agent.joining)
        self.assertEqual(answer.waiting.joined_count, 1)
        self.assertEqual(answer.waiting.world_size, 4)
        self.assertEqual(list(answer.waiting.missing_ranks), [0, 1, 3])

    def test_a_deadline_that_passes_names_the_missing(self):
        request = pb.JoinRequest(job=self.job, world_size=4, rank=1, incarnation=5)
        failure = self.refused(
            CODE.DEADLINE_EXCEEDED,
            "JOIN_TIMEOUT",
            self.services.coordinator.Join,
            request,
            timeout=1,
        )
        self.assertIn("1 of 4 agents joined job", failure.text)
        self.assertIn("nobody asked for ranks 0, 2, 3", failure.text)

    def test_a_caller_that_goes_gives_its_seat_back(self):
        first = self.agent(0, 5, 2)
        next(first.joining)
        first.joining.cancel()
        second = self.agent(0, 6, 2)  # the same rank, another process
        third = self.agent(1, 7, 2)
        self.assertEqual(second.joined().rank, 0)
        self.assertEqual(third.joined().rank, 1)

    def test_bad_requests_are_refused(self):
        self.world(2)
        join = self.services.coordinator.Join

        def request(**fields):
            values = dict(job=self.job, world_size=2, incarnation=9, rank=0)
            values.update(fields)
            return pb.JoinRequest(**values)

        bad = CODE.INVALID_ARGUMENT
        self.assertIn(
            "world size 2, not 3", self.refused(bad, "WORLD_SIZE", join, request(world_size=3)).text
        )
        self.refused(bad, "WORLD_SIZE", join, request(world_size=0))
        self.refused(bad, "WORLD_SIZE", join, request(world_size=65537))
        self.refused(bad, "RANK_RANGE", join, request(rank=2))
        self.refused(bad, "BAD_INCARNATION", join, request(incarnation=0))
        for name in ("a b", "../x", "x" * 128, "\u00e4", "a\tb", "/"):
            self.refused(bad, "BAD_NAME", join, request(job=name))
        failure = self.refused(CODE.ALREADY_EXISTS, "ALREADY_JOINED", join, request())
        self.assertIn("host host, pid 100", failure.text)
        self.assertEqual(failure.metadata["rank"], "0")
        free = pb.JoinRequest(job=self.job, world_size=2, incarnation=9)
        self.refused(CODE.RESOURCE_EXHAUSTED, "WORLD_FULL", join, free)
        agent = pb.AgentInfo(addresses=["x"] * 9)
        self.refused(bad, "BAD_AGENT", join, request(agent=agent))
        agent = pb.AgentInfo(data_address=b"x" * 4097)
        self.refused(bad, "BAD_AGENT", join, request(agent=agent))
        agent = pb.AgentInfo(host="new\nline")
        self.refused(bad, "BAD_AGENT", join, request(agent=agent))

    def test_joining_again_is_harmless(self):
        agents = self.world(2)
        again = self.agent(1, 101, 2)
        self.assertEqual(again.joined().rank, 1)
        self.assertEqual(again.result.job_id, agents[0].result.job_id)


class Session(Case):
    def test_a_killed_agent_is_everyones_news_within_a_second(self):
        agents = self.world(3, sessions=True)
        begin = time.monotonic()
        agents[1].die()
        for agent in (agents[0], agents[2]):
            event = agent.event()
            self.assertEqual(event.rank_lost.rank, 1)
            self.assertEqual(event.rank_lost.incarnation, 101)
            self.assertEqual(event.rank_lost.epoch, 2)
            self.assertEqual(event.rank_lost.reason, "the connection to it broke")
        # The promise is a second; a machine under load gets some more.
        self.assertLess(time.monotonic() - begin, 5)
        self.program.wait_for_log("rank 1 on host host is lost: the connection to it broke, epoch 2")

    def test_a_rank_comes_back_in_a_new_incarnation(self):
        agents = self.world(2, sessions=True)
        agents[1].die()
        self.assertTrue(agents[0].event().HasField("rank_lost"))
        stale = pb.JoinRequest(job=self.job, world_size=2, rank=1, incarnation=101)
        self.refused(
            CODE.INVALID_ARGUMENT, "BAD_INCARNATION", self.services.coordinator.Join, stale
        )
        back = self.agent(1, 501, 2)
        self.assertEqual(back.joined().epoch, 3)
        event = agents[0].event()
        self.assertEqual(event.rank_joined.rank, 1)
        self.assertEqual(event.rank_joined.incarnation, 501)
        self.assertEqual(event.rank_joined.epoch, 3)
        self.assertEqual(back.open_session().accepted.epoch, 3)

    def test_a_session_tells_who_is_lost_already(self):
        agents = self.world(3)
        self.services.coordinator.Leave(
            pb.LeaveRequest(member=agents[2].member, reason="pod deleted"), timeout=CALL_S
        )
        accepted = agents[0].open_session().accepted
        self.assertEqual(accepted.epoch, 2)
        self.assertEqual([lost.rank for lost in accepted.lost], [2])
        self.assertEqual(accepted.lost[0].reason, "left: pod deleted")

    def test_leaving_ends_the_session_well(self):
        agents = self.world(2, sessions=True)
        self.services.coordinator.Leave(
            pb.LeaveRequest(member=agents[1].member), timeout=CALL_S
        )
        self.assertIsNone(agents[1].event())
        self.assertEqual(agents[0].event().rank_lost.reason, "left")
        self.refused(
            CODE.NOT_FOUND,
            "NO_RANK",
            self.services.coordinator.Leave,
            pb.LeaveRequest(member=agents[1].member),
        )

    def test_a_second_session_replaces_the_first(self):
        agents = self.world(2, sessions=True)
        first = agents[1].events
        agents[1].events = queue.Queue()
        self.assertTrue(agents[1].open_session().HasField("accepted"))
        failure = support.Failure(first.get(timeout=CALL_S))
        self.assertEqual((failure.code, failure.reason), (CODE.ABORTED, "SUPERSEDED"))

    def test_a_stream_that_ends_without_leave_is_a_lost_rank(self):
        agents = self.world(2, sessions=True)
        agents[1].sending.put(None)  # half close
        self.assertIsNone(agents[1].event())
        self.assertEqual(agents[0].event().rank_lost.rank, 1)

    def session(self, *requests):
        return self.services.coordinator.Session(iter(requests), timeout=CALL_S)

    def test_strangers_and_disorder_are_refused(self):
        agents = self.world(2)
        session = self.services.coordinator.Session

        def opening(**fields):
            member = types.Member(job=self.job, rank=0, incarnation=100)
            for name, value in fields.items():
                setattr(member, name, value)
            return iter([pb.SessionRequest(open=pb.SessionOpen(member=member))])

        self.refused(CODE.FAILED_PRECONDITION, "STALE_INCARNATION", session, opening(incarnation=1))
        self.refused(CODE.NOT_FOUND, "NO_RANK", session, opening(rank=7))
        self.refused(CODE.NOT_FOUND, "NO_JOB", session, opening(job="nobody"))
        self.refused(CODE.INVALID_ARGUMENT, "BAD_NAME", session, opening(job="a b"))
        beat = pb.SessionRequest(heartbeat=pb.Heartbeat(number=1))
        self.refused(CODE.FAILED_PRECONDITION, "BAD_ORDER", session, iter([beat]))
        self.refused(CODE.INVALID_ARGUMENT, "BAD_ORDER", session, iter([pb.SessionRequest()]))
        open_twice = [next(opening()), next(opening())]
        self.refused(CODE.FAILED_PRECONDITION, "BAD_ORDER", session, iter(open_twice))
        self.assertEqual(len(agents), 2)


class Heartbeats(Case):
    options = ("--heartbeat-interval=100ms", "--heartbeat-timeout=1500ms")

    def test_silence_is_a_lost_rank(self):
        agents = self.world(2, sessions=True)
        self.assertEqual(agents[0].result.heartbeat_interval_ms, 100)
        self.assertEqual(agents[0].result.heartbeat_timeout_ms, 1500)
        while agents[0].events.empty():  # rank 0 lives, rank 1 is silent
            agents[0].beat()
            time.sleep(0.05)
        event = agents[0].event()
        self.assertEqual(event.rank_lost.rank, 1)
        self.assertEqual(event.rank_lost.reason, "no heartbeat for 1500 ms")
        failure = support.Failure(agents[1].event())
        self.assertEqual((failure.code, failure.reason), (CODE.UNAVAILABLE, "RANK_LOST"))

    def test_who_beats_is_told_that_it_is_heard(self):
        agent = self.world(1)[0]
        words = queue.Queue()
        words.put(pb.SessionRequest(open=pb.SessionOpen(member=agent.member)))
        session = agent.services.coordinator.Session(iter(words.get, None), timeout=CALL_S)
        self.assertEqual(next(session).WhichOneof("event"), "accepted")
        self.assertTrue(agent.result.answers_heartbeats)
        began = time.monotonic()
        for _ in range(12):
            words.put(pb.SessionRequest(heartbeat=pb.Heartbeat()))
            time.sleep(0.1)
        words.put(None)
        heard = [response.WhichOneof("event") for response in session]
        self.assertEqual(set(heard), {"heartbeat_heard"})
        self.assertGreater(len(heard), 1)  # not one a beat: one in a quarter of the timeout
        self.assertLessEqual(len(heard), (time.monotonic() - began) / 0.375)

    def test_a_coordinator_that_was_stopped_blames_nobody(self):
        agents = self.world(2, sessions=True)
        self.program.send(signal.SIGSTOP)
        try:
            time.sleep(3.2)  # more than twice the heartbeat timeout
        finally:
            self.program.send(signal.SIGCONT)
        for _ in range(10):  # it hears from them again, and has lost nobody
            for agent in agents:
                agent.beat()
            time.sleep(0.05)
        job = self.services.coordinator.GetJob(
            pb.GetJobRequest(job=self.job), timeout=CALL_S
        ).job
        told = [str(event) for agent in agents for event in list(agent.events.queue)]
        self.assertEqual((job.epoch, job.alive_count), (1, 2), told)
        self.assertEqual(told, [])

    def test_a_session_that_says_nothing_ends(self):
        agent = self.world(1)[0]
        silent = queue.Queue()
        self.refused(
            CODE.DEADLINE_EXCEEDED,
            "BAD_ORDER",
            agent.services.coordinator.Session,
            iter(silent.get, None),
        )
        silent.put(None)


class Groups(Case):
    def create(self, member, name, ranks):
        return self.services.coordinator.CreateGroup(
            pb.CreateGroupRequest(member=member, name=name, ranks=ranks), timeout=CALL_S
        )

    def test_a_group_is_created_once_and_found(self):
        agents = self.world(4)
        first = self.create(agents[3].member, "tp/0", [3, 1])
        second = self.create(agents[1].member, "tp/0", [3, 1])
        self.assertTrue(first.created)
        self.assertFalse(second.created)
        for made in (first, second):
            made.group.age_ms = 0  # as old as it is at that moment
        self.assertEqual(first.group, second.group)
        got = self.services.coordinator.GetGroup(
            pb.GetGroupRequest(job=self.job, name="tp/0"), timeout=CALL_S
        )
        self.assertEqual(list(got.group.ranks), [3, 1])
        self.assertEqual(got.group.epoch, 1)

    def test_world_lists_all_ranks(self):
        self.world(4)
        got = self.services.coordinator.GetGroup(pb.GetGroupRequest(job=self.job), timeout=CALL_S)
        self.assertEqual(got.group.name, "world")
        self.assertEqual(list(got.group.ranks), [0, 1, 2, 3])

    def test_refusals_have_their_reasons(self):
        agents = self.world(4)
        create = self.services.coordinator.CreateGroup
        member = agents[0].member

        def request(name="g", ranks=(0, 1), who=member):
            return pb.CreateGroupRequest(member=who, name=name, ranks=ranks)

        bad = CODE.INVALID_ARGUMENT
        self.refused(bad, "EMPTY_GROUP", create, request(ranks=[]))
        self.refused(bad, "DUPLICATE_RANK", create, request(ranks=[0, 1, 0]))
        self.refused(bad, "DUPLICATE_RANK", create, request(ranks=[0] * 100000))
        self.refused(bad, "RANK_RANGE", create, request(ranks=[0, 4]))
        self.refused(bad, "RANK_RANGE", create, request(ranks=[-1, 0]))
        self.refused(bad, "BAD_NAME", create, request(name="a b"))
        self.refused(bad, "BAD_NAME", create, request(name="mesh:a/b"))
        self.refused(CODE.FAILED_PRECONDITION, "NOT_IN_GROUP", create, request(ranks=[1, 2]))
        stale = types.Member(job=self.job, rank=0, incarnation=1)
        self.refused(CODE.FAILED_PRECONDITION, "STALE_INCARNATION", create, request(who=stale))
        nobody = types.Member(job="nobody", incarnation=1)
        self.refused(CODE.NOT_FOUND, "NO_JOB", create, request(who=nobody))
        ninth = types.Member(job=self.job, rank=9, incarnation=1)
        self.refused(CODE.NOT_FOUND, "NO_RANK", create, request(who=ninth))
        create(request(), timeout=CALL_S)
        taken = self.refused(CODE.ALREADY_EXISTS, "NAME_TAKEN", create, request(ranks=[1, 0]))
        self.assertIn("group g exists already, with ranks 0, 1", taken.text)
        self.services.coordinator.Leave(pb.LeaveRequest(member=agents[1].member), timeout=CALL_S)
        lost = self.refused(CODE.UNAVAILABLE, "RANK_LOST", create, request(name="h"))
        self.assertEqual(lost.metadata["rank"], "1")
        get = self.services.coordinator.GetGroup
        self.refused(CODE.NOT_FOUND, "NO_GROUP", get, pb.GetGroupRequest(job=self.job, name="x"))
        self.refused(CODE.NOT_FOUND, "NO_JOB", get, pb.GetGroupRequest(job="nobody"))

    def test_deleting_is_told_to_sessions(self):
        agents = self.world(3, sessions=True)
        group = self.create(agents[0].member, "g", [0, 1]).group
        delete = self.services.coordinator.DeleteGroup

        def request(agent, name):
            return pb.DeleteGroupRequest(member=agent.member, name=name)

        precondition = CODE.FAILED_PRECONDITION
        self.refused(precondition, "NOT_IN_GROUP", delete, request(agents[2], "g"))
        self.refused(precondition, "WORLD_GROUP", delete, request(agents[0], "world"))
        delete(request(agents[1], "g"), timeout=CALL_S)
        for agent in agents:
            event = agent.event()
            self.assertEqual(event.group_deleted.id, group.id)
            self.assertEqual(event.group_deleted.name, "g")
        self.refused(CODE.NOT_FOUND, "NO_GROUP", delete, request(agents[1], "g"))

    def test_groups_are_listed_page_by_page(self):
        agents = self.world(2)
        for i in range(7):
            self.create(agents[0].member, "g/%d" % i, [0, 1])
        names = []
        token = ""
        pages = 0
        while True:
            page = self.services.coordinator.ListGroups(
                pb.ListGroupsRequest(job=self.job, page_size=3, page_token=token), timeout=CALL_S
            )
            names += [group.name for group in page.groups]
            pages += 1
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(names, ["g/%d" % i for i in range(7)] + ["world"])
        self.assertEqual(pages, 3)
        self.refused(
            CODE.INVALID_ARGUMENT,
            "PAGE_LIMIT",
            self.services.coordinator.ListGroups,
            pb.ListGroupsRequest(job=self.job, page_size=1001),
        )
        self.refused(
            CODE.NOT_FOUND,
            "NO_JOB",
            self.services.coordinator.ListGroups,
            pb.ListGroupsRequest(job="nobody"),
        )


class Lookup(Case):
    def test_ranks_and_jobs_are_described(self):
        agents = self.world(3)
        self.services.coordinator.Leave(pb.LeaveRequest(member=agents[1].member), timeout=CALL_S)
        found = self.services.coordinator.LookupRanks(
            pb.LookupRanksRequest(job=self.job, ranks=[2, 1]), timeout=CALL_S
        ).ranks
        self.assertEqual([rank.rank for rank in found], [2, 1])
        self.assertEqual(found[0].state, pb.RANK_STATE_ALIVE)
        self.assertEqual(found[0].incarnation, 102)
        self.assertEqual(found[0].joined_epoch, 1)
        self.assertEqual(list(found[0].agent.addresses), ["10.0.0.102:1"])
        self.assertEqual(found[0].agent.host, "host")
        self.assertEqual(found[0].agent.device, "cpu")
        self.assertLess(abs(found[0].since_ms / 1000 - time.time()), 600)
        self.assertEqual(found[1].state, pb.RANK_STATE_LOST)
        self.assertEqual(found[1].reason, "left")
        everyone = self.services.coordinator.LookupRanks(
            pb.LookupRanksRequest(job=self.job), timeout=CALL_S
        ).ranks
        self.assertEqual([rank.rank for rank in everyone], [0, 1, 2])
        job = self.services.coordinator.GetJob(
            pb.GetJobRequest(job=self.job), timeout=CALL_S
        ).job
        self.assertEqual((job.name, job.world_size, job.epoch), (self.job, 3, 2))
        self.assertEqual((job.alive_count, job.lost_count, job.group_count), (2, 1, 1))
        self.assertEqual(job.id, agents[0].result.job_id)

    def test_bad_lookups_are_refused(self):
        self.world(2)
        lookup = self.services.coordinator.LookupRanks
        bad = CODE.INVALID_ARGUMENT
        many = pb.LookupRanksRequest(job=self.job, ranks=[0] * 1025)
        self.refused(bad, "LOOKUP_LIMIT", lookup, many)
        beyond = pb.LookupRanksRequest(job=self.job, ranks=[0, 2])
        self.refused(bad, "RANK_RANGE", lookup, beyond)
        self.refused(CODE.NOT_FOUND, "NO_JOB", lookup, pb.LookupRanksRequest(job="nobody"))
        self.refused(
            CODE.NOT_FOUND, "NO_JOB", self.services.coordinator.GetJob, pb.GetJobRequest(job="no")
        )

    def test_jobs_are_listed_page_by_page(self):
        base = self.job
        for i in range(3):
            self.job = "%s/%d" % (base, i)
            self.world(1)
        names = []
        token = base
        while True:
            page = self.services.coordinator.ListJobs(
                pb.ListJobsRequest(page_size=2, page_token=token), timeout=CALL_S
            )
            names += [job.name for job in page.jobs]
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(
            [name for name in names if name.startswith(base)], [base + "/%d" % i for i in range(3)]
        )


class Limits(Case):
    options = (
        "--job-limit=2",
        "--group-limit=2",
        "--waiter-limit=3",
        "--watcher-limit=1",
        "--store-keys-limit=2",
        "--store-bytes-limit=100",
    )

    def test_each_limit_names_itself(self):
        exhausted = CODE.RESOURCE_EXHAUSTED
        self.job = "one"
        agents = self.world(2)
        self.job = "two"
        waiting = self.agent(0, 5, 2)
        next(waiting.joining)
        third = pb.JoinRequest(job="three", world_size=1, incarnation=1)
        failure = self.refused(exhausted, "JOB_LIMIT", self.services.coordinator.Join, third)
        self.assertIn("--job-limit", failure.text)
        create = self.services.coordinator.CreateGroup
        request = pb.CreateGroupRequest(member=agents[0].member, name="a", ranks=[0])
        create(request, timeout=CALL_S)
        request.name = "b"
        failure = self.refused(exhausted, "GROUP_LIMIT", create, request)
        self.assertIn("--group-limit", failure.text)
        keys = self.services.store
        wait = store.StoreServiceWaitRequest(keys=[b"absent"])
        parked = [keys.Wait.future(wait, timeout=CALL_S) for _ in range(2)]
        failure = self.refused(exhausted, "WAITER_LIMIT", keys.Wait, wait)
        self.assertIn("--waiter-limit", failure.text)
        watching = keys.Watch(store.StoreServiceWatchRequest())
        next(watching)
        failure = self.refused(
            exhausted, "WAITER_LIMIT", keys.Watch, store.StoreServiceWatchRequest()
        )
        self.assertIn("--watcher-limit", failure.text)
        large = store.StoreServiceSetRequest(key=b"a", value=b"v" * 100)
        failure = self.refused(exhausted, "STORE_LIMIT", keys.Set, large)
        self.assertIn("--store-bytes-limit", failure.text)
        for key in (b"a", b"b"):
            keys.Set(store.StoreServiceSetRequest(key=key), timeout=CALL_S)
        failure = self.refused(
            exhausted, "STORE_LIMIT", keys.Set, store.StoreServiceSetRequest(key=b"c")
        )
        self.assertIn("--store-keys-limit", failure.text)
        for future in parked:
            future.cancel()
        watching.cancel()


class Ends(Case):
    options = ("--job-linger=200ms",)

    def test_a_deserted_job_ends_with_its_keys(self):
        agents = self.world(1, sessions=True)
        keys = self.services.store
        keys.Set(store.StoreServiceSetRequest(job=self.job, key=b"k"), timeout=CALL_S)
        watching = keys.Watch(store.StoreServiceWatchRequest(job=self.job), timeout=CALL_S)
        next(watching)
        self.services.coordinator.Leave(pb.LeaveRequest(member=agents[0].member), timeout=CALL_S)
        self.assertEqual(next(watching).kind, store.WATCH_KIND_DELETED)
        self.refused(
            CODE.NOT_FOUND,
            "NO_JOB",
            self.services.coordinator.GetJob,
            pb.GetJobRequest(job=self.job),
        )
        watching.cancel()


class Hostile(Case):
    def raw(self, method, payload):
        call = self.services.channel.unary_unary(
            method, request_serializer=lambda data: data, response_deserializer=lambda data: data
        )
        return lambda timeout: call(payload, timeout=timeout)

    def test_bytes_that_are_no_message_are_refused(self):
        for method in ("Leave", "GetJob", "CreateGroup"):
            with self.assertRaises(grpc.RpcError) as caught:
                self.raw("/tutti.v1.CoordinatorService/" + method, b"\x0a\xff\xff\xff")(CALL_S)
            self.assertEqual(caught.exception.code(), CODE.INVALID_ARGUMENT)

    def test_methods_that_nobody_knows_are_refused(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.raw("/tutti.v1.StoreService/Nothing", b"")(CALL_S)
        self.assertEqual(caught.exception.code(), CODE.UNIMPLEMENTED)

    def test_empty_messages_are_refused_with_a_reason(self):
        coordinator = self.services.coordinator
        bad = CODE.INVALID_ARGUMENT
        self.refused(bad, "WORLD_SIZE", coordinator.Join, pb.JoinRequest())
        self.refused(bad, "NO_MEMBER", coordinator.Leave, pb.LeaveRequest())
        self.refused(bad, "NO_MEMBER", coordinator.CreateGroup, pb.CreateGroupRequest())
        self.refused(bad, "NO_MEMBER", coordinator.DeleteGroup, pb.DeleteGroupRequest())

    def test_a_storm_of_cancelled_calls_leaves_nothing(self):
        for _ in range(200):
            join = pb.JoinRequest(job=self.job, world_size=2, rank=0, incarnation=5)
            self.services.coordinator.Join(join).cancel()
            request = store.StoreServiceWaitRequest(job=self.job, keys=[b"never"])
            self.services.store.Wait.future(request).cancel()
            self.services.store.Watch(store.StoreServiceWatchRequest(job=self.job)).cancel()
        self.assertEqual(self.world_when_free(2)[1].result.rank, 1)

    def world_when_free(self, count):
        """The seats are free when the last cancellation has come."""
        until = time.monotonic() + CALL_S
        while True:
            try:
                return self.world(count)
            except grpc.RpcError as error:
                if error.code() != CODE.ALREADY_EXISTS or time.monotonic() > until:
                    raise
                time.sleep(0.05)


class Ops(unittest.TestCase):
    """What an operator sees."""

    def test_help_version_and_configuration(self):
        code, out, _ = support.run(NAME, "--help")
        self.assertEqual(code, 0)
        self.assertIn("--heartbeat-timeout TIME", out)
        self.assertIn("(default 127.0.0.1:29600)", out)
        code, out, _ = support.run(NAME, "--version")
        self.assertEqual(code, 0)
        self.assertRegex(out, r"^tutti-coordinator \d+\.\d+\.\d+\n$")
        code, out, _ = support.run(
            NAME, "--job-limit=7", "--print-config", environment={"TUTTI_LOST_GRACE": "1s"}
        )
        self.assertEqual(code, 0)
        self.assertIn("# flag:\njob-limit = 7\n", out)
        self.assertIn("# environment:\nlost-grace = 1s\n", out)
        self.assertIn("# default:\n# reflection = true\n", out)

    def test_wrong_usage_is_exit_code_2_and_says_what(self):
        for options, words in (
            (["--nothing"], "--nothing"),
            (["--job-limit=0"], "--job-limit"),
            (["--heartbeat-timeout=1s"], "--heartbeat-interval"),
            (["--listen=nowhere"], "nowhere"),
            (["--listen=0.0.0.0:0"], "--insecure"),
            (["--log=loud"], "loud"),
            (["--log-format=xml"], "xml"),
            (["stray"], "stray"),
        ):
            code, _, err = support.run(NAME, *options)
            self.assertEqual(code, 2, (options, err))
            self.assertIn(words, err)

    def test_a_port_in_use_is_exit_code_1_and_says_by_whom(self):
        with support.Program(NAME) as program:
            code, _, err = support.run(NAME, "--listen=" + program.address)
            self.assertEqual(code, 1)
            self.assertIn("in use by tutti-coord", err)
            self.assertIn("(pid %d)" % program.process.pid, err)

    def test_it_says_where_it_listens(self):
        with support.Program(NAME) as program:
            program.wait_for_log("tutti-coordinator listens on " + program.address)

    def test_it_listens_on_several_addresses(self):
        with support.Program(NAME, listen="127.0.0.1:0,127.0.0.1:0") as program:
            self.assertEqual(len(set(program.addresses)), 2)
            for address in program.addresses:
                with grpc.insecure_channel(address) as channel:
                    jobs = Services(channel).coordinator.ListJobs(
                        pb.ListJobsRequest(), timeout=CALL_S
                    )
                    self.assertEqual(len(jobs.jobs), 0)

    def test_health_says_serving(self):
        with support.Program(NAME) as program, program.channel() as channel:
            for service in (
                "",
                "tutti.v1.CoordinatorService",
                "tutti.v1.MetadataService",
                "tutti.v1.StoreService",
            ):
                response = support.call_foreign(
                    channel,
                    "/grpc.health.v1.Health/Check",
                    "grpc.health.v1.HealthCheckRequest",
                    "grpc.health.v1.HealthCheckResponse",
                    service=service,
                )
                self.assertEqual(response.status, 1, service)

    def test_reflection_lists_the_services(self):
        with support.Program(NAME) as program, program.channel() as channel:
            request = support.foreign("grpc.reflection.v1.ServerReflectionRequest")
            response = support.foreign("grpc.reflection.v1.ServerReflectionResponse")
            stub = channel.stream_stream(
                "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=response.FromString,
            )
            answers = stub(iter([request(list_services="")]), timeout=CALL_S)
            names = {one.name for one in next(answers).list_services_response.service}
            self.assertTrue(
                {
                    "tutti.v1.CoordinatorService",
                    "tutti.v1.MetadataService",
                    "tutti.v1.StoreService",
                }
                <= names,
                names,
            )

    def test_sigint_and_sigterm_end_it_well(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            program = support.Program(NAME)
            self.assertEqual(program.stop(number), 0)
            program.folder.cleanup()

    def test_sigterm_drains_a_thousand_waiting_calls(self):
        program = support.Program(NAME, "--streams-max=2000")
        channel = program.channel()
        services = Services(channel)
        request = store.StoreServiceWaitRequest(keys=[b"never"])
        parked = [services.store.Wait.future(request) for _ in range(1000)]
        joins = [
            services.coordinator.Join(
                pb.JoinRequest(job="j%d" % i, world_size=2, rank=0, incarnation=1)
            )
            for i in range(20)
        ]
        for join in joins:  # behind all the others on this connection
            self.assertTrue(next(join).HasField("waiting"))
        watching = services.store.Watch(store.StoreServiceWatchRequest())
        next(watching)
        agent = Agent(program, 0, 7, 1, job="alone")
        agent.joined()
        self.assertTrue(agent.open_session().HasField("accepted"))
        begin = time.monotonic()
        program.send(signal.SIGTERM)
        for future in parked:
            with self.assertRaises(grpc.RpcError) as caught:
                future.result(CALL_S)
            failure = support.Failure(caught.exception)
            self.assertEqual((failure.code, failure.reason), (CODE.UNAVAILABLE, "DRAINING"))
        for stream in joins + [watching]:
            with self.assertRaises(grpc.RpcError) as caught:
                for _ in stream:
                    pass
            self.assertEqual(support.Failure(caught.exception).reason, "DRAINING")
        self.assertEqual(support.Failure(agent.event()).reason, "DRAINING")
        self.assertEqual(program.wait(), 0)
        self.assertLess(time.monotonic() - begin, 30)
        agent.channel.close()
        channel.close()
        program.folder.cleanup()


if __name__ == "__main__":
    support.main()
