"""What the system tests share: stubs made at test time, real programs, TAP. Import it first.

The environment says where things are (tutti_python_test() in tests/CMakeLists.txt sets it):
TUTTI_SOURCE, TUTTI_BUILD and the folder of the programs, TUTTI_PROGRAMS.
"""

import faulthandler
import fcntl
import glob
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref

SKIPPED = 77  # the exit code that CTest counts as skipped


def skip_all(reason):
    """This machine cannot run the script at all."""
    print("1..0 # SKIP " + reason)
    sys.exit(SKIPPED)


try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
except ImportError as missing:
    skip_all("%s: install python3-grpcio" % missing)

SOURCE = os.environ["TUTTI_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "support"))
from ports import free_port  # noqa: E402
BUILD = os.environ["TUTTI_BUILD"]
PROGRAMS = os.environ.get("TUTTI_PROGRAMS", BUILD)

START_S = 60  # sanitizers and a busy machine are slow
STOP_S = 60
CALL_S = 60  # of a call that should be answered at once
LOG_LINES = 100  # of each program, that a failed test shows


# ---------------------------------------------------------------------------- stubs


def _protos(folder):
    found = []
    for root, _, files in os.walk(folder):
        found += [os.path.join(root, name) for name in files if name.endswith(".proto")]
    return sorted(found)


def build_stubs():
    """Python stubs of proto/, made by the stock protoc and plugin once per build folder."""
    protos = _protos(os.path.join(SOURCE, "proto"))
    out = os.path.join(BUILD, "tests", "system", "stubs")
    stamp = os.path.join(out, "stamp")
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run side by side
        newest = max(os.stat(path).st_mtime for path in protos)
        if os.environ.get("TUTTI_STUBS") == "made":  # tests/gpu: by another machine, from the same protos
            pass
        elif not os.path.exists(stamp) or os.stat(stamp).st_mtime < newest:
            if not os.path.exists("/usr/bin/grpc_python_plugin"):
                skip_all("no /usr/bin/grpc_python_plugin: install protobuf-compiler-grpc")
            subprocess.run(
                ["protoc", "-I", os.path.join(SOURCE, "proto"), "-I", "/usr/include"]
                + ["--python_out=" + out, "--grpc_python_out=" + out]
                + ["--plugin=protoc-gen-grpc_python=/usr/bin/grpc_python_plugin"]
                + protos,
                check=True,
                close_fds=False,
            )
            with open(stamp, "w"):
                pass
    if out not in sys.path:
        sys.path.insert(0, out)
    return out


def foreign_files():
    """The descriptors of these protos; made at most once by a process, and kept in TUTTI_BUILD for tests/gpu."""
    rpc = os.path.join(SOURCE, "lib", "rpc", "proto")
    names = ["google/rpc/status.proto", "google/rpc/error_details.proto"]
    names += ["grpc/health/v1/health.proto", "grpc/reflection/v1/reflection.proto"]
    path = os.path.join(BUILD, "tests", "system", "stubs", "foreign.pb")
    if os.environ.get("TUTTI_STUBS") != "made":
        roots = [rpc, "/usr/share/grpc-proto", "/usr/include"]
        flags = [word for root in roots if os.path.isdir(root) for word in ("-I", root)]
        made = "%s.%d.%d" % (path, os.getpid(), threading.get_ident())  # other tests read it at the same time
        subprocess.run(
            ["protoc"] + flags + ["--include_imports", "--descriptor_set_out=" + made] + names,
            check=True,
            close_fds=False,
        )
        os.replace(made, path)
    with open(path, "rb") as file:
        return descriptor_pb2.FileDescriptorSet.FromString(file.read())


def foreign_messages():
    """Classes of google.rpc, grpc.health.v1 and grpc.reflection.v1 messages by full name.

    Generated modules of these would hide the packages `google` and `grpc` of this interpreter.
    """
    files = foreign_files()
    pool = descriptor_pool.DescriptorPool()
    if hasattr(message_factory, "GetMessageClass"):
        class_of = message_factory.GetMessageClass
    else:  # Debian 12's protobuf
        class_of = message_factory.MessageFactory(pool).GetPrototype
    found = {}
    for one in files.file:
        pool.Add(one)
    for one in files.file:
        for message in one.message_type:
            full = one.package + "." + message.name
            found[full] = class_of(pool.FindMessageTypeByName(full))
    return found


_foreign = {}


def foreign(name):
    if not _foreign:
        _foreign.update(foreign_messages())
    return _foreign[name]


def call_foreign(channel, method, request, response, timeout=CALL_S, **fields):
    """One unary call of a service without generated stubs."""
    stub = channel.unary_unary(
        method,
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=foreign(response).FromString,
    )
    return stub(foreign(request)(**fields), timeout=timeout)


# ---------------------------------------------------------------------------- errors


class Failure:
    """How a call failed: code, text, and what the ErrorInfo in its details says."""

    def __init__(self, error):
        self.code = error.code()
        self.text = error.details()
        self.reason = ""
        self.metadata = {}
        for key, value in error.trailing_metadata() or ():
            if key == "grpc-status-details-bin":
                self._read(value)

    def _read(self, value):
        status = foreign("google.rpc.Status").FromString(value)
        for detail in status.details:
            if detail.type_url.endswith("/google.rpc.ErrorInfo"):
                info = foreign("google.rpc.ErrorInfo").FromString(detail.value)
                self.reason = info.reason
                self.metadata = dict(info.metadata)

    def __repr__(self):
        return "%s %s: %s %s" % (self.code, self.reason, self.text, self.metadata)


# ---------------------------------------------------------------------------- programs


class Program:
    """A real program, started with a port file and ended by its process id."""

    all = weakref.WeakSet()  # whose logs a failed test shows
    left = []  # those that a failure has left, kept until their logs are shown

    def __init__(self, name, *options, environment=None, listen=None, host=None):
        """
        listen  None = at a port that no other program takes, so that it can be started again there
        host    of tests/support/namespaces.py, to run in; None = here
        """
        listen = "127.0.0.1:%d" % free_port() if listen is None else listen
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-test-")
        self.port_file = os.path.join(self.folder.name, "port")
        self.log_path = os.path.join(self.folder.name, "log")
        self.exit_code = None
        self.name = name
        words = [os.path.join(PROGRAMS, name), "--listen", listen, "--port-file", self.port_file]
        words += options
        if host is not None:
            words = host.words(*words)
        with open(self.log_path, "wb") as log:
            # Without close_fds Python uses posix_spawn: nothing of gRPC runs in a forked child.
            self.process = subprocess.Popen(
                words,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                close_fds=False,
                env=dict(os.environ, **(environment or {})),
            )
        Program.all.add(self)
        self.addresses = self._wait_for_port()
        self.address = self.addresses[0]

    def _wait_for_port(self):
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if os.path.exists(self.port_file):
                with open(self.port_file) as file:
                    lines = file.read().split()
                if lines:
                    return lines
            if self.process.poll() is not None:
                break
            time.sleep(0.01)  # a file that appears makes no event here
        log = self.log()
        self.kill()
        raise AssertionError("the program did not start: " + log)

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def state(self):
        code = self.process.poll()
        return "%s, process %d, %s" % (self.name, self.process.pid, "running" if code is None else "exit code %d" % code)

    def wait_for_log(self, words):
        until = time.monotonic() + START_S
        while words not in self.log():
            assert time.monotonic() < until, "%r is not in the log: %s" % (words, self.log())
            time.sleep(0.01)

    def channel(self, *options):
        """A connection of its own."""
        return grpc.insecure_channel(
            self.address,
            options=[("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
            + list(options),
        )

    def send(self, number):
        self.process.send_signal(number)
        if number == signal.SIGSTOP:
            self.wait_until_it_stands()

    def wait_until_it_stands(self):
        """The kernel stops threads one by one, on a busy machine some time after the signal."""
        folder = "/proc/%d/task" % self.process.pid
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            try:
                states = [self.state_of("%s/%s/stat" % (folder, task)) for task in os.listdir(folder)]
            except OSError:  # a thread has ended, or the process
                states = [] if self.process.poll() is not None else ["?"]
            if all(state in "TtZ" for state in states):
                return
            time.sleep(0.001)

    @staticmethod
    def state_of(path):
        """The letter behind a thread's name, which may hold anything."""
        with open(path) as file:
            return file.read().rpartition(")")[2].split()[0]

    def wait(self, timeout=STOP_S):
        self.exit_code = self.process.wait(timeout)
        return self.exit_code

    def stop(self, number=signal.SIGTERM, timeout=STOP_S):
        """End it; its exit code. A program that does not end is killed, and that is an error."""
        if self.process.poll() is None:
            self.send(number)
        try:
            return self.wait(timeout)
        except subprocess.TimeoutExpired:
            log = self.log()
            self.kill()
            raise AssertionError("the program did not end: " + log)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.exit_code = self.process.wait(STOP_S)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            code = self.stop()
            assert code == 0, "exit code %d: %s" % (code, self.log())
            self.folder.cleanup()
        else:
            self.kill()
            Program.left.append(self)


def run(name, *options, timeout=START_S, environment=None):
    """Run a program to its end; exit code, standard output, standard error."""
    done = subprocess.run(
        [os.path.join(PROGRAMS, name)] + list(options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        close_fds=False,
        env=dict(os.environ, **(environment or {})),
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


# ---------------------------------------------------------------------------- TAP


LOG_FOLDERS = []  # of programs that others start; the files *.log there are shown too
_told = {}  # path of a log -> its bytes that an earlier failure has shown


def _news(path, since):
    """What a log has got that no failure has shown, at most LOG_LINES lines; nothing where nothing came behind `since`."""
    try:
        if os.stat(path).st_mtime < since:
            return []
        with open(path, "rb") as file:
            file.seek(_told.get(path, 0))
            lines = file.read().decode(errors="replace").splitlines()
            _told[path] = file.tell()
    except OSError:  # its folder is gone
        return []
    left = len(lines) - LOG_LINES
    return (["(%d lines before)" % left] if left > 0 else []) + lines[-LOG_LINES:]


def tell_logs(stream, since=0):
    """What programs that run, or ran behind `since`, have said since the last failure: the output of a run must be
    enough to find the cause of a failure that does not come again."""
    logs = [(one.log_path, one.state(), 0 if one.process.poll() is None else since) for one in
            sorted(Program.all, key=lambda one: one.process.pid)]
    for folder in LOG_FOLDERS:
        logs += [(path, path, since) for path in sorted(glob.glob(folder + "/**/*.log", recursive=True))]
    for path, name, after in logs:
        lines = _news(path, after)
        for line in ["log of %s:" % name] * bool(lines) + lines:
            stream.write("# %s\n" % line)
    Program.left.clear()
    stream.flush()


class _TapResult(unittest.TestResult):
    def __init__(self, stream):
        super().__init__()
        self.stream = stream
        self.count = 0
        self.began = 0  # the last test, by the clock of files

    def startTest(self, test):
        super().startTest(test)
        self.began = time.time()

    def _line(self, word, test, comment=""):
        self.count += 1
        name = test.id().split("__main__.")[-1]
        self.stream.write("%s %d - %s%s\n" % (word, self.count, name, comment))
        self.stream.flush()

    def _diagnose(self, text):
        for line in text.rstrip().split("\n"):
            self.stream.write("# %s\n" % line)
        tell_logs(self.stream, self.began - 0.01)

    def addSuccess(self, test):
        self._line("ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._line("ok", test, " # SKIP " + reason)

    def addError(self, test, err):
        super().addError(test, err)
        self._line("not ok", test)
        self._diagnose(self.errors[-1][1])

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._line("not ok", test)
        self._diagnose(self.failures[-1][1])

    def addSubTest(self, test, subtest, err):
        """A part that fails is told here alone: its test is then neither a success nor a failure."""
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._line("not ok", test)
            self._diagnose("%s\n%s" % (subtest, (self.failures + self.errors)[-1][1]))


def end_in_time(stream):
    """Before CTest kills this process, it tells where its threads are and what its programs said, and ends them."""
    stream.write("not ok 0 - out of time\n")
    stream.flush()
    faulthandler.dump_traceback(stream)
    tell_logs(stream)
    for program in list(Program.all):
        program.process.kill()
    os._exit(1)


def watch_time(stream):
    """TUTTI_TEST_TIMEOUT has the seconds that CTest gives this process."""
    seconds = float(os.environ.get("TUTTI_TEST_TIMEOUT", 0))
    if seconds > 0:
        timer = threading.Timer(seconds * 0.95, end_in_time, [stream])
        timer.daemon = True
        timer.start()


def main():
    """Run the tests of the calling script, or those named on the command line; one line each."""
    loader = unittest.TestLoader()
    module = sys.modules["__main__"]
    if len(sys.argv) > 1:
        suite = loader.loadTestsFromNames(sys.argv[1:], module)
    else:
        suite = loader.loadTestsFromModule(module)
    result = _TapResult(sys.stdout)
    watch_time(sys.stdout)
    suite.run(result)
    sys.stdout.write("1..%d\n" % result.count)
    sys.exit(0 if result.wasSuccessful() and result.count > 0 else 1)
