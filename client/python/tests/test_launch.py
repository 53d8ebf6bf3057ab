"""Goal: a script starts a coordinator, a rank, or all ranks, and hears what became of them.

Method: real processes, found in TUTTI_PROGRAMS; everything ends with the test.
"""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402
import tutti.aio  # noqa: E402
from ports import free_port  # noqa: E402

os.environ.setdefault("TUTTI_PROGRAMS", os.environ.get("TUTTI_BUILD", ""))
FOUND = os.access(os.path.join(os.environ["TUTTI_PROGRAMS"], "tutti-agent"), os.X_OK)
NEED = unittest.skipUnless(FOUND, "no programs: set TUTTI_PROGRAMS to their folder")


def add(more):
    with tutti.connect(timeout=case.LONG_S) as agent:
        assert (agent.rank, agent.world_size) == (int(os.environ["RANK"]), 2)
        return agent.rank, float(agent.all_reduce([1.0])[0]) + more


async def add_async():
    async with await tutti.aio.connect(timeout=case.LONG_S) as agent:
        return float((await agent.all_reduce([1.0]))[0])


def fail(rank):
    if int(os.environ["RANK"]) == rank:
        raise ValueError("rank %d has no batches" % rank)
    with tutti.connect(timeout=case.LONG_S) as agent:
        agent.barrier()


def die():
    if os.environ["RANK"] == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    threading.Event().wait(case.LONG_S)


def third():
    with tutti.connect(timeout=case.LONG_S) as agent:
        total = float(agent.all_reduce([agent.rank + 1.0])[0])
    return total, os.environ["RANK"], os.environ["LOCAL_RANK"], os.environ["WORLD_SIZE"]


def hang():
    threading.Event().wait(case.LONG_S)


@tutti.launcher(n=2)
def decorated(more):
    return add(more)


def at_home(script):
    """What a Python prints that has not connected; this one has."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join([os.path.dirname(__file__), *sys.path]))
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120
    )
    return done.returncode, done.stdout.decode().strip()


@NEED
class Launchers(unittest.TestCase):
    def test_a_decorated_function_a_closure_and_a_typed_one_run_on_each_rank(self):
        code, said = at_home("""
import test_launch, tutti
more = 0.25
def typed():
    return test_launch.add(more)
print(test_launch.decorated(0.5), tutti.launch(lambda: test_launch.add(more)), tutti.launch(typed))
""")
        want = "[(0, 2.5), (1, 2.5)] [(0, 2.25), (1, 2.25)] [(0, 2.25), (1, 2.25)]"
        self.assertEqual((code, said), (0, want))

    def test_without_arguments_it_has_a_rank_for_each_gpu_or_else_two(self):
        code, said = at_home("""
import os, test_launch, tutti
from unittest import mock
@tutti.launcher
def place():
    return os.environ["RANK"], os.environ["WORLD_SIZE"]
print(place())
with mock.patch.object(os, "listdir", lambda folder: ["nvidia0", "nvidiactl", "nvidia1", "nvidia2", "tty"]):
    try:
        place()
    except tutti.TuttiError as error:
        print(error.reason, "cuda:" in error.text)
