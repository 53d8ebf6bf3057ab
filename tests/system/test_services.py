"""Goal: every method of every service can be reached on its server with stubs that a stock protoc
makes from proto/; health and reflection tell the truth about both servers.

Method: a call of each method by grpcio, in an order in which all of them succeed on two agents and
their coordinator; the table is compared with the descriptors, so that no method is forgotten.
"""

import importlib
import os
import subprocess
import tempfile
import unittest

import support
import grpc
import numpy as np
from cluster_case import LONG_S, Cluster, collectives, coordinator, diagnostics, inline
from cluster_case import spec_of, tensors, types

from google.protobuf import descriptor_pb2
from tutti.v1 import commands_service_pb2 as commands
from tutti.v1 import functions_service_pb2 as functions
from tutti.v1 import mesh_service_pb2 as mesh
from tutti.v1 import metadata_service_pb2 as metadata
from tutti.v1 import progress_pb2 as progress
from tutti.v1 import rendezvous_service_pb2 as rendezvous
from tutti.v1 import session_service_pb2 as sessions
from tutti.v1 import store_service_pb2 as store
from tutti.v1 import tracers_service_pb2 as tracers

SERVED = ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"]
SERVED += ["grpc.reflection.v1alpha.ServerReflection"]
AGENT = ["CollectivesService", "CommandsService", "DiagnosticsService", "TensorsService"]
AGENT += ["FunctionsService", "SessionService", "TracersService"]
COORDINATOR = ["CoordinatorService", "MeshService", "MetadataService", "RendezvousService"]
COORDINATOR += ["StoreService"]
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def module_of(service):
    stem = service.replace("Service", "_service").lower()
    return importlib.import_module("tutti.v1.%s_pb2" % stem)


def methods_of(services):
    """{"StoreService.Get": its descriptor, ...}"""
    return {
        "%s.%s" % (service, method.name): method
        for service in services
        for method in module_of(service).DESCRIPTOR.services_by_name[service].methods
    }


def is_stream(method, side):
    proto = descriptor_pb2.ServiceDescriptorProto()
    method.containing_service.CopyToProto(proto)
    one = [entry for entry in proto.method if entry.name == method.name][0]
    return one.client_streaming if side == "client" else one.server_streaming


def call(channel, name, *requests):
    """Call "Service.Method"; its response, or the first of a stream, which is then left."""
    service, method = name.split(".")
    stubs = importlib.import_module(module_of(service).__name__ + "_grpc")
    stub = getattr(getattr(stubs, service + "Stub")(channel), method)
    descriptor = methods_of([service])[name]
    request = iter(requests) if is_stream(descriptor, "client") else requests[0]
    answer = stub(request, timeout=LONG_S)
    if is_stream(descriptor, "server"):
        first = next(answer)
        answer.cancel()
        return first
    return answer


ARRAY = np.arange(4, dtype=np.float32)
DATA = ARRAY.tobytes()


def tensor_calls():
    spec = spec_of(ARRAY)
    return [
        ("TensorsService.Create", tensors.CreateRequest(spec=spec, name="made")),
        ("TensorsService.Put", tensors.PutRequest(spec=spec, name="put", payload=DATA)),
        ("TensorsService.Get", tensors.GetRequest(handle="put")),
        ("TensorsService.Upload",
         tensors.UploadRequest(start=tensors.UploadStart(spec=spec, name="up"), payload=DATA)),
        ("TensorsService.Download", tensors.DownloadRequest(handle="up")),
        ("TensorsService.Copy", tensors.CopyRequest(handle="up", name="copy")),
        ("TensorsService.Stat", tensors.StatRequest(handle="copy")),
        ("TensorsService.Share", tensors.ShareRequest(handle="copy")),
        ("TensorsService.List", tensors.ListRequest()),
        ("TensorsService.Delete", tensors.DeleteRequest(handles=["made", "put", "up", "copy"])),
        ("DiagnosticsService.DescribeAgent", diagnostics.DescribeAgentRequest()),
        ("DiagnosticsService.GetCapabilities", diagnostics.GetCapabilitiesRequest()),
        ("DiagnosticsService.GetStats", diagnostics.GetStatsRequest()),
    ]


