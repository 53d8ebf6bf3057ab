#!/usr/bin/python3
"""Goal: the `tutti` command moves files, tensors and results as its pages say, and says what is wrong.

Method: the program itself, a cluster of four agents that it starts, NumPy on the other side of every
file. Each test cleans up after itself.
"""

import io
import os
import signal
import time

import support
from cli_case import RANKS, ClusterCase, file_path, start, tutti, work

import numpy as np

SHARED = [np.bool_, np.uint8, np.uint16, np.uint32, np.uint64, np.int8, np.int16, np.int32]
SHARED += [np.int64, np.float16, np.float32, np.float64, np.complex64, np.complex128]


class TestTensors(ClusterCase):
    def test_put_get__every_shared_dtype_survives(self):
        for number, dtype in enumerate(SHARED):
            for shape in [(), (0,), (1,), (3, 4, 5), (2, 0, 3), (1,) * 16]:
                array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
                name = self.save("in.npy", array)
                put = self.json("put", name, "--rank", str(number % RANKS))
                self.assertEqual(put["shape"], list(shape))
                self.well("get", put["handle"], "-o", "out.npy")
                self.assert_same(self.load("out.npy"), array)
                self.well("delete", put["handle"])

    def test_put__turns_fortran_order_and_big_endian(self):
        for array in [
            np.asfortranarray(np.arange(24, dtype=np.int32).reshape(2, 3, 4)),
            np.arange(6, dtype=">f8").reshape(2, 3),
            np.asfortranarray(np.arange(6, dtype=">c8").reshape(3, 2)),
            np.asfortranarray(np.arange(6, dtype=">u2").reshape(1, 6)),
        ]:
            handle = self.well("put", self.save("in.npy", array), "-q").text.strip()
            self.well("get", handle, "-o", "out.npy")
            read = self.load("out.npy")
            self.assertTrue(read.flags["C_CONTIGUOUS"] and read.dtype.isnative)
            self.assertTrue(np.array_equal(read, array))

    def test_put_get__bf16_and_fp8_travel_as_voids(self):
        half = np.arange(4, dtype=np.uint16).view("V2")
        put = self.json("put", self.save("half.npy", half))
        self.assertEqual(put["dtype"], "BF16")
        self.well("get", put["handle"], "-o", "out.npy")
        self.assertEqual(self.load("out.npy").tobytes(), half.tobytes())
        quarter = self.save("quarter.npy", np.arange(4, dtype=np.uint8).view("V1"))
        self.fails(["put", quarter], "FP8_E4M3 or FP8_E5M2: say which with --dtype")
        put = self.json("put", quarter, "--dtype", "fp8_e5m2")
        self.assertEqual((put["dtype"], put["bytes"]), ("FP8_E5M2", 4))

    def test_put__large_files_travel_whole(self):
        array = np.random.default_rng(7).integers(0, 256, 9 << 20, np.uint8)
        self.well("put", self.save("large.npy", array), "--name", "large")
        self.well("get", "large", "-o", "out.npy")
        self.assert_same(self.load("out.npy"), array)
        self.assertEqual(self.json("stat", "large")["bytes"], array.nbytes)

    def test_get__to_standard_output_gives_the_file_alone(self):
        array = np.arange(5, dtype=np.int64)
        self.well("put", self.save("in.npy", array), "--name", "x")
        self.assert_same(np.load(io.BytesIO(self.well("get", "x", "-o", "-").out)), array)
        done = tutti("get", "x", "-o", "-", "--json")
        self.assertEqual(done.code, 2)
        self.assertIn("both want standard output", done.json["error"]["text"])
        self.fails(["get", "x"], "no file: say -o FILE.npy", code=2)

    def test_put__into_a_tensor_overwrites_it(self):
        first = self.save("first.npy", np.zeros(3, np.float32))
        second = self.save("second.npy", np.ones(3, np.float32))
        handle = self.json("put", first, "--rank", "2", "--name", "x")["handle"]
        self.well("put", second, "--into", handle)
        self.well("get", handle, "-o", "out.npy")
        self.assertEqual(list(self.load("out.npy")), [1, 1, 1])
        self.fails(["put", first, "--into", handle, "--name", "y"], "give only one", code=2)
        other = self.save("other.npy", np.ones(3, np.int8))
        self.fails(["put", other, "--into", handle], "INT8", "FP32")

    def test_list_stat_copy_delete__agree(self):
        self.assertEqual(self.json("list")["tensors"], [])
        self.well("put", self.save("in.npy", np.ones((2, 3), np.float32)), "--name", "x")
        copy = self.json("copy", "x", "--name", "y")
        tensors = self.json("list")["tensors"]
        self.assertEqual([tensor["name"] for tensor in tensors], ["x", "y"])
        self.assertEqual(tensors[1]["handle"], copy["handle"])
        self.assertEqual(
            (tensors[0]["dtype"], tensors[0]["shape"], tensors[0]["bytes"], tensors[0]["state"]),
            ("FP32", [2, 3], 24, "ready"),
        )
        stat = self.json("stat", "y")
        self.assertGreaterEqual(stat.pop("age_ms"), tensors[1].pop("age_ms"))
        self.assertEqual(stat, tensors[1])
        table = self.well("list").text.split("\n")
        self.assertRegex(table[0], "^HANDLE +NAME +DTYPE +SHAPE +SIZE +STATE +AGE +OWNER$")
        self.assertRegex(table[1], r"^tensor:0\.[0-9a-f]{16}\.\d+ +x +FP32 +\[2, 3\] +24 B +ready +\d+[sm] +local$")
        self.assertEqual(self.json("delete", "x", "y")["deleted"], ["x", "y"])
        self.fails(["stat", "x"], 'no tensor is named "x"')
        self.fails(["delete", "x"], "tutti: x: ")

    def test_put__bad_files_are_named_with_what_is_wrong(self):
        good = open(file_path(self.save("good.npy", np.ones((2, 3), np.float32))), "rb").read()
        for name, content in {
            "cut.npy": good[:-3],
            "longer.npy": good + b"xyz",
            "head.npy": good[:20],
            "text.npy": b"hello world, this is no array",
            "empty.npy": b"",
            "archive.npy": b"PK\x03\x04" + bytes(60),
            "version.npy": good[:6] + b"\x09" + good[7:],
            "negative.npy": good.replace(b"(2, 3)", b"(-2,3)"),
        }.items():
            with open(file_path(name), "wb") as file:
                file.write(content)
        self.save("records.npy", np.zeros(3, [("a", "i4")]))
        self.save("words.npy", np.array(["ab"]))
        np.save(file_path("object.npy"), np.array([None]), allow_pickle=True)
        for name, text in [
            ("cut.npy", "announces 24 bytes of data, the file has 21"),
            ("longer.npy", "announces 24 bytes of data, the file has 27"),
            ("head.npy", "ends inside its header"),
            ("text.npy", "this is no .npy file"),
            ("empty.npy", "the file is empty"),
            ("archive.npy", "this is an archive of arrays (.npz)"),
            ("version.npy", "version 9.0"),
            ("negative.npy", "numbers of 63 bits"),
            ("records.npy", "records"),
            ("words.npy", "no tensors of dtype '<U2'"),
            ("object.npy", "no tensors of dtype '|O'"),
            ("missing.npy", "No such file or directory"),
            (".", "no regular file"),
        ]:
            done = self.fails(["put", name], "tutti: %s: " % name, text)
            self.assertEqual(done.err.count("\n"), 1, done.err)
        self.assertEqual(self.json("list")["tensors"], [])

    def test_get__leaves_no_half_file(self):
        self.well("put", self.save("in.npy", np.ones(3)), "--name", "x")
        self.fails(["get", "x", "-o", "nowhere/out.npy"], "nowhere/out.npy", "No such file")
        self.fails(["get", "nobody", "-o", "fresh.npy"], 'no tensor is named "nobody"')
        self.assertEqual([n for n in os.listdir(work.name) if n.startswith("fresh")], [])
        if os.path.exists("/dev/full"):
            self.fails(["get", "x", "-o", "/dev/full"], "No space left on device")

    def test_get__that_is_interrupted_leaves_no_half_file(self):
        self.well("put", self.save("in.npy", np.ones(1)), "--rank", "1", "--name", "x")
        self.well("recv", "--rank", "1", "--into", "x", "--async")  # it is being written from now on
        getting = start("get", "x", "--rank", "1", "-o", "half.npy")
        until = time.monotonic() + support.START_S
        while not [name for name in os.listdir(work.name) if name.startswith("half.npy.")]:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.01)
        getting.send_signal(signal.SIGTERM)
        getting.communicate(timeout=support.START_S)
        self.assertEqual(getting.returncode, -signal.SIGTERM)
        self.assertEqual([name for name in os.listdir(work.name) if name.startswith("half")], [])
        self.well("put", "in.npy", "--name", "y")
        self.well("send", "y", "--rank", "0", "--to", "1")

    def test_put__that_is_interrupted_says_so_and_leaves_no_tensor(self):
        self.save("whole.npy", np.ones(1 << 20))
        stopped = self.json("cluster", "status")["agents"][1]["pid"]
        os.kill(stopped, signal.SIGSTOP)
        try:
            putting = start("put", "whole.npy", "--rank", "1", "--name", "interrupted")
            self.wait_until_caught(putting.pid, signal.SIGINT)
            putting.send_signal(signal.SIGINT)
            _, said = putting.communicate(timeout=support.START_S)
        finally:
            os.kill(stopped, signal.SIGCONT)
        self.assertEqual((putting.returncode, said), (-signal.SIGINT, b"tutti: put: interrupted\n"))
        until = time.monotonic() + support.START_S
        while any(one["name"] == "interrupted" for one in self.json("list", "--rank", "1")["tensors"]):
            self.assertLess(time.monotonic(), until)

    def wait_until_caught(self, pid, number):
        """It has a handler of its own for the signal."""
        until = time.monotonic() + support.START_S
        while True:
            with open("/proc/%d/status" % pid) as file:
                caught = int(dict(line.split(":", 1) for line in file)["SigCgt"], 16)
            if caught >> (number - 1) & 1:
                return
            self.assertLess(time.monotonic(), until)

    def test_rank__must_be_one(self):
        name = self.save("in.npy", np.ones(3))
        self.fails(["put", name, "--rank", "9"], "no rank 9 in a world of 4")
        self.fails(["put", name, "--rank", "x"], "whole number from 0 to 65535", code=2)
        self.fails(["stat", "tensor:7.0123456789abcdef.1"], "no rank 7 in a world of 4")

    def test_agent__any_leads_to_all(self):
        agents = self.json("cluster", "status")["agents"]
        for address in (agents[1]["socket"], agents[1]["address"]):
            self.assertEqual(self.json("list", "--agent", address)["rank"], 1)
            self.assertEqual(self.json("list", "--agent", address, "--rank", "3")["rank"], 3)
            self.assertEqual(self.json("list", TUTTI_AGENT=address)["rank"], 1)
            self.assertEqual(self.json("list", "-c", "default", TUTTI_AGENT=address)["rank"], 0)

    def test_local_clusters__need_no_tls_of_the_users(self):
        self.json("status", "-c", "default", TUTTI_TLS_CA="/nonexistent", TUTTI_TOKEN_FILE="/none")


