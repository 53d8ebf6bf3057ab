"""Goal: what needs no server: dtypes, errors, addresses, objects, and that both APIs are alike.

Method: the package as it is installed.
"""

import gc
import inspect
import os
import re
import socket
import sys
import tempfile
import unittest
import weakref
from unittest import mock

import numpy as np

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap  # noqa: E402
import tutti  # noqa: E402
import tutti.aio  # noqa: E402
from tutti import _init_url, _settings, _wire, dtypes, errors, objects  # noqa: E402


class Dtypes(unittest.TestCase):
    def test_every_dtype_of_the_wire_has_an_array(self):
        numbers = _wire.enum_numbers("Dtype", "DTYPE_")
        self.assertEqual(set(numbers) - {"UNSPECIFIED"}, set(dtypes._DTYPES))

    def test_bytes_are_little_endian_and_row_major(self):
        array = np.arange(6, dtype=">i4").reshape(2, 3).T
        data = dtypes.data_of(array)
        self.assertEqual((data.name, data.array.shape), ("INT32", (3, 2)))
        self.assertEqual(bytes(data.payload), np.array([0, 3, 1, 4, 2, 5], "<i4").tobytes())

    def test_scalars_and_empty_arrays_keep_their_shapes(self):
        for shape in ((), (0, 3), (2, 0)):
            data = dtypes.data_of(np.ones(shape, np.float32))
            self.assertEqual(tuple(data.spec.shape), shape)
            kind = dtypes.kind_of(data.spec)
            back = dtypes.array_of(kind, bytes(data.payload))
            self.assertEqual((back.shape, back.dtype), (shape, np.float32))
            self.assertEqual(kind.nbytes, data.payload.nbytes)

    def test_bits_of_bf16_are_taken_as_they_are(self):
        bits = np.array([0x3F80, 0x4000], np.uint16)
        data = dtypes.data_of(bits, "BF16")
        self.assertEqual((data.name, bytes(data.payload)), ("BF16", b"\x80\x3f\x00\x40"))

    def test_numbers_become_bf16_only_with_ml_dtypes(self):
        if dtypes.ml_dtypes is None:
            with self.assertRaises(tutti.TuttiError) as caught:
                dtypes.data_of([1.0, 2.0], "BF16")
            self.assertIn("ml_dtypes", caught.exception.text)
        else:
            data = dtypes.data_of([1.0, 2.0], "BF16")
            self.assertEqual((data.name, bytes(data.payload)), ("BF16", b"\x80\x3f\x00\x40"))

    def test_what_is_no_dtype_is_refused(self):
        for bad in (np.array(["text"]), np.array([object()]), np.array([1], "M8[s]")):
            with self.assertRaises(tutti.TuttiError) as caught:
                dtypes.data_of(bad)
            self.assertEqual(caught.exception.reason, "BAD_DTYPE")

    def test_dlpack_is_understood(self):
        class Foreign:
            def __init__(self, array):
                self.array = array

            def __dlpack__(self, **how):
                return self.array.__dlpack__(**how)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        array = np.arange(4, dtype=np.float32)
        self.assertEqual(bytes(dtypes.data_of(Foreign(array)).payload), array.tobytes())

    def test_torch_tensors_go_in_and_out(self):
        try:
            import torch
        except ImportError:
            self.skipTest("torch is not installed")
        for dtype in (torch.float32, torch.bfloat16, torch.int64):
            given = torch.arange(6).reshape(2, 3).T.to(dtype)
            data = dtypes.data_of(given)
            back = dtypes.like(
                dtypes.array_of(dtypes.kind_of(data.spec), data.payload), data.name, given
            )
            self.assertTrue(torch.equal(back, given))
            self.assertEqual(back.dtype, dtype)