""")
        self.assertEqual((code, said), (0, "[('0', '2'), ('1', '2')]\nNOT_STARTED True"))

    def test_a_closure_of_a_program_that_has_connected_is_refused(self):
        with tutti.Server() as server, self.assertRaises(tutti.TuttiError):
            tutti.connect(server.address, timeout=1)
        with self.assertRaises(tutti.TuttiError) as caught:
            tutti.launch(lambda: None)
        self.assertEqual(caught.exception.reason, "FORKED")
        self.assertIn("before the first connection", caught.exception.text)

    def test_the_devices_of_the_machine_are_counted(self):
        found = ["nvidia0", "nvidiactl", "nvidia10", "nvidia-uvm", "nvidia1", "null"]
        counts = [(None, 3), ("", 0), ("0,2", 2), ("2,3,1", 1), ("GPU-1234,0", 2), ("-1,0", 0)]
        with mock.patch.object(os, "listdir", lambda folder: found):
            for visible, count in counts:
                with mock.patch.dict(os.environ, {"CUDA_VISIBLE_DEVICES": visible or ""}):
                    if visible is None:
                        del os.environ["CUDA_VISIBLE_DEVICES"]
                    self.assertEqual(tutti.get_device_count(), count, visible)
        self.assertEqual(tutti.get_device_count("cpu"), 1)
        with self.assertRaises(tutti.TuttiError) as caught:
            tutti.get_device_count("tpu")
        self.assertEqual(caught.exception.reason, "BAD_DEVICE")


@NEED
class Sessions(unittest.TestCase):
    def check(self, session):
        self.assertEqual((session.num_workers, session.num_groups), (2, 2))
        x = session.scatter(np.arange(4.0).reshape(2, 2))
        self.assertEqual(session.allreduce(x, in_group=False).debug_get_from_remote(1).tolist(), [2.0, 4.0])
        self.assertEqual(session.allreduce(x).debug_get_from_remote(1).tolist(), [2.0, 3.0])

    def test_one_starts_its_workers_and_ends_them(self):
        with tutti.ProcessSession(2, num_groups=2) as session:
            self.check(session)
            programs = session._servers._agents
            self.assertEqual([one._process.poll() for one in programs], [None, None])
        self.assertNotIn(None, [one._process.poll() for one in programs])

    def test_workers_offer_the_functions_of_the_entrypoint(self):
        folders = [os.path.join(os.path.dirname(__file__), "hosted"), *sys.path]
        with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(folders)):
            with tutti.ProcessSession(1, entrypoint="later_of_tests") as session:
                self.assertEqual(session.call_packed("tests.later.seven").debug_get_from_all(), [7])

    def test_groups_that_do_not_fit_leave_nothing_behind(self):
        for words, reason in [((3, 2), "GROUP_SIZE"), ((0,), "RANK_RANGE")]:
            with self.assertRaises(tutti.TuttiError) as caught:
                tutti.ProcessSession(*words)
            self.assertEqual(caught.exception.reason, reason)


@NEED
class Launch(unittest.TestCase):
    def test_a_function_runs_on_each_rank_and_its_values_come_back(self):
        self.assertEqual(tutti.launch(add, 2, [0.5]), [(0, 2.5), (1, 2.5)])
        found = asyncio.run(tutti.aio.launch(add_async, 2))
        self.assertEqual(found, [2.0, 2.0])

    def test_the_first_failure_is_told_with_its_traceback(self):
        with self.assertRaises(tutti.LaunchError) as caught:
            tutti.launch(fail, 2, [1])
        error = caught.exception
        self.assertEqual((error.rank, error.exit_code), (1, 1))
        self.assertIn("rank 1 has no batches", str(error))
        self.assertIn('raise ValueError("rank %d has no batches" % rank)', error.traceback)

    def test_several_launches_join_one_job(self):
        with tutti.Server() as server:
            more = dict(world_size=3, coordinator=server.address)
            found = case.in_threads(
                [
                    lambda: tutti.launch(third, 2, rank_start=0, **more),
                    lambda: tutti.launch(third, 1, rank_start=2, **more),
                ]
            )
        self.assertEqual(
            case.good(found),
            [[(6.0, "0", "0", "3"), (6.0, "1", "1", "3")], [(6.0, "2", "0", "3")]],
        )

    def test_the_failure_of_one_launch_ends_the_other(self):
        with tutti.Server() as server:
            more = dict(world_size=2, coordinator=server.address)
            found = case.in_threads(
                [
                    lambda: tutti.launch(fail, 1, [1], rank_start=0, **more),
                    lambda: tutti.launch(fail, 1, [1], rank_start=1, **more),
                ]
            )
        other, failed = found
        self.assertIn("rank 1 has no batches", failed.traceback)
        self.assertEqual(other.rank, 0, other)
        self.assertRegex(other.traceback, "RANK_LOST|RANK_LEAVING")  # whichever is heard first: its agent was told to stop

    def test_ranks_that_make_no_sense_are_refused(self):
        for words, reason in [
            (dict(n=2, rank_start=1, world_size=2, coordinator="x:1"), "RANK_RANGE"),
            (dict(n=0), "RANK_RANGE"),
            (dict(n=1, world_size=2), "NO_COORDINATOR"),
            (dict(n=2, devices=["cpu"]), "BAD_DEVICE"),
        ]:
            with self.subTest(words=words), self.assertRaises(tutti.TuttiError) as caught:
                tutti.launch(hang, **words)
            self.assertEqual(caught.exception.reason, reason)

    def test_a_rank_that_dies_is_named(self):
        with self.assertRaises(tutti.LaunchError) as caught:
            tutti.launch(die, 2)
        self.assertEqual((caught.exception.rank, caught.exception.exit_code), (1, -signal.SIGKILL))

    def test_ranks_that_take_too_long_are_ended(self):
        with self.assertRaises(tutti.TuttiTimeout) as caught:
            tutti.launch(hang, 1, timeout=3)
        self.assertIn("ranks [0] have not ended in 3 s", caught.exception.text)

    def test_without_programs_it_says_so(self):
        with mock.patch.dict(os.environ, TUTTI_PROGRAMS="/nowhere"):
            with self.assertRaises(tutti.TuttiError) as caught:
                tutti.Server().start()
        self.assertEqual(caught.exception.reason, "NO_PROGRAM")


@NEED
class Servers(unittest.TestCase):
    def test_a_coordinator_lives_in_a_script(self):
        with tutti.Server() as server:
            self.assertGreater(server.port, 0)
            program = os.path.join(os.environ["TUTTI_PROGRAMS"], "tutti")
            words = [program, "--coordinator", server.address, "store", "set", "key", "value"]
            done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
            self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(repr(tutti.Server()), "<Server at nowhere yet>")

    def test_one_that_ends_says_why(self):
        with tutti.Server() as server:
            with self.assertRaises(tutti.TuttiError) as caught:
                tutti.Server(server.address).start()
        self.assertEqual(caught.exception.reason, "NOT_STARTED")
        self.assertIn(server.address.rpartition(":")[2], caught.exception.text)


@NEED
class Ranks(unittest.TestCase):
    def check(self, url):
        def work(rank):
            with tutti.init_process_group(url % rank) as agent:
                return agent.rank, float(agent.all_reduce([1.0])[0])

        found = case.in_threads([lambda rank=rank: work(rank) for rank in range(2)])
        self.assertEqual(case.good(found), [(0, 2.0), (1, 2.0)])

    def test_rank_0_becomes_the_server(self):
        port = free_port()
        with mock.patch.dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)):
            self.check("env://?rank=%d&world_size=2")

    def test_rank_size_host_and_port_are_arguments_too(self):
        port = free_port()

        def work(rank):
            where = dict(host="127.0.0.1", port=port) if rank else {"init_method": "tcp://127.0.0.1:%d" % port}
            with tutti.init_process_group(**where, rank=rank, world_size=2) as agent:
                return agent.rank, float(agent.all_reduce([1.0])[0])

        found = case.in_threads([lambda rank=rank: work(rank) for rank in range(2)])
        self.assertEqual(case.good(found), [(0, 2.0), (1, 2.0)])

    def test_arguments_that_contradict_the_address_are_refused(self):
        for words, said in [
            (dict(init_method="tcp://h:1?rank=0&world_size=2", rank=0), "rank is given twice"),
            (dict(init_method="tcp://h:1", host="h", port=1), "or a host and a port"),
            (dict(host="h", rank=0, world_size=1), "or a host and a port"),
            (dict(host="h", port=1, rank=2, world_size=2), "rank 2 in a world of 2"),
            (dict(host="h", port=1, world_size=2), "rank parameter missing"),
            (dict(host="::1", port=1, rank="x", world_size=2), 'rank is "x"'),
        ]:
            with self.subTest(words=words), self.assertRaises(tutti.TuttiError) as caught:
                tutti.init_process_group(**words)
            self.assertEqual(caught.exception.reason, "BAD_URL")
            self.assertIn(said, caught.exception.text)

    def test_a_file_tells_where_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check("file://" + folder + "/address?rank=%d&world_size=2")


if __name__ == "__main__":
    tap.main()
