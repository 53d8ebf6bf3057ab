"""Cases of kind `session`: one program drives all ranks, through the Python package.

A case runs once with each worker as the leader. Steps run one after the other. What a step commands
is waited for only where the step says `error`; else errors come where the package tells them: in a later
step that reads, or at the end.
"""

import package
import values
import wire
from collective_case import check_error
from steps_session import HANDLERS, Driver
from wire import Failed, Missing, Wrong


def check_step(index, step, got):
    where = "step %d (%s)" % (index + 1, step["do"])
    try:
        if step.get("error"):
            check_error(step.get("rank", 0), got, step["error"])
        elif isinstance(got, Failed):
            raise Wrong("expected success, got %s" % got)
        elif "expect" in step and not values.equal(got, values.read(step["expect"])):
            raise Wrong("expected %s, got %s" % (values.read(step["expect"]), got))
    except Wrong as wrong:
        raise Wrong("%s: %s" % (where, wrong)) from None


def run_steps(case, driver):
    for index, step in enumerate(case["steps"]):
        handler = HANDLERS.get(step["do"])
        if handler is None:
            raise Missing("this runner does not know the step %s" % step["do"])
        try:
            got = handler(driver, step)
            if step.get("error"):
                driver.session.sync()
        except driver.tutti.TuttiError as error:
            got = package.failed(error)
        check_step(index, step, got)
    driver.finish()


def run(case, world):
    """Raises Wrong or Missing; the text begins with the leader."""
    ways = []
    for leader in range(case["params"].get("num_workers", case["world"])):
        ways.append("leader %d" % leader)
        try:
            run_led(case, world, leader)
        except Wrong as wrong:
            raise Wrong("%s: %s" % (ways[-1], wrong)) from None
        except (package.load().TuttiError, wire.Refused) as error:
            raise Wrong("%s: %s" % (ways[-1], error)) from None
        world.check_empty()
    return ways


def run_led(case, world, leader):
    params = case["params"]
    group = world.group(list(range(params.get("num_workers", case["world"]))))
    session = package.open_session(
        world.seats[leader].agent.program.address,
        group=group or "world",
        num_groups=params.get("num_groups", 1),
    )
    driver = Driver(package.load(), session)
    try:
        run_steps(case, driver)
    finally:
        driver.close()
