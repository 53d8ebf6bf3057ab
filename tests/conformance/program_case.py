"""Cases made of steps: those of one rank in order, those of different ranks side by side.

So that a case means one thing, steps begin in the order of the file: a step waits until all before
it have ended, or until nothing has moved for a moment, which is when they wait for each other.
Steps that are one collective begin at once. A step of several `ranks` ends when all of them are
through. isend and irecv wait for no step of their own rank, and end when they have begun; what they
gave is looked at when the rank has begun all of them.
"""

import threading
import time

import collective_case
import ops
import steps
import values
import wire
from wire import CALL_S, Failed, Missing, Refused, Wrong

SETTLE_S = 0.03  # nothing moved so long: the steps that run wait for others
LIMIT_S = 3 * CALL_S
LIMIT_TEXT = "no answer within the runner's limit"


class Task:
    """A step on one of its ranks."""

    def __init__(self, index, step, rank, batch):
        self.index = index
        self.step = step
        self.rank = rank
        self.batch = batch
        self.state = "waiting"


def ranks_of(step):
    return step["ranks"] if "ranks" in step else [step["rank"]]


def is_joint(step):
    verb = step["do"].replace("_async", "")
    return verb in ops.METHODS or verb in ("send", "recv", "batch")


def make_tasks(case_steps):
    """Tasks with the numbers of their batches: what may begin at the same time."""
    tasks, batch, taken, joint = [], 0, set(), False
    for index, step in enumerate(case_steps):
        ranks = ranks_of(step)
        if not (joint and is_joint(step)) or taken & set(ranks):
            batch, taken = batch + 1, set()
        joint = is_joint(step)
        taken |= set(ranks)
        tasks += [Task(index, step, rank, batch) for rank in ranks]
    return tasks


class Schedule:
    def __init__(self, tasks):
        self.tasks = tasks
        self.moved = threading.Condition()
        self.last_move = time.monotonic()
        self.stopped = False

    def _move(self):
        self.last_move = time.monotonic()
        self.moved.notify_all()

    def set(self, task, state):
        with self.moved:
            task.state = state
            self._move()

    def stop(self):
        with self.moved:
            self.stopped = True
            self._move()

    def _is_first(self, task):
        """Nothing that could begin now comes before this one."""
        return all(one.batch >= task.batch for one in self.tasks if one.state == "ready")

    def begin(self, task):
        """Wait for the task's turn; False when the program is over."""
        with self.moved:
            task.state = "ready"
            self._move()
            while not self.stopped:
                if all(one.state == "done" for one in self.tasks if one.batch < task.batch):
                    break
                quiet = time.monotonic() - self.last_move
                same = any(one.batch == task.batch and one.state == "running" for one in self.tasks)
                if same or (quiet >= SETTLE_S and self._is_first(task)):
                    break
                self.moved.wait(max(SETTLE_S - quiet, 0.001))
            task.state = "running"
            self._move()
            return not self.stopped

    def end(self, task):
        """Done; a joint step is left together."""
        with self.moved:
            task.state = "done"
            self._move()
            while not self.stopped and any(
                one.index == task.index and one.state != "done" for one in self.tasks
            ):
                self.moved.wait(1)


def check_missing_ranks(rank, got, step):
    """The ranks that an error must name: in its metadata, or in its text."""
    wanted = step.get("missing")
    if "missing_first" in step:
        wanted = [step["missing_first"]]
    if wanted is None:
        return
    named = steps.ranks_named(got)
    if not set(wanted) <= set(named):
        raise Wrong("rank %d: expected an error that names the ranks %s, got %s"
                    % (rank, wanted, got))


def check_words(rank, got, step):
    """Words that the text of an error must have."""
    for words in step.get("says", ()):
        if words not in got.text:
            raise Wrong("rank %d: expected an error that says %r, got %s" % (rank, words, got))


def check_step(task, got):
    step = task.step
    where = "step %d (%s)" % (task.index + 1, step["do"])
    try:
        if step.get("error"):
            collective_case.check_error(task.rank, got, step["error"])
            check_missing_ranks(task.rank, got, step)
            check_words(task.rank, got, step)
        elif isinstance(got, Failed):
            raise Wrong("rank %d: expected success, got %s" % (task.rank, got))
        elif "expect_hex" in step and got != step["expect_hex"]:
            raise Wrong("rank %d: expected %s, got %s" % (task.rank, step["expect_hex"], got))
        elif "expect" in step and not values.equal(got, values.read(step["expect"])):
            raise Wrong("rank %d: expected %s, got %s"
                        % (task.rank, values.read(step["expect"]), got))
    except Wrong as wrong:
        raise Wrong("%s: %s" % (where, wrong)) from None


