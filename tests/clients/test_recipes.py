"""Goal: the recipes of docs/recipes.md, the notebook, README.md and the quick start of docs/README.md do what they say.

Method: the blocks of the pages are run as they are, on one machine. srun and scontrol are stand-ins that set Slurm's
variables; units of systemd are started by their ExecStart lines; Ray and nbclient are those of PyPI. `pypi` as the
first argument runs what needs PyPI, `here` what does not.
"""

import glob
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import tap
import worlds
from worlds import support

RUN_S = 240
PAGE = os.path.join(support.SOURCE, "docs", "recipes.md")
UNITS = os.path.join(support.SOURCE, "packaging", "systemd")
README = os.path.join(support.SOURCE, "README.md")
NOTEBOOK = os.path.join(support.SOURCE, "examples", "notebook.ipynb")

SRUN = """#!/usr/bin/python3
# As srun: as many tasks as the allocation has, or --ntasks; it waits for them.
import os, subprocess, sys
words, count = sys.argv[1:], os.environ["SLURM_NTASKS"]
while words[0].startswith("--"):
    option, _, value = words.pop(0).partition("=")
    assert option in ("--overlap", "--nodes", "--ntasks", "--nodelist"), option
    count = value if option == "--ntasks" else count
tasks = []
for rank in range(int(count)):
    known = dict(os.environ, SLURM_PROCID=str(rank), SLURM_LOCALID=str(rank), SLURM_NODEID="0", SLURM_NTASKS=count)
    tasks.append(subprocess.Popen(words, env=known, stdin=subprocess.DEVNULL))
sys.exit(max(task.wait() for task in tasks))
"""

SCONTROL = '#!/bin/sh\n[ "$1 $2 $3" = "show hostnames localhost" ] && echo localhost\n'


def block(page, head, language):
    """The blocks of a language in a part of a page."""
    with open(page) as file:
        text = file.read()
    part = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % re.escape(head), text, re.S | re.M)[1]
    (found,) = re.findall(r"^```%s\n(.*?)^```$" % language, part, re.M | re.S)
    return found


def blocks_of_readme(head, language=""):
    with open(README) as file:
        part = re.search(r"^## %s\n(.*?)(?=^## |\Z)" % head, file.read(), re.S | re.M)[1]
    return re.findall(r"^```%s\n(.*?)^```$" % language, part, re.M | re.S)


