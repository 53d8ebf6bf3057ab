"""Steps about keys and values: the Python package's store, values and meetings are driven.

Each case has a view of the store of its own, so that it sees no other case's keys.
"""

import json
import os

import values
import wire
from steps import step
from wire import CALL_S, Missing, Refused


def store_of(rank, said):
    """The case's keys; of a step with a prefix those behind it."""
    view = rank.seat.client.store.view(rank.program.name)
    return view.view(said["prefix"]) if said.get("prefix") else view


def limit(said):
    return said.get("timeout_ms", CALL_S * 1000) / 1000


def given(said, name="value"):
    """Bytes of a step: text, or hexadecimal digits under "value_hex"."""
    return bytes.fromhex(said[name + "_hex"]) if name + "_hex" in said else said[name].encode()


def shown(said, data):
    """Bytes as the step expects them: as text, or as the digits of "expect_hex"."""
    return data.hex() if "expect_hex" in said else data.decode()


@step("set")
def _set(rank, said, _index):
    store_of(rank, said).set(said["key"], given(said))


@step("get")
def _get(rank, said, _index):
    """Blocks until the key is there."""
    return shown(said, store_of(rank, said).get(said["key"], wait=True, timeout=limit(said)))


@step("add")
def _add(rank, said, _index):
    return store_of(rank, said).add(said["key"], said["value"])


@step("check")
def _check(rank, said, _index):
    return store_of(rank, said).check(*said["keys"])


@step("list_keys")
def _list_keys(rank, said, _index):
    """With a prefix, as it is in the store: the view leaves it out."""
    front = said["prefix"] + "/" if said.get("prefix") else ""
    return [front + one.decode() for one in store_of(rank, said).keys()]


@step("num_keys")
def _num_keys(rank, said, _index):
    return store_of(rank, said).count()


@step("delete_key")
def _delete_key(rank, said, _index):
    return store_of(rank, said).delete(said["key"])


@step("compare_set")
def _compare_set(rank, said, _index):
    """An empty expectation also means that there is no key."""
    expected = given(said, "expected")
    _, found = store_of(rank, said).compare_and_set(
        said["key"], expected, given(said, "desired"), missing_is_empty=True
    )
    return shown(said, expected if found is None else found)


@step("store_wait")
def _wait(rank, said, _index):
    store_of(rank, said).wait(*said["keys"], timeout=limit(said))


@step("append")
def _append(rank, said, _index):
    store_of(rank, said).append(said["key"], given(said))


@step("multi_set")
def _multi_set(rank, said, _index):
    store_of(rank, said).multi_set(dict(zip(said["keys"], said["values"])))


@step("multi_get")
def _multi_get(rank, said, _index):
    found = store_of(rank, said).multi_get(said["keys"], timeout=limit(said))
    return [shown(said, one) for one in found]


# ---------------------------------------------------------------------------- queues


@step("queue_push")
def _queue_push(rank, said, _index):
    store_of(rank, said).push(said["key"], given(said))


@step("queue_pop")
def _queue_pop(rank, said, _index):
    at_once = not said.get("block", True)
    return shown(said, store_of(rank, said).pop(said["key"], at_once, limit(said)))


@step("queue_len")
def _queue_len(rank, said, _index):
    return store_of(rank, said).length(said["key"])


@step("set_is_grad", "set_remote_tracer")
def _set_acknowledged(rank, said, _index):
    key = "%s %s" % (said["do"][len("set_"):], said["key"])
    store_of(rank, said).offer(key, json.dumps(said["value"]), limit(said))


@step("check_is_grad", "check_remote_tracer")
def _check_acknowledged(rank, said, _index):
    key = "%s %s" % (said["do"][len("check_"):], said["key"])
    return json.loads(store_of(rank, said).accept(key, limit(said)))


# ---------------------------------------------------------------------------- values in JSON


@step("user_set")
def _user_set(rank, said, _index):
    store_of(rank, said).set(said["key"], json.dumps(said["value"]))


