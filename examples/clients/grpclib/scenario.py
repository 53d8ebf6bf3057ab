"""Collectives on a second implementation of gRPC: grpclib, which is Python on h2, without grpcio.

One program that speaks to all ranks of a job. Messages are made at run time from the descriptor set that
protoc writes, so there is no generated code either.

usage: scenario.py PROTOSET ADDRESS; of the agent of rank 0, host:port or unix:/path. Prints TAP.
"""

import asyncio
import os
import ssl
import struct
import sys

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpclib.client import Channel, StreamStreamMethod, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.encoding.base import StatusDetailsCodecBase
from grpclib.exceptions import GRPCError

COUNT = (1 << 20) + 3  # floats: several chunks, and a part of one
CHUNK_BYTES = 2 << 20
TIMEOUT_S = 60

POOL = descriptor_pool.DescriptorPool()


def load(path):
    with open(path, "rb") as file:
        for one in descriptor_pb2.FileDescriptorSet.FromString(file.read()).file:
            POOL.AddSerializedFile(one.SerializeToString())


def message(name):
    found = POOL.FindMessageTypeByName(name)
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(found)
    return message_factory.MessageFactory(POOL).GetPrototype(found)


def new(name, **fields):
    return message("tutti.v1." + name)(**fields)


# ------------------------------------------------------------------------------ connecting


class Details(StatusDetailsCodecBase):
    """google.rpc.Status in the trailers; what is wrong with it is not looked into."""

    def encode(self, status, text, details):
        raise NotImplementedError("a client sends no details")

    def decode(self, status, text, data):
        for detail in message("google.rpc.Status").FromString(data).details:
            if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                return message("google.rpc.ErrorInfo").FromString(detail.value)
        return None


def tls():
    """What the environment says, or None."""
    if not os.environ.get("TUTTI_TLS_CA"):
        return None
    context = ssl.create_default_context(cafile=os.environ["TUTTI_TLS_CA"])
    if os.environ.get("TUTTI_TLS_CERT"):
        context.load_cert_chain(os.environ["TUTTI_TLS_CERT"], os.environ["TUTTI_TLS_KEY"])
    context.set_alpn_protocols(["h2"])
    return context


def metadata():
    if not os.environ.get("TUTTI_TOKEN_FILE"):
        return {}
    with open(os.environ["TUTTI_TOKEN_FILE"]) as file:
        return {"authorization": "Bearer " + file.read().strip()}


class Server:
    """A connection, and calls by their names."""

    def __init__(self, address):
        if address.startswith("unix:"):
            self.channel = Channel(path=address[5:], status_details_codec=Details())
        else:
            host, _, port = address.rpartition(":")
            host = host.strip("[]")
            self.channel = Channel(host, int(port), ssl=tls(), status_details_codec=Details())

    def method(self, kind, service, name):
        found = POOL.FindServiceByName("tutti.v1.%sService" % service).methods_by_name[name]
        path = "/%s/%s" % (found.containing_service.full_name, name)
        messages = message(found.input_type.full_name), message(found.output_type.full_name)
        return kind(self.channel, path, *messages)

    async def call(self, service, name, request):
        method = self.method(UnaryUnaryMethod, service, name)
        return await method(request, timeout=TIMEOUT_S, metadata=metadata())

    async def stream(self, service, name, requests):
        """All that comes back. Of the four kinds of methods this is the widest: it does for all."""
        method = self.method(StreamStreamMethod, service, name)
        async with method.open(timeout=TIMEOUT_S, metadata=metadata()) as stream:
            last = len(requests) - 1
            for place, request in enumerate(requests):
                await stream.send_message(request, end=place == last)
            return [response async for response in stream]


class Agent(Server):
    async def join(self):
        self.info = await self.call("Diagnostics", "DescribeAgent", new("DescribeAgentRequest"))
        while not self.info.joined:
            await asyncio.sleep(0.02)
            self.info = await self.call("Diagnostics", "DescribeAgent", new("DescribeAgentRequest"))
        return self


# ------------------------------------------------------------------------------ the scenario


