"""Goal: tensors of a GPU are in ops as others are, by memory of the agent's GPU that is opened here; where one rank cannot open it, all go
by the host, and so do tensors of the CPU beside agents of GPUs.

Method: gpu_ranks.py in two ranks, beside agents with a GPU. Without one they run over the stand-ins for CUDA and NCCL, in the ranks
too, on tensors of the CPU that are treated as those of CUDA: torch itself has no stand-in. With TUTTI_GPU=1 and a torch that has a
GPU it runs on tensors of CUDA, also beside agents that have no GPU.
"""

import os
import subprocess
import sys
import tempfile
import threading
import unittest

import place

sys.path[:0] = [os.path.join(place.SOURCE, "tests", part) for part in ("system", "support")]
import support
import tap

HERE = os.path.dirname(os.path.abspath(__file__))
RANKS = os.path.join(HERE, "gpu_ranks.py")
REAL = os.environ.get("TUTTI_GPU") == "1"
STANDIN = os.path.join(place.BUILD, "standin")
MODULES = place.BUILD if REAL else STANDIN
NEW_ENOUGH = "import sys, numpy, setuptools, torch; sys.exit([int(n) for n in torch.__version__.split('.')[:2]] < [2, 4])"
SIZE = 2
LIMIT_S = 240
DEVICE = "cuda:0" if REAL else "cpu"
ON_GPU = {} if REAL else {"TUTTI_TEST_TORCH_ON_GPU": "1"}
SETTINGS = "unified,leaks"  # of the stand-in in the ranks: they copy from and to memory of torch's


def agent_environment(rank):
    known = {"TUTTI_MODULES": MODULES, "NCCL_HOSTID": "tutti-rank-%d" % rank, "NCCL_MULTI_RANK_GPU_ENABLE": "1"}
    return known if REAL else dict(known, TUTTI_STANDIN_CUDA="leaks,delay:500")


class Cluster:
    """A coordinator and an agent for each rank; they must end well: the stand-in counts what was not given back."""

    def __init__(self, device):
        options = ["--device", device] + (["--allow-shared-gpu"] if "cuda" in device else [])
        self.agents = []
        self.coordinator = support.Program("tutti-coordinator")
        for rank in range(SIZE):
            self.agents.append(support.Program(
                "tutti-agent", "--coordinator", self.coordinator.address, "--world-size", str(SIZE), "--rank", str(rank),
                *options, environment=agent_environment(rank)))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        codes = [program.stop() for program in self.agents + [self.coordinator]]
        assert not any(codes), codes


