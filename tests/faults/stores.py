"""Schedules that cut a copy of the store while the coordinator writes to it, and start another coordinator on the copy."""

import os
import shutil
import subprocess
import threading
import time

import grpc

from cluster_case import LONG_S, coordinator, coordinator_grpc, support
from fault_cluster import Broken
from schedules import Schedule

support.build_stubs()
from tutti.v1 import store_service_pb2 as store  # noqa: E402
from tutti.v1 import store_service_pb2_grpc as store_grpc  # noqa: E402

KEYS = 30
EXIT_FAILED = 1


class StoreSchedule(Schedule):
    """The cluster must not notice. The copy is refused with words, or holds what was stored."""

    def __init__(self, seed, number, fault, phase, op):
        super().__init__(seed, number, fault, phase, op)
        self.values = [self.random.randbytes(self.random.choice((10, 300, 5000))) for _ in range(KEYS)]
        self.share = self.random.choice((0, 1, self.random.random(), self.random.random()))
        self.whole_pages = self.random.random() < 0.5
        self.trial = None
        self.finding = None

    def strike(self, cluster):
        keys = store_grpc.StoreServiceStub(cluster.coordinator_channel)
        for number, value in enumerate(self.values):
            keys.Set(store.StoreServiceSetRequest(key=b"stored %d" % number, value=value), timeout=LONG_S)
        job = cluster.members.GetJob(coordinator.GetJobRequest(), timeout=LONG_S).job.id
        folder = cluster.folder.name + "-copy"
        shutil.copytree(cluster.folder.name, folder)
        self.cut(os.path.join(folder, "data.mdb"))
        self.trial = threading.Thread(target=self.try_copy, args=(folder, job))
        self.trial.start()

    def cut(self, path):
        """Of `share` 1 only the last page goes."""
        size = os.stat(path).st_size
        left = int(size * self.share) if self.share < 1 else size - 4096
        os.truncate(path, left // 4096 * 4096 if self.whole_pages else left)
        self.name += " [%d of %d bytes]" % (os.stat(path).st_size, size)

    def try_copy(self, folder, job):
        port, log = os.path.join(folder, "port"), os.path.join(folder, "log")
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [os.path.join(support.PROGRAMS, "tutti-coordinator"), "--listen", "127.0.0.1:0",
                 "--port-file", port, "--store", "lmdb:" + folder],
                stdout=file, stderr=file, stdin=subprocess.DEVNULL, close_fds=False,
            )
        try:
            until = time.monotonic() + support.START_S
            while process.poll() is None and not (os.path.exists(port) and os.path.getsize(port)):
                if time.monotonic() > until:
                    raise Broken("the coordinator on the copy neither starts nor ends")
                time.sleep(0.01)
            if process.returncode is None:
                with open(port) as file:
                    self.check_right(file.read().split()[0], job)
            else:
                self.check_refused(process.returncode, log, folder)
        except Exception as error:  # noqa: B902: judge() says it
            self.finding = error
        finally:
            process.kill()
            process.wait()
            shutil.rmtree(folder)

    def check_refused(self, code, log, folder):
        with open(log, errors="replace") as file:
            said = file.read()
        if code != EXIT_FAILED or folder + "/data.mdb is damaged, " not in said:
            raise Broken("on a cut store a coordinator ended with %d: %s" % (code, said[-500:]))

    def check_right(self, address, job):
        with grpc.insecure_channel(address) as channel:
            members = coordinator_grpc.CoordinatorServiceStub(channel)
            keys = store_grpc.StoreServiceStub(channel)
            if members.GetJob(coordinator.GetJobRequest(), timeout=LONG_S).job.id != job:
                raise Broken("the coordinator on a cut store has another job")
            for number, value in enumerate(self.values):
                if keys.Get(store.StoreServiceGetRequest(key=b"stored %d" % number), timeout=LONG_S).value != value:
                    raise Broken("the coordinator on a cut store has another value of key %d" % number)

    def judge(self, results):
        super().judge(results)
        self.trial.join()
        if self.finding is not None:
            raise self.finding