def collective_calls(rank):
    arguments = {"input": inline(ARRAY), "payload": DATA}
    root = {"input": inline(ARRAY), "payload": DATA} if rank == 0 else {"inline_result": True}
    mine = ("CollectivesService.Send", collectives.SendRequest(destination=1, **arguments))
    if rank == 1:
        mine = ("CollectivesService.Recv", collectives.RecvRequest(source=0, inline_result=True))
    return [
        ("CollectivesService.AllReduce",
         collectives.AllReduceRequest(reduce_op=types.REDUCE_OP_SUM, **arguments)),
        ("CollectivesService.Broadcast", collectives.BroadcastRequest(root=0, **root)),
        ("CollectivesService.AllGather", collectives.AllGatherRequest(**arguments)),
        ("CollectivesService.Reduce",
         collectives.ReduceRequest(reduce_op=types.REDUCE_OP_SUM, **arguments)),
        ("CollectivesService.ReduceScatter",
         collectives.ReduceScatterRequest(reduce_op=types.REDUCE_OP_SUM, **arguments)),
        ("CollectivesService.Gather", collectives.GatherRequest(**arguments)),
        ("CollectivesService.Scatter", collectives.ScatterRequest(root=0, **root)),
        ("CollectivesService.AllToAll", collectives.AllToAllRequest(**arguments)),
        ("CollectivesService.Permute", collectives.PermuteRequest(src_dst=[1, 0], **arguments)),
        ("CollectivesService.Infer",
         collectives.InferRequest(broadcast=collectives.BroadcastRequest(**arguments))),
        ("CollectivesService.Barrier", collectives.BarrierRequest()),
        mine,
    ]


def tracer_calls():
    tape = {"tracer": "tape"}
    return [
        ("TensorsService.Put", tensors.PutRequest(spec=spec_of(ARRAY), payload=DATA, name="traced")),
        ("TracersService.CreateTracer", tracers.CreateTracerRequest(name="tape")),
        ("TracersService.Attach", tracers.AttachRequest(tensors=["traced"], **tape)),
        ("TracersService.ListTracers", tracers.ListTracersRequest()),
        ("TracersService.Backward", tracers.BackwardRequest(**tape)),
        ("TracersService.ClearTracer", tracers.ClearTracerRequest(**tape)),
        ("TracersService.DeleteTracer", tracers.DeleteTracerRequest(**tape)),
    ]


def function_calls():
    name = "runtime.disco.worker_rank"
    value = functions.Value(integer=7)
    return [
        ("FunctionsService.Call", functions.CallRequest(function=name)),
        ("FunctionsService.SetValue", functions.SetValueRequest(name="seven", value=value)),
        ("FunctionsService.GetValue", functions.GetValueRequest(name="seven")),
        ("FunctionsService.ListFunctions", functions.ListFunctionsRequest()),
        ("FunctionsService.GetFunction", functions.GetFunctionRequest(function=name)),
        ("TensorsService.Delete", tensors.DeleteRequest(handles=["seven"])),
        ("SessionService.Drive", sessions.DriveRequest(id=1, open=sessions.DriveOpen())),
    ]


def work_calls(work):
    return [
        ("CollectivesService.Test", collectives.TestRequest(works=[work])),
        ("CollectivesService.Wait", collectives.WaitRequest(works=[work])),
        ("CollectivesService.Cancel", collectives.CancelRequest(works=[work])),
        ("CollectivesService.Sync", collectives.SyncRequest()),
        ("DiagnosticsService.GetFlightRecord", diagnostics.GetFlightRecordRequest()),
        ("DiagnosticsService.Examine", diagnostics.ExamineRequest()),
        ("DiagnosticsService.Explain", diagnostics.ExplainRequest(op="all_reduce", bytes=1024)),
        ("DiagnosticsService.SetAlgorithms", diagnostics.SetAlgorithmsRequest()),
        ("CommandsService.OpenLane", commands.OpenLaneRequest()),
        ("CommandsService.Run", commands.RunRequest(id=1, sync=collectives.SyncRequest())),
    ]