class Gpu(unittest.TestCase):
    def run_ranks(self, agents, words, *environments):
        """environments: what more each rank has; one for all, or one each."""
        with Cluster(agents) as cluster, tempfile.TemporaryDirectory(prefix="tutti-torch-") as folder:
            programs = []
            for rank, agent in enumerate(cluster.agents):
                known = place.environment(RANK=str(rank), WORLD_SIZE=str(SIZE))
                known.update(TUTTI_AGENT=agent.address, TUTTI_COORDINATOR=cluster.coordinator.address)
                if not REAL:
                    known.update(TUTTI_CUDART=os.path.join(STANDIN, "libtutti_cuda_standin.so"), TUTTI_STANDIN_CUDA=SETTINGS)
                known.update(environments[rank % len(environments)] if environments else {})
                programs.append(subprocess.Popen(
                    ["timeout", "-k", "5", str(LIMIT_S), place.PYTHON, RANKS, os.path.join(folder, "store"), *words], env=known,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
            said = self.outputs(programs)
            self.assertEqual([program.returncode for program in programs], [0] * SIZE, "\n".join(said)[-8000:])
            return said

    @staticmethod
    def outputs(programs):
        """What all have said. A rank that fails ends the others soon: they wait for it, and its words are what counts."""
        readers = [threading.Thread(target=lambda at=at: said.__setitem__(at, programs[at].communicate()[0])) for at in range(len(programs))]
        said = [""] * len(programs)
        for reader in readers:
            reader.start()
        while any(reader.is_alive() for reader in readers):
            if any(program.poll() for program in programs):
                for reader in readers:
                    reader.join(5)
                for program in programs:
                    program.terminate()
            for reader in readers:
                reader.join(0.1)
        return said

    @unittest.skipIf(REAL, "tensors of CUDA do it")
    def test_by_memory_of_the_gpu(self):
        """Tensors of the CPU in the place of those of CUDA, which the stand-in does not have."""
        for agents in ("cuda:0", "cpu,cuda:0"):
            with self.subTest(agents=agents):
                self.run_ranks(agents, ["cpu", "opened"], ON_GPU)

    @unittest.skipIf(REAL, "tensors of CUDA do it")
    def test_the_agent_waits_for_what_goes_to_the_gpu(self):
        """Each copy takes a while; who called does not wait for it, and the op begins behind it."""
        self.run_ranks("cuda:0", ["cpu", "ordered"], dict(ON_GPU, TUTTI_TORCH_EVENTS="1", TUTTI_STANDIN_CUDA=SETTINGS + ",delay:3000"))

    def test_tensors_of_the_cpu_stay_on_the_host(self):
        """Each copy by CUDA fails."""
        for agents in ("cuda:0", "cpu,cuda:0"):
            with self.subTest(agents=agents):
                self.run_ranks(agents, ["cpu", "host"], {"TUTTI_STANDIN_CUDA": SETTINGS + ",fail:cudaMemcpyAsync:1"})

    @unittest.skipUnless(REAL, "torch has no stand-in for a GPU: TUTTI_GPU=1 where there is one")
    def test_tensors_of_cuda_beside_agents_with_a_gpu(self):
        for agents in ("cuda:0", "cpu,cuda:0"):
            with self.subTest(agents=agents):
                self.run_ranks(agents, ["cuda:0", "opened"])
                self.run_ranks(agents, ["cuda:0", "ordered"], {"TUTTI_TORCH_EVENTS": "1"})

    @unittest.skipUnless(REAL, "torch has no stand-in for a GPU: TUTTI_GPU=1 where there is one")
    def test_tensors_of_cuda_beside_agents_without_one(self):
        self.run_ranks("cpu", ["cuda:0", "host"])

    def test_without_the_runtime_of_cuda_it_goes_by_the_host(self):
        self.run_ranks("cuda:0", [DEVICE, "no runtime"], dict(ON_GPU, TUTTI_CUDART="/nowhere/libcudart.so"))

    def test_where_the_ranks_do_not_see_the_gpu_it_goes_by_the_host(self):
        others = [] if REAL else [{"CUDA_VISIBLE_DEVICES": "1", "TUTTI_STANDIN_CUDA": SETTINGS + ",devices:2"}]
        for environment in [{"CUDA_VISIBLE_DEVICES": ""}] + others:
            with self.subTest(environment=environment):
                self.run_ranks("cuda:0", ["cpu", "hidden"], dict(ON_GPU, **environment))

    def test_where_one_rank_does_not_see_the_gpu_all_go_by_the_host(self):
        self.run_ranks("cuda:0", ["cpu", "half"], ON_GPU, dict(ON_GPU, CUDA_VISIBLE_DEVICES=""))

    @unittest.skipIf(REAL, "a GPU cannot be told to fail")
    def test_a_copy_that_fails_is_told_on_all_ranks(self):
        self.run_ranks("cuda:0", ["cpu", "broken"], dict(ON_GPU, TUTTI_STANDIN_CUDA=SETTINGS + ",fail:cudaMemcpyAsync:1"),
                       ON_GPU)


if __name__ == "__main__":
    if not os.path.exists(os.path.join(MODULES, "tutti-cuda.so")):
        place.skip_all("no tutti-cuda.so in %s" % MODULES)
    if place.OWN and subprocess.run([place.PYTHON, "-c", NEW_ENOUGH], stderr=subprocess.DEVNULL).returncode:
        place.skip_all("%s lacks torch 2.4 or newer, numpy or setuptools: set TUTTI_TORCH_PYTHON" % place.PYTHON)
    place.prepare()
    if REAL and subprocess.run([place.PYTHON, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())"],
                               env=place.environment()).returncode:
        place.skip_all("torch has no GPU here")
    tap.main()
