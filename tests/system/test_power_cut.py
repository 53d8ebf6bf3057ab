#!/usr/bin/python3
"""Goal: a coordinator with --store-sync full has after a power cut all that it has answered, and counts each call once; with
order it has all up to some moment.

Method: tests/store/power_cut.c writes down what the coordinator writes and waits for. It is killed in the midst of calls, and its
folder made anew from what a disk must have and any sectors of the rest (power_cut.py); the next one goes on there.

usage: test_power_cut.py [test names]    TUTTI_POWER_CUTS=100 for as many cuts as that
"""

import os
import random
import tempfile
import threading
import time
import unittest

import grpc

import support
import coordinator_case as cases
from power_cut import LIBRARY, Disk

from tutti.v1 import store_service_pb2 as store  # noqa: E402

if not os.path.exists(LIBRARY):
    support.skip_all("the library for LD_PRELOAD is not built: sanitizers come first")

CUTS = int(os.environ.get("TUTTI_POWER_CUTS", "12"))
GONE = grpc.StatusCode.UNAVAILABLE
CLIENTS = 8


class PowerCut(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory(prefix="tutti-cut-")
        self.addCleanup(place.cleanup)
        self.disk = Disk(os.path.join(place.name, "store"), place.name)
        self.listen = None

    def start(self, sync):
        program = support.Program("tutti-coordinator", "--store", "lmdb:" + self.disk.folder, "--store-sync", sync, "--insecure",
                                  listen=self.listen, environment=self.disk.environment())
        self.listen = program.address
        self.addCleanup(program.kill)
        return program

    def cut(self, program, number):
        """How many sectors are lost; in turn none of what may be lost, all of it and some."""
        program.kill()
        lost = self.disk.cut((0.0, 1.0, random.random())[number % 3])
        self.disk.begin()
        return lost

    def add_for_ever(self, place, answered, ending, keys):
        token = place << 32
        while not ending.is_set():
            token += 1
            while True:  # with its token, until it is answered
                try:
                    keys.Add(store.StoreServiceAddRequest(key=b"k%d" % (place % 4), delta=1, token=token), timeout=cases.CALL_S,
                             wait_for_ready=True)
                    break
                except grpc.RpcError as error:
                    assert error.code() == GONE, error
            answered[place] += 1

    def test_full_keeps_all_that_was_answered(self):
        program = self.start("full")
        channels = [program.channel() for _ in range(CLIENTS)]
        answered, ending = [0] * (CLIENTS + 1), threading.Event()
        threads = [
            threading.Thread(target=self.add_for_ever, args=(1 + n, answered, ending, cases.store_grpc.StoreServiceStub(channels[n])))
            for n in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        lost, went_back = 0, 0
        for number in range(CUTS):
            before, more = sum(answered), random.randint(1, 100)
            while sum(answered) < before + more:
                time.sleep(0.001)
            if number % 3 == 0:  # nothing of what may be lost is kept, so that something is lost whenever it comes
                self.disk.hold()
            lost += self.cut(program, number)
            program = self.start("full")
            went_back += "was not whole" in program.log()
        ending.set()
        for thread in threads:
            thread.join()
        keys = cases.store_grpc.StoreServiceStub(channels[0])
        for key in range(4):
            got = keys.Get(store.StoreServiceGetRequest(key=b"k%d" % key), timeout=cases.CALL_S).value
            self.assertEqual(int(got), sum(answered[key::4]), "after %d cuts" % CUTS)
        print("# full: %d power cuts, %d sectors lost that nobody had waited for, %d transactions were there in part and left out; "
              "%d answered adds, 0 lost or doubled" % (CUTS, lost, went_back, sum(answered)))
        self.assertGreater(lost, 0)
        for channel in channels:
            channel.close()

    def test_order_has_all_up_to_some_moment(self):
        """Two keys are set by turns: the one that was set first is never behind."""
        done, least = 0, 0
        for number in range(CUTS):
            program = self.start("order")
            with program.channel() as channel:
                keys = cases.store_grpc.StoreServiceStub(channel)
                first, second = self.read(keys, b"first"), self.read(keys, b"second")
                self.assertIn(first - second, (0, 1), "after %d cuts" % number)
                least += done - second if number > 0 else 0
                for done in range(second + 1, second + random.randint(2, 60)):
                    keys.Set(store.StoreServiceSetRequest(key=b"first", value=b"%d" % done), timeout=cases.CALL_S)
                    keys.Set(store.StoreServiceSetRequest(key=b"second", value=b"%d" % done), timeout=cases.CALL_S)
            self.cut(program, number)
        print("# order: %d power cuts; %d pairs that were answered were lost, the last ones each time" % (CUTS, least))

    def read(self, keys, key):
        try:
            return int(keys.Get(store.StoreServiceGetRequest(key=key), timeout=cases.CALL_S).value)
        except grpc.RpcError as error:
            self.assertEqual(error.code(), grpc.StatusCode.NOT_FOUND)
            return 0


if __name__ == "__main__":
    support.main()
