"""The stand-ins for CUDA and NCCL (tests/support): agents that are started after `use` run on them."""

import os

import support

MODULES = os.path.join(support.BUILD, "standin")


def use(settings):
    """[in] settings  of the stand-in for CUDA. Skips all tests where the stand-ins were not built."""
    for module in ("tutti-cuda.so", "tutti-nccl.so"):
        if not os.path.exists(os.path.join(MODULES, module)):
            support.skip_all("no %s in %s" % (module, MODULES))
    os.environ["TUTTI_MODULES"] = MODULES
    os.environ["TUTTI_STANDIN_CUDA"] = settings
