"""Steps about tensors that stay in the agent, and ops on ranges of them."""

import values
from steps import step


def text(rank, said):
    """HANDLE@OFFSET:DTYPE[DIM,DIM] of a range: {of, offset, dtype, shape}."""
    dtype = values.DTYPES[said["dtype"]][0][len("DTYPE_"):]
    dims = ",".join(str(one) for one in said["shape"])
    return "%s@%d:%s[%s]" % (rank.handles[said["of"]], said["offset"], dtype, dims)


@step("put_tensor")
def _put_tensor(rank, said, _index):
    rank.handles[said["as"]] = rank.seat.put(values.read(said["tensor"]))


@step("get_tensor")
def _get_tensor(rank, said, _index):
    return rank.seat.get(rank.handles[said["name"]])
