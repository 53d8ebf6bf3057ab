"""A host of functions that agents start in the place of `python3 -m tutti.host`: what it has spoils things by order.

`faults.add` gives its argument and the worker's number. The others do so too, but on the worker that their first
argument names: `crash` ends the process, `hang` goes on until it is cancelled, `nonsense` answers what is no answer,
`leak` makes tensors and leaves them, `sleep` takes its second argument's milliseconds on all workers.
"""

import os
import queue
import sys
import threading
import time

import grpc
from tutti.v1 import functions_service_pb2 as functions
from tutti.v1 import functions_service_pb2_grpc as functions_grpc
from tutti.v1 import types_pb2 as types

NAMES = ("add", "crash", "hang", "nonsense", "leak", "sleep", "pid")
LEAKED = 50
GIVEN = -1  # by `leak`, on the worker that leaks
NONSENSE = (
    dict(call=0, result=functions.Value(integer=1)),  # of no call
    dict(result=functions.Value(tensor="tensor:0.1.1")),
    dict(),  # neither a result nor an error
    dict(result=functions.Value(text="x" * (3 << 19))),
    dict(result=functions.Value(name="keep")),
)


class Host:
    def __init__(self):
        self.out = queue.SimpleQueue()
        self.cancelled = set()

    def say(self, **kind):
        self.out.put(functions.ServeRequest(**kind))

    def give(self, call, **value):
        self.say(returned=functions.HostReturn(call=call, result=functions.Value(**value)))

    def run(self, call):
        name = call.function.split(".")[-1]
        args = [arg.value.integer for arg in call.args]
        if name == "sleep":
            time.sleep(args[1] / 1000)
        elif name not in ("add", "pid") and args[0] == call.worker:
            return getattr(self, name)(call.call, args)
        self.give(call.call, integer=os.getpid() if name == "pid" else args[0] + call.worker)

    def crash(self, call, args):
        print("about to crash", file=sys.stderr, flush=True)
        os.abort() if args[1] % 2 else os._exit(args[1])

    def hang(self, call, args):
        while call not in self.cancelled:
            time.sleep(0.02)
        self.say(stopped=call)

    def nonsense(self, call, args):
        fields = dict(NONSENSE[args[1] % len(NONSENSE)])
        self.say(returned=functions.HostReturn(**dict({"call": call}, **fields)))

    def leak(self, call, args):
        """The agent answers each in its turn; `made` goes on."""
        self.left, self.leaking = LEAKED, call
        self.made()

    def made(self):
        if self.left == 0:
            return self.give(self.leaking, integer=GIVEN)
        self.left -= 1
        spec = types.TensorSpec(dtype=types.DTYPE_FP32, shape=[1000])
        self.say(make=functions.HostMake(call=self.leaking, request=self.left + 1, spec=spec))

    def serve(self, address, modules):
        infos = [functions.FunctionInfo(name="%s.%s" % (one, name)) for one in modules for name in NAMES]
        self.say(start=functions.HostStart(name="faults", functions=infos, calls_max=4))
        stub = functions_grpc.FunctionsServiceStub(grpc.insecure_channel(address))
        key = [("tutti-host-key", os.environ["TUTTI_HOST_KEY"])]
        for message in stub.Serve(iter(self.out.get, None), metadata=key):
            if message.HasField("call"):
                threading.Thread(target=self.run, args=(message.call,), daemon=True).start()
            elif message.HasField("done"):
                self.made()
            elif message.HasField("cancel"):
                self.cancelled.add(message.cancel)


def end_with_agent():
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":  # -m tutti.host --agent ADDRESS MODULE...
    threading.Thread(target=end_with_agent, daemon=True).start()
    Host().serve(sys.argv[4], sys.argv[5:])
