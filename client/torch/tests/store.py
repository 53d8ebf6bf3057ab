"""tutti_torch's store beside torch's own TCPStore: the same calls give the same answers. Prints "ok" lines."""

import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta

import torch.distributed as dist
import tutti_torch


def raises(call, *words):
    try:
        call()
    except dist.DistStoreError as error:
        text = str(error)
        assert all(word in text for word in words), text
        return "DistStoreError"
    raise AssertionError("nothing was raised")


def later(call):
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def answers(store, other):
    """What one store says; `other` is a second client of it."""
    said = []
    store.set("a", "1")
    said.append(store.get("a"))
    said.append([store.add("n", 5), other.add("n", -2), store.get("n")])
    said.append([store.compare_set("c", "", "first"), store.compare_set("c", "wrong", "second"),
                 store.compare_set("c", "first", "third"), other.get("c")])
    said.append(store.compare_set("none", "something", "else"))
    said.append([store.check(["a", "c"]), store.check(["a", "missing"])])
    store.append("list", "x")
    other.append("list", "yz")
    said.append(store.multi_get(["list", "a"]))
    store.multi_set(["m1", "m2"], ["\u00e4", ""])
    said.append(other.multi_get(["m1", "m2"]))
    said.append([store.delete_key("m1"), store.delete_key("m1")])
    thread = later(lambda: other.set("late", "v"))
    store.wait(["late"], timedelta(seconds=20))
    said.append(store.get("late"))
    thread.join()
    thread = later(lambda: other.set("later", "w"))
    said.append(store.get("later"))
    thread.join()
    said.append(raises(lambda: store.wait(["a", "never-set"], timedelta(milliseconds=100))))
    return said


def start_coordinator():
    read, write = os.pipe()
    child = subprocess.Popen([os.path.join(os.environ["TUTTI_PROGRAMS"], "tutti-coordinator"), "--listen", "127.0.0.1:0",
                              "--parent-pid", str(os.getpid()), "--port-file", "fd:%d" % write], pass_fds=[write])
    os.close(write)
    with os.fdopen(read) as file:
        return child, file.readline().strip()


def main():
    child, address = start_coordinator()
    try:
        make = lambda: tutti_torch._module().store(address, "torch/test/", 20.0)
        store, other = make(), make()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        peer = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        ours, theirs = answers(store, other), answers(peer, dist.TCPStore("127.0.0.1", port, is_master=False))
        assert ours == theirs, "%s\n%s" % (ours, theirs)
        print("ok answers as TCPStore")
        raises(lambda: store.wait(["never-set"], timedelta(milliseconds=50)), "never-set")
        store.set_timeout(timedelta(milliseconds=100))
        raises(lambda: store.get("missing-too"), "missing-too")
        print("ok errors name the key")
        assert store.num_keys() == other.num_keys() > 0
        assert tutti_torch._module().store(address, "another/", 20.0).num_keys() == 0
        print("ok keys are those of the prefix")
        prefixed = dist.PrefixStore("p", store)
        prefixed.set("k", "v")
        assert other.get("p/k") == b"v"
        print("ok PrefixStore")
    finally:
        child.terminate()
        child.wait()


if __name__ == "__main__":
    sys.exit(main())
