"""CUDA in this process, which is another than the agent's: what a client does with memory and events of an agent.

Over the stand-in, or with TUTTI_GPU=1 over the runtime that tutti-cuda.so is linked with.
"""

import ctypes
import os
import re
import subprocess
import threading

import support

REAL = os.environ.get("TUTTI_GPU") == "1"
MODULES = support.BUILD if REAL else os.path.join(support.BUILD, "standin")
SUCCESS, INVALID_VALUE, INVALID_HANDLE, NOT_READY = 0, 1, 400, 600
DISABLE_TIMING, INTERPROCESS = 2, 4


def is_sanitized():
    """A library with a sanitizer can only be loaded by a program with one."""
    path = os.path.join(support.BUILD, "CMakeCache.txt")
    if not os.path.exists(path):  # a kit of tests/gpu
        return False
    with open(path) as cache:
        return re.search(r"^TUTTI_SANITIZE:\w+=.", cache.read(), re.M) is not None


class Failed(Exception):
    def __init__(self, call, code):
        super().__init__("%s: %d" % (call, code))
        self.code = code


class Handle(ctypes.Structure):
    """A cudaIpcMemHandle_t, or a cudaIpcEventHandle_t."""

    _fields_ = [("bytes", ctypes.c_char * 64)]


def handle_of(data):
    words = Handle()
    ctypes.memmove(ctypes.byref(words), data, 64)
    return words


class Process:
    def __init__(self):
        path = os.path.join(MODULES, "libtutti_cuda_standin.so")
        if REAL:
            said = subprocess.check_output(["ldd", os.path.join(MODULES, "tutti-cuda.so")]).decode()
            path = re.search(r"libcudart\S* => (\S+)", said)[1]
        self.library = ctypes.CDLL(path)
        if not REAL:
            self.library.tutti_standin_cuda_bytes.restype = ctypes.c_void_p

    def call(self, name, *arguments):
        code = getattr(self.library, name)(*arguments)
        if code != SUCCESS:
            raise Failed(name, code)

    # ------------------------------------------------------------------ memory

    def open(self, handle):
        pointer = ctypes.c_void_p()
        self.call("cudaIpcOpenMemHandle", ctypes.byref(pointer), handle_of(handle), 1)
        return pointer

    def close(self, pointer):
        self.call("cudaIpcCloseMemHandle", pointer)

    def move(self, to, start, size):
        """cudaMemcpy, which the stand-in has not: Tutti does not call it."""
        if REAL:
            self.call("cudaMemcpy", to, start, ctypes.c_size_t(size), 4)
            return
        find = self.library.tutti_standin_cuda_bytes
        ctypes.memmove(find(to, ctypes.c_size_t(size)) or to, find(start, ctypes.c_size_t(size)) or start, size)

    def read(self, pointer, size):
        buffer = ctypes.create_string_buffer(size)
        self.move(ctypes.cast(buffer, ctypes.c_void_p), pointer, size)
        return buffer.raw

    def write(self, pointer, data):
        buffer = ctypes.create_string_buffer(data, len(data))
        self.move(pointer, ctypes.cast(buffer, ctypes.c_void_p), len(data))

    # ------------------------------------------------------------------ events

    def make_event(self, flags):
        event = ctypes.c_void_p()
        self.call("cudaEventCreateWithFlags", ctypes.byref(event), flags)
        return event

    def export(self, event):
        words = Handle()
        self.call("cudaIpcGetEventHandle", ctypes.byref(words), event)
        return bytes(words)

    def open_event(self, handle):
        event = ctypes.c_void_p()
        self.call("cudaIpcOpenEventHandle", ctypes.byref(event), handle_of(handle))
        return event

    def destroy_event(self, event):
        self.call("cudaEventDestroy", event)

    def is_complete(self, event):
        code = self.library.cudaEventQuery(event)
        if code not in (SUCCESS, NOT_READY):
            raise Failed("cudaEventQuery", code)
        return code == SUCCESS


class Stream:
    """Work in order; what is behind a `hold` begins at its `release`."""

    def __init__(self, process):
        self.process = process
        self.stream = ctypes.c_void_p()
        self.functions = []  # that CUDA calls: they must live
        self.holds = []
        process.call("cudaStreamCreateWithFlags", ctypes.byref(self.stream), 1)

    def hold(self):
        may_go = threading.Event()
        function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: may_go.wait(60) and None)
        self.functions.append(function)
        self.holds.append(may_go)
        self.process.call("cudaLaunchHostFunc", self.stream, function, None)

    def release(self):
        while self.holds:
            self.holds.pop().set()

    def fill(self, pointer, value, size):
        self.process.call("cudaMemsetAsync", pointer, value, ctypes.c_size_t(size), self.stream)

    def copy(self, to, start, size):
        self.process.call("cudaMemcpyAsync", to, start, ctypes.c_size_t(size), 4, self.stream)

    def record(self, event):
        self.process.call("cudaEventRecord", event, self.stream)

    def wait_event(self, event):
        self.process.call("cudaStreamWaitEvent", self.stream, event, 0)

    def synchronize(self):
        self.process.call("cudaStreamSynchronize", self.stream)

    def close(self):
        self.release()
        self.synchronize()
        self.process.call("cudaStreamDestroy", self.stream)
