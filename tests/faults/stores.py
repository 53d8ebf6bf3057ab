"""Schedules of stores: a copy of the folder is cut while the coordinator writes, and another coordinator starts on the copy; etcd goes
back to a snapshot under a coordinator that leads."""

import os
import shutil
import subprocess
import threading
import time

import grpc

from cluster_case import LONG_S, coordinator, coordinator_grpc, support
from etcd_case import Etcd
from fault_cluster import Broken, FaultCluster
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


class EtcdCluster(FaultCluster):
    """Its coordinator has etcd, and has led before: a snapshot holds its job."""

    etcd = None

    def run_coordinator(self, listen):
        if self.etcd is None:
            self.etcd = Etcd(self.folder.name)
        return support.Program("tutti-coordinator", "--store", "etcd:%s/faults" % self.etcd.endpoints(), listen=listen)

    def kill(self):
        super().kill()
        self.etcd.close()

    def end(self):
        try:
            super().end()
        finally:
            self.etcd.close()


class RestoreSchedule(Schedule):
    """The coordinator ends before it answers anything more; ops go on; the next one has what the snapshot has."""

    timeout_ms = 9000  # etcd needs a second or two

    def strike(self, cluster):
        keys = store_grpc.StoreServiceStub(cluster.coordinator_channel)
        snapshot = os.path.join(cluster.folder.name, "snapshot")
        self.set_keys(keys, "kept")
        cluster.etcd.ctl("snapshot", "save", snapshot)
        self.set_keys(keys, "lost")
        old = cluster.coordinator
        cluster.etcd.restore(snapshot)
        try:
            keys.Set(store.StoreServiceSetRequest(key=b"behind", value=b"it"), timeout=LONG_S)
            self.finding = "a change was answered after etcd had gone back"
        except grpc.RpcError as error:
            self.finding = None if error.code() == grpc.StatusCode.UNAVAILABLE else str(support.Failure(error))
        old.process.wait(LONG_S)
        if self.finding is None and "STORE_WENT_BACK" not in old.log():
            self.finding = "the coordinator does not say that its store went back: " + old.log()[-500:]
        cluster.start_coordinator()

    def set_keys(self, keys, word):
        for number in range(KEYS):
            keys.Set(store.StoreServiceSetRequest(key=b"%s %d" % (word.encode(), number), value=b"%d" % self.number),
                     timeout=LONG_S)

    def play(self, cluster):
        results = super().play(cluster)
        self.check_keys(store_grpc.StoreServiceStub(cluster.coordinator_channel))
        return results

    def check_keys(self, keys):
        """When the next one leads."""
        until = time.monotonic() + LONG_S
        for number in range(KEYS):
            while True:
                try:
                    got = keys.Get(store.StoreServiceGetRequest(key=b"kept %d" % number), timeout=LONG_S).value
                    break
                except grpc.RpcError as error:
                    if time.monotonic() > until:
                        raise Broken("no coordinator leads: %s" % support.Failure(error))
                    time.sleep(0.02)
            if got != b"%d" % self.number:
                raise Broken("the key %d of before the snapshot has changed to %r" % (number, got))

    def judge(self, results):
        super().judge(results)
        if self.finding is not None:
            raise Broken(self.finding)
