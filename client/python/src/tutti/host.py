"""A process beside an agent that runs functions for it: `python3 -m tutti.host MODULE...`.

    python3 -m tutti.host --agent 127.0.0.1:7001 mlp.layers

imports the modules, and offers what stands under `@tutti.function("name")` in them. The agent needs
`--functions mlp.` to allow these names. A function that crashes ends this process and not the agent:
the callers get HOST_LOST. `tutti-agent --python mlp.layers` starts a host by itself, and again when
it has ended: by the key in $TUTTI_HOST_KEY it knows it, and allows any name. TLS and tokens are those of
every client: $TUTTI_TLS_CA, $TUTTI_TLS_CERT, $TUTTI_TLS_KEY, $TUTTI_TOKEN_FILE.

Functions run on threads, --threads of them at once. Arrays are the memory of the agent's tensors.
"""

from __future__ import annotations

import _thread
import argparse
import faulthandler
import functools
import importlib
import itertools
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any

from . import _hosted, _settings, _wire, errors, functions
from ._hosted import Cancelled, Env
from .sync._pipe import Pipe
from .sync._line import Line

__all__ = ["Cancelled", "Env", "Host", "main"]

THREADS = 4
AGAIN_S = 0.2  # between two attempts to reach the agent
CLOSE_S = 10.0  # until calls must have ended, of a host that ends


@functools.lru_cache(maxsize=None)
def _key() -> str:
    """By which the agent knows a host that it has started; not for what functions start."""
    return os.environ.pop("TUTTI_HOST_KEY", "")