async def discover(address):
    """Connections to all ranks, as the coordinator knows them."""
    first = await Agent(address).join()
    coordinator = Server(first.info.coordinator)
    request = new("LookupRanksRequest", job=first.info.job)
    found = await coordinator.call("Coordinator", "LookupRanks", request)
    coordinator.channel.close()
    agents = [await Agent(one.agent.addresses[0]).join() for one in found.ranks]
    assert [one.info.rank for one in agents] == list(range(first.info.world_size)), found
    first.channel.close()
    return agents


async def upload(agent):
    data = struct.pack("<f", agent.info.rank + 1) * COUNT
    spec = new("TensorSpec", dtype=12, shape=[COUNT])
    requests = [
        new("UploadRequest", offset=offset, payload=data[offset : offset + CHUNK_BYTES])
        for offset in range(0, len(data), CHUNK_BYTES)
    ]
    requests[0].start.spec.CopyFrom(spec)
    (response,) = await agent.stream("Tensors", "Upload", requests)
    assert response.byte_count == len(data), response
    agent.mine = response.tensor.handle


async def all_reduce(agent):
    request = new("AllReduceRequest", input=new("TensorArg", handle=agent.mine), reduce_op=1)
    response = await agent.call("Collectives", "AllReduce", request)
    agent.sum = response.output.handle


async def check(agent, handle, value):
    parts = await agent.stream("Tensors", "Download", [new("DownloadRequest", handle=handle)])
    data = b"".join(part.payload for part in parts)
    assert data == struct.pack("<f", value) * COUNT, "%d bytes: %r" % (len(data), data[:8])


async def broadcast_async(agent):
    """Rank 1's tensor into everybody's sum: begun, then waited for."""
    request = new("BroadcastRequest", root=1, options=new("OpOptions", **{"async": True}))
    if agent.info.rank == 1:
        request.input.handle = agent.mine
    else:
        request.output = agent.sum
    begun = await agent.call("Collectives", "Broadcast", request)
    waited = await agent.call("Collectives", "Wait", new("WaitRequest", works=[begun.info.work]))
    assert waited.works[0].done and not waited.works[0].error.code, waited
    await check(agent, waited.works[0].output.handle, 2)


async def mismatch_is_explained(agent):
    count = 2 + agent.info.rank % 2
    spec = new("TensorSpec", dtype=2, shape=[count])
    argument = new("TensorArg", inline_tensor=spec)
    request = new("AllReduceRequest", input=argument, reduce_op=1, payload=bytes(count))
    try:
        await agent.call("Collectives", "AllReduce", request)
    except GRPCError as error:
        assert error.status is Status.INVALID_ARGUMENT, error
        assert error.details.reason == "SHAPE_MISMATCH", error
        assert error.details.metadata["group"] == "world", error
    else:
        raise AssertionError("the ranks' shapes differ, and nobody minded")


async def nothing_is_left(agent):
    await agent.call("Tensors", "Delete", new("DeleteRequest", handles=[agent.mine, agent.sum]))
    left = await agent.call("Tensors", "List", new("ListRequest"))
    assert not left.tensors, left
    agent.channel.close()


async def scenario(address):
    """Names of the steps, as they are done."""
    agents = await discover(address)
    total = len(agents) * (len(agents) + 1) // 2
    yield "ranks are found"
    for name, step in (
        ("tensors are uploaded in chunks", upload),
        ("all_reduce gives the sum", all_reduce),
        ("it is downloaded", lambda agent: check(agent, agent.sum, total)),
        ("an async broadcast is waited for", broadcast_async),
        ("an error has its details", mismatch_is_explained),
        ("nothing is left", nothing_is_left),
    ):
        await asyncio.gather(*[step(agent) for agent in agents])
        yield name


async def main():
    count = 0
    try:
        async for name in scenario(sys.argv[2]):
            count += 1
            print("ok %d - grpclib: %s" % (count, name), flush=True)
    except Exception as error:
        print("not ok %d - grpclib: %s: %s" % (count + 1, type(error).__name__, error))
        return 1
    print("1..%d" % count)
    return 0


if __name__ == "__main__":
    load(sys.argv[1])
    assert "grpc" not in sys.modules, "this is to be without grpcio"
    sys.exit(asyncio.run(main()))
