"""A Python with torch of PyPI, and this package built for it: for the tests of client/torch.

    place.enter()               # the script goes on in that Python; it is skipped where PyPI cannot be reached
    place.prepare()             # or: so that it can start programs by
    place.PYTHON, place.environment()

$TUTTI_TORCH_PYTHON: a Python with torch, numpy and setuptools, which is taken as it is; nothing is installed.

torch (539 MB) is kept in build/torch-venv, the package is built into a folder of the build folder. torch's CUDA packages
(3 GB) are not installed: on a machine without a GPU nothing of them is called, so the libraries that torch is linked with
are stubs, made here of the symbols that it asks for. The CUDA runtime and CUPTI are real ones: torch calls them early.
"""

import collections
import fcntl
import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys

SOURCE = os.environ["TUTTI_SOURCE"]
BUILD = os.environ["TUTTI_BUILD"]
PACKAGE = os.path.join(SOURCE, "client", "torch")
VENV = os.environ.get("TUTTI_TORCH_VENV", os.path.join(SOURCE, "build", "torch-venv"))
OWN = os.environ.get("TUTTI_TORCH_PYTHON", "")
PYTHON = OWN or os.path.join(VENV, "bin", "python")
STUBS = os.path.join(VENV, "stubs")
WORK = os.path.join(BUILD, "torch", "own" if OWN else os.path.basename(VENV.rstrip("/")))  # another torch, another build
LIBRARY = os.path.join(WORK, "lib")
SKIPPED = 77
INSTALL_S = 900
BUILD_S = 900

PACKAGES = ["filelock", "typing-extensions", "sympy", "networkx", "jinja2", "fsspec", "setuptools<81", "numpy", "expecttest",
            "ninja", "safetensors"]
# Stubs of symbols without a version, by how their names begin; the others name their library as their version.
UNVERSIONED = {"libnccl.so.2": "nccl", "libcufile.so.0": "cuFile", "libcusparseLt.so.0": "cusparseLt"}
VERSIONED = re.compile(r"lib(nvrtc|cublas|cublasLt|cusparse|cudnn|cufft|cusolver|nvJitLink|curand)\.so\.\d+$")


def skip_all(reason):
    print("1..0 # SKIP " + reason)
    sys.exit(SKIPPED)


def _call(words, limit_s, **more):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                          timeout=limit_s, **more)
    return done.returncode, done.stdout.decode(errors="replace")


def _last(text):
    return (text.strip().split("\n") or [""])[-1][:200]


# ---------------------------------------------------------------------------- torch


def _pip(*words):
    pip = [PYTHON, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "60"]
    code, said = _call(pip + list(words), INSTALL_S)
    if code != 0 and ("Connection" in said or "No matching distribution" in said):
        shutil.rmtree(VENV, ignore_errors=True)
        skip_all("PyPI cannot be reached: " + _last(said))
    assert code == 0, said


def _install():
    code, said = _call(["/usr/bin/python3", "-m", "venv", VENV], INSTALL_S)
    if code != 0:
        skip_all("no virtual environments: install python3-venv: " + _last(said))
    _pip(*PACKAGES)
    _pip("--no-deps", "torch" + os.environ.get("TUTTI_TEST_TORCH", ""))  # "==2.14.0": this one
    for library in sorted(_needed()):
        found = re.match(r"lib(cudart|cupti)\.so\.(\d+)", library)
        if found:
            name = {"cudart": "nvidia-cuda-runtime", "cupti": "nvidia-cuda-cupti"}[found.group(1)]
            _pip(name + ("-cu%s" % found.group(2) if int(found.group(2)) < 13 else ""))


def _site():
    return glob.glob(os.path.join(VENV, "lib", "python3*", "site-packages"))[0]


def _wanted():
    """Symbols that torch's libraries ask others for, by their version; "" = they have none."""
    wanted = collections.defaultdict(set)
    for path in glob.glob(os.path.join(_site(), "torch", "lib", "*.so*")):
        for line in _call(["readelf", "-W", "--dyn-syms", path], 300)[1].splitlines():
            words = line.split()
            if len(words) >= 8 and words[6] == "UND":
                name, _, version = words[7].partition("@")
                wanted[version.lstrip("@")].add(name)
    return wanted


def _needed():
    """The libraries that torch's libraries are linked with."""
    found = set()
    for path in glob.glob(os.path.join(_site(), "torch", "lib", "*.so*")):
        found.update(re.findall(r"NEEDED.*\[(.+)\]", _call(["readelf", "-d", path], 60)[1]))
    return found


def _make_stub(library, symbols, version):
    source, script = os.path.join(STUBS, "stub.c"), os.path.join(STUBS, "stub.map")
    with open(source, "w") as file:
        file.writelines("void %s(void) { __builtin_trap(); }\n" % name for name in sorted(symbols))
    words = ["cc", "-w", "-fno-builtin", "-shared", "-fPIC", source, "-o", os.path.join(STUBS, library)]
    words.append("-Wl,-soname," + library)
    if version:
        with open(script, "w") as file:
            file.write("%s { global: *; };\n" % version)
        words.append("-Wl,--version-script=" + script)
    code, said = _call(words, 120)
    assert code == 0, said


def _make_stubs():
    os.makedirs(STUBS, exist_ok=True)
    wanted, needed = _wanted(), _needed()
    for library in needed:
        if VERSIONED.match(library):
            _make_stub(library, wanted[library], library)
        elif library.startswith("libnvshmem_host"):
            _make_stub(library, wanted["NVSHMEM"], "NVSHMEM")
        elif library.startswith("libnvToolsExt"):
            _make_stub(library, wanted[library], library)
        elif library in UNVERSIONED:
            _make_stub(library, {name for name in wanted[""] if name.startswith(UNVERSIONED[library])}, None)


