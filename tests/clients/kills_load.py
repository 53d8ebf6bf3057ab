"""tests/client/kills_program.c with the Python package: the same calls, the same words.

usage: kills_load.py AGENT sync|aio load|wait|watch ID
"""

import asyncio
import select
import sys

import tutti
import tutti.aio

CALL_S = 60.0


def is_over():
    return bool(select.select([sys.stdin], [], [], 0.001)[0])


def check(what, said, wanted):
    if said != wanted:
        raise AssertionError("%s: %r, not %r" % (what, said, wanted))


def turn_sync(store, name, turn):
    value = b"%s/%d" % (name.encode(), turn)
    check("add", store.add("count " + name), turn)
    store.add("all")
    check("push", store.push("queue " + name, value), 1)
    check("pop", store.pop("queue " + name, timeout=CALL_S), value)
    check("append", store.append("tag " + name, value), len(value))
    check("take", store.take("tag " + name, timeout=CALL_S), value)
    store.push("shared", value)
    return store.pop("shared", timeout=CALL_S)


async def turn_aio(store, name, turn):
    value = b"%s/%d" % (name.encode(), turn)
    check("add", await store.add("count " + name), turn)
    await store.add("all")
    check("push", await store.push("queue " + name, value), 1)
    check("pop", await store.pop("queue " + name, timeout=CALL_S), value)
    check("append", await store.append("tag " + name, value), len(value))
    check("take", await store.take("tag " + name, timeout=CALL_S), value)
    await store.push("shared", value)
    return await store.pop("shared", timeout=CALL_S)


class Watched:
    """What a watch of all keys has told: counters that count, tags that are set and deleted by turns."""

    def __init__(self):
        self.last, self.there, self.version, self.changes = {}, {}, 0, 0

    def hear(self, entry):
        """False = that was the end."""
        if entry is None:
            print("stands", flush=True)
            return True
        if entry.key == b"stop":
            return False
        self.changes += 1
        assert entry.version >= self.version, entry
        self.version = entry.version
        kind = entry.key.partition(b" ")[0]
        if kind not in (b"count", b"tag"):
            return True
        if entry.value is None:
            assert self.there[entry.key], "%r deleted twice" % (entry,)
        else:
            number = int(entry.value.rpartition(b"/")[2])
            check("%r behind %d" % (entry, self.last.get(entry.key, 0)), number, self.last.get(entry.key, 0) + 1)
            assert kind == b"count" or not self.there.get(entry.key), "%r set twice" % (entry,)
            self.last[entry.key] = number
        self.there[entry.key] = entry.value is not None
        return True

    def show(self):
        for key, last in self.last.items():
            print("told", key.decode(), last)
        print("changes", self.changes, flush=True)


def watch_sync(store):
    watched = Watched()
    for entry in store.watch():
        if not watched.hear(entry):
            break
    watched.show()


async def watch_aio(store):
    watched = Watched()
    async for entry in store.watch():
        if not watched.hear(entry):
            break
    watched.show()


def run_sync(address, mode, name):
    with tutti.connect(address) as agent:
        if mode == "watch":
            watch_sync(agent.store)
            return
        if mode == "wait":
            agent.store.add("waits " + name)  # it has spoken with the coordinator
            print("popped", agent.store.pop("wait " + name).decode(), flush=True)
            return
        turn = 0
        while not is_over():
            turn += 1
            print("popped", turn_sync(agent.store, name, turn).decode())
        print("turns", turn, flush=True)


async def run_aio(address, mode, name):
    async with await tutti.aio.connect(address) as agent:
        if mode == "watch":
            await watch_aio(agent.store)
            return
        if mode == "wait":
            await agent.store.add("waits " + name)
            print("popped", (await agent.store.pop("wait " + name)).decode(), flush=True)
            return
        turn = 0
        while not is_over():
            turn += 1
            print("popped", (await turn_aio(agent.store, name, turn)).decode())
        print("turns", turn, flush=True)


def main():
    address, kind, mode, name = sys.argv[1:]
    if kind == "sync":
        run_sync(address, mode, name)
    else:
        asyncio.run(run_aio(address, mode, name))


if __name__ == "__main__":
    main()
