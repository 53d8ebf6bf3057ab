"""What steps of a session do: HANDLERS has a function (driver, step) for each word after `do`."""

import numpy as np

import values
from values import DTYPES, Tensor
from wire import Missing

HANDLERS = {}
PROTO_NAMES = {proto[len("DTYPE_") :]: name for name, (proto, _) in DTYPES.items()}
# The controller of TVM Disco has these functions in registers from their first use on.
CACHED = {"empty": "runtime.disco.empty"}


def step(*names):
    def register(function):
        for name in names:
            HANDLERS[name] = function
        return function

    return register


class Driver:
    """A session, and the names that a case has given to its registers."""

    def __init__(self, tutti, session):
        self.tutti = tutti
        self.session = session
        self.refs = {}
        self.cached = {}
        self.over = False

    def finish(self):
        """What failed and no step was told of, is an error here."""
        if not self.over:
            self.session.sync()

    def close(self):
        self.refs.clear()
        self.cached.clear()
        self.session.shutdown()

    def cache(self, verb):
        name = CACHED.get(verb)
        if name and name not in self.cached:
            self.cached[name] = self.session.get_global_func(name)

    def ref(self, name):
        if name not in self.refs:
            raise Missing("no register is called %s" % name)
        return self.refs[name]

    def maybe(self, name):
        return None if name is None else self.ref(name)

    def bind(self, said, ref):
        if "as" in said:
            self.refs[said["as"]] = ref
        return {"reg_id": ref.reg_id}

    # ------------------------------------------------------------------ between cases and Python

    def array(self, said):
        """An array of the package's; of BF16 and FP8 the bits."""
        tensor = values.read(said)
        kind = np.dtype(DTYPES[tensor.dtype][1])
        return np.frombuffer(tensor.data, kind).reshape(tensor.shape)

    def given(self, said):
        """A value of a case: an argument, or what a register is set to."""
        if values.is_tensor(said):
            return self.array(said)
        if isinstance(said, str):
            return self.refs.get(said, said)
        if not isinstance(said, dict):
            return said
        (kind, inner), = said.items()
        makers = {
            "ref": self.ref,
            "shape": self.tutti.Shape,
            "dtype": lambda name: self.tutti.Dtype(DTYPES[name][0][len("DTYPE_") :]),
            "device": self.tutti.Device,
            "text": str,
            "hex": bytes.fromhex,
            "function": self.tutti.Function,
        }
        if kind not in makers:
            raise Missing("this runner does not know the value %s" % kind)
        return makers[kind](inner)

    def came(self, value):
        """What a register holds, in the cases' words."""
        if isinstance(value, np.ndarray):
            name = PROTO_NAMES[self.tutti.Dtype(value.dtype)]
            return Tensor(name, value.shape, value.astype(DTYPES[name][1]).tobytes())
        for kind, word, change in (
            (self.tutti.Shape, "shape", list),
            (self.tutti.Dtype, "dtype", lambda one: PROTO_NAMES[one]),
            (self.tutti.Device, "device", str),
            (self.tutti.Function, "function", str),
            (bytes, "hex", bytes.hex),
        ):
            if isinstance(value, kind):
                return {word: change(value)}
        return value


# ---------------------------------------------------------------------------- functions


@step("get_global_func")
def _get_global_func(driver, said):
    return driver.bind(said, driver.session.get_global_func(said["name"]))


@step("call", "call_packed")
def _call(driver, said):
    function = driver.refs.get(said["func"], said["func"])
    args = [driver.given(one) for one in said.get("args", [])]
    workers = said.get("workers", [])
    return driver.bind(said, driver.session.call_packed(function, *args, workers=workers))


@step("import_python_module")
def _import(driver, said):
    return driver.session.import_python_module(said["name"])


@step("load_vm_module", "load_module")
def _load(driver, said):
    return driver.bind(said, driver.session.load_vm_module(said["path"], said.get("device")))


# ---------------------------------------------------------------------------- registers


@step("empty")
def _empty(driver, said):
    driver.cache("empty")
    kind = DTYPES[said["dtype"]][0][len("DTYPE_") :]
    how = {key: said[key] for key in ("device", "worker0_only", "in_group") if key in said}
    return driver.bind(said, driver.session.empty(said["shape"], kind, **how))


