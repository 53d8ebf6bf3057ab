"""Goal: clients call functions of TVM-FFI through the plug-in tutti-tvm.so.

Method: apache-tvm-ffi comes from PyPI into a virtual environment; tvm_module.c is compiled against its
headers, and a real agent, which was built without TVM, loads both.
"""

import concurrent.futures
import os
import shutil
import subprocess
import tempfile
import unittest.mock

import grpc
import numpy as np

import worlds
import support
from cluster_case import LONG_S, types
from test_functions import PRECONDITION, FunctionsCase, value

from tutti.v1 import functions_service_pb2 as functions

VERSION = os.environ.get("TUTTI_TEST_TVM_FFI", "")  # "==0.1.9": with this one
PLUGIN = os.path.join(support.BUILD, "tutti-tvm.so")
SOURCE = os.path.join(support.SOURCE, "tests", "clients", "tvm_module.c")
ABORTED = grpc.StatusCode.ABORTED


def install():
    """(the library, the flags to compile with): of the package."""
    python = worlds.environment("apache-tvm-ffi" + VERSION)
    words = "import tvm_ffi.libinfo as l, importlib.metadata as m; print(l.find_libtvm_ffi());"
    words += "print(l.find_include_path()); print(l.find_dlpack_include_path()); print(m.version('apache-tvm-ffi'))"
    library, *folders, version = worlds.must([python, "-c", words]).strip().split("\n")[-4:]
    print("# apache-tvm-ffi " + version, flush=True)
    return library, ["-I" + folder for folder in folders]


def compile_module(folder, library, flags):
    path = os.path.join(folder, "mod.so")
    words = [os.environ.get("TUTTI_CC", "cc"), "-shared", "-fPIC", "-O1", *flags, "-o", path, SOURCE]
    worlds.must(words + ["-L" + os.path.dirname(library), "-ltvm_ffi"])
    return path


class Tvm(FunctionsCase):
    """An agent with the library, and a module beside it."""

    size = 1

    @classmethod
    def variables(cls, library):
        return {"TUTTI_TVM_LIBRARIES": library}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-tvm-")
        library, flags = install()
        cls.module = compile_module(cls.folder.name, library, flags)
        cls.options = ("--plugin", PLUGIN, "--module-path", cls.folder.name)
        with unittest.mock.patch.dict(os.environ, cls.variables(library)):
            super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def load(self, path="mod.so"):
        return self.stub().LoadModule(functions.LoadModuleRequest(path=path), timeout=LONG_S)