def coordinator_calls():
    """As the only rank of a job of its own."""
    member = types.Member(job="services", rank=0, incarnation=7)
    agent = coordinator.AgentInfo(host="here", pid=1, device="cpu", addresses=["127.0.0.1:1"])
    join = coordinator.JoinRequest(job="services", world_size=1, incarnation=7, agent=agent)
    session = coordinator.SessionRequest(open=coordinator.SessionOpen(member=member))
    meet = {"member": member, "group": "world", "token": 1, "payload": b"x"}
    where = {"job": "services", "key": b"key"}
    return [
        ("CoordinatorService.Join", join),
        ("CoordinatorService.Session", session),
        ("CoordinatorService.WatchMembers", coordinator.WatchMembersRequest(job="services")),
        ("CoordinatorService.CreateGroup",
         coordinator.CreateGroupRequest(member=member, name="one", ranks=[0])),
        ("CoordinatorService.CreateSubgroups",
         coordinator.CreateSubgroupsRequest(member=member, group_size=1)),
        ("CoordinatorService.GetGroup", coordinator.GetGroupRequest(job="services", name="one")),
        ("CoordinatorService.ListGroups", coordinator.ListGroupsRequest(job="services")),
        ("CoordinatorService.AbortGroup",
         coordinator.AbortGroupRequest(member=member, name="one")),
        ("CoordinatorService.ShrinkGroup",
         coordinator.ShrinkGroupRequest(member=member, name="one", timeout_ms=1)),
        ("CoordinatorService.DeleteGroup",
         coordinator.DeleteGroupRequest(member=member, name="one")),
        ("CoordinatorService.TranslateRanks",
         coordinator.TranslateRanksRequest(job="services", ranks=[0])),
        ("CoordinatorService.LookupRanks",
         coordinator.LookupRanksRequest(job="services", ranks=[0])),
        ("CoordinatorService.DescribeStall", progress.DescribeStallRequest(job="services")),
        ("CoordinatorService.GetJob", coordinator.GetJobRequest(job="services")),
        ("CoordinatorService.ListJobs", coordinator.ListJobsRequest()),
        ("CoordinatorService.Backup", coordinator.BackupRequest()),
        ("MeshService.CreateMesh", mesh.CreateMeshRequest(member=member, name="m", shape=[1])),
        ("MeshService.GetMesh", mesh.GetMeshRequest(job="services", name="m", rank=0)),
        ("MeshService.ListMeshes", mesh.ListMeshesRequest(job="services")),
        ("MeshService.ListMeshGroups", mesh.ListMeshGroupsRequest(job="services", name="m")),
        ("MeshService.SliceMesh",
         mesh.SliceMeshRequest(job="services", name="m", rank=0, dim_names=["0"])),
        ("MeshService.DeleteMesh", mesh.DeleteMeshRequest(member=member, name="m")),
        ("MetadataService.Broadcast",
         metadata.MetadataServiceBroadcastRequest(key="b", root=0, **meet)),
        ("MetadataService.AllGather", metadata.MetadataServiceAllGatherRequest(key="g", **meet)),
        ("StoreService.Set", store.StoreServiceSetRequest(value=b"1", **where)),
        ("StoreService.Get", store.StoreServiceGetRequest(**where)),
        ("StoreService.CompareAndSet",
         store.StoreServiceCompareAndSetRequest(expected=b"1", value=b"2", **where)),
        ("StoreService.Add", store.StoreServiceAddRequest(delta=3, **where)),
        ("StoreService.MultiGet", store.StoreServiceMultiGetRequest(job="services", keys=[b"key"])),
        ("StoreService.MultiSet",
         store.StoreServiceMultiSetRequest(job="services", entries=[store.Entry(key=b"more")])),
        ("StoreService.Append", store.StoreServiceAppendRequest(job="services", key=b"t")),
        ("StoreService.Check", store.StoreServiceCheckRequest(job="services", keys=[b"key"])),
        ("StoreService.Take", store.StoreServiceTakeRequest(job="services", key=b"t")),
        ("StoreService.QueuePush", store.StoreServiceQueuePushRequest(job="services", key=b"q")),
        ("StoreService.QueueLen", store.StoreServiceQueueLenRequest(job="services", key=b"q")),
        ("StoreService.QueuePop", store.StoreServiceQueuePopRequest(job="services", key=b"q")),
        ("RendezvousService.Meet",
         rendezvous.RendezvousServiceMeetRequest(job="services", key=b"m", count=1)),
        ("StoreService.List", store.StoreServiceListRequest(job="services")),
        ("StoreService.Count", store.StoreServiceCountRequest(job="services")),
        ("StoreService.Wait", store.StoreServiceWaitRequest(job="services", keys=[b"key"])),
        ("StoreService.Watch", store.StoreServiceWatchRequest(job="services")),
        ("StoreService.Delete", store.StoreServiceDeleteRequest(**where)),
        ("StoreService.Grant",
         store.StoreServiceGrantRequest(job="services", lease=7, ttl_ms=60000)),
        ("StoreService.KeepAlive", store.StoreServiceKeepAliveRequest(job="services", lease=7)),
        ("StoreService.Leases", store.StoreServiceLeasesRequest(job="services")),
        ("StoreService.Revoke", store.StoreServiceRevokeRequest(job="services", lease=7)),
        ("StoreService.OpenLane", store.StoreServiceOpenLaneRequest()),
        ("StoreService.Run", store.StoreServiceRunRequest(
            id=1, set=store.StoreServiceSetRequest(job="services", key=b"run"))),
        ("CoordinatorService.Leave", coordinator.LeaveRequest(member=member, reason="done")),
    ]