@step("user_get")
def _user_get(rank, said, _index):
    return json.loads(store_of(rank, said).get(said["key"], wait=True, timeout=limit(said)))


@step("user_pop")
def _user_pop(rank, said, _index):
    return json.loads(store_of(rank, said).take(said["key"], timeout=limit(said)))


def root_of(rank, key, index):
    """Who gives a value in this meeting: the k-th call of each rank on the key."""
    calls = {}
    for place, said in enumerate(rank.program.case["steps"]):
        if said["do"] == "bcast_val" and said["key"] == key:
            mine = calls.setdefault(said["rank"], [])
            mine.append((place, said["value"]))
    meeting = [place for place, _ in calls[rank.rank]].index(index)
    for giver, mine in calls.items():
        if len(mine) > meeting and mine[meeting][1] is not None:
            return giver
    raise Missing("nobody gives a value for %s" % key)


@step("bcast_val")
def _bcast_val(rank, said, index):
    found = rank.seat.client.broadcast_value(
        said["value"],
        root_of(rank, said["key"], index),
        key="%s/%s" % (rank.program.name, said["key"]),
        group=list(range(said["size"])),
        timeout=CALL_S,
    )
    return values.read(found)


# ---------------------------------------------------------------------------- meeting by a key


@step("register")
def _register(rank, said, _index):
    """How it went is told by its own `error`, or by `registered`."""
    wanted = said.get("group_rank", -1)
    try:
        rank.values["registered"] = rank.seat.client.meet(
            "%s/%s" % (rank.program.name, said["key"]),
            said["n"],
            group_rank=wanted if wanted >= 0 else None,
            is_root=said.get("is_root", False),
            name="device %d" % rank.rank,
            timeout=CALL_S,
        )
    except wire.tutti.TuttiError as error:
        if "error" in said:
            raise
        rank.values["registered"] = error
        return
    rank.program.shared[("hash", rank.rank)] = rank.values["registered"].group_hash


@step("registered")
def _registered(rank, _said, _index):
    found = rank.values["registered"]
    if isinstance(found, wire.tutti.TuttiError):
        raise found
    hashes = {one for word, one in rank.program.shared.items() if word[0] == "hash"}
    return {
        "group_rank": found.group_rank,
        "root_rank": found.root_rank,
        "same_group_hash": len(hashes) == 1,
    }


# ---------------------------------------------------------------------------- init addresses


def has_command(name):
    """Is there a `tutti` with this command?"""
    if not os.path.exists(os.path.join(wire.support.PROGRAMS, "tutti")):
        raise Missing("no tutti command is built")
    _, said, _ = wire.support.run("tutti", "help")
    return any(line.split()[:1] == [name] for line in said.splitlines())


def by_package(url):
    """The address, as the Python package reads it."""
    found = wire.tutti._init_url.parse_init(url)
    return found.rank, found.world_size


@step("init_url")
def _init_url(_rank, said, _index):
    """A client's business, not a service's: the command line's client and the Python package are asked."""
    if not has_command("init"):
        raise Missing("the tutti command has no init")
    code, out, error = wire.support.run("tutti", "--json", "init", said["url"])
    try:
        found = json.loads(out)
    except ValueError:
        raise wire.Wrong("tutti init ended with %d: %s%s" % (code, out, error)) from None
    if "error" in found:
        refusal = found["error"]
        failed = wire.Failed(refusal["code"], refusal["reason"], refusal["text"])
        check_refused_by_package(said["url"], failed)
        raise Refused(failed)
    if by_package(said["url"]) != (found["rank"], found["world_size"]):
        raise wire.Wrong("the Python package reads %s" % (by_package(said["url"]),))
    return found


def check_refused_by_package(url, failed):
    try:
        found = by_package(url)
    except wire.tutti.TuttiError as error:
        if (error.code.name, error.reason) == (failed.code, failed.reason):
            return
        found = error
    raise wire.Wrong("tutti init says %s, the Python package %s" % (failed, found))
