"""The sides of a comparison: their ranks as processes, each with a pipe to and from it.

With `hosts` (of tests/support/namespaces.py) each rank runs on a host of its own; the pipes are files, which do not care.
"""
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "support"))

import namespaces  # noqa: E402

AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
# What mpirun calls instead of ssh: its first word is a host's address, the others are a command for a shell there.
# A name of its own makes it another host for Open MPI.
RSH = """#!/bin/sh
name=$1
shift
case $name in
%s
esac
exec $pin ip netns exec "$space" unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$space" "$*"
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(path):
    until = time.monotonic() + 30
    while not os.path.exists(path):
        if time.monotonic() > until:
            sys.exit(f"{path} does not appear")
        time.sleep(0.01)


class Side:
    """Its ranks as processes with a pipe to and from each."""

    def __init__(self, name, ranks, hosts=None):
        self.name, self.ranks, self.hosts = name, ranks, hosts
        self.children, self.programs, self.to, self.of = [], [], [], []
        self.folder = tempfile.mkdtemp(prefix="tutti-peers-")
        for rank in range(ranks):
            os.mkfifo(f"{self.folder}/in.{rank}")
            os.mkfifo(f"{self.folder}/out.{rank}")

    def start(self, *command, environment=None, rank=None):
        """[in] rank  whose host it runs on, where there are hosts"""
        if self.hosts and rank is not None:
            command = self.hosts[rank].words(*command)
        child = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL)
        self.children.append(child)

    def address(self, rank):
        return self.hosts[rank].address if self.hosts else "127.0.0.1"

    def open(self):
        for rank in range(self.ranks):
            self.to.append(open(f"{self.folder}/in.{rank}", "w", buffering=1))
            self.of.append(open(f"{self.folder}/out.{rank}"))

    def burst(self, op, size, times):
        """Microseconds of one op, on the slowest rank; None when this side cannot."""
        for pipe in self.to:
            pipe.write(f"{op} {size} {times}\n")
        took = [float(pipe.readline()) for pipe in self.of]
        return None if min(took) < 0 else max(took)

    def end(self, children):
        for child in reversed(children):
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.terminate()
                child.wait(10)

    def close(self):
        for pipe in self.to + self.of:
            pipe.close()
        self.end(self.children)
        for program in reversed(self.programs):
            program.terminate()
        self.end(self.programs)
        shutil.rmtree(self.folder, ignore_errors=True)


def on_gpu(rank):
    """What lets NCCL take several ranks of one GPU for hosts of their own."""
    return {"NCCL_HOSTID": f"tutti-peers-{rank}", "NCCL_MULTI_RANK_GPU_ENABLE": "1"}


def tutti(build, ranks, options=(), hosts=None, own=None, environment=None, lane=True):
    """[in] options  more of them for the agents; own  likewise, by rank
    [in] hosts  by rank: one may stand there several times
    [in] lane  False: the calls of the ranks' clients go by gRPC"""
    side = Side("tutti", ranks, hosts)
    folder, port = side.folder, free_port()
    coordinator = f"{side.address(0)}:{port}"
    trust = ["--insecure"] if hosts else []
    side.start(f"{build}/tutti-coordinator", "--listen", coordinator, "--log", "error", *trust, rank=0)
    for rank in range(ranks):
        of_host = ["--host-id", hosts[rank].name, "--net-devices", hosts[rank].interface] if hosts else []
        side.start(f"{build}/tutti-agent", "--listen", f"unix:{folder}/agent.{rank}", "--coordinator", coordinator,
                   "--rank", str(rank), "--world-size", str(ranks), "--job", "bench", "--memory-limit", "2GiB",
                   "--log", "error", *of_host, *options, *(own or {}).get(rank, []),
                   environment={**on_gpu(rank), **(environment or {})}, rank=rank)
    side.programs, side.children = side.children, []
    for rank in range(ranks):
        wait_for(f"{folder}/agent.{rank}")
    for rank in range(ranks):
        side.start(f"{build}/bench/bench_peers_tutti", folder, str(rank), f"unix:{folder}/agent.{rank}",
                   environment={} if lane else {"TUTTI_NO_LANE": "1"})
    side.open()
    return side


def tutti_by_grpc(build, ranks, options=()):
    side = tutti(build, ranks, options, lane=False)
    side.name = "gRPC"
    return side, "gRPC: Tutti with clients that use no lane"


def nccl(build, ranks, gpus, standin):
    """[in] gpus  the number of each rank's, in turn; [in] standin  what only looks like NCCL"""
    program = f"{build}/bench/bench_peers_nccl" + ("_standin" if standin else "")
    if not os.path.exists(program):
        return None, "no CUDA, nccl.h or libnccl when this was built"
    for gpu in gpus:
        check = subprocess.run([program, gpu], capture_output=True, text=True)
        if check.returncode != 0:
            return None, f"cuda:{gpu}: {check.stderr.strip()}"
    side = Side("nccl", ranks)
    for rank in range(ranks):
        side.start(program, side.folder, str(rank), str(ranks), gpus[rank % len(gpus)], environment=on_gpu(rank))
    side.open()
    return side, "NCCL called directly" + (", a stand-in: its times mean nothing" if standin else "")


def gloo(ranks, hosts=None):
    check = subprocess.run(["/usr/bin/python3", "-c", "import torch; print(torch.__version__)"],
                           capture_output=True, text=True)
    if check.returncode != 0:
        return None, "python3-torch is not installed"
    side = Side("gloo", ranks, hosts)
    meeting = f"tcp://{side.address(0)}:{free_port()}"
    for rank in range(ranks):
        side.start("/usr/bin/python3", f"{HERE}/peers_gloo.py", side.folder, str(rank), str(ranks), meeting,
                   environment={"GLOO_SOCKET_IFNAME": hosts[rank].interface if hosts else "lo"}, rank=rank)
    side.open()
    return side, "PyTorch " + check.stdout.strip()


def mpi_hosts(side):
    """Words for mpirun: ranks on their hosts, TCP between them, `ip netns exec` instead of ssh."""
    agent = f"{side.folder}/rsh"
    with open(agent, "w") as file:
        file.write(RSH % "\n".join(f"{host.address}) space={shlex.quote(host.name)} pin='{shlex.join(host.pin())}' ;;"
                                   for host in side.hosts))
    os.chmod(agent, 0o700)
    names = ",".join(f"{host.address}:1" for host in side.hosts)
    interface = side.hosts[0].interface
    return ["--host", names, "--mca", "plm_rsh_agent", agent, "--mca", "plm_rsh_no_tree_spawn", "1",
            "--mca", "pml", "ob1", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", interface,
            "--mca", "oob_tcp_if_include", interface, "--bind-to", "none"]


def mpi(build, ranks, hosts=None):
    program = f"{build}/bench/bench_peers_mpi"
    if shutil.which("mpirun") is None or not os.path.exists(program):
        return None, "openmpi-bin or libopenmpi-dev is not installed"
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout.split("\n")[0]
    side = Side("openmpi", ranks, hosts)
    where = mpi_hosts(side) if hosts else ["--oversubscribe"]
    side.start("mpirun", "-np", str(ranks), *where, program, side.folder, environment=AS_ROOT,
               rank=0 if hosts else None)
    side.open()
    return side, version


def probe(build, ranks):
    side = Side("memory", ranks)
    file = f"/dev/shm/tutti-probe.{os.getpid()}.{ranks}"
    for rank in range(ranks):
        side.start(f"{build}/bench/bench_peers_probe", side.folder, str(rank), str(ranks), file)
    side.open()
    os.unlink(file)
    return side, "memory probe"