# What needs a GPU, or its stand-in: test_agent_cuda.py, tests/gpu/test_gpu_events.py. What ends with its caller alone: test_ephemeral.py.
# What an operator has to allow: test_functions.py.
ELSEWHERE = {"TensorsService.ShareGpu", "TensorsService.Lease", "TensorsService.CloseLease",
             "FunctionsService.LoadModule"}
ELSEWHERE |= {"TensorsService.ShareEvents", "FunctionsService.ImportModule", "FunctionsService.Serve"}


class Methods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(2)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def call_all(self, channel, calls):
        """One after the other; their answers by name."""
        answers = {}
        for name, request in calls:
            try:
                answers[name] = call(channel, name, request)
            except grpc.RpcError as error:
                self.fail("%s: %r" % (name, support.Failure(error)))
        return answers

    def run_agent(self, agent):
        start = collectives.BarrierRequest(options=types.OpOptions(**{"async": True}))
        answers = self.call_all(agent.channel, tensor_calls())
        answers.update(self.call_all(agent.channel, collective_calls(agent.rank)))
        answers.update(self.call_all(agent.channel, tracer_calls()))
        answers.update(self.call_all(agent.channel, function_calls()))
        work = agent.ops.Barrier(start, timeout=LONG_S).info.work
        answers.update(self.call_all(agent.channel, work_calls(work)))
        return answers

    def test_every_method_of_an_agent_answers(self):
        first, second = self.cluster.all(self.run_agent)
        self.assertEqual(set(first) | set(second) | ELSEWHERE, set(methods_of(AGENT)))
        for answers in (first, second):
            self.assertEqual(answers["TensorsService.Get"].payload, DATA)
            self.assertEqual(answers["TensorsService.Download"].payload, DATA)
            total = np.frombuffer(answers["CollectivesService.AllReduce"].payload, np.float32)
            self.assertEqual(list(total), list(2 * ARRAY))
            self.assertTrue(answers["CollectivesService.Wait"].works[0].done)
        self.assertEqual(second["CollectivesService.Broadcast"].payload, DATA)
        self.assertEqual(second["CollectivesService.Recv"].payload, DATA)

    def test_every_method_of_the_coordinator_answers(self):
        with self.cluster.coordinator.channel() as channel:
            answers = self.call_all(channel, coordinator_calls())
        self.assertEqual(set(answers), set(methods_of(COORDINATOR)))
        self.assertTrue(answers["CoordinatorService.Session"].HasField("accepted"))
        self.assertEqual(answers["CoordinatorService.WatchMembers"].now.world_size, 1)
        self.assertTrue(answers["StoreService.CompareAndSet"].swapped)
        self.assertEqual(answers["StoreService.Add"].value, 5)
        self.assertEqual(answers["MetadataService.AllGather"].values, [b"x"])

    def test_services_of_the_other_server_are_not_there(self):
        agent = self.cluster.agents[0].channel
        with self.cluster.coordinator.channel() as channel:
            for where, services in ((agent, COORDINATOR), (channel, AGENT)):
                for name in methods_of(services):
                    path = "/tutti.v1." + name.replace(".", "/")
                    with self.assertRaises(grpc.RpcError) as caught:
                        where.unary_unary(path)(b"", timeout=LONG_S)
                    self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)


