"""Goal: one controller drives all agents of a group as if they were one machine, and nothing of it is
left when it is gone.

Method: stock stubs against two and four real agents; what commands do on each worker, how they
fail, and what processes that die leave behind.
"""

import unittest

import grpc
import numpy as np

import support
from cluster_case import LONG_S, ClusterCase, tensors, types
from session_stream import Failed, Session, functions, sessions

INVALID = int(grpc.StatusCode.INVALID_ARGUMENT.value[0])
MISSING = int(grpc.StatusCode.NOT_FOUND.value[0])
SUM = types.REDUCE_OP_SUM


def reduce_of(src, reduce_op=SUM, **fields):
    return {"all_reduce": sessions.DriveReduce(src=src, reduce_op=reduce_op, **fields)}


def floats(*values):
    return np.array(values, np.float32)


class Pair(ClusterCase):
    size = 2

    def open(self, leader=0, **fields):
        return Session(self.cluster.agents[leader], **fields)

    def test_open_tells_the_workers_and_where_they_are(self):
        session = self.open(leader=1)
        opened = session.opened
        self.assertEqual([worker.rank for worker in opened.workers], [0, 1])
        self.assertEqual([worker.worker for worker in opened.workers], [0, 1])
        self.assertEqual(opened.leader, 1)
        self.assertEqual(opened.num_groups, 1)
        for worker in opened.workers:
            self.assertIn(self.cluster.agents[worker.rank].program.address, worker.addresses)
        session.close()

    def test_an_all_reduce_of_registers_is_read_at_the_workers(self):
        session = self.open()
        session.fill(self.cluster, 1, [floats(1, 2), floats(10, 20)])
        session.do(**reduce_of(1, into=2))
        for worker in range(2):
            self.assertEqual(list(session.read(self.cluster, 2, worker)), [11, 22])
        session.do(**reduce_of(1, dst=1))
        self.assertEqual(list(session.read(self.cluster, 1, 0)), [11, 22])
        session.sync()
        session.close()


if __name__ == "__main__":
    unittest.main()
