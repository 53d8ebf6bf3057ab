"""Steps about keys and values, through StoreService and MetadataService.

Each case has a job of its own, so that it sees no other case's keys.
"""

import json
import os

import values
import wire
from steps import step
from wire import CALL_S, Missing, Refused

from tutti.v1 import metadata_service_pb2 as metadata
from tutti.v1 import metadata_service_pb2_grpc as metadata_grpc
from tutti.v1 import store_service_pb2 as store
from tutti.v1 import store_service_pb2_grpc as store_grpc

LONG_MS = int(CALL_S * 1000)


class Keys:
    """The store as one rank of a case calls it."""

    def __init__(self, rank):
        channel = rank.world.cluster.coordinator_channel
        self.stub = store_grpc.StoreServiceStub(channel)
        self.job = rank.program.name

    def has(self, name):
        return hasattr(self.stub, name)

    def call(self, name, **fields):
        method = wire.method_of(self.stub, "StoreService", name)
        message = wire.message_of(store, "StoreService%sRequest" % name)
        for field in fields:
            wire.need_field(message, field)
        return wire.call(method, message(job=self.job, **fields))


def key_of(said, key):
    prefix = said.get("prefix")
    return ("%s/%s" % (prefix, key) if prefix else key).encode()


def text(value):
    return value.decode()


@step("set")
def _set(rank, said, _index):
    Keys(rank).call("Set", key=key_of(said, said["key"]), value=said["value"].encode())


@step("get")
def _get(rank, said, _index):
    """Blocks until the key is there."""
    keys = Keys(rank)
    key = key_of(said, said["key"])
    keys.call("Wait", keys=[key], timeout_ms=said.get("timeout_ms", LONG_MS))
    return text(keys.call("Get", key=key).value)


@step("add")
def _add(rank, said, _index):
    return Keys(rank).call("Add", key=key_of(said, said["key"]), delta=said["value"]).value


def exists(keys, key):
    try:
        keys.call("Get", key=key)
        return True
    except Refused as refused:
        if refused.failed.reason != "NO_KEY":
            raise
        return False


@step("check")
def _check(rank, said, _index):
    keys = Keys(rank)
    names = [key_of(said, one) for one in said["keys"]]
    if keys.has("Check"):
        return keys.call("Check", keys=names).all_exist
    return all(exists(keys, one) for one in names)


@step("list_keys")
def _list_keys(rank, said, _index):
    prefix = key_of(said, "") if said.get("prefix") else b""
    found = Keys(rank).call("List", prefix=prefix, page_size=1000, keys_only=True)
    return [text(one.key) for one in found.entries]


@step("num_keys")
def _num_keys(rank, _said, _index):
    return Keys(rank).call("Count").count


@step("delete_key")
def _delete_key(rank, said, _index):
    return Keys(rank).call("Delete", key=key_of(said, said["key"])).existed


@step("compare_set")
def _compare_set(rank, said, _index):
    """An empty expectation also means that there is no key."""
    found = Keys(rank).call(
        "CompareAndSet",
        key=key_of(said, said["key"]),
        expected=said["expected"].encode(),
        value=said["desired"].encode(),
        missing_is_empty=True,
    )
    return text(found.value) if found.exists else said["expected"]


@step("store_wait")
def _wait(rank, said, _index):
    names = [key_of(said, one) for one in said["keys"]]
    Keys(rank).call("Wait", keys=names, timeout_ms=said.get("timeout_ms", LONG_MS))


@step("append")
def _append(rank, said, _index):
    Keys(rank).call("Append", key=key_of(said, said["key"]), value=said["value"].encode())


@step("multi_set")
def _multi_set(rank, said, _index):
    pairs = zip(said["keys"], said["values"])
    entries = [wire.message_of(store, "Entry")(key=key_of(said, key), value=value.encode())
               for key, value in pairs]
    Keys(rank).call("MultiSet", entries=entries)


@step("multi_get")
def _multi_get(rank, said, _index):
    names = [key_of(said, one) for one in said["keys"]]
    found = Keys(rank).call("MultiGet", keys=names, timeout_ms=said.get("timeout_ms", LONG_MS))
    return [text(one) for one in found.values]


# ---------------------------------------------------------------------------- queues


def push(rank, key, value):
    Keys(rank).call("QueuePush", key=key, value=value)


