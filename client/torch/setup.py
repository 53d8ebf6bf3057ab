"""Builds tutti_torch against the torch that is installed: c10d is outside of torch's stable ABI, so each torch needs a build
of its own.

Where libtutti is: $TUTTI_BUILD (a build folder of Tutti) with the sources around it, or what pkg-config says of "tutti".
"""

import os
import shlex
import subprocess
import sys

from setuptools import setup

HERE = os.path.dirname(os.path.abspath(__file__))
# By its name, and so before what g++ takes by itself: where g++ finds only libstdc++.a, the module had a second copy beside the one
# that torch uses, and crashed as soon as it wrote a number into a stream.
LIBSTDCXX = "-l:libstdc++.so.6"


def pkg_config(*words):
    try:
        return shlex.split(subprocess.run(["pkg-config", *words, "tutti"], check=True, capture_output=True, text=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        sys.exit("tutti_torch: there is no libtutti: install libtutti-dev, run ./run install, or set TUTTI_BUILD to a build folder")


def find_tutti():
    """Folders of headers, folders of libraries."""
    build = os.environ.get("TUTTI_BUILD")
    if build:
        source = os.environ.get("TUTTI_SOURCE", os.path.dirname(os.path.dirname(HERE)))
        return [os.path.join(source, "include"), os.path.join(build, "include")], [os.path.abspath(build)]
    return ([word[2:] for word in pkg_config("--cflags-only-I")],
            [word[2:] for word in pkg_config("--libs-only-L")] or [pkg_config("--variable=libdir")[0]])


def check_setuptools():
    """pip asks for a wheel, which setuptools before 70.1 makes only with another package."""
    if not {"bdist_wheel", "dist_info"} & set(sys.argv):
        return
    try:
        import setuptools.command.bdist_wheel  # noqa: F401
    except ImportError:
        try:
            import wheel.bdist_wheel  # noqa: F401
        except ImportError as error:
            sys.exit("tutti_torch: this setuptools cannot make wheels (%s): pip install --upgrade 'setuptools>=70.1'" % error)


def extension():
    try:
        from torch.utils.cpp_extension import BuildExtension, CppExtension
    except ImportError:
        sys.exit("tutti_torch: there is no torch here to build against: pip install torch, then "
                 "pip install --no-build-isolation ./client/torch")
    headers, libraries = find_tutti()
    sources = sorted("src/" + name for name in os.listdir(os.path.join(HERE, "src")) if name.endswith(".cpp"))
    return [CppExtension("tutti_torch._C", sources, include_dirs=headers, library_dirs=libraries, libraries=["tutti"],
                         runtime_library_dirs=libraries, extra_link_args=[LIBSTDCXX],
                         extra_compile_args=["-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-fvisibility=hidden"])], {
        "build_ext": BuildExtension}


check_setuptools()
modules, commands = extension()
setup(ext_modules=modules, cmdclass=commands)
