#!/usr/bin/python3
"""Goal: `tutti put` and `tutti get` move .safetensors files, all of their tensors or none; pickles are refused.

Method: the program itself and a cluster of agents; files are made and read here by the few lines that the format needs, and
by the safetensors package where it is installed.
"""

import json
import os
import struct
import unittest

import support
from cli_case import ClusterCase, file_path, work

import numpy as np

try:
    import safetensors.numpy
except ImportError:
    safetensors = None

DTYPES = {"BOOL": np.bool_, "U8": np.uint8, "I8": np.int8, "U16": np.uint16, "I16": np.int16, "F16": np.float16, "U32": np.uint32,
          "I32": np.int32, "F32": np.float32, "U64": np.uint64, "I64": np.int64, "F64": np.float64, "C64": np.complex64}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}


def write(name, arrays, padding=0, cut=0):
    header, data = {}, b""
    for key, array in arrays.items():
        header[key] = {"dtype": NAMES[array.dtype], "shape": list(array.shape),
                       "data_offsets": [len(data), len(data) + array.nbytes]}
        data += array.tobytes()
    text = json.dumps(header).encode() + b" " * padding
    with open(file_path(name), "wb") as file:
        file.write((struct.pack("<Q", len(text)) + text + data)[: -cut or None])
    return name


def read(name):
    with open(file_path(name), "rb") as file:
        content = file.read()
    size = struct.unpack("<Q", content[:8])[0]
    data = content[8 + size:]
    found = {}
    for key, entry in json.loads(content[8: 8 + size]).items():
        first, end = entry["data_offsets"]
        found[key] = np.frombuffer(data[first:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return found


def some():
    draw = np.random.default_rng(3)
    return {"layers.%d/%s" % (number, name): (draw.integers(0, 2, shape)).astype(dtype)
            for number, (name, dtype) in enumerate(DTYPES.items()) for shape in [(3, number, 2)]}


class TestSafetensors(ClusterCase):
    def assert_all_same(self, left, right):
        self.assertEqual(sorted(left), sorted(right))
        for key in left:
            self.assert_same(left[key], right[key])

    def test_put_get__every_dtype_survives(self):
        arrays = some()
        for padding in range(3):  # data at any address
            put = self.json("put", write("in.safetensors", arrays, padding), "--rank", "1", "--name", "m")
            self.assertEqual(sorted(tensor["name"] for tensor in put["tensors"]), sorted("m/" + key for key in arrays))
            names = [tensor["name"] for tensor in put["tensors"]]
            self.assertEqual(self.json("get", *names, "--rank", "1", "-o", "out.%d.safetensors"),
                             {"file": "out.1.safetensors", "tensors": len(arrays)})
            self.assert_all_same({key[2:]: value for key, value in read("out.1.safetensors").items()}, arrays)
            self.well("delete", *[tensor["handle"] for tensor in put["tensors"]])

    def test_put__large_ones_and_names_of_the_file(self):
        arrays = {"big": np.random.default_rng(7).integers(0, 256, 9 << 20, np.uint8), "small": np.float64(2).reshape(())}
        self.well("put", write("in.safetensors", arrays))
        self.well("get", "small", "big", "-o", "out.safetensors")
        self.assert_all_same(read("out.safetensors"), arrays)
        self.well("get", "small", "-o", "small.npy")
        self.assert_same(self.load("small.npy"), arrays["small"])

    def test_put__all_or_none(self):
        arrays = {"a": np.ones(3), "b": np.ones(3, np.int8), "c": np.ones(2, np.int8)}
        self.well("put", self.save("b.npy", np.zeros(1)), "--name", "b")
        self.fails(["put", write("in.safetensors", arrays)], 'a tensor is named "b" already')
        self.assertEqual([tensor["name"] for tensor in self.json("list")["tensors"]], ["b"])

    def test_refused(self):
        arrays = {"a": np.ones(3), "spaces in it": np.ones(1)}
        self.fails(["put", write("cut.safetensors", arrays, cut=3)], "cut.safetensors", "ends at byte 32 of the data, the file has 29")
        self.fails(["put", write("name.safetensors", arrays)], "name.safetensors")
        self.assertEqual(self.json("list")["tensors"], [])
        self.fails(["put", "nowhere.safetensors"], "No such file")
        self.fails(["put", "in.safetensors", "--into", "x"], "a file of one tensor", code=2)
        self.fails(["get", "a", "b", "-o", "x.npy"], "into a .safetensors file alone", code=2)
        self.fails(["get", "nobody", "-o", "out2.safetensors"], 'no tensor is named "nobody"')
        self.well("put", self.save("in.npy", np.ones(2)), "--name", "x")
        self.fails(["get", "x", "x", "-o", "out2.safetensors"], "given twice")
        self.assertFalse(os.path.exists(file_path("out2.safetensors")))

    def test_pickles_are_refused(self):
        with open(file_path("model.pt"), "wb") as file:
            file.write(b"PK\x03\x04")
        self.fails(["put", "model.pt"], "model.pt", "python3 -m tutti.torch put|get FILE.pt")
        self.fails(["get", "x", "-o", "model.pth"], "python3 -m tutti.torch put|get FILE.pt")
        self.assertEqual([name for name in os.listdir(work.name) if name.endswith(".pth")], [])

    @unittest.skipUnless(safetensors, "the package safetensors is not installed")
    def test_the_package_agrees(self):
        arrays = some()
        safetensors.numpy.save_file(arrays, file_path("theirs.safetensors"), {"format": "np"})
        self.well("put", "theirs.safetensors")
        self.well("get", *arrays, "-o", "ours.safetensors")
        self.assert_all_same(safetensors.numpy.load_file(file_path("ours.safetensors")), arrays)


if __name__ == "__main__":
    support.main()