def check_health(channel, service=""):
    return support.call_foreign(
        channel, "/grpc.health.v1.Health/Check", "grpc.health.v1.HealthCheckRequest",
        "grpc.health.v1.HealthCheckResponse", service=service,
    ).status  # fmt: skip


def watch_health(channel, service=""):
    stub = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=support.foreign("grpc.health.v1.HealthCheckResponse").FromString,
    )
    request = support.foreign("grpc.health.v1.HealthCheckRequest")(service=service)
    return stub(request, timeout=LONG_S)


class Health(unittest.TestCase):
    def test_an_agent_serves_once_its_world_has_joined(self):
        with support.Program("tutti-coordinator") as program:
            words = ["--coordinator", program.address, "--world-size", "2"]
            with support.Program("tutti-agent", *words, "--rank", "0") as first:
                with first.channel() as channel:
                    watch = watch_health(channel)
                    self.assertEqual(next(watch).status, NOT_SERVING)
                    self.assertEqual(check_health(channel), NOT_SERVING)
                    with support.Program("tutti-agent", *words, "--rank", "1"):
                        self.assertEqual(next(watch).status, SERVING)
                        self.assertEqual(check_health(channel), SERVING)
                    watch.cancel()

    def test_a_watch_is_told_that_a_server_ends(self):
        program = support.Program("tutti-coordinator")
        with program.channel() as channel:
            watch = watch_health(channel)
            if next(watch).status != SERVING:  # it listens a moment before it serves
                self.assertEqual(next(watch).status, SERVING)
            for service in COORDINATOR:
                self.assertEqual(check_health(channel, "tutti.v1." + service), SERVING)
            self.assertEqual(program.stop(), 0)
            self.assertEqual(next(watch).status, NOT_SERVING)
            with self.assertRaises(grpc.RpcError) as caught:
                next(watch)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_a_service_nobody_knows_is_not_found(self):
        with support.Program("tutti-coordinator") as program, program.channel() as channel:
            with self.assertRaises(grpc.RpcError) as caught:
                check_health(channel, "tutti.v1.NobodyService")
            failure = support.Failure(caught.exception)
            self.assertEqual((failure.code, failure.reason), (grpc.StatusCode.NOT_FOUND, "NO_SERVICE"))
            self.assertEqual(next(watch_health(channel, "nobody")).status, SERVICE_UNKNOWN)

    def test_a_call_that_ends_without_a_request_is_told_so(self):
        with support.Program("tutti-coordinator") as program, program.channel() as channel:
            for path in ("/grpc.health.v1.Health/Check", "/tutti.v1.StoreService/Get"):
                with self.assertRaises(grpc.RpcError) as caught:
                    channel.stream_unary(path)(iter(()), timeout=LONG_S)
                failure = support.Failure(caught.exception)
                self.assertEqual((failure.code, failure.reason), (grpc.StatusCode.INVALID_ARGUMENT, "NO_REQUEST"))

    def test_so_many_clients_watch_and_no_more(self):
        with support.Program("tutti-coordinator", "--streams-max", "2000") as program, program.channel() as channel:
            watches = [watch_health(channel) for _ in range(1024)]
            for watch in watches:
                next(watch)
            with self.assertRaises(grpc.RpcError) as caught:
                next(watch_health(channel))
            failure = support.Failure(caught.exception)
            self.assertEqual((failure.code, failure.reason), (grpc.StatusCode.RESOURCE_EXHAUSTED, "WATCH_LIMIT"))
            self.assertIn("1024 clients watch already", failure.text)
            for watch in watches:
                watch.cancel()