class Modules(Tvm):
    def setUp(self):
        super().setUp()
        self.loaded = self.load()

    def test_a_module_is_loaded_with_its_functions(self):
        names = [one.name for one in self.loaded.functions]
        self.assertEqual(self.loaded.module, "mod")
        self.assertIn("mod.add_one", names)
        self.assertEqual(len(names), 13, names)

    def test_values_go_in_and_come_back(self):
        self.assertEqual(self.call("mod.add_one", 41).integer, 42)
        self.assertEqual(self.call("mod.add_half", 1.5).real, 2.0)
        for one in (
            None, 0, -1, 2**63 - 1, 0.25, "", "small", "a text that is not small ä€😀", b"", b"\x00\xff",
            b"bytes that are not small\x00", [], [2, 3], list(range(64)), {"dtype": types.DTYPE_BF16},
            {"device": "cpu"}, {"device": "cuda:3"},
        ):
            self.assertEqual(self.call("mod.identity", one), value(one))

    def test_values_have_the_kinds_of_tvm_ffi(self):
        for one, kind in ((None, 0), (1, 1), (0.5, 3), ("x", 8), (b"x", 9), ([1], 69)):
            self.assertEqual(self.call("mod.kind", one).integer, kind)

    def test_a_tensor_is_written_in_place(self):
        agent = self.cluster.agents[0]
        x = agent.put(np.arange(6, dtype=np.float32).reshape(2, 3))
        self.call("mod.add_one_to", {"tensor": x})
        np.testing.assert_array_equal(agent.get(x), np.arange(1, 7, dtype=np.float32).reshape(2, 3))
        self.assertEqual(self.call("mod.first_stride", {"tensor": x}).integer, 3)

    def test_a_tensor_that_is_returned_is_a_copy(self):
        agent = self.cluster.agents[0]
        made = self.call("mod.give_tensor").tensor
        np.testing.assert_array_equal(agent.get(made), np.arange(1, 7, dtype=np.float32).reshape(2, 3))
        x = agent.put(np.arange(3, dtype=np.float32))
        same = self.call("mod.identity", {"tensor": x}).tensor
        self.call("mod.add_one_to", {"tensor": x})
        np.testing.assert_array_equal(agent.get(same), np.arange(3, dtype=np.float32))

    def test_an_error_has_its_kind_and_text(self):
        failure = self.refused(ABORTED, "FUNCTION_FAILED", self.call, "mod.fail", "it is odd")
        self.assertIn("ValueError: it is odd", failure.text)
        failure = self.refused(ABORTED, "FUNCTION_FAILED", self.call, "mod.add_one", "one")
        self.assertIn("TypeError: add_one takes one int", failure.text)
        failure = self.refused(ABORTED, "FUNCTION_FAILED", self.call, "mod.fail_mutely")
        self.assertIn("did not say why", failure.text)
        self.assertEqual(self.call("mod.add_one", 1).integer, 2)

    def test_what_is_no_value_cannot_be_returned(self):
        for function, words in (("give_function", "ffi.Function"), ("nul_inside", "NUL"),
                                ("give_columns", "row-major"), ("give_foreign_view", "no argument")):
            failure = self.refused(ABORTED, "BAD_VALUE", self.call, "mod." + function)
            self.assertIn(words, failure.text)

    def test_global_functions_are_not_callable_unless_they_are_named(self):
        names = [one.name for one in self.stub().ListFunctions(
            functions.ListFunctionsRequest(), timeout=LONG_S).functions]
        self.assertEqual([name for name in names if name.startswith("tvm.")], [])

    def test_what_is_no_module_is_refused(self):
        other = os.path.join(self.folder.name, "other.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", other, "-x", "c", "/dev/null"], check=True)
        failure = self.refused(PRECONDITION, "BAD_MODULE", self.load, "other.so")
        self.assertIn("no loader knows it", failure.text)


class Globals(Tvm):
    @classmethod
    def variables(cls, library):
        return {"TUTTI_TVM_LIBRARIES": library, "TUTTI_TVM_FUNCTIONS": "nothing,demo"}

    def test_those_that_are_named_are_called(self):
        self.refused(ABORTED, "UNKNOWN_FUNC", self.call, "tvm.call", "demo.twice", 21)
        self.load()  # it adds them while it is loaded
        self.assertEqual(self.call("tvm.call", "demo.twice", 21).integer, 42)
        self.assertEqual(self.call("tvm.call", "demo.has space", 2).integer, 4)
        for name in ("demon.twice", "ffi.ModuleLoadFromFile", "demo.none", "dem", ""):
            self.refused(ABORTED, "UNKNOWN_FUNC", self.call, "tvm.call", name, 1)
        self.refused(ABORTED, "BAD_ARGS", self.call, "tvm.call")


class Libraries(Tvm):
    @classmethod
    def variables(cls, library):
        return {"TUTTI_TVM_LIBRARIES": library + "," + cls.module, "TUTTI_TVM_FUNCTIONS": "demo,ffi.Shape"}

    def test_global_functions_of_a_library_have_names(self):
        names = [one.name for one in self.stub().ListFunctions(
            functions.ListFunctionsRequest(), timeout=LONG_S).functions if one.name.startswith("tvm.")]
        self.assertEqual(names, ["tvm.call", "tvm.demo.twice", "tvm.ffi.Shape"])
        self.assertEqual(self.call("tvm.demo.twice", 4).integer, 8)
        self.assertEqual(list(self.call("tvm.ffi.Shape", 2, 3).shape.dims), [2, 3])


RELAX = """
import tvm
from tvm.script import ir as I, relax as R

@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((2, 3), "float32"), y: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        with R.dataflow():
            total = R.add(x, y)
            out = R.multiply(total, y)
            R.output(out)
        return out

    @R.function
    def same(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
        return x

tvm.compile(Module, target="llvm").export_library("%s")
"""


