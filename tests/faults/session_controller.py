"""A controller in a process of its own: it opens a session, says which, sends commands, and waits for its end.

usage: session_controller.py ADDRESS LINGER COUNT
"""

import os
import sys
import types

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "system"))

import cluster_case  # noqa: E402, F401
from session_stream import Session, arg_of, sessions  # noqa: E402

import grpc  # noqa: E402

if __name__ == "__main__":
    agent = types.SimpleNamespace(channel=grpc.insecure_channel(sys.argv[1]))
    session = Session(agent, linger=sys.argv[2] == "1")
    session.wait(session.empty(1, [2]))
    for number in range(int(sys.argv[3])):
        session.send(all_reduce=sessions.DriveReduce(src=1, into=2 + number, reduce_op=1))
        session.send(call=sessions.DriveCall(function="faults.add", args=[arg_of(number)], into=300 + number))
    print(session.opened.session, session.opened.secret.hex() or "-", flush=True)
    for answer in session.call:
        pass
