"""The Python package `tutti`, as sessions use it."""

import wire
from wire import Failed, Refused


def load():
    return wire.tutti


def failed(error):
    """A TuttiError as the runner has it."""
    return Failed.of_client(error)


def open_session(address, **how):
    """A session; Refused with what the agents say."""
    try:
        return wire.tutti.session(address, **how)
    except wire.tutti.TuttiError as error:
        raise Refused(failed(error)) from None
