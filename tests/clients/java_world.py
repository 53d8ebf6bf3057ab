"""A Java program on stubs of grpc-java: all of it is Debian's, nothing comes from the network."""

import glob
import os
import shutil

import worlds
from worlds import support

JARS = "/usr/share/java"
NEEDED = (
    *("protobuf", "guava", "perfmark-api", "grpc-api", "grpc-context", "grpc-core", "grpc-stub"),
    *("grpc-protobuf", "grpc-protobuf-lite", "grpc-netty", "netty-buffer", "netty-codec"),
    *("netty-codec-http", "netty-codec-http2", "netty-codec-socks", "netty-common"),
    *("netty-handler", "netty-handler-proxy", "netty-resolver", "netty-transport"),
    "netty-transport-native-unix-common",
)
PROTOS = ("collectives_service", "types")
# Stubs carry it, and Java has it no more since 11; Debian has no package of it alone.
GENERATED = """package javax.annotation;
public @interface Generated { String[] value(); String comments() default ""; }
"""


def path_of(name):
    return os.path.join(JARS, name + ".jar")


def missing():
    """What is not installed, in words; "" = nothing."""
    if shutil.which("javac") is None:
        return "no javac: install default-jdk-headless"
    if shutil.which("grpc_java_plugin") is None:
        return "no grpc_java_plugin: install protobuf-compiler-grpc-java-plugin"
    for name in NEEDED:
        if not os.path.exists(path_of(name)):
            return "no %s: install libgrpc-java libprotobuf-java libperfmark-java libguava-java libnetty-java" % path_of(name)
    return ""


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def depends(name, found):
    """The protos that one imports, with itself."""
    path = "tutti/v1/%s.proto" % name
    if path in found:
        return found
    found.add(path)
    with open(os.path.join(support.SOURCE, "proto", path)) as file:
        for line in file:
            if line.startswith("import ") and "tutti/v1/" in line:
                depends(line.split("tutti/v1/")[1].split(".proto")[0], found)
    return found


def compile_program(name, text):
    """The words that run it: a class Example, with the stubs it needs."""
    root = os.path.join(worlds.WORK, name)
    source, classes = os.path.join(root, "src"), os.path.join(root, "classes")
    shutil.rmtree(root, ignore_errors=True)
    write(os.path.join(source, "Example.java"), text)
    write(os.path.join(source, "javax", "annotation", "Generated.java"), GENERATED)
    protos = set()
    for one in PROTOS:
        depends(one, protos)
    plugin = "--plugin=protoc-gen-grpc-java=" + shutil.which("grpc_java_plugin")
    words = ["protoc", "-I" + os.path.join(support.SOURCE, "proto"), plugin]
    worlds.must(words + ["--java_out=" + source, "--grpc-java_out=" + source] + sorted(protos))
    path = ":".join(path_of(one) for one in NEEDED)
    files = glob.glob(os.path.join(source, "**", "*.java"), recursive=True)
    worlds.must(["javac", "-nowarn", "-d", classes, "-cp", path] + files)
    return ["java", "-cp", path + ":" + classes, "Example"]