class TestCollectives(ClusterCase):
    def files(self, dtype=np.float32):
        return [
            self.save("part.%d.npy" % rank, np.full((2, 3), rank + 1, dtype))
            for rank in range(RANKS)
        ]

    def test_all_reduce__of_files_into_a_file(self):
        for op, wanted in [("sum", 10), ("prod", 24), ("min", 1), ("max", 4), ("avg", 2.5)]:
            self.well("all-reduce", *self.files(), "--op", op, "-o", "out.npy")
            self.assert_same(self.load("out.npy"), np.full((2, 3), wanted, np.float32))
        self.well("all-reduce", *self.files(), "--op", "premul_sum", "--factor", "0.5", "-o", "out.npy")
        self.assertEqual(self.load("out.npy")[0, 0], 5)
        done = self.json("all-reduce", *self.files(np.int32), "--op", "bor", "-o", "out.npy")
        self.assertEqual((done["op"], done["group"], done["file"]), ("all_reduce", "world", "out.npy"))
        self.assertEqual(self.load("out.npy")[0, 0], 7)

    def test_all_reduce__into_a_file_of_each_rank(self):
        done = self.json("all-reduce", *self.files(), "-o", "out.%d.npy")
        self.assertEqual([result["file"] for result in done["results"]],
                         ["out.%d.npy" % rank for rank in range(RANKS)])
        self.assertNotIn("file", done)
        for rank in range(RANKS):
            self.assert_same(self.load("out.%d.npy" % rank), np.full((2, 3), 10, np.float32))
            os.unlink(file_path("out.%d.npy" % rank))
        self.assertFalse(os.path.exists(file_path("out.%d.npy")))

    def test_get__into_a_file_with_the_number_of_the_rank(self):
        self.well("put", self.save("in.npy", np.arange(3)), "--name", "numbered", "--rank", "2")
        self.assertEqual(self.json("get", "numbered", "--rank", "2", "-o", "got.%d.npy")["file"], "got.2.npy")
        self.assert_same(self.load("got.2.npy"), np.arange(3))

    def test_reduce__into_a_file_with_the_number_of_the_root(self):
        done = self.json("reduce", *self.files(), "--root", "2", "-o", "out.%d.npy")
        self.assertEqual([result.get("file") for result in done["results"]], [None, None, "out.2.npy", None])
        self.assert_same(self.load("out.2.npy"), np.full((2, 3), 10, np.float32))
        os.unlink(file_path("out.2.npy"))
        for rank in range(RANKS):
            self.assertEqual(self.json("list", "--rank", str(rank))["tensors"], [])

    def test_all_reduce__of_a_name_leaves_results_in_the_agents(self):
        self.well("all-reduce", *self.files(), "--name", "grad")
        done = self.json("all-reduce", "grad", "--op", "max")
        self.assertEqual([result["rank"] for result in done["results"]], list(range(RANKS)))
        for result in done["results"]:
            self.well("get", result["handle"], "-o", "out.npy")
            self.assertEqual(self.load("out.npy")[0, 0], 10)

    def test_all_reduce__refuses_what_does_not_fit(self):
        files = self.files()
        self.fails(["all-reduce", files[0]], "1 file for 4 ranks: need one each")
        self.fails(["all-reduce", "gone.rank*.npy"], "no file matches gone.rank*.npy")
        self.fails(["put", files[0], "--name", ""], '--name "": the name is empty', code=2)
        self.fails(["barrier", "--group", ""], '--group "": the name is empty', code=2)
        self.fails(["all-reduce", *files, "--op", "median"], "need sum, prod", code=2)
        self.fails(["all-reduce", *files, "--op", "band"], "band", "FP32")
        self.save(files[3], np.ones((2, 3), np.float64))
        self.fails(["all-reduce", *files], "rank 3", "FP64", "FP32")
        self.fails(["all-reduce", "nothing"], 'no tensor is named "nothing"')
        self.fails(["all-reduce", *files[:3], "gone.npy"], "gone.npy: could not open it")
        self.well("barrier")  # the group works as before
        for rank in range(RANKS):
            self.assertEqual(self.json("list", "--rank", str(rank))["tensors"], [])

    def test_broadcast__of_a_file_and_of_a_name(self):
        array = np.arange(6, dtype=np.int16)
        self.well("broadcast", self.save("in.npy", array), "--root", "2", "--name", "w")
        for rank in range(RANKS):
            self.well("get", "w", "--rank", str(rank), "-o", "out.npy")
            self.assert_same(self.load("out.npy"), array)
        self.well("put", self.save("new.npy", array + 1), "--into", "w", "--rank", "1")
        self.well("broadcast", "w", "--root", "1")
        self.well("get", "w", "--rank", "3", "-o", "out.npy")
        self.assert_same(self.load("out.npy"), array + 1)
        self.assertEqual(len(self.json("list", "--rank", "3")["tensors"]), 1)
        self.fails(["broadcast", "w", "--root", "4"], "4")

    def test_all_gather__joins_and_stacks(self):
        files = self.files()
        parts = [np.load(file_path(name)) for name in files]
        self.well("all-gather", *files, "-o", "out.npy")
        self.assert_same(self.load("out.npy"), np.concatenate(parts, 0))
        self.well("all-gather", *files, "--axis", "-1", "-o", "out.npy")
        self.assert_same(self.load("out.npy"), np.concatenate(parts, -1))
        done = self.json("all-gather", *files, "--stack")
        self.assertEqual(done["results"][0]["shape"], [4, 2, 3])

    def test_an_empty_name__is_an_error_of_the_command(self):
        for words, reason in ((["store", "set", "", "v"], "BAD_KEY"), (["tracer", "create", ""], "BAD_NAME")):
            done = self.fails([*words, "--json"], "tutti: %s: " % " ".join(words[:2]))
            self.assertEqual(done.json["error"]["reason"], reason)

    def test_group__names_ranks_in_order(self):
        made = self.json("group", "create", "odd", "3,1")
        self.assertEqual(made["ranks"], [3, 1])
        found = self.json("group", "get", "odd")
        self.assertGreaterEqual(found.pop("age_ms"), made.pop("age_ms"))
        self.assertEqual(found, made)
        self.assertRegex(made["owner"], r"^rank 3: (unix:|ipv4:127\.0\.0\.1:\d+)")
        names = [group["name"] for group in self.json("group", "list")["groups"]]
        self.assertEqual(names, ["odd", "world"])
        self.assertRegex(self.well("group", "list").text, r"world +1 +4 +1 +0-3 +- +-")
        parts = self.files()[:2]
        done = self.json("all-gather", *parts, "--group", "odd", "-o", "out.npy")
        self.assertEqual([result["rank"] for result in done["results"]], [3, 1])
        self.assertEqual(list(self.load("out.npy")[:, 0]), [1, 1, 2, 2])
        self.fails(["barrier", "--group", "odd", "--rank", "0"], "odd")
        self.well("group", "delete", "odd")
        self.fails(["group", "get", "odd"], "no group odd in job default")
        self.fails(["group", "delete", "odd"], "no group odd in job default")
        self.fails(["group", "create", "twice", "1,1"], "lists rank 1 twice")
        self.fails(["group", "create", "far", "0-9"], "lists 10 ranks, but there are only 4")
        self.fails(["group", "create", "back", "3-1"], "need a list of ranks: 0-3,7", code=2)

    def test_send_recv_wait__one_rank_each(self):
        array = np.arange(4, dtype=np.float64)
        self.well("put", self.save("in.npy", array), "--rank", "2", "--name", "x")
        sent = self.json("send", "x", "--rank", "2", "--to", "1", "--tag", "7", "--async")
        got = self.json("recv", "--rank", "1", "--from", "2", "--tag", "7")["results"][0]
        self.assertEqual((got["source"], got["shape"]), (2, [4]))
        self.well("get", got["handle"], "-o", "out.npy")
        self.assert_same(self.load("out.npy"), array)
        done = self.json("wait", sent["results"][0]["work"])["works"]
        self.assertTrue(done[0]["done"])
        self.fails(["send", "x", "--rank", "2"], "send needs a destination: --to RANK", code=2)
        self.fails(["recv", "--rank", "1", "--from", "3", "-t", "300ms"], "timed out")

    def test_async__works_are_waited_for(self):
        works = []
        for rank in range(RANKS):
            text = self.well("barrier", "--rank", str(rank), "--async").text
            self.assertRegex(text, r"^work:%d\.[0-9a-f]{16}\.\d+\n$" % rank)
            works.append(text.strip())
        for word in works:
            self.assertIn("done in", self.well("wait", word).text)
        self.fails(["barrier", "--async"], "say --rank", code=2)
        self.fails(["wait", works[0], works[1]], "works of one rank", code=2)
        self.fails(["wait", "work:0.1"], "they look like work:")
        self.assertIn("had ended", self.well("cancel", works[0]).text)

    def test_cancel__ends_an_op_that_waits(self):
        work = self.well("barrier", "--rank", "2", "--async").text.strip()
        self.assertIn("is cancelled on all ranks", self.well("cancel", work).text)
        self.fails(["wait", work], "the caller of rank 2 has cancelled it")
        self.well("barrier")

    def test_barrier__of_one_rank_names_who_has_not_come(self):
        for _ in range(2):
            self.fails(["barrier", "--rank", "0", "-t", "2s"], "rank 1 has not called it")
        self.well("barrier")  # the others have caught up
        self.fails(["barrier", "--rank", "2", "-t", "2s"], "rank 0 has not called it")
        self.fails(["barrier", "--rank", "0", "-t", "2s"], "rank 1 has not called it")  # the next op
        self.well("all-reduce", *self.files(), "-o", "out.npy")

    def test_status__shows_ranks_tensors_and_the_last_op(self):
        self.well("put", self.save("in.npy", np.ones(256, np.float32)), "--rank", "1")
        self.well("all-reduce", *self.files(), "-o", "out.npy")
        seen = self.json("status")
        self.assertEqual((seen["job"], seen["world_size"], seen["alive"]), ("default", RANKS, RANKS))
        one = seen["ranks"][1]
        self.assertEqual((one["rank"], one["state"], one["health"]), (1, "alive", "serving"))
        self.assertEqual((one["tensors"], one["memory_used_bytes"], one["device"]), (1, 1024, "cpu"))
        self.assertEqual(one["last_op"], "all_reduce(sum, FP32[2, 3])")
        self.assertEqual((one["calls"], one.get("no_lane")), ("lane", None))
        lines = self.well("status").text.split("\n")
        self.assertIn("4 of 4 ranks alive", lines[0])
        self.assertRegex(lines[1], "^RANK +STATE +HOST +DEVICE +TENSORS +MEMORY +CALLS +LAST OP +HEALTH$")
        self.assertRegex(lines[3], r"^ +1 +alive .* 1 +1 KiB +lane +all_reduce\(sum, FP32\[2, 3\]\) +serving$")
        self.well("group", "create", "pair", "0-%d" % (RANKS - 1))
        self.well("barrier", "--group", "pair")
        one = self.json("status")["ranks"][1]
        self.assertEqual((one["newest_group"], one["newest_op"], one["newest_sequence"]), ("pair", "barrier()", 1))
        self.assertIn(" pair: barrier() ", self.well("status").text)


if __name__ == "__main__":
    support.main()
