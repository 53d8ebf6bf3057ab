"""Tutti's store beside etcd (durable) and beside PyTorch's TCPStore (in memory), taking turns in one run.

    ./run bench store [--turns N] [--seconds S] [--clients 1,64] [--python PYTHON-WITH-TORCH] [--markdown FILE]

Durable: a coordinator with --store lmdb and --store-sync full, and one member of etcd as Debian has it, each with its data
on the same disk. In memory: a coordinator without --store, and TCPStore, whose server and clients are C++ (tcpstore.cc, built
here; left out without --python or TUTTI_TORCH_PYTHON). One client is a thread with a connection and keys of its own, and one
call at a time that is answered. Values are of 16 bytes. Each figure is the median over the turns.
"""

import argparse
import atexit
import os
import platform
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.environ["TUTTI_BUILD"]
OPS = ("set", "get", "add")
START_S = 30


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def wait_for(port, process):
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit("nothing listens on port %d" % port)


class Server:
    """A store that is compared; `bench` are the words in front of OP CLIENTS SECONDS."""

    def __init__(self, name, words, port, bench, **more):
        self.name, self.bench = name, bench
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
        atexit.register(self.process.kill)  # also after a failure
        wait_for(port, self.process)

    def measure(self, op, clients, seconds):
        done = subprocess.run([*self.bench, op, str(clients), str(seconds)], stdout=subprocess.PIPE, text=True, check=True)
        numbers = re.search(r": (\d+) \w+/s, one takes (\d+) us \(p50\), (\d+) us \(p99\)", done.stdout)
        return tuple(map(int, numbers.groups()))

    def end(self):
        self.process.kill()
        self.process.wait()


def coordinator(name, *options):
    port = free_port()
    address = "127.0.0.1:%d" % port
    words = [os.path.join(BUILD, "tutti-coordinator"), "--listen", address, "--log", "error", *options]
    return Server(name, words, port, [os.path.join(BUILD, "bench", "bench_store"), "tutti", address])


def etcd(folder):
    clients, peers = free_port(), free_port()
    url, peer = "http://127.0.0.1:%d" % clients, "http://127.0.0.1:%d" % peers
    words = ["etcd", "--data-dir", folder, "--listen-client-urls", url, "--advertise-client-urls", url,
             "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer]
    return Server("etcd", words, clients,
                  [os.path.join(BUILD, "bench", "bench_store"), "etcd", "127.0.0.1:%d" % clients])


def build_tcpstore(python, folder):
    """The program, with the headers and libraries of that Python's PyTorch."""
    ask = "import os, torch; print(os.path.dirname(torch.__file__)); print(int(torch.compiled_with_cxx11_abi())); print(torch.__version__)"
    root, abi, version = subprocess.run([python, "-c", ask], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    program = os.path.join(folder, "tcpstore")
    subprocess.run(["g++", "-O2", "-std=c++20", "-w", "-D_GLIBCXX_USE_CXX11_ABI=" + abi, "-DUSE_C10D",
                    "-I" + os.path.join(root, "include"), "-I" + os.path.join(root, "include/torch/csrc/api/include"),
                    os.path.join(HERE, "tcpstore.cc"), "-o", program, "-L" + os.path.join(root, "lib"),
                    "-Wl,-rpath," + os.path.join(root, "lib"), "-ltorch_cpu", "-lc10", "-pthread",
                    "-Wl,--unresolved-symbols=ignore-in-shared-libs"], check=True)
    return program, version


def tcpstore(program):
    port = free_port()
    return Server("TCPStore", [program, "serve", str(port)], port, [program, "127.0.0.1:%d" % port], stdin=subprocess.PIPE)


def compare(servers, clients, turns, seconds):
    """{(op, clients, name): (calls a second, p50, p99)}, medians; the servers take turns, each in each turn."""
    found = {}
    for op in OPS:
        for count in clients:
            for turn in range(turns):
                for server in servers if turn % 2 == 0 else servers[::-1]:
                    got = server.measure(op, count, seconds)
                    found.setdefault((op, count, server.name), []).append(got)
                    print("%-16s %-4s %3d clients: %6d/s, %5d us p50, %6d us p99" % (server.name, op, count, *got), flush=True)
    return {key: tuple(statistics.median(row[i] for row in rows) for i in range(3)) for key, rows in found.items()}


def table(title, found, names, clients):
    lines = ["### " + title, "",
             "| op | clients | " + " | ".join("%s: calls/s | p50, p99" % name for name in names) + " | ratio |",
             "|---|---|" + "---|---|" * len(names) + "---|"]
    for op in OPS:
        for count in clients:
            cells = []
            for name in names:
                rate, p50, p99 = found[op, count, name]
                cells.append("%d | %d us, %d us" % (rate, p50, p99))
            ratio = found[op, count, names[0]][0] / max(1, found[op, count, names[1]][0])
            lines.append("| %s | %d | %s | %.2f |" % (op, count, " | ".join(cells), ratio))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--clients", default="1,64")
    parser.add_argument("--python", default=os.environ.get("TUTTI_TORCH_PYTHON"))
    parser.add_argument("--markdown")
    args = parser.parse_args()
    clients = [int(word) for word in args.clients.split(",")]
    load = os.getloadavg()[0]
    text = ""
    versions = []
    with tempfile.TemporaryDirectory(prefix="tutti-beside-") as folder:
        if shutil.which("etcd") is not None:
            versions.append(subprocess.run(["etcd", "--version"], stdout=subprocess.PIPE, text=True).stdout.split("\n")[0])
            servers = [coordinator("tutti", "--store", "lmdb:" + os.path.join(folder, "lmdb"), "--store-sync", "full"),
                       etcd(os.path.join(folder, "etcd"))]
            found = compare(servers, clients, args.turns, args.seconds)
            text += table("Durable: lmdb full beside etcd", found, ["tutti", "etcd"], clients) + "\n"
            for server in servers:
                server.end()
        if args.python is not None:
            program, version = build_tcpstore(args.python, folder)
            versions.append("PyTorch " + version)
            servers = [coordinator("tutti"), tcpstore(program)]
            found = compare(servers, clients, args.turns, args.seconds)
            text += table("In memory: beside TCPStore", found, ["tutti", "TCPStore"], clients)
            for server in servers:
                server.end()
    head = "%s, %d cores, load %.1f at the start, %.1f at the end; %s; %d turns of %g s\n\n" % (
        platform.platform(), os.cpu_count(), load, os.getloadavg()[0], ", ".join(versions), args.turns, args.seconds)
    print(head + text)
    if args.markdown:
        with open(args.markdown, "w", encoding="utf-8") as file:
            file.write(head + text)
    if not text:
        sys.exit("neither etcd nor a Python with torch (--python) is there")


main()