def result_of(call):
    """What a step's call gives, or how it failed."""
    try:
        return call()
    except Refused as refused:
        return refused.failed
    except wire.tutti.TuttiError as error:
        return Failed.of_client(error)


class Program:
    def __init__(self, case, world, way):
        self.case = case
        self.world = world
        self.way = way
        self.name = world.unique()  # a part of all names that the case makes
        self.members = case.get("group") or list(range(case["world"]))
        self.group = world.group(self.members)
        self.ranks = {}
        self.events = {}
        self.lock = threading.Lock()
        self.shared = {}  # what ranks tell each other: (step, word) -> value
        self.cleanups = []
        self.errors = []
        tasks = make_tasks(case["steps"])
        self.schedule = Schedule(tasks)

    def event(self, name):
        with self.lock:
            return self.events.setdefault(name, threading.Event())

    def _lines(self):
        """Tasks by rank, and those that do not wait for the rank's other steps apart."""
        lines = {}
        for task in self.schedule.tasks:
            lines.setdefault((task.rank, task.step["do"] in ("isend", "irecv")), []).append(task)
        return lines

    def _run_task(self, rank, task):
        handler = steps.HANDLERS.get(task.step["do"])
        if handler is None:
            raise Missing("this runner does not know the step %s" % task.step["do"])
        got = result_of(lambda: handler(rank, task.step, task.index))
        if isinstance(got, steps.Begun):
            return [(task, got)]
        check_step(task, got)
        return []

    def _run_line(self, rank, tasks):
        begun = []
        try:
            for task in tasks:
                if not self.schedule.begin(task):
                    return
                begun += self._run_task(rank, task)
                self.schedule.end(task)
            for task, work in begun:
                check_step(task, result_of(work.wait))
        except Exception as error:
            self.errors.append(error)
            self.schedule.stop()
            for event in self.events.values():
                event.set()
            wire.cancel_all()

    def run(self):
        self.ranks = {rank: steps.Rank(self, rank) for rank in range(self.case["world"])}
        threads = [
            threading.Thread(target=self._run_line, args=(self.ranks[key[0]], tasks))
            for key, tasks in self._lines().items()
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)
        if any(thread.is_alive() for thread in threads):
            self.errors.append(Wrong(LIMIT_TEXT))
        for error in sorted(self.errors, key=lambda one: not isinstance(one, Missing)):
            raise error

    def clean_up(self):
        for cleanup in reversed(self.cleanups):
            cleanup()

    def check_usable(self):
        """After errors of ops, a barrier of one rank among them: the group still works."""
        if any(
            step.get("error") and (is_joint(step) or step["do"].endswith("barrier"))
            for step in self.case["steps"]
        ):
            collective_case.still_usable(self.world, [self.members])


def needs_agent(step):
    """It is about a tensor that the agent keeps: nobody keeps inline tensors."""
    return step["do"] in ("backward", "put_tensor")


def ways_of(case):
    moves = any(is_joint(step) or "tensor" in step for step in case["steps"])
    if any(needs_agent(step) for step in case["steps"]):
        return (ops.HANDLE, ops.ASYNC)
    return (ops.INLINE, ops.HANDLE, ops.ASYNC) if moves else (ops.HANDLE,)


def run_way(case, world, way):
    world.use(way)
    program = Program(case, world, way)
    try:
        program.run()
        program.check_usable()
    except Missing:
        # Some ranks may have called already, and lost the answer.
        collective_case.catch_up(world, program.members)
        world.sweep()
        raise
    finally:
        program.clean_up()


def run(case, world):
    """Raises Wrong or Missing; the text begins with the way."""
    for way in ways_of(case):
        try:
            run_way(case, world, way)
        except Wrong as wrong:
            raise Wrong("%s: %s" % (way.name, wrong)) from None
        finally:
            world.clear()
        world.check_empty()
    return [way.name for way in ways_of(case)]
