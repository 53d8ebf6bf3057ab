"""Goal: no function of libtutti falls over NULL where it needs something, and every error has a reason.

Method: the functions are read from the headers. Each that gives an error is called with NULL for one of its
pointers after the other, unless its comment says that this one may be NULL, in a process of its own that would
die with it.
"""

import ctypes
import glob
import os
import re
import struct
import subprocess
import sys
import unittest

import support
from cluster_case import ClusterCase

LIBRARY = os.path.join(support.BUILD, "libtutti.so")
# What client.h says of all functions: NULL = as init; not wanted; handed on as it is.
DEFAULTS, UNWANTED, HANDED_ON = ("op", "options", "transfer"), ("ret_result", "ret_id", "ret_ticket"), ("arg", "user", "context")
# A declaration, and the comment before it.
DECLARATION = r"(?:/\*((?:(?!\*/).)*)\*/\s*)?TUTTI_API\s+tutti_code\s+(tutti_\w+)\(([^;]*?)\);"
FP32 = struct.pack("=iiq", 10, 1, 1)  # a spec of one element


class Error(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_int), ("scope", ctypes.c_int), ("cause", ctypes.c_int), ("domain", ctypes.c_void_p),
        ("where", ctypes.c_char_p), ("sequence", ctypes.c_uint64), ("rank", ctypes.c_int32),
        ("reason", ctypes.c_char * 40), ("group", ctypes.c_char * 128), ("text", ctypes.c_char * 1024),
    ]  # fmt: skip


def split(given):
    """Parameters; a comma inside of brackets is a function's."""
    return [re.sub(r"\s+", " ", one.strip()) for one in re.split(r",(?![^(]*\))", given)]


def name_of(parameter):
    return (re.search(r"\(\*(\w+)\)", parameter) or re.search(r"(\w+)(?:\[[^]]*\])?$", parameter))[1]


def is_pointer(parameter):
    return "*" in parameter or "[" in parameter or re.match(r"tutti_\w+_fn ", parameter) is not None


def may_be_null(comment, name):
    """Does its row speak of NULL?"""
    rows = re.split(r"\n \*(?=\n| +\[)", comment)
    own = [row for row in rows if re.match(r"[\s*]*\[[^]]*\]\s+(\w+, +)?%s\b" % name, row)]
    return any("NULL" in row.replace("not NULL", "") for row in own)


def pointers():
    """Name, parameters and one pointer of all functions that give an error, unless that pointer may be NULL."""
    for path in sorted(glob.glob(os.path.join(support.SOURCE, "include", "tutti", "*.h"))):
        with open(path) as file:
            text = file.read()
        for comment, name, given in re.findall(DECLARATION, text, flags=re.S):
            parameters = split(given)
            for one in parameters[:-1] if parameters[-1] == "tutti_error *err" else ():
                pointer = name_of(one)
                if (
                    is_pointer(one)
                    and pointer not in DEFAULTS + HANDED_ON
                    and not may_be_null(comment, pointer)
                ):
                    yield name, parameters, pointer


def call(library, name, parameters, objects, given):
    """The error of a call whose arguments are all there, but for those of `given`."""
    error = Error()
    kept = []

    def argument(one):
        own = name_of(one)
        if own in given:
            return given[own]
        if one == "tutti_error *err":
            return ctypes.byref(error)
        if own in DEFAULTS or not is_pointer(one):
            return ctypes.c_size_t(1 if re.search("count|size|bytes|kind|into", own) else 0)
        if one.startswith("const char *const *"):
            return (ctypes.c_char_p * 1)(b"x")
        if one.startswith("const char *"):
            return b"x"
        kept.append(ctypes.create_string_buffer(FP32 if "tutti_spec *" in one else b"", 1 << 16))
        return objects.get(one, kept[-1])

    getattr(library, name)(*[argument(one) for one in parameters])
    return error.code, error.reason.decode(), error.text.decode()


def is_fine(library, name, parameters, pointer, objects):
    """It is refused; or a text, which is as an empty one; or not wanted."""
    said = call(library, name, parameters, objects, {pointer: None})
    if said == (3, "NULL_ARGUMENT", "`%s` is NULL" % pointer):
        return True
    if "const char *" + pointer in parameters and said == call(library, name, parameters, objects, {pointer: b""}):
        return True
    return pointer in UNWANTED or said


def open_objects(library, agent):
    """By their parameters: what functions work on."""
    objects = {}
    error = Error()
    client = ctypes.c_void_p()
    assert library.tutti_connect(agent, ctypes.byref(client), ctypes.byref(error)) == 0, error.text
    for kind, on in (("pipeline", client), ("queue", client), ("session", client), ("generic", agent)):
        made = ctypes.c_void_p()
        code = getattr(library, "tutti_%s_open" % kind)(on, None, ctypes.byref(made), ctypes.byref(error))
        assert code == 0, error.text
        objects["tutti_%s *%s" % (kind, kind)] = made
    return client, {"tutti_client *client": client, **objects}


def main(agent):
    """In a process of its own: prints what is wrong, or the name of the function before it dies."""
    library = ctypes.CDLL(LIBRARY)
    client, objects = open_objects(library, agent.encode())
    error = Error()
    for name, parameters, pointer in pointers():
        print("# %s without its %s" % (name, pointer), flush=True)
        fine = is_fine(library, name, parameters, pointer, objects)
        if fine is not True:
            print("%s without its %s: %s" % (name, pointer, fine), flush=True)
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
    options = ("--op-timeout", "1s")  # tutti_recv comes to it

    def test_null_and_garbage_have_reasons(self):
        self.assertGreater(len(list(pointers())), 400)
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