def free_port(least, most):
    for port in range(least, most):
        with socket.socket() as one:
            try:
                one.bind(("0.0.0.0", port))
                return port
            except OSError:
                continue
    raise AssertionError("no port is free from %d to %d" % (least, most))


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.work = tempfile.mkdtemp(prefix="tutti-recipes-")
        cls.addClassCleanup(shutil.rmtree, cls.work, ignore_errors=True)

    def write(self, name, text, mode=0o644):
        path = os.path.join(self.work, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def environment(self, folder, *paths, **more):
        """Of a user who has installed Tutti."""
        known = dict(os.environ, PYTHONPATH=folder, TUTTI_PROGRAMS=support.BUILD, XDG_RUNTIME_DIR=self.work)
        known["PATH"] = os.pathsep.join([*paths, support.BUILD, os.environ["PATH"]])
        known.pop("TUTTI_AGENT", None)
        known.update(more)
        return known

    def run_group(self, words, known):
        """A program and what it starts; when it has ended, the rest is told to, as by a launcher."""
        process = subprocess.Popen(words, cwd=self.work, env=known, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True, close_fds=False)
        try:
            code = process.wait(RUN_S)
        finally:
            try:
                os.killpg(process.pid, signal.SIGTERM)
            except ProcessLookupError:
                pass
        return code, process.communicate(timeout=RUN_S)[0].decode(errors="replace")  # it ends when all have ended


class Here(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.python, cls.folder = worlds.install("debian", "recipes")
        cls.bin = os.path.join(cls.work, "bin")
        os.mkdir(cls.bin)
        for name in ("python", "python3"):
            os.symlink(cls.python, os.path.join(cls.bin, name))

    def test_slurm(self):
        self.write("bin/srun", SRUN, 0o755)
        self.write("bin/scontrol", SCONTROL, 0o755)
        self.write("train.py", block(PAGE, "Slurm", "python"))
        script = self.write("batch", block(PAGE, "Slurm", "sh"), 0o755)
        job = free_port(20000, 29600) - 20000
        known = self.environment(self.folder, self.bin, SLURM_JOB_ID=str(job), SLURM_NTASKS="4",
                                 SLURM_JOB_NODELIST="localhost")
        code, said = self.run_group([script], known)
        for left in glob.glob("/tmp/slurm-%d-*" % job):
            os.unlink(left)
        self.assertEqual(code, 0, said)
        for rank in range(4):
            self.assertIn("rank %d of 4: [1.5 1.5 1.5 1.5]" % rank, said)

    def start_unit(self, name, folder, instance="", **more):
        with open(os.path.join(UNITS, name)) as file:
            text = file.read()
        (line,) = re.findall(r"^ExecStart=(.+)$", text, re.M)
        line = line.replace("${RUNTIME_DIRECTORY}", os.path.join(folder, "run" + instance))
        line = line.replace("/usr/bin/", support.BUILD + "/").replace("/etc/tutti/", folder + "/")
        for key, value in re.findall(r"^Environment=(\w+)=(.+)$", text, re.M):
            more[key] = value.replace("%i", instance)
        known = dict(os.environ, **more)
        return subprocess.Popen(shlex.split(line), env=known, stdout=subprocess.DEVNULL, close_fds=False)

    def wait_for(self, path, process):
        until = time.monotonic() + RUN_S
        while not (os.path.exists(path) and os.path.getsize(path) > 0):
            if process.poll() is not None or time.monotonic() > until:
                self.fail("no %s; exit code %s" % (path, process.poll()))
            time.sleep(0.01)  # a file that appears makes no event here
        with open(path) as file:
            return file.read().strip()

    def test_systemd(self):
        lines = block(PAGE, "systemd", "sh").splitlines()
        folder = os.path.join(self.work, "etc")
        shutil.copytree(UNITS, folder)
        port = free_port(29700, 30700)
        for path in glob.glob(folder + "/*.conf"):
            with open(path) as file:
                text = file.read().replace("29600", str(port)).replace("/var/lib", folder + "/lib")
            with open(path, "w") as file:
                file.write(text)
        for name in ("lib", "run0", "run1"):
            os.makedirs(os.path.join(folder, name))
        self.assertTrue(lines[0].startswith("sed "))
        subprocess.run(shlex.split(lines[0].replace("/etc/tutti", folder)), check=True)
        units = re.findall(r"tutti-(\w+)(?:@(\d+))?", lines[1])
        self.assertEqual(units, [("coordinator", ""), ("agent", "0"), ("agent", "1")])
        processes = [self.start_unit("tutti-coordinator.service", folder)]
        for _, instance in units[1:]:
            processes.append(self.start_unit("tutti-agent@.service", folder, instance))
        try:
            address = self.wait_for(folder + "/run0/address", processes[1])
            known = self.environment("", TUTTI_AGENT=address)
            said = worlds.must([os.path.join(support.BUILD, "tutti"), "status", "--timeout", "120s"], env=known)
            self.assertIn("2 of 2 ranks alive", said)
        finally:
            for process in reversed(processes):
                process.terminate()
        self.assertEqual([process.wait(RUN_S) for process in processes], [0, 0, 0])

    def test_the_quick_start_of_the_docs(self):
        text = block(os.path.join(support.SOURCE, "docs", "README.md"), "Quick start", "sh")
        self.assertLessEqual(len(text.splitlines()), 10)
        build, install, rest = text.split("\n", 2)  # test_wheel.py does these two
        self.assertIn("venv", build)
        self.assertEqual(install, "./run wheel && pip install build/wheel/tutti-*.whl")
        code, said = self.run_group(["bash", "-ec", rest], self.environment(self.folder, self.bin))
        self.assertEqual(code, 0, said)
        self.assertEqual(sorted(re.findall(r"(\d) \[1\.5 1\.5 1\.5\]", said)), ["0", "1", "2", "3"], said)

    def test_the_shell_of_the_readme(self):
        """All commands, in a folder of the test; those of the build folder are of this one, and the benchmark is short."""
        (text,) = blocks_of_readme("From a shell")
        text = re.sub(r"^\$ ", "", text, flags=re.M)
        for there, here in (
            ("export PATH=$PWD/build/release:$PATH", "true"),
            ("build/release/", support.BUILD + "/"),
            (" examples/data/", " %s/examples/data/" % support.SOURCE),
            (" -e 256M ", " -e 64K "),
        ):
            self.assertIn(there, text)
            text = text.replace(there, here)
        known = self.environment(self.folder, self.bin)
        try:
            code, said = self.run_group(["bash", "-exc", text], known)
        finally:
            worlds.call([os.path.join(support.BUILD, "tutti"), "cluster", "stop"], env=known)
        self.assertEqual(code, 0, said)
        self.assertIn("4 of 4 ranks alive", said)
        for rank in range(4):
            self.assertTrue(os.path.exists(os.path.join(self.work, "part.%d.npy" % rank)))
        mean = "import numpy; print(numpy.load('mean.npy').tolist())"
        self.assertEqual(worlds.must(["/usr/bin/python3", "-c", mean], cwd=self.work), "%s\n" % ([1.5] * 8))

    def test_the_two_fast_programs_of_the_readme(self):
        first, fast = blocks_of_readme("From Python", "python")[:2]
        before = "import numpy as np\nimport tutti\nx = np.arange(3, dtype=np.float32)\nw = np.ones(2)\n"
        first = before + first + "    print(\"%s %s\" % (x.tolist(), weights.numpy().tolist()))\n"
        for text, shown in ((first, "[0.0, 1.0, 2.0] [1.0, 1.0]"), (fast, "6.0")):
            words = ["tutti", "run", "-n", "4", "--no-prefix", "--", "python3", self.write("of_readme.py", text)]
            code, said = self.run_group(words, self.environment(self.folder, self.bin))
            self.assertEqual(code, 0, said)
            self.assertEqual(said.count(shown), 4, said)  # ranks may share a line

    def test_the_c_of_the_readme(self):
        (text,) = blocks_of_readme("From C", "c")
        text = ('#include <stdio.h>\n#include <tutti/tutti.h>\nint main(void)\n{\nfloat x[1000] = {3};\n%s'
                'printf("%%g\\n", x[0]);\nreturn 0;\n}\n' % text)
        os.makedirs(worlds.WORK, exist_ok=True)
        program = worlds.compile_c("cc", self.write("of_readme.c", text))
        code, said = self.run_group(["tutti", "run", "-n", "2", "--no-prefix", "--", program], self.environment(""))
        self.assertEqual((code, said.splitlines().count("3")), (0, 2), said)

    def test_what_the_readme_installs_is_what_run_has(self):
        """Tests of their own do it: test_packages.py, test_wheel.py, test_example_digits.py."""
        with open(README) as file:
            named = set(re.findall(r"\./run ([a-z]+)", file.read()))
        usage = worlds.must([os.path.join(support.SOURCE, "run"), "--help"])
        self.assertLessEqual({"demo", "test", "wheel", "deb", "install", "docs"}, named)
        self.assertEqual({name for name in named if not re.search(r"^  %s\b" % name, usage, re.M)}, set())

    def test_the_notebook_is_kept_without_outputs(self):
        with open(NOTEBOOK) as file:
            cells = json.load(file)["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        self.assertGreater(len(code), 4)
        self.assertEqual([cell for cell in code if cell["outputs"] or cell["execution_count"]], [])


EXECUTE = """
import json, sys
import nbclient, nbformat
book = nbformat.read(sys.argv[1], 4)
nbclient.NotebookClient(book, timeout=120).execute()
shown = []
for cell in book.cells:
    for output in cell.get("outputs", ()):
        shown.append(output.get("text") or output.get("data", {}).get("text/plain", ""))
print(json.dumps(shown))
"""


class Pypi(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        source = worlds.copy_sources("sources-recipes")
        for packages in (("ray",), ("nbclient", "ipykernel"), (source,)):  # each has worlds.INSTALL_S
            cls.python = worlds.environment(*packages, name="venv-recipes")

    def test_ray(self):
        program = self.write("ray_program.py", block(PAGE, "Ray", "python"))
        known = self.environment("", RAY_TMPDIR="/tmp", RAY_USAGE_STATS_ENABLED="0", RAY_DEDUP_LOGS="0")
        code, said = self.run_group([self.python, program], known)
        self.assertEqual(code, 0, said)
        self.assertIn(str([[1.5] * 4] * 4), said)

    def test_the_notebook(self):
        known = self.environment("", os.path.dirname(self.python), HOME=self.work, IPYTHONDIR=self.work)
        script = self.write("execute.py", EXECUTE)
        done = subprocess.run([self.python, script, NOTEBOOK], env=known, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, timeout=RUN_S, close_fds=False)
        self.assertEqual(done.returncode, 0, done.stderr.decode(errors="replace"))
        shown = json.loads(done.stdout.decode().splitlines()[-1])
        self.assertEqual(shown[0], "[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]")
        self.assertEqual(shown[1], "array([12., 16.])")
        self.assertEqual(shown[2], "[0, 1, 2, 3]")
        self.assertIn("median", shown[3])


if __name__ == "__main__":
    part = sys.argv.pop(1)
    del globals()["Pypi" if part == "here" else "Here"]
    tap.main()