def files_of_proto():
    """FileDescriptorProtos of proto/, by name, as a stock protoc sees them."""
    names = sorted(os.listdir(os.path.join(support.SOURCE, "proto", "tutti", "v1")))
    names = ["tutti/v1/" + name for name in names if name.endswith(".proto")]
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "set.pb")
        roots = ["-I", os.path.join(support.SOURCE, "proto"), "-I", "/usr/include"]
        subprocess.run(
            ["protoc"] + roots + ["--descriptor_set_out=" + path] + names,
            check=True,
            close_fds=False,
        )
        with open(path, "rb") as file:
            found = descriptor_pb2.FileDescriptorSet.FromString(file.read())
    return {one.name: one for one in found.file}


class Reflection(unittest.TestCase):
    version = "v1alpha"

    def ask(self, channel, **asked):
        request = support.foreign("grpc.reflection.v1.ServerReflectionRequest")  # the same messages
        response = support.foreign("grpc.reflection.v1.ServerReflectionResponse")
        stub = channel.stream_stream(
            "/grpc.reflection.%s.ServerReflection/ServerReflectionInfo" % self.version,
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=response.FromString,
        )
        answers = list(stub(iter([request(**asked)]), timeout=LONG_S))
        self.assertEqual(len(answers), 1)
        return answers[0]

    def check(self, program, services):
        known = files_of_proto()
        with program.channel() as channel:
            listed = self.ask(channel, list_services="").list_services_response.service
            self.assertEqual(
                sorted(one.name for one in listed),
                sorted(SERVED + ["tutti.v1." + service for service in services]),
            )
            for service in services:
                answer = self.ask(channel, file_containing_symbol="tutti.v1." + service)
                files = answer.file_descriptor_response.file_descriptor_proto
                found = [descriptor_pb2.FileDescriptorProto.FromString(one) for one in files]
                names = [one.name for one in found]
                self.assertIn(module_of(service).DESCRIPTOR.name, names)
                for one in found:
                    self.assertEqual(one, known[one.name])
            for name, expected in known.items():
                answer = self.ask(channel, file_by_filename=name)
                files = answer.file_descriptor_response.file_descriptor_proto
                found = [descriptor_pb2.FileDescriptorProto.FromString(one) for one in files]
                self.assertIn(expected, found)

    def test_the_coordinator_tells_what_it_serves(self):
        with support.Program("tutti-coordinator") as program:
            self.check(program, COORDINATOR)

    def test_an_agent_tells_what_it_serves(self):
        with support.Program("tutti-coordinator") as program:
            words = ["--coordinator", program.address, "--world-size", "1"]
            with support.Program("tutti-agent", *words) as agent:
                self.check(agent, AGENT)

    def test_there_is_none_where_it_is_not_wanted(self):
        words = ["tutti-coordinator", "--reflection=false"]
        with support.Program(*words) as program, program.channel() as channel:
            with self.assertRaises(grpc.RpcError) as caught:
                self.ask(channel, list_services="")
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)


class ReflectionV1(Reflection):
    version = "v1"


if __name__ == "__main__":
    support.main()
