"""Goal: tensors in an agent are made, moved, named and freed as the proto says; bad input is refused.

Method: one real agent, every method of TensorsService, in good ways and bad ones.
"""

import threading
import time
import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, array_of, spec_of, tensors, types

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION
MISSING = grpc.StatusCode.NOT_FOUND
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
EXISTS = grpc.StatusCode.ALREADY_EXISTS

BIG = 9_000_001  # bytes: several chunks, an odd end


def chunks_of(array, chunk=2 << 20, **start):
    """The messages of an upload."""
    data = array.tobytes()
    first = True
    for offset in range(0, max(len(data), 1), chunk):
        message = tensors.UploadRequest(offset=offset, payload=data[offset : offset + chunk])
        if first:
            message.start.CopyFrom(tensors.UploadStart(spec=spec_of(array), **start))
            first = False
        yield message


class Tensors(ClusterCase):
    size = 1
    options = ("--memory-limit", "64MiB", "--handles-max", "500")

    def setUp(self):
        self.agent = self.cluster.agents[0]
        self.stub = self.agent.tensors

    def upload(self, messages):
        return self.stub.Upload(iter(messages), timeout=LONG_S)

    def download(self, name, **fields):
        parts = list(
            self.stub.Download(tensors.DownloadRequest(handle=name, **fields), timeout=LONG_S)
        )
        return parts[0].tensor, b"".join(part.payload for part in parts), parts

    def create(self, shape, dtype=types.DTYPE_FP32, name=""):
        spec = types.TensorSpec(dtype=dtype, shape=shape)
        return self.stub.Create(tensors.CreateRequest(spec=spec, name=name), timeout=LONG_S).tensor

    # ------------------------------------------------------------------ leases

    def refused(self, code, reason, call):
        self.assert_failed(self.fails(call), code, reason)

    def lease(self, **fields):
        """(its stream, its number)"""
        stream = self.stub.Lease(tensors.LeaseRequest(**fields), timeout=LONG_S)
        return stream, next(stream).lease

    def make(self, lease, name):
        spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[2])
        self.stub.Create(tensors.CreateRequest(spec=spec, name=name), timeout=LONG_S,
                         metadata=(("tutti-lease", str(lease)),))

    def has(self, name):
        try:
            self.stub.Stat(tensors.StatRequest(handle=name), timeout=LONG_S)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), MISSING)
            return False
        return True

    def wait_gone(self, name):
        until = time.monotonic() + LONG_S
        while self.has(name):
            self.assertLess(time.monotonic(), until, f"{name} is still there")
            time.sleep(0.01)

    def test_a_lease_that_lingers_is_resumed_by_its_secret(self):
        stream, number = self.lease(linger_ms=60_000, secret=b"s" * 16)
        self.make(number, "reg:a/1")
        stream.cancel()
        again, same = self.lease(linger_ms=0, secret=b"s" * 16, resume=True)
        self.assertEqual(same, number)
        self.assertTrue(self.has("reg:a/1"))
        self.make(number, "reg:a/2")
        again.cancel()
        self.wait_gone("reg:a/1")
        self.wait_gone("reg:a/2")
        self.refused(MISSING, "NO_LEASE", lambda: self.lease(secret=b"s" * 16, resume=True))

    def test_a_lease_is_over_when_its_time_is(self):
        stream, number = self.lease(linger_ms=50, secret=b"t" * 64)
        self.make(number, "reg:b/1")
        stream.cancel()
        self.wait_gone("reg:b/1")
        self.refused(MISSING, "NO_LEASE", lambda: self.lease(secret=b"t" * 64, resume=True))

    def test_a_lease_is_taken_from_a_stream_that_is_still_open(self):
        old, number = self.lease(linger_ms=60_000, secret=b"u" * 16)
        self.make(number, "reg:c/1")
        self.refused(EXISTS, "SECRET_TAKEN", lambda: self.lease(secret=b"u" * 16))
        new, same = self.lease(secret=b"u" * 16, resume=True)
        self.assertEqual(same, number)
        self.refused(grpc.StatusCode.ABORTED, "LEASE_TAKEN", lambda: next(old))
        self.assertTrue(self.has("reg:c/1"))
        new.cancel()
        self.wait_gone("reg:c/1")

    def test_a_lease_keeps_to_its_limits(self):
        self.refused(INVALID, "BAD_SECRET", lambda: self.lease(secret=b"short"))
        self.refused(INVALID, "BAD_SECRET", lambda: self.lease(secret=b"x" * 65))
        self.refused(INVALID, "BAD_SECRET", lambda: self.lease(resume=True))
        self.refused(INVALID, "BAD_SECRET", lambda: self.lease(linger_ms=1))
        self.refused(INVALID, "LINGER_LIMIT", lambda: self.lease(linger_ms=86_400_001, secret=b"x" * 16))

    # ------------------------------------------------------------------ registers

    def test_a_register_that_could_not_be_made_says_why(self):
        self.refused(INVALID, "BAD_SHAPE", lambda: self.create([-1], name="reg:d/1"))
        self.refused(INVALID, "BAD_SHAPE",
                     lambda: self.stub.Get(tensors.GetRequest(handle="reg:d/1"), timeout=LONG_S))
        self.refused(EXHAUSTED, "MEMORY_LIMIT", lambda: self.create([1 << 30], name="reg:d/1"))
        self.refused(EXHAUSTED, "MEMORY_LIMIT",
                     lambda: self.stub.Get(tensors.GetRequest(handle="reg:d/1"), timeout=LONG_S))
        self.create([2], name="reg:d/1")
        self.assertEqual(len(self.stub.Get(tensors.GetRequest(handle="reg:d/1"), timeout=LONG_S).payload), 8)
        delete = tensors.DeleteRequest(handles=["reg:d/1", "reg:d/2"])
        self.refused(MISSING, "NO_TENSOR", lambda: self.stub.Delete(delete, timeout=LONG_S))
        delete.missing_ok = True
        self.stub.Delete(delete, timeout=LONG_S)
        self.assertFalse(self.has("reg:d/1"))

    # ------------------------------------------------------------------ good ways

    def test_a_tensor_says_who_made_it(self):
        made = [self.create([1], name="o1").handle, self.agent.put(np.ones(1), name="o2")]
        made.append(self.stub.Copy(tensors.CopyRequest(handle="o1", name="o3")).tensor.handle)
        owners = {one.owner for one in self.stub.List(tensors.ListRequest(), timeout=LONG_S).tensors}
        self.assertEqual(len(owners), 1)
        self.assertRegex(owners.pop(), r"^(ipv4:127\.0\.0\.1:\d+|ipv6:.*|unix:.*)$")
        self.agent.delete(*made)

    def test_a_new_tensor_is_zero(self):
        dirty = self.agent.put(np.full(100000, 7, np.uint8))
        self.agent.delete(dirty)
        made = self.create([300, 100], types.DTYPE_UINT8)
        self.assertEqual(list(made.spec.shape), [300, 100])
        self.assertFalse(self.agent.get(made.handle).any())

    def test_put_and_get_keep_every_dtype_and_shape(self):
        for shape in ((), (1,), (0, 3), (2, 3, 4)):
            for dtype in ("bool", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f2", "f4", "f8"):
                array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
                back = self.agent.get(self.agent.put(array))
                self.assertEqual(back.dtype, array.dtype)
                np.testing.assert_array_equal(back, array)
            for dtype in ("c8", "c16"):
                array = (np.arange(np.prod(shape, dtype=int)) * (1 + 2j)).reshape(shape)
                array = array.astype(dtype)
                np.testing.assert_array_equal(self.agent.get(self.agent.put(array)), array)

    def test_a_big_tensor_travels_in_chunks_both_ways(self):
        array = np.random.default_rng(1).integers(0, 256, BIG, np.uint8)
        done = self.upload(chunks_of(array, name="big"))
        self.assertEqual(done.byte_count, BIG)
        reference, data, parts = self.download("big")
        self.assertEqual(list(reference.spec.shape), [BIG])
        self.assertEqual(data, array.tobytes())
        self.assertGreater(len(parts), 2)
        self.assertLessEqual(max(len(part.payload) for part in parts), 2 << 20)
        self.assertEqual([part.offset for part in parts], [k * (2 << 20) for k in range(len(parts))])

    def test_a_download_may_want_a_part(self):
        array = np.arange(100000, dtype=np.uint8)
        name = self.agent.put(array)
        _, data, parts = self.download(name, offset=10, length=9000, chunk_bytes=4096)
        self.assertEqual(data, array.tobytes()[10:9010])
        self.assertEqual([len(part.payload) for part in parts], [4096, 4096, 808])
        _, data, _ = self.download(name, offset=99990)
        self.assertEqual(data, array.tobytes()[99990:])
        reference, data, parts = self.download(self.agent.put(np.zeros((0, 4), np.int8)))
        self.assertEqual((len(parts), data, list(reference.spec.shape)), (1, b"", [0, 4]))

    def test_an_upload_may_overwrite(self):
        name = self.agent.put(np.zeros((2, 3), np.int32))
        self.upload(chunks_of(np.arange(6, dtype=np.int32), into=name))
        np.testing.assert_array_equal(self.agent.get(name), [[0, 1, 2], [3, 4, 5]])
        self.agent.put(np.full(6, 9, np.int32), into=name)
        self.assertTrue((self.agent.get(name) == 9).all())

    def test_a_copy_is_a_tensor_of_its_own(self):
        first = self.agent.put(np.arange(5, dtype=np.int16))
        second = self.stub.Copy(tensors.CopyRequest(handle=first, name="second")).tensor.handle
        self.agent.put(np.zeros(5, np.int16), into=first)
        self.assertEqual(list(self.agent.get("second")), [0, 1, 2, 3, 4])
        self.stub.Copy(tensors.CopyRequest(handle=second, into=first))
        self.assertEqual(list(self.agent.get(first)), [0, 1, 2, 3, 4])
        self.stub.Copy(tensors.CopyRequest(handle=first, into=first))
        self.assertEqual(list(self.agent.get(first)), [0, 1, 2, 3, 4])

    def copy_range(self, handle, into="", **part):
        request = tensors.CopyRequest(handle=handle, into=into, range=tensors.CopyRange(**part))
        return self.stub.Copy(request, timeout=LONG_S).tensor

    def test_a_range_is_copied_out_of_a_tensor_and_into_one(self):
        first = self.agent.put(np.arange(6, dtype=np.int16))
        part = self.copy_range(first, offset=1, count=4, shape=[2, 2])
        np.testing.assert_array_equal(self.agent.get(part.handle), [[1, 2], [3, 4]])
        self.copy_range(first, into=part.handle, offset=5, into_offset=2)
        np.testing.assert_array_equal(self.agent.get(part.handle), [[1, 2], [5, 4]])
        self.copy_range(first, into=first, count=2, into_offset=4)
        self.assertEqual(list(self.agent.get(first)), [0, 1, 2, 3, 0, 1])
        self.assertEqual(list(self.copy_range(first, offset=6).spec.shape), [0])

    def test_a_range_that_is_not_inside_is_refused_and_nothing_is_written(self):
        first = self.agent.put(np.arange(6, dtype=np.int16))
        small = self.agent.put(np.zeros(3, np.int16))
        other = self.agent.put(np.zeros(3, np.int32))
        most = (1 << 64) - 1
        for reason, into, part in (
            ("BAD_OFFSET", "", dict(offset=7)),
            ("BAD_OFFSET", "", dict(offset=most, count=2)),
            ("BAD_OFFSET", "", dict(offset=1, count=most)),
            ("BAD_OFFSET", small, dict(count=2, into_offset=2)),
            ("BAD_OFFSET", small, dict(count=2, into_offset=most)),
            ("BAD_OFFSET", first, dict(count=3, into_offset=2)),
            ("DTYPE_MISMATCH", other, dict(count=2)),
            ("SHAPE_MISMATCH", "", dict(count=2, shape=[3])),
            ("BAD_SHAPE", "", dict(count=2, shape=[-1])),
        ):
            self.refused(INVALID, reason, lambda: self.copy_range(first, into=into, **part))
        self.assertEqual(list(self.agent.get(small)), [0, 0, 0])
        self.assertEqual(list(self.agent.get(first)), [0, 1, 2, 3, 4, 5])

    def test_a_name_serves_as_a_handle(self):
        made = self.agent.put(np.ones(2, np.float64), name="weights/0")
        self.assertEqual(list(self.agent.get("weights/0")), [1, 1])
        info = self.stub.Stat(tensors.StatRequest(handle="weights/0")).info
        self.assertEqual((info.tensor.handle, info.name, info.byte_count), (made, "weights/0", 16))
        self.assertFalse(info.pending or info.HasField("error"))
        self.agent.delete("weights/0")
        self.agent.put(np.ones(2, np.float64), name="weights/0")

    def test_the_list_has_pages(self):
        made = [self.agent.put(np.zeros(1, np.int8)) for _ in range(25)]
        seen, token = [], ""
        while True:
            page = self.stub.List(tensors.ListRequest(page_size=10, page_token=token))
            seen += [info.tensor.handle for info in page.tensors]
            token = page.next_page_token
            if not token:
                break
        self.assertEqual(seen, made)

    # ------------------------------------------------------------------ bad input

    def test_dtypes_and_shapes_that_cannot_be_are_refused(self):
        cases = [
            (types.TensorSpec(shape=[2]), "BAD_DTYPE"),
            (types.TensorSpec(dtype=99, shape=[2]), "BAD_DTYPE"),
            (types.TensorSpec(dtype=types.DTYPE_FP32, shape=[2, -1]), "BAD_SHAPE"),
            (types.TensorSpec(dtype=types.DTYPE_FP32, shape=[1] * 17), "BAD_SHAPE"),
            (types.TensorSpec(dtype=types.DTYPE_FP32, shape=[2**62, 2**62]), "BAD_SHAPE"),
            (types.TensorSpec(dtype=types.DTYPE_FP64, shape=[2**61]), "BAD_SHAPE"),
        ]
        for spec, reason in cases:
            failure = self.fails(lambda: self.stub.Create(tensors.CreateRequest(spec=spec)))
            self.assert_failed(failure, INVALID, reason)
        failure = self.fails(lambda: self.stub.Create(tensors.CreateRequest()))
        self.assert_failed(failure, INVALID, "BAD_SHAPE")

    def test_bytes_that_do_not_match_are_refused(self):
        spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[4])
        for size in (0, 15, 17):
            request = tensors.PutRequest(spec=spec, payload=b"x" * size)
            failure = self.fails(lambda: self.stub.Put(request))
            self.assert_failed(failure, INVALID, "SIZE_MISMATCH", str(size), "16")
        big = types.TensorSpec(dtype=types.DTYPE_UINT8, shape=[(3 << 20) + 1])
        request = tensors.PutRequest(spec=big, payload=b"x" * ((3 << 20) + 1))
        self.assert_failed(self.fails(lambda: self.stub.Put(request)), INVALID, "INLINE_LIMIT", "Upload")

    def test_handles_that_are_none_are_refused(self):
        mine = self.agent.put(np.zeros(1, np.int8))
        rank, incarnation, number = mine.split(":")[1].split(".")
        gone = self.agent.put(np.zeros(1, np.int8))
        self.agent.delete(gone)
        cases = [
            ("", INVALID, "BAD_HANDLE"),
            ("tensor:x", INVALID, "BAD_HANDLE"),
            (mine + "x", INVALID, "BAD_HANDLE"),
            ("no such name", INVALID, "BAD_NAME"),
            ("nobody", MISSING, "NO_TENSOR"),
            (gone, MISSING, "NO_TENSOR"),
            ("tensor:%s.%s.%s" % (rank, "0123456789abcdef", number), PRECONDITION, "STALE_HANDLE"),
            ("tensor:7.%s.%s" % ("0123456789abcdef", number), PRECONDITION, "FOREIGN_HANDLE"),
        ]
        for name, code, reason in cases:
            failure = self.fails(lambda: self.agent.get(name))
            self.assert_failed(failure, code, reason)
            failure = self.fails(lambda: self.agent.delete(mine, name))
            self.assert_failed(failure, code, reason)
        self.assertEqual(list(self.agent.get(mine)), [0])  # nothing was deleted

    def test_names_are_checked_and_unique(self):
        self.agent.put(np.zeros(1, np.int8), name="taken")
        failure = self.fails(lambda: self.agent.put(np.zeros(1, np.int8), name="taken"))
        self.assert_failed(failure, EXISTS, "NAME_TAKEN", "taken")
        for name in ("a b", "/x", "x" * 128, "tensor:1"):
            failure = self.fails(lambda: self.agent.put(np.zeros(1, np.int8), name=name))
            self.assert_failed(failure, INVALID, "BAD_NAME")

    def test_the_memory_limit_is_named_and_holds(self):
        spec = types.TensorSpec(dtype=types.DTYPE_UINT8, shape=[65 << 20])
        failure = self.fails(lambda: self.stub.Create(tensors.CreateRequest(spec=spec)))
        self.assert_failed(failure, EXHAUSTED, "MEMORY_LIMIT", "64 MiB", "65 MiB")
        made = [self.create([15 << 20], types.DTYPE_UINT8).handle for _ in range(4)]
        failure = self.fails(lambda: self.create([15 << 20], types.DTYPE_UINT8))
        self.assert_failed(failure, EXHAUSTED, "MEMORY_LIMIT")
        self.agent.delete(*made)
        self.create([60 << 20], types.DTYPE_UINT8)

    def test_the_handle_limit_is_named_and_holds(self):
        made = [self.agent.put(np.zeros(0, np.int8)) for _ in range(500)]
        failure = self.fails(lambda: self.agent.put(np.zeros(0, np.int8)))
        self.assert_failed(failure, EXHAUSTED, "HANDLE_LIMIT", "500")
        self.agent.delete(*made)

    def test_uploads_that_go_wrong_leave_nothing(self):
        array = np.zeros(100, np.uint8)
        good = list(chunks_of(array, 40))
        wrong = [
            ([], "NO_START"),
            ([tensors.UploadRequest(payload=b"x")], "NO_START"),
            ([good[0], good[0]], "NO_START"),
            (good[:2], "SIZE_MISMATCH"),
            (good + [tensors.UploadRequest(offset=100, payload=b"x")], "SIZE_MISMATCH"),
            ([good[0], good[2]], "BAD_OFFSET"),
            ([good[0], tensors.UploadRequest(offset=2**63, payload=b"x")], "BAD_OFFSET"),
            (list(chunks_of(np.zeros(5 << 20, np.uint8), (4 << 20) + 1)), "CHUNK_LIMIT"),
            (list(chunks_of(array, name="a b")), "BAD_NAME"),
            (list(chunks_of(array, into="nobody")), "NO_TENSOR"),
        ]
        for messages, reason in wrong:
            failure = self.fails(lambda: self.upload(messages))
            self.assertEqual(failure.reason, reason, failure)
        small = self.agent.put(np.zeros(5, np.uint8))
        failure = self.fails(lambda: self.upload(chunks_of(array, into=small)))
        self.assert_failed(failure, INVALID, "SHAPE_MISMATCH")
        failure = self.fails(lambda: self.upload(chunks_of(np.zeros(5, np.int8), into=small)))
        self.assert_failed(failure, INVALID, "DTYPE_MISMATCH")
        self.agent.delete(small)
        self.assertEqual(len(self.stub.List(tensors.ListRequest()).tensors), 0)

    def test_a_client_that_goes_away_in_an_upload_leaves_nothing(self):
        sent = threading.Event()

        def half():
            yield next(chunks_of(np.zeros(BIG, np.uint8)))
            sent.set()
            time.sleep(LONG_S)

        channel = self.agent.program.channel()
        stub = type(self.stub)(channel)
        call = stub.Upload.future(half())
        sent.wait(LONG_S)
        channel.close()  # the connection is gone; tearDown waits until nothing is kept
        self.assertTrue(call.cancelled() or call.exception() is not None)

    def test_a_client_that_goes_away_in_a_download_leaves_nothing(self):
        self.upload(chunks_of(np.zeros(40 << 20, np.uint8), name="big"))
        channel = self.agent.program.channel()
        stream = type(self.stub)(channel).Download(tensors.DownloadRequest(handle="big"))
        next(stream)
        channel.close()

    def test_downloads_and_copies_check_their_arguments(self):
        name = self.agent.put(np.zeros(100, np.uint8))
        for fields in ({"offset": 101}, {"offset": 50, "length": 51}, {"offset": 2**64 - 1}):
            failure = self.fails(lambda: self.download(name, **fields))
            self.assert_failed(failure, INVALID, "BAD_OFFSET")
        for chunk in (1, 4095, (4 << 20) + 1):
            failure = self.fails(lambda: self.download(name, chunk_bytes=chunk))
            self.assert_failed(failure, INVALID, "CHUNK_LIMIT")
        other = self.agent.put(np.zeros(100, np.int8))
        failure = self.fails(lambda: self.stub.Copy(tensors.CopyRequest(handle=name, into=other)))
        self.assert_failed(failure, INVALID, "DTYPE_MISMATCH")
        self.create([4 << 20], types.DTYPE_UINT8, "big")
        self.assert_failed(self.fails(lambda: self.agent.get("big")), PRECONDITION, "INLINE_LIMIT")