class Wire(unittest.TestCase):
    def test_classes_of_messages_stay_when_their_messages_go(self):
        """Else protobuf makes them anew, and crashes where threads do so at once."""
        kind = weakref.ref(type(_wire.new("GetStatsResponse").groups.add()))
        gc.collect()
        self.assertIsNotNone(kind())

    def test_a_framed_payload_is_what_protobuf_would_have_written(self):
        for size in (0, 1, 127, 128, 70000):
            payload = bytes(range(256)) * (size // 256 + 1)
            framed = _wire.Framed(_wire.new("PutRequest", name="x"), memoryview(payload[:size]))
            back = _wire.message("tutti.v1.PutRequest").FromString(_wire.encode(framed))
            self.assertEqual((back.name, back.payload), ("x", payload[:size]))


class Downloads(unittest.TestCase):
    """What a server sends is looked at before it is believed."""

    def download(self, *parts, dtype="FP32"):
        spec = dtypes.spec(dtype, [4])
        ref = _wire.new("TensorRef", handle="x", spec=spec)
        said = [_wire.new("DownloadResponse", **part) for part in parts]
        if said:
            said[0].tensor.CopyFrom(ref)
        agent = mock.Mock()
        agent.line.take.return_value = said
        return tutti.Tensor(agent, "x").numpy()

    def lost(self, *parts):
        with self.assertRaises(tutti.TuttiError) as caught:
            self.download(*parts)
        self.assertEqual(caught.exception.code.name, "DATA_LOSS")

    def test_chunks_make_an_array(self):
        found = self.download(dict(payload=bytes(8)), dict(offset=8, payload=bytes(8)))
        self.assertEqual(found.tolist(), [0, 0, 0, 0])

    def test_chunks_that_do_not_fit_are_refused(self):
        self.lost()
        self.lost(dict(payload=bytes(8)))
        self.lost(dict(payload=bytes(17)))
        self.lost(dict(payload=bytes(8)), dict(offset=4, payload=bytes(8)))
        self.lost(dict(offset=1 << 60, payload=bytes(8)))

    def test_bytes_that_do_not_fit_are_refused(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            dtypes.array_of(dtypes.Kind("FP32", (2,)), bytes(7))
        self.assertIn("FP32[2]", caught.exception.text)


class Errors(unittest.TestCase):
    def failed(self, *trailers):
        import grpc

        error = mock.Mock()
        error.code.return_value = grpc.StatusCode.DEADLINE_EXCEEDED
        error.details.return_value = "words"
        error.trailing_metadata.return_value = trailers
        return errors.from_rpc(error)

    def test_details_become_fields(self):
        status = _wire.message("google.rpc.Status")(code=4)
        info = _wire.message("google.rpc.ErrorInfo")(reason="TIMEOUT")
        for key, value in (("group", "world"), ("sequence", "7"), ("rank", "2"), ("epoch", "1")):
            info.metadata[key] = value
        url = "type.googleapis.com/google.rpc.ErrorInfo"
        status.details.add(type_url=url, value=info.SerializeToString())
        found = self.failed(("grpc-status-details-bin", status.SerializeToString()))
        self.assertIsInstance(found, TimeoutError)
        self.assertEqual(
            (found.reason, found.group, found.op, found.rank), ("TIMEOUT", "world", 7, 2)
        )
        self.assertEqual(str(found), "DEADLINE_EXCEEDED TIMEOUT: words")

    def test_foreign_or_broken_details_are_left_out(self):
        for trailer in (("grpc-status-details-bin", b"\xff\xff"), ("other", "x")):
            found = self.failed(trailer)
            self.assertEqual((found.reason, found.op, found.rank), ("GRPC_STATUS", 0, -1))
            self.assertFalse(errors.was_there(found))

    def test_errors_of_grpc_itself_have_reasons(self):
        import grpc

        for code, text, reason in (
            (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "NO_ANSWER"),
            (grpc.StatusCode.UNAVAILABLE, "Socket closed", "CONNECTION_LOST"),
            (grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: x", "UNREACHABLE"),
            (grpc.StatusCode.UNAVAILABLE, "the weather", "GRPC_STATUS"),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 8)", "MESSAGE_LIMIT"),
            (grpc.StatusCode.RESOURCE_EXHAUSTED, "the disk is full", "GRPC_STATUS"),
            (grpc.StatusCode.UNKNOWN, "Exception calling application", "GRPC_STATUS"),
        ):
            error = mock.Mock()
            error.code.return_value, error.details.return_value = code, text
            error.trailing_metadata.return_value = ()
            self.assertEqual(errors.from_rpc(error, "here:1", "Store.Get").reason, reason, text)


class Addresses(unittest.TestCase):
    def test_a_unix_socket_comes_first_on_its_own_host_and_else_never(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(folder, "here"))
            here, gone = "unix:%s/here" % folder, "unix:%s/gone" % folder
            mine = _settings.host_id()
            for addresses, host, wanted in (
                ([here, "a:1", "b:2"], mine, [here, "a:1", "b:2"]),
                (["a:1", here], mine, [here, "a:1"]),
                ([gone, "a:1"], mine, ["a:1"]),
                ([here, "a:1"], "elsewhere", ["a:1"]),
                ([here, "a:1"], "", ["a:1"]),
                ([here], "elsewhere", [here]),
                ([], mine, []),
            ):
                self.assertEqual(_settings.in_order(addresses, host), wanted)
            with mock.patch.dict(os.environ, TUTTI_HOST_ID="rack-7"):
                self.assertEqual(_settings.in_order(["a:1", here], "rack-7"), [here, "a:1"])

    def test_a_file_holds_the_address_once_it_is_there(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "port")
            found = _init_url.parse_init("file://%s?rank=0&world_size=1" % path)
            for text, address in (("", ""), ("127.0.0.1:1\nx", "127.0.0.1:1"), ("unix:/a", "unix:/a")):
                self.assertEqual(found.resolve(), "")
                with open(path, "w") as file:
                    file.write(text)
                self.assertEqual(found.resolve(), address)
                os.unlink(path)
            with open(path, "w") as file:
                file.write("nonsense\n")
            with self.assertRaises(tutti.TuttiError) as caught:
                found.resolve()
            self.assertEqual(caught.exception.reason, "BAD_URL")

    def test_no_address_is_an_error(self):
        with mock.patch.dict(os.environ, {}, clear=True):
            with self.assertRaises(tutti.TuttiError) as caught:
                tutti.connect()
        self.assertEqual(caught.exception.reason, "NO_AGENT")

    def test_nobody_there_is_unavailable(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            tutti.connect("127.0.0.1:1", timeout=5)
        self.assertEqual(caught.exception.code.name, "UNAVAILABLE")
        self.assertEqual(caught.exception.reason, "UNREACHABLE")
        words = "could not reach 127.0.0.1:1: connection refused, nothing listens there"
        self.assertEqual(caught.exception.text, words)

    def test_a_socket_that_is_not_there_is_named(self):
        with self.assertRaises(tutti.TuttiError) as caught:
            tutti.connect("unix:/nowhere/agent", timeout=5)
        words = "could not reach unix:/nowhere/agent: there is no such socket, the server is not running"
        self.assertEqual(caught.exception.text, words)

    def test_a_token_is_not_sent_in_plaintext_to_other_machines(self):
        settings = _settings.Settings(token="secret")
        for address in ("127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/x"):
            self.assertIsNone(settings.credentials(address))
        for address in ("10.0.0.1:1", "host:1", "[fe80::1]:1"):
            with self.assertRaises(tutti.TuttiError) as caught:
                settings.credentials(address)
            self.assertEqual(caught.exception.reason, "TOKEN_IN_PLAINTEXT")
        self.assertNotIn("secret", repr(settings))

    def test_a_trace_goes_with_each_call(self):
        parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
        with mock.patch.dict(os.environ, TRACEPARENT=parent):
            self.assertEqual(_settings.Settings().metadata(), [("traceparent", parent)])
            self.assertEqual(_settings.Settings(traceparent="").metadata(), [])
        spans = iter(("one", "two"))
        settings = _settings.Settings(token="t", traceparent=lambda: next(spans))
        for span in ("one", "two"):
            wanted = [("authorization", "Bearer t"), ("traceparent", span)]
            self.assertEqual(settings.metadata(), wanted)
        self.assertIsNone(_settings.Settings(traceparent=parent).credentials("10.0.0.1:1"))

    def test_a_token_file_is_read_for_each_call(self):
        with tempfile.NamedTemporaryFile("w+") as file:
            settings = _settings.Settings(token_file=file.name)
            for token in ("one", "two"):
                file.seek(0)
                file.write(token + "\n")
                file.flush()
                self.assertEqual(settings.metadata(), [("authorization", "Bearer " + token)])


class Objects(unittest.TestCase):
    def test_values_come_back(self):
        for value in (b"\0bytes", "text", {"a": [1, None]}, [], 7):
            self.assertEqual(objects.unpack(objects.pack(value)).value(), value)

    def test_values_that_json_lacks_come_back_as_they_were(self):
        values = [
            (1, "a", None), {1, 2}, frozenset(["a"]), 2 + 3j, {1: "one", (2, 3): b"two"}, {"$set": (1,)}, [b"", {"a": (1,)}],
            np.dtype("int16"), {"dtype": np.dtype(np.float32)},
        ]  # fmt: skip
        for value in values:
            blob = objects.unpack(objects.pack(value))
            self.assertEqual((blob.value(), type(blob.value())), (value, type(value)))
            self.assertEqual(blob.content_type, objects.TAGGED)
        arrays = {"a": np.arange(6, dtype=np.int8).reshape(2, 3), "b": [np.ones(0), np.array(7.5)], "n": np.float32(1.5)}
        found = objects.unpack(objects.pack(arrays)).value()
        np.testing.assert_array_equal(found["a"], arrays["a"])
        self.assertEqual([one.dtype for one in found["b"]], [np.float64] * 2)
        self.assertEqual((found["a"].dtype, found["b"][1].shape, type(found["n"])), (np.int8, (), np.float32))
        self.assertEqual(objects.Blob.of(np.float32).value(), np.float32)

    def test_pickles_are_made_and_read_only_by_name(self):
        with self.assertRaises(errors.TuttiError) as caught:
            objects.pack(Ellipsis)
        self.assertEqual(caught.exception.reason, "BAD_VALUE")
        self.assertIn("ellipsis", caught.exception.text)
        blob = objects.unpack(objects.pack({"a": tutti.Blob.pickled(Ellipsis)}["a"]))
        self.assertIs(blob.unpickle(), Ellipsis)
        self.assertIsInstance(blob.value(), bytes)
        with self.assertRaises(errors.TuttiError) as caught:
            objects.Blob(blob.data).unpickle()
        self.assertEqual(caught.exception.reason, "BAD_VALUE")

    def test_bytes_that_are_no_values_are_refused(self):
        for text in ('{"$none": 1}', '{"$tensor": ["FP32", [2], "AAAA"]}', '{"$tensor": ["XX", [], ""]}', '{"$set": [[]]}', "{", '{"$tuple": 1}'):
            with self.subTest(text=text), self.assertRaises(errors.TuttiError):
                objects.Blob(text.encode(), objects.TAGGED).value()

    def test_a_content_type_stays(self):
        blob = tutti.Blob(b"x", "image/png")
        self.assertEqual(objects.unpack(objects.pack(blob)), blob)

    def test_bad_ones_are_refused(self):
        long = b"\x0a\x80\x01" + b"x" * 128  # a content type of 128 bytes
        for bad in (
            np.full(200, 255, np.uint8),
            np.zeros(4, np.int32),
            np.frombuffer(long, np.uint8),
        ):
            with self.assertRaises(tutti.TuttiError) as caught:
                objects.unpack(bad)
            self.assertEqual(caught.exception.code.name, "DATA_LOSS")
        with self.assertRaises(tutti.TuttiError):
            objects.pack(tutti.Blob(b"", "x" * 128))

    def test_nothing_is_an_object_too(self):
        blob = tutti.Blob(b"", "")
        self.assertEqual(objects.unpack(objects.pack(blob)), blob)
        self.assertEqual(objects.unpack(np.zeros(0, np.uint8)), blob)


class Twins(unittest.TestCase):
    def test_both_have_the_same_calls_and_words(self):
        for name in tutti.__all__:
            ours, theirs = getattr(tutti, name), getattr(tutti.aio, name)
            if not inspect.isclass(ours):
                self.assertEqual(inspect.signature(ours), inspect.signature(theirs))
                continue
            for member, thing in inspect.getmembers(theirs, inspect.isfunction):
                if member.startswith("__"):
                    continue
                twin = getattr(ours, member)
                self.assertFalse(inspect.iscoroutinefunction(twin), member)
                said = list(inspect.signature(thing).parameters)
                self.assertEqual(list(inspect.signature(twin).parameters), said)

    def test_every_public_call_is_described(self):
        for name in tutti.__all__:
            for member, thing in inspect.getmembers(getattr(tutti, name), inspect.isfunction):
                if not member.startswith("_") and thing.__module__.startswith("tutti"):
                    known = thing.__doc__ or member in ("nbytes",)
                    self.assertTrue(known, "%s.%s" % (name, member))


class Docs(unittest.TestCase):
    """What an editor and help() show of each public method."""

    CLASSES = ("Agent", "Tensor", "View", "Work", "Group", "Mesh", "Store", "Session", "DRef")

    def methods(self):
        yield "connect", tutti.connect
        yield "connect_job", tutti.connect_job
        yield "session", tutti.session
        for kind in self.CLASSES:
            for name, method in inspect.getmembers(getattr(tutti, kind), inspect.isfunction):
                if not name.startswith("_"):
                    yield "%s.%s" % (kind, name), method

    def test_no_signature_says_any(self):
        for name, method in self.methods():
            with self.subTest(name):
                signature = inspect.signature(method)
                said = [one.annotation for one in signature.parameters.values() if one.name != "self"]
                for annotation in said + [signature.return_annotation]:
                    self.assertIsNot(annotation, inspect.Signature.empty)
                    self.assertNotRegex(str(annotation), r"\bAny\b")

    def test_every_method_says_what_it_gives_and_raises_and_shows_how(self):
        for name, method in self.methods():
            with self.subTest(name):
                for part in ("Returns: ", "Raises: ", "Example:", ">>> "):
                    self.assertIn(part, method.__doc__ or "")

    def test_every_reason_that_is_named_is_one(self):
        with open(os.path.join(os.environ["TUTTI_SOURCE"], "docs", "errors.md")) as file:
            known = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", file.read()))
        for name, method in self.methods():
            raises = re.search("Raises: (.*)Example:", method.__doc__, re.S)
            for reason in re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b", raises[1]):
                with self.subTest("%s: %s" % (name, reason)):
                    self.assertTrue(reason in known, "is not in docs/errors.md")


if __name__ == "__main__":
    tap.main()
