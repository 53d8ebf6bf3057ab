"""client/go in GOPATH mode: everything else is Debian's, nothing comes from the network."""

import glob
import os
import shutil

import worlds
from worlds import support

GOCODE = "/usr/share/gocode"
SOURCE = os.path.join(support.SOURCE, "client", "go")
PROGRAMS = (
    ("go", "golang-go"),
    ("protoc-gen-go", "protoc-gen-go"),
    ("protoc-gen-go-grpc", "protoc-gen-go-grpc"),
)


def missing():
    """What is not installed, in words; "" = nothing."""
    for program, package in PROGRAMS:
        if shutil.which(program) is None:
            return "no %s: install %s" % (program, package)
    if not os.path.isdir(os.path.join(GOCODE, "src", "google.golang.org", "grpc")):
        return (
            "no grpc for Go: install golang-google-grpc-dev golang-github-golang-protobuf-1-5-dev"
        )
    return ""


class World:
    """A folder with the module's sources and stubs."""

    def __init__(self, name):
        self.root = os.path.join(worlds.WORK, name)
        self.module = os.path.join(self.root, "src", "tutti")
        shutil.rmtree(self.module, ignore_errors=True)
        os.makedirs(self.module)
        for path in glob.glob(os.path.join(SOURCE, "*.go")):
            shutil.copy(path, self.module)
        shutil.copytree(os.path.join(SOURCE, "examples"), os.path.join(self.module, "examples"))
        protos = os.path.join(support.SOURCE, "proto")
        worlds.must([os.path.join(SOURCE, "generate.sh"), protos, self.module])

    def go(self, *words):
        known = dict(os.environ, GO111MODULE="off", GOPATH=self.root + ":" + GOCODE, GOFLAGS="")
        known.update(GOCACHE=os.path.join(worlds.WORK, "go-cache"), HOME=self.root)
        worlds.must(("go",) + words, cwd=self.module, env=known)