class Kept(ClusterCase):
    """What is free goes back to the system, and what waits is counted."""

    size = 1
    options = ("--memory-limit", "256MiB", "--memory-keep", "100ms")

    def resident(self):
        """Bytes of tensor memory that the system has given."""
        with open("/proc/%d/status" % self.cluster.agents[0].program.process.pid) as file:
            return [int(line.split()[1]) << 10 for line in file if line.startswith("RssShmem:")][0]

    def test_memory_of_deleted_tensors_goes_back(self):
        agent = self.cluster.agents[0]
        before = self.resident()
        kept = np.full(1 << 20, 7, np.uint8)
        agent.put(kept, name="kept")
        agent.tensors.Upload(chunks_of(np.ones(48 << 20, np.uint8), name="large"), timeout=LONG_S)
        self.assertGreater(self.resident(), before + (48 << 20))
        agent.delete("large")
        until = time.monotonic() + LONG_S
        while self.resident() > before + (2 << 20):
            self.assertLess(time.monotonic(), until, "it keeps %d bytes" % self.resident())
            time.sleep(0.05)
        np.testing.assert_array_equal(agent.get("kept"), kept)
        agent.delete("kept")

    def test_parts_whose_first_never_comes_count_against_the_limit(self):
        agent = self.cluster.agents[0]
        release = threading.Event()

        def messages(number):
            start = tensors.UploadStart(transfer=b"%016d" % number, part_offset=8, part_bytes=1 << 40)
            yield tensors.UploadRequest(start=start, offset=8, payload=bytes(2 << 20))
            release.wait(LONG_S)

        calls = [agent.tensors.Upload.future(messages(number), timeout=LONG_S) for number in range(20)]
        until = time.monotonic() + LONG_S
        while sum(call.done() for call in calls) < 12:  # a sixteenth of the limit holds 8 of them
            self.assertLess(time.monotonic(), until)
            time.sleep(0.02)
        refused = [call for call in calls if call.done()]
        for call in refused:
            self.assert_failed(support.Failure(call.exception()), EXHAUSTED, "MEMORY_LIMIT", "at most 16777216")
        for call in calls:
            call.cancel()
        release.set()
        self.assertEqual(len(refused), 12)
        until = time.monotonic() + LONG_S
        while True:  # what they held is free again
            again = agent.tensors.Upload.future(messages(99), timeout=1)
            try:
                again.result()
            except grpc.RpcError as error:
                if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
                    break
            self.assertLess(time.monotonic(), until)



if __name__ == "__main__":
    support.main()