# ---------------------------------------------------------------------------- this package


def _files(folder, but=(".pyc", ".so")):
    for path, _, names in os.walk(folder):
        for name in names:
            if not name.endswith(but):
                yield os.path.join(path, name)


def _digest():
    """Of all that the built package is made of, but for libtutti, which is loaded when it runs."""
    digest = hashlib.sha256(version().encode())
    for folder in (PACKAGE, os.path.join(SOURCE, "include")):
        for path in sorted(_files(folder)):
            if not path.startswith(os.path.join(PACKAGE, "tests")) and not path.endswith(".md"):
                digest.update(path.encode())
                with open(path, "rb") as file:
                    digest.update(file.read())
    return digest.hexdigest()


def _build_once():
    """Not again where nothing has changed: other scripts may be using what is built."""
    stamp, now = os.path.join(WORK, "built"), _digest()
    if os.path.exists(stamp):
        with open(stamp) as file:
            if file.read() == now:
                return
    _build()
    with open(stamp, "w") as file:
        file.write(now)


def _build():
    """By the package's own setup.py, of a copy of its sources: building leaves files among them."""
    copy = os.path.join(WORK, "source")
    os.makedirs(copy, exist_ok=True)
    ignored = shutil.ignore_patterns("build", "*.egg-info", "__pycache__", "*.so", "tests")
    shutil.copytree(PACKAGE, copy, ignore=ignored, dirs_exist_ok=True)
    for folder, _, names in os.walk(os.path.join(copy, "src")):
        for name in names:
            if not os.path.exists(os.path.join(PACKAGE, os.path.relpath(os.path.join(folder, name), copy))):
                os.unlink(os.path.join(folder, name))
    known = dict(environment(), TUTTI_BUILD=BUILD, MAX_JOBS=os.environ.get("MAX_JOBS", "2"), TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    known["PATH"] = os.path.dirname(shutil.which(PYTHON) or PYTHON) + ":" + os.environ["PATH"]  # ninja is there
    if os.path.exists("/usr/lib/ccache/g++"):
        known.update(CXX="/usr/lib/ccache/g++", CCACHE_BASEDIR=SOURCE, CCACHE_NOHASHDIR="1")
    known["LDFLAGS"] = "-static-libstdc++"  # as where g++ has no shared one: _check_module
    made = os.path.join(WORK, "made")
    words = [PYTHON, "setup.py", "-q", "build", "--build-base", os.path.join(WORK, "tmp"), "--build-lib", made]
    words += ["install_egg_info", "--install-dir", made]  # for torch's entry point
    known["TUTTI_SOURCE"] = SOURCE
    code, said = _call(words, BUILD_S, cwd=copy, env=known)
    assert code == 0, said[-8000:]
    _check_module(made)
    _replace(made)


def _check_module(made):
    """It uses the libstdc++ that torch uses, whatever g++ would take."""
    module = glob.glob(os.path.join(made, "tutti_torch", "_C.*.so"))[0]
    with open(module, "rb") as file:
        assert b"libstdc++.so.6\0" in file.read(), "%s has a libstdc++ of its own" % module


def _replace(made):
    """File by file and each at once, as programs may be loading the old ones."""
    for path in list(_files(made, ())):
        to = os.path.join(LIBRARY, os.path.relpath(path, made))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        shutil.copy2(path, to + ".part")
        os.replace(to + ".part", to)


def prepare():
    """torch, its stubs and the package, all of them once; scripts that run side by side wait for each other."""
    os.makedirs(WORK, exist_ok=True)
    if not OWN:
        _prepare_torch()
    with open(os.path.join(WORK, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _build_once()
    print("# torch %s" % version(), flush=True)


def _prepare_torch():
    os.makedirs(os.path.dirname(VENV), exist_ok=True)
    with open(VENV.rstrip("/") + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = os.path.join(VENV, "installed")
        if not os.path.exists(stamp):
            shutil.rmtree(VENV, ignore_errors=True)
            _install()
            _make_stubs()
            with open(stamp, "w"):
                pass


def enter():
    """Called before torch is imported."""
    if not os.environ.get("TUTTI_TORCH_ENTERED"):
        prepare()
        known = environment(TUTTI_TORCH_ENTERED="1")
        known["PYTHONPATH"] += ":" + os.path.join(SOURCE, "tests", "support")
        os.execve(PYTHON, [PYTHON] + sys.argv, known)


def version():
    words = "import torch; print(torch.__version__)"
    return _call([PYTHON, "-c", words], 120, env=environment())[1].strip()


def environment(**more):
    """For programs that import torch and tutti_torch; they launch the agents of the build folder."""
    known = dict(os.environ, PYTHONPATH=LIBRARY, TUTTI_PROGRAMS=os.environ.get("TUTTI_PROGRAMS", BUILD))
    if not OWN:
        known["LD_LIBRARY_PATH"] = ":".join([STUBS] + glob.glob(os.path.join(VENV, "lib", "python3*", "site-packages", "nvidia",
                                                                           "*", "lib")))
    known.update(PYTHONDONTWRITEBYTECODE="1", OMP_NUM_THREADS="1")
    for name in ("TUTTI_AGENT", "TUTTI_COORDINATOR"):
        known.pop(name, None)
    known.update(more)
    return known


if __name__ == "__main__":
    prepare()
