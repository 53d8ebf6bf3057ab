"""Goal: no function of libtutti falls over NULL where it needs something, and every error has a reason.

Method: the functions are read from the headers. Each is called with NULL or 0 for all arguments, in a process
of its own that would die with it; those of keys and specs with a client that is connected; those with outputs
without one of these, unless its comment says that it may be NULL.
"""

import ctypes
import glob
import os
import re
import subprocess
import sys
import unittest

import support
from cluster_case import ClusterCase

LIBRARY = os.path.join(support.BUILD, "libtutti.so")
# What a function works on: first arguments that must not be NULL.
OBJECTS = ("client", "session", "pipeline", "queue", "host", "generic", "call", "view")
NEEDED = ("key", "spec")  # later ones
# Outputs whose NULL is fine by words that stand elsewhere, or that depend on the rank.
OPTIONAL = {
    "tutti_cancel", "tutti_queue_submit_list", "tutti_queue_submit_data", "tutti_backward", "tutti_object_gather",
    "tutti_agent_examine", "tutti_clock_compare", "tutti_recv",
}  # fmt: skip


class Error(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int), ("scope", ctypes.c_int), ("cause", ctypes.c_int), ("domain", ctypes.c_void_p),
        ("where", ctypes.c_char_p), ("sequence", ctypes.c_uint64), ("rank", ctypes.c_int32),
        ("reason", ctypes.c_char * 40), ("group", ctypes.c_char * 128), ("text", ctypes.c_char * 1024),
    ]  # fmt: skip


def functions():
    """Name and parameters of all functions that give a code and take an object."""
    for path in sorted(glob.glob(os.path.join(support.SOURCE, "include", "tutti", "*.h"))):
        with open(path) as file:
            text = re.sub(r"/\*.*?\*/", "", file.read(), flags=re.S)
        for name, given in re.findall(r"TUTTI_API\s+tutti_code\s+(tutti_\w+)\(([^;]*?)\);", text, flags=re.S):
            parameters = [re.sub(r"\s+", " ", one.strip()) for one in given.split(",")]
            first = re.fullmatch(r"tutti_\w+ \*(\w+)", parameters[0])
            if first and first[1] in OBJECTS and not name.endswith("_close"):
                yield name, parameters


def outputs():
    """Name, parameters and one output of all functions with an output whose comment does not speak of NULL."""
    for path in sorted(glob.glob(os.path.join(support.SOURCE, "include", "tutti", "*.h"))):
        with open(path) as file:
            text = file.read()
        declaration = r"/\*((?:(?!\*/).)*)\*/\s*TUTTI_API\s+tutti_code\s+(tutti_\w+)\(([^;]*?)\);"
        for comment, name, given in re.findall(declaration, text, flags=re.S):
            parameters = [re.sub(r"\s+", " ", one.strip()) for one in given.split(",")]
            for one in re.findall(r"\*(ret_\w+)", given):
                said = re.search(r"\b%s\b(.*?)(?=\n \* *\[|\n \*\n|\Z)" % one, comment, re.S)
                if said and "NULL" not in said[1] and name not in OPTIONAL:
                    yield name, parameters, one


def call_without(library, name, parameters, missing, client):
    """All other arguments are there, so that this one is found missing before anything is looked at."""
    error = Error()
    room = ctypes.create_string_buffer(1 << 16)
    arguments = []
    for one in parameters:
        if one.endswith("*err"):
            arguments.append(ctypes.byref(error))
        elif one.endswith("*" + missing):
            arguments.append(ctypes.c_void_p())
        elif one == "tutti_client *client":
            arguments.append(client)
        else:
            arguments.append(ctypes.c_void_p(ctypes.addressof(room)) if "*" in one or "[" in one else ctypes.c_void_p())
    getattr(library, name)(*arguments)
    return error.code, error.reason.decode(), error.text.decode()


def call(library, name, parameters, client=None, other=None):
    """The error of a call whose arguments are NULL or 0; but for the client, and for one other size."""
    error = Error()
    arguments = []
    for one in parameters:
        if one.endswith("*err"):
            arguments.append(ctypes.byref(error))
        elif one == "tutti_client *client":
            arguments.append(client)
        else:
            arguments.append(ctypes.c_size_t(5) if one == "size_t %s_size" % other else ctypes.c_void_p())
    code = getattr(library, name)(*arguments)
    assert code == error.code, name
    return error


def check(library, name, parameters, missing, client=None):
    error = call(library, name, parameters, client, missing)
    said = (error.code, error.reason.decode(), error.text.decode())
    if said != (3, "NULL_ARGUMENT", "`%s` is NULL" % missing):
        print("%s without its %s: %s" % (name, missing, said), flush=True)


def main(agent):
    """In a process of its own: prints what is wrong, or the name of the function before it dies."""
    library = ctypes.CDLL(LIBRARY)
    client = ctypes.c_void_p()
    error = Error()
    assert library.tutti_connect(agent.encode(), ctypes.byref(client), ctypes.byref(error)) == 0, error.text
    for name, parameters in functions():
        print("# %s" % name, flush=True)
        check(library, name, parameters, parameters[0].split("*")[1])
        for one in NEEDED:
            if parameters[0] == "tutti_client *client" and re.search(r"const (void|tutti_spec) \*%s," % one, ",".join(parameters)):
                check(library, name, parameters, one, client)
    for name, parameters, one in outputs():
        print("# %s" % name, flush=True)
        said = call_without(library, name, parameters, one, client)
        if said != (3, "NULL_ARGUMENT", "`%s` is NULL" % one):
            print("%s without its %s: %s" % (name, one, said), flush=True)
    for address in ("garbage", "host:port:1", "unix:", "x" * 5000):
        code = library.tutti_connect(address.encode(), ctypes.byref(client), ctypes.byref(error))
        if (code, error.reason) != (3, b"BAD_ADDRESS"):
            print("tutti_connect(%.20r): %s" % (address, (code, error.reason, error.text)), flush=True)
    zeros = ctypes.create_string_buffer(4096)
    for name in ("tutti_all_reduce", "tutti_barrier"):
        code = getattr(library, name)(client, zeros, None, ctypes.byref(error))
        if (code, error.reason) != (3, b"BAD_STRUCT"):
            print("%s with a zeroed op: %s" % (name, (code, error.reason, error.text)), flush=True)
    print("end", flush=True)


class Arguments(ClusterCase):
    size = 1

    def test_null_and_garbage_have_reasons(self):
        self.assertGreater(len(list(functions())), 150)
        self.assertGreater(len(list(outputs())), 60)
        done = subprocess.run(
            [sys.executable, __file__, self.cluster.agents[0].program.address], stdout=subprocess.PIPE, text=True,
            timeout=120,
        )
        lines = done.stdout.splitlines()
        wrong = [line for line in lines if not line.startswith("# ")]
        self.assertEqual(wrong, ["end"], "died behind %s" % lines[-1] if done.returncode else "")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        support.main()