class Machines(FunctionsCase):
    """A program of Relax, which the newest apache-tvm has compiled."""

    size = 1

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-tvm-")
        python = worlds.environment("apache-tvm", "numpy", name="venv-tvm")
        words = "import os, tvm, tvm_ffi.libinfo as l; print(tvm.__version__); print(l.find_libtvm_ffi());"
        words += "print(os.path.join(os.path.dirname(tvm.__file__), 'lib'))"
        version, library, folder = worlds.must([python, "-c", words]).strip().split("\n")[-3:]
        print("# apache-tvm " + version, flush=True)
        names = ("libtvm_runtime.so", "libtvm_runtime_extra.so")
        found = [path for path in (os.path.join(folder, name) for name in names) if os.path.exists(path)]
        source = os.path.join(cls.folder.name, "relax_of_tests.py")
        with open(source, "w", encoding="utf-8") as file:
            file.write(RELAX % os.path.join(cls.folder.name, "model.so"))
        worlds.must([python, source])
        cls.options = ("--plugin", PLUGIN, "--module-path", cls.folder.name)
        with unittest.mock.patch.dict(os.environ, {"TUTTI_TVM_LIBRARIES": ",".join([library, *found])}):
            super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def setUp(self):
        super().setUp()
        self.loaded = self.stub().LoadModule(functions.LoadModuleRequest(path="model.so"), timeout=LONG_S)
        self.agent = self.cluster.agents[0]

    def test_it_runs_in_the_virtual_machine_beside_its_kernels(self):
        names = {one.name for one in self.loaded.functions}
        self.assertEqual(names, {"model.main", "model.same", "model.add", "model.multiply"})
        x = self.agent.put(np.arange(6, dtype=np.float32).reshape(2, 3))
        y = self.agent.put(np.full((2, 3), 2, np.float32))
        for _ in range(3):
            made = self.call("model.main", {"tensor": x}, {"tensor": y}).tensor
            want = 2 * (np.arange(6, dtype=np.float32).reshape(2, 3) + 2)
            np.testing.assert_array_equal(self.agent.get(made), want)

    def test_what_it_returns_is_a_copy_also_of_an_argument(self):
        x = self.agent.put(np.ones((2, 3), np.float32))
        made = self.call("model.same", {"tensor": x}).tensor
        self.assertNotEqual(made, x)
        np.testing.assert_array_equal(self.agent.get(made), np.ones((2, 3), np.float32))

    def test_wrong_arguments_are_refused_in_its_words(self):
        x = self.agent.put(np.ones((2, 4), np.float32))
        failure = self.refused(ABORTED, "FUNCTION_FAILED", self.call, "model.same", {"tensor": x})
        self.assertIn("annotation=R.Tensor((2, 3)", failure.text)
        failure = self.refused(ABORTED, "FUNCTION_FAILED", self.call, "model.same")
        self.assertIn("expects 1 argument", failure.text)

    def test_calls_at_once_are_run_one_after_the_other(self):
        y = self.agent.put(np.full((2, 3), 2, np.float32))
        arrays = [np.full((2, 3), number, np.float32) for number in range(8)]
        given = [self.agent.put(array) for array in arrays]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            made = list(pool.map(lambda x: self.call("model.main", {"tensor": x}, {"tensor": y}).tensor, given * 4))
        for array, one in zip(arrays * 4, made):
            np.testing.assert_array_equal(self.agent.get(one), 2 * (array + 2))


class Missing(FunctionsCase):
    """No TVM-FFI."""

    size = 1

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="tutti-tvm-")
        shutil.copy(PLUGIN, cls.folder.name)
        cls.options = ("--module-path", cls.folder.name)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        cls.folder.cleanup()

    def test_the_plug_in_is_refused_with_one_line(self):
        request = functions.LoadModuleRequest(path="tutti-tvm.so")
        failure = self.refused(PRECONDITION, "BAD_MODULE", self.stub().LoadModule, request, timeout=LONG_S)
        self.assertIn("libtvm_ffi.so", failure.text)
        self.assertIn("apache-tvm-ffi", failure.text)
        self.assertNotIn("\n", failure.text)

    def test_an_agent_with_it_does_not_start(self):
        status, _, err = support.run("tutti-agent", "--plugin", PLUGIN)
        self.assertNotEqual(status, 0)
        self.assertIn("apache-tvm-ffi", err)

    def test_a_library_without_its_functions_is_refused(self):
        with unittest.mock.patch.dict(os.environ, {"TUTTI_TVM_LIBRARIES": "libc.so.6"}):
            status, _, err = support.run("tutti-agent", "--plugin", PLUGIN)
        self.assertNotEqual(status, 0)
        self.assertIn("TVMFFIFunctionGetGlobal", err)


if __name__ == "__main__":
    support.main()