@step("drop")
def _drop(driver, said):
    driver.refs.pop(said["ref"]).drop()


def workers_of(said):
    worker = said.get("worker", 0)
    return worker if isinstance(worker, list) else [worker]


def only(found):
    """What all workers have; a list where they differ."""
    first = found[0]
    return first if all(values.equal(one, first) for one in found[1:]) else found


@step("debug_get")
def _debug_get(driver, said):
    ref = driver.ref(said["ref"])
    return only([driver.came(ref.debug_get_from_remote(one)) for one in workers_of(said)])


@step("debug_get_each")
def _debug_get_each(driver, said):
    found = driver.ref(said["ref"]).debug_get_from_all()
    return {str(worker): driver.came(one) for worker, one in enumerate(found)}


def value_of(driver, said):
    return driver.given(said["tensor"] if "tensor" in said else said["value"])


@step("debug_set")
def _debug_set(driver, said):
    for worker in workers_of(said):
        driver.ref(said["ref"]).debug_copy_from(worker, value_of(driver, said))


@step("debug_set_each")
def _debug_set_each(driver, said):
    ref = driver.refs.get(said.get("ref")) or driver.session.value(None)
    for worker, one in said["values"].items():
        ref.debug_copy_from(int(worker), driver.given(one))
    return driver.bind(said, ref)


# ---------------------------------------------------------------------------- tensors


@step("copy_to_worker_0", "copy_to_worker0")
def _copy_to(driver, said):
    array = driver.array(said["tensor"])
    return driver.bind(said, driver.session.copy_to_worker_0(array, driver.maybe(said.get("ref"))))


@step("copy_from_worker_0", "copy_from_worker0")
def _copy_from(driver, said):
    ref = driver.ref(said["ref"])
    want = values.read(said["expect"])
    array = np.empty(want.shape, DTYPES[want.dtype][1])
    driver.session.copy_from_worker_0(array, ref)
    return driver.came(array)


@step("broadcast", "scatter")
def _from_here(driver, said):
    call = getattr(driver.session, said["do"])
    array = driver.array(said["tensor"])
    dst = driver.maybe(said.get("dst"))
    return driver.bind(said, call(array, dst, in_group=said.get("in_group", True)))


@step("broadcast_from_worker0", "scatter_from_worker0", "gather_to_worker0", "allgather")
def _move(driver, said):
    call = getattr(driver.session, said["do"])
    dst = driver.maybe(said.get("dst"))
    ref = call(driver.ref(said["src"]), dst, in_group=said.get("in_group", True))
    return driver.bind(said, ref)


@step("allreduce")
def _allreduce(driver, said):
    src = driver.ref(said["src"]) if "src" in said else driver.session.empty((1,), "FP32")
    dst = driver.maybe(said.get("dst"))
    how = {"op": said.get("op", "sum"), "in_group": said.get("in_group", True)}
    return driver.bind(said, driver.session.allreduce(src, dst, **how))


@step("send_to_next_group")
def _send_to_next_group(driver, said):
    driver.session.send_to_next_group(driver.ref(said["src"]))


@step("recv_from_prev_group")
def _recv_from_prev_group(driver, said):
    return driver.bind(said, driver.session.recv_from_prev_group(driver.maybe(said.get("dst"))))


@step("transfer")
def _transfer(driver, said):
    dst = driver.maybe(said.get("dst"))
    ref = driver.session.transfer(driver.ref(said["src"]), said["from"], said["to"], dst)
    return driver.bind(said, ref)


# ---------------------------------------------------------------------------- the session


@step("sync_worker_0")
def _sync_worker_0(driver, _said):
    driver.session.sync_worker_0()


@step("sync_worker", "sync")
def _sync(driver, said):
    driver.session.sync(*([] if "worker" not in said else workers_of(said)))


@step("num_workers")
def _num_workers(driver, _said):
    return driver.session.num_workers


@step("shutdown")
def _shutdown(driver, _said):
    driver.over = True
    driver.refs.clear()
    driver.session.shutdown()
