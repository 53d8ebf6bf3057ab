"""Offering functions of this process to the callers of an agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from ._waits import in_thread

if TYPE_CHECKING:
    from ._agent import Agent


class Serving:
    """The part of an Agent that makes this process a host."""

    async def serve(self, threads: int = 4) -> None:
        """Run functions for the callers of this agent, until the agent or the program ends.

        It offers what stands under `@tutti.function("name")` in the modules that were imported, and
        in those that callers ask it to import. `python3 -m tutti.host MODULE` is the same as a
        program.

        threads  functions that run at once; each runs on a thread of its own

        Returns: None, when the agent has ended the call.
        Raises: TuttiError NOT_ALLOWED: a name is not under one of the agent's --functions;
            FUNCTION_TAKEN, HOST_LIMIT, UNREACHABLE.
        Example:
            >>> @tutti.function("demo.double")
            ... def double(x):
            ...     return 2 * x
            >>> agent.serve()
        """
        from .. import host
        from ..sync._line import Line# functions run on threads in both worlds

        agent = cast("Agent", self)
        line = Line(agent.line.address, agent.settings)
        server = host.Host(line, None, threads)
        try:
            await in_thread(server.start)
            await in_thread(server.run)
        finally:
            server.stop()
            line.close()
