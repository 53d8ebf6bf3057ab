"""Goal: tutti_torch's store is a store of torch's. Method: the same calls on it and on torch's own TCPStore give the same
answers; what only ours says is checked by itself.
"""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import place

place.enter()

import subprocess
import threading
import unittest
from datetime import timedelta

import torch.distributed as dist

import tap
import tutti_torch
from ports import free_port


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
    store.set("empty", "")
    said.append([store.compare_set("empty", "", "first"), store.compare_set("empty", "", "second"), other.get("empty")])
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


class Store(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.child, cls.address = start_coordinator()

    @classmethod
    def tearDownClass(cls):
        cls.child.terminate()
        cls.child.wait()

    def open(self, prefix):
        return tutti_torch._module().store(self.address, prefix, 20.0)

    def test_answers_as_tcp_store(self):
        port = free_port()
        peer = dist.TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        theirs = answers(peer, dist.TCPStore("127.0.0.1", port, is_master=False))
        self.assertEqual(answers(self.open("answers/"), self.open("answers/")), theirs)

    def test_errors_name_the_key(self):
        store = self.open("errors/")
        raises(lambda: store.wait(["never-set"], timedelta(milliseconds=50)), "never-set")
        store.set_timeout(timedelta(milliseconds=100))
        raises(lambda: store.get("missing-too"), "missing-too")

    def test_keys_are_those_of_the_prefix(self):
        store = self.open("keys/")
        store.set("one", "1")
        self.assertEqual(self.open("keys/").num_keys(), store.num_keys())
        self.assertGreater(store.num_keys(), 0)
        self.assertEqual(self.open("another/").num_keys(), 0)

    def test_a_run_does_not_meet_the_keys_of_another_one(self):
        """What the rendezvous tutti:// does. A run that never had all ranks has written nothing."""
        def rank(place, timeout=20.0):
            return tutti_torch._module().store(self.address, "runs/", timeout, place, 2)

        for _ in range(2):
            raises(lambda: rank(0, 0.2), "TIMEOUT", "rank 0")
            stores = [None, None]
            other = later(lambda: stores.__setitem__(1, rank(1)))
            stores[0] = rank(0)
            other.join()
            self.assertEqual([stores[0].add("turn", 1), stores[1].add("turn", 1)], [1, 2])

    def test_prefix_store(self):
        dist.PrefixStore("p", self.open("prefixed/")).set("k", "v")
        self.assertEqual(self.open("prefixed/").get("p/k"), b"v")


if __name__ == "__main__":
    tap.main()