def pop(rank, key, **fields):
    fields.setdefault("timeout_ms", LONG_MS)
    return Keys(rank).call("QueuePop", key=key, **fields).value


@step("queue_push")
def _queue_push(rank, said, _index):
    push(rank, key_of(said, said["key"]), said["value"].encode())


@step("queue_pop")
def _queue_pop(rank, said, _index):
    at_once = not said.get("block", True)
    limit = said.get("timeout_ms", LONG_MS)
    return text(pop(rank, key_of(said, said["key"]), at_once=at_once, timeout_ms=limit))


@step("queue_len")
def _queue_len(rank, said, _index):
    return Keys(rank).call("QueueLen", key=key_of(said, said["key"])).length


@step("set_is_grad", "set_remote_tracer")
def _set_acknowledged(rank, said, _index):
    """A pair of queues: the value there, and that it was taken back."""
    key = "%s %s" % (said["do"][len("set_"):], said["key"])
    push(rank, key.encode(), json.dumps(said["value"]).encode())
    pop(rank, (key + " taken").encode())


@step("check_is_grad", "check_remote_tracer")
def _check_acknowledged(rank, said, _index):
    key = "%s %s" % (said["do"][len("check_"):], said["key"])
    value = json.loads(pop(rank, key.encode()))
    push(rank, (key + " taken").encode(), b"1")
    return value


# ---------------------------------------------------------------------------- values in JSON


@step("user_set")
def _user_set(rank, said, index):
    _set(rank, dict(said, value=json.dumps(said["value"])), index)


@step("user_get")
def _user_get(rank, said, index):
    return json.loads(_get(rank, said, index))


@step("user_pop")
def _user_pop(rank, said, _index):
    found = Keys(rank).call("Take", key=key_of(said, said["key"]), timeout_ms=LONG_MS)
    return json.loads(found.value)


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
    root = root_of(rank, said["key"], index)
    members = list(range(said["size"]))
    request = metadata.MetadataServiceBroadcastRequest(
        member=rank.world.members[rank.rank],
        group=rank.world.group(members),
        key="%s/%s" % (rank.program.name, said["key"]),
        root=members.index(root),
        timeout_ms=LONG_MS,
    )
    if root == rank.rank:
        request.payload = json.dumps(said["value"]).encode()
    stub = metadata_grpc.MetadataServiceStub(rank.world.cluster.coordinator_channel)
    return values.read(json.loads(wire.call(stub.Broadcast, request).payload))


# ---------------------------------------------------------------------------- meeting by a key


def rendezvous(rank):
    try:
        from tutti.v1 import rendezvous_service_pb2 as messages
        from tutti.v1 import rendezvous_service_pb2_grpc as stubs
    except ImportError:
        raise Missing("no service RendezvousService") from None
    return messages, stubs.RendezvousServiceStub(rank.world.cluster.coordinator_channel)


@step("register")
def _register(rank, said, _index):
    """How it went is told by its own `error`, or by `registered`."""
    messages, stub = rendezvous(rank)
    meet = wire.method_of(stub, "RendezvousService", "Meet")
    request = messages.RendezvousServiceMeetRequest(
        job=rank.program.name,
        key=said["key"].encode(),
        count=said["n"],
        is_root=said.get("is_root", False),
        name=("device %d" % rank.rank).encode(),
        timeout_ms=LONG_MS,
    )
    if said.get("group_rank", -1) >= 0:
        request.group_rank = said["group_rank"]
    try:
        rank.values["registered"] = wire.call(meet, request)
    except Refused as refused:
        if "error" in said:
            raise
        rank.values["registered"] = refused
        return
    rank.program.shared[("hash", rank.rank)] = rank.values["registered"].group_hash


@step("registered")
def _registered(rank, _said, _index):
    found = rank.values["registered"]
    if isinstance(found, Refused):
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


@step("init_url")
def _init_url(_rank, said, _index):
    """A client's business, not a service's: the command line's client is asked."""
    if not has_command("init"):
        raise Missing("the tutti command has no init")
    code, out, error = wire.support.run("tutti", "--json", "init", said["url"])
    try:
        found = json.loads(out)
    except ValueError:
        raise wire.Wrong("tutti init ended with %d: %s%s" % (code, out, error)) from None
    if "error" in found:
        refusal = found["error"]
        raise Refused(wire.Failed(refusal["code"], refusal["reason"], refusal["text"]))
    return found