class Host:
    """Functions that are offered to one agent. Made and run by Agent.serve() and main().

    offered  what it offers, by name; None = what modules define by @tutti.function, also those
             that are imported later
    told     the names that the agent was told
    """

    def __init__(
        self,
        line: Line,
        offered: "dict[str, functions.Definition] | None" = None,
        threads: int = THREADS,
        name: str = "",
    ) -> None:
        self._given = offered
        self._threads = threads
        self._label = name or os.path.basename(sys.argv[0] or "python")
        key = _key()
        shown = [("tutti-host-key", key)] if key else []
        self._pipe = Pipe(line, "Functions.Serve", self._take, self._end, shown)
        self._calls: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._requests = itertools.count(1)
        self._done: dict[tuple[int, int], Any] = {}
        self._running: set[int] = set()
        self._cancelled: set[int] = set()
        self.told: set[str] = set()
        self._importing = threading.Lock()
        self._started = False
        self._stopping = False
        self._ended = False
        self._error: errors.TuttiError | None = None

    def _offered(self) -> dict[str, functions.Definition]:
        return functions.known() if self._given is None else self._given

    def _infos(self) -> list[Any]:
        """What the agent was not told yet."""
        new = [one for name, one in sorted(self._offered().items()) if name not in self.told]
        self.told.update(one.name for one in new)
        return [_wire.new("FunctionInfo", name=one.name, signature=one.signature) for one in new]

    # -------------------------------------------------------------------------- its life

    def start(self) -> list[str]:
        """Offer the functions, and wait until the agent has taken them: their names."""
        infos = self._infos()
        said = "python %d.%d, %s" % (*sys.version_info[:2], self._label)
        start = _wire.new(
            "HostStart", name=said, functions=infos, imports=self._given is None,
            calls_max=self._threads,
        )  # fmt: skip
        self._pipe.put(_wire.new("ServeRequest", start=start))
        self._pipe.open()
        self._pipe.wait_for(lambda: self._started or self._ended)
        if not self._started:
            self._pipe.close()
            raise self._error or errors.lost("the agent ended the stream of functions")
        for _ in range(self._threads):
            # Not of threading: one that hangs does not keep the process from ending, and the frames
            # that faulthandler shows begin here. The agent keeps the last lines.
            _thread.start_new_thread(self._work, ())
        return [one.name for one in infos]

    def _work(self) -> None:
        while True:
            call = self._calls.get()
            if call is None:
                return
            self._run(call)

    def run(self) -> None:
        """Serve until stop(), or until the agent has ended: then it raises why."""
        try:
            while not self._pipe.wait_for(lambda: self._ended or self._stopping, 0.2):
                pass  # signals are heard between two waits
            if self._stopping:
                self._pipe.wait_for(lambda: not self._running or self._ended, CLOSE_S)
                self._pipe.put(None)
                self._pipe.wait_for(lambda: self._ended, 1.0)
        finally:
            for _ in range(self._threads):
                self._calls.put(None)
            self._pipe.close()
        if not self._stopping and self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End run(), from another thread or a signal handler. Calls that run end before."""
        self._stopping = True

    # -------------------------------------------------------------------------- what comes

    def _take(self, message: Any) -> None:
        kind = message.WhichOneof("kind")
        if kind == "started":
            self._started = True
        elif kind == "call":
            self._running.add(message.call.call)
            self._calls.put(message.call)
        elif kind == "done":
            self._done[message.done.call, message.done.request] = message.done
        elif kind == "cancel":
            self._cancelled.add(message.cancel)
        elif kind == "import":
            said = getattr(message, "import")
            threading.Thread(target=self._import, args=[said], daemon=True).start()

    def _end(self, error: errors.TuttiError | None) -> None:
        self._ended = True
        self._error = error

    def is_cancelled(self, call: int) -> bool:
        return call in self._cancelled or self._ended

    def _run(self, call: Any) -> None:
        number = call.call
        try:
            if self.is_cancelled(number):
                raise Cancelled
            definition = self._offered().get(call.function)
            if definition is None:
                text = "this host has no function %s" % call.function
                error = _wire.new("Error", code=5, reason="UNKNOWN_FUNC", text=text, rank=-1)
                returned = _wire.new("HostReturn", call=number, error=error)
            else:
                returned = _hosted.run(self, definition, call)
            answer = _wire.new("ServeRequest", returned=returned)
        except Cancelled:
            answer = _wire.new("ServeRequest", stopped=number)
        if number in self._cancelled:
            answer = _wire.new("ServeRequest", stopped=number)
        self._cancelled.discard(number)
        self._running.discard(number)
        self._pipe.put(answer)

    def _import(self, said: Any) -> None:
        fields: dict[str, Any] = {"request": said.request}
        with self._importing:
            try:
                importlib.import_module(said.module)
                fields["functions"] = self._infos()
            except BaseException as error:  # a module may do anything, also exit
                fields["error"] = _hosted.error_of(error, "IMPORT_FAILED", 9)
        self._pipe.put(_wire.new("ServeRequest", imported=_wire.new("HostImported", **fields)))

    def request(self, call: int, kind: str, **fields: Any) -> Any:
        """Ask the agent for something, for a call that runs: a HostDone."""
        number = next(self._requests)
        name = {"make": "HostMake", "op": "HostOp"}[kind]
        message = _wire.new(name, call=call, request=number, **fields)
        self._pipe.put(_wire.new("ServeRequest", **{kind: message}))
        key = (call, number)
        self._pipe.wait_for(lambda: key in self._done or self.is_cancelled(call))
        done = self._done.pop(key, None)
        if done is None:
            raise Cancelled
        if done.HasField("error"):
            raise errors.from_value(done.error)
        return done


# ------------------------------------------------------------------------------ the program


def _reach(line: Line, seconds: float, threads: int, name: str) -> Host:
    """A host that the agent has taken; waits until there is one."""
    until = time.monotonic() + seconds
    while True:
        host = Host(line, None, threads, name)
        try:
            host.start()
            return host
        except errors.TuttiError as error:
            if error.reason != "UNREACHABLE" or time.monotonic() + AGAIN_S > until:
                raise
        time.sleep(AGAIN_S)


def _end_with_agent() -> None:
    """The agent that has started this process holds its input open: even a kill -9 closes that."""

    def watch() -> None:
        while sys.stdin.buffer.read(1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    if _key():
        threading.Thread(target=watch, name="tutti end", daemon=True).start()


def _import_all(modules: Iterable[str]) -> None:
    for name in modules:
        importlib.import_module(name)


def _arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python3 -m tutti.host", description=__doc__.split("\n")[0])
    parser.add_argument("--agent", help="its address; without it $TUTTI_AGENT")
    parser.add_argument("--threads", type=int, default=THREADS, help="functions that run at once")
    parser.add_argument("--wait", type=float, default=30.0, help="seconds until the agent is there")
    parser.add_argument("modules", nargs="+", metavar="MODULE", help="what has the functions")
    return parser.parse_args(words)


def _serve(arguments: argparse.Namespace, line: Line) -> None:
    """Until the agent, or a signal, ends it."""
    hosts: list[Host] = []

    def end(*_: Any) -> None:
        if not hosts:
            sys.exit(0)
        hosts[0].stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    _end_with_agent()
    hosts.append(_reach(line, arguments.wait, arguments.threads, " ".join(arguments.modules)))
    names = ", ".join(sorted(hosts[0].told)) or "nothing"
    print("serving %s at %s" % (names, line.address), flush=True)
    hosts[0].run()


def _advice(error: errors.TuttiError) -> str:
    """Where the token comes from that the agent did not like."""
    if error.reason not in ("NO_TOKEN", "BAD_TOKEN", "WRONG_ROLE"):
        return ""
    where = "the agent's --python-token" if _key() else "$TUTTI_TOKEN_FILE"
    return ": %s names the file of a token of role client" % where


def main(words: Sequence[str] | None = None) -> int:
    """The program: an exit code."""
    arguments = _arguments(words)
    _key()  # before modules see the environment
    faulthandler.enable(all_threads=False)  # a crash says where: the agent shows the last lines
    _import_all(arguments.modules)
    try:
        settings = _settings.Settings(agent=arguments.agent)
        line = Line(settings.addresses()[0], settings)
        try:
            _serve(arguments, line)
        finally:
            line.close()
    except errors.TuttiError as error:
        print("tutti.host: %s%s" % (error, _advice(error)), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
