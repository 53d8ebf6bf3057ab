"""Goal: torch goes back through collectives: the gradients are those of the sum of all ranks' losses.

Method: the same functions in one process, where the "ranks" are a list, give what must come.
"""

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["TUTTI_SOURCE"], "tests", "support"))
import case  # noqa: E402
import tap  # noqa: E402
import tutti  # noqa: E402

try:
    import torch

    import tutti.torch
    from tutti import _torch_files
except ImportError:
    torch = None


def inputs(size):
    """Of each rank: no two elements are alike."""
    return [torch.arange(8.0).reshape(4, 2) + 10 * rank + 1 for rank in range(size)]


@unittest.skipUnless(torch, "torch is not installed")
class Autograd(case.AgentCase):
    def check(self, ours, model):
        """ours(agent, x) against model(xs), which gives the results of all ranks."""
        xs = [x.requires_grad_() for x in inputs(self.size)]
        losses = [(y * y).sum() * (rank + 1) for rank, y in enumerate(model(xs))]
        sum(losses).backward()
        wanted = [x.grad for x in xs]
        mine = [x.clone().detach().requires_grad_() for x in xs]

        def work(agent):
            y = ours(agent, mine[agent.rank])
            ((y * y).sum() * (agent.rank + 1)).backward()
            return mine[agent.rank].grad

        for found, want in zip(self.all(work), wanted):
            self.assertTrue(torch.allclose(found, want), "%s is not %s" % (found, want))

    def test_all_reduce(self):
        size = self.size
        for op, whole in (
            ("sum", lambda xs: sum(xs)),
            ("avg", lambda xs: sum(xs) / size),
            ("max", lambda xs: torch.stack(xs).max(0)[0]),
            ("MIN", lambda xs: torch.stack(xs).min(0)[0]),
        ):
            with self.subTest(op):
                self.check(
                    lambda agent, x: tutti.torch.all_reduce(agent, x, op),
                    lambda xs: [whole(xs)] * size,
                )

    def test_premul_sum(self):
        self.check(
            lambda agent, x: tutti.torch.all_reduce(agent, x, "premul_sum", factor=agent.rank + 1.5),
            lambda xs: [sum(x * (rank + 1.5) for rank, x in enumerate(xs))] * self.size,
        )

    def test_broadcast(self):
        self.check(
            lambda agent, x: tutti.torch.broadcast(agent, x, 1),
            lambda xs: [xs[1] + 0 * x for x in xs],
        )

    def test_all_gather_and_reduce_scatter(self):
        size = self.size
        self.check(
            lambda agent, x: tutti.torch.all_gather(agent, x, 1),
            lambda xs: [torch.cat(xs, 1)] * size,
        )
        for op, scale in (("sum", 1), ("avg", 1 / size)):
            self.check(
                lambda agent, x: tutti.torch.reduce_scatter(agent, x, op),
                lambda xs: list(torch.chunk(sum(xs) * scale, size)),
            )

    def test_all_to_all_and_permute(self):
        size = self.size
        self.check(
            lambda agent, x: tutti.torch.all_to_all(agent, x, concat_axis=1),
            lambda xs: [
                torch.cat([torch.chunk(x, size)[rank] for x in xs], 1) for rank in range(size)
            ],
        )
        turn = [(rank + 1) % size for rank in range(size)]
        self.check(
            lambda agent, x: tutti.torch.permute(agent, x, turn),
            lambda xs: [xs[(rank - 1) % size] for rank in range(size)],
        )

    def test_uneven_splits(self):
        given = [1, 0, 2, 1]
        self.check(
            lambda agent, x: tutti.torch.all_to_all(
                agent, x, input_splits=given, output_splits=[given[agent.rank]] * 4
            ),
            lambda xs: [
                torch.cat([torch.split(x, given)[rank] for x in xs]) for rank in range(self.size)
            ],
        )

    def test_an_op_without_a_gradient_is_refused_at_once(self):
        x = torch.ones(2, requires_grad=True)
        for call in (tutti.torch.all_reduce, tutti.torch.reduce_scatter):
            with self.assertRaises(tutti.TuttiError) as caught:
                call(self.agents[0], x, "prod")
            self.assertEqual(caught.exception.reason, "BAD_REDUCE_OP")
        found = self.all(lambda agent: tutti.torch.all_reduce(agent, torch.full((1,), 2.0), "prod"))
        self.assertEqual(float(found[0]), 2.0**self.size)


class Evil:
    """Its pickle would make a folder when it is read."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@unittest.skipUnless(torch, "torch is not installed")
class Files(case.AgentCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model.pt")
        self.folder = folder.name

    def run_it(self, *words):
        """What `python -m tutti.torch` calls, at the first rank's agent: (exit code, output, errors)."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _torch_files.main(["--agent", case.ADDRESSES[0], *words])
        return code, out.getvalue(), err.getvalue()

    def test_the_command(self):
        done = subprocess.run([sys.executable, "-m", "tutti.torch", "put", self.path], capture_output=True, text=True,
                              env=dict(os.environ, TUTTI_AGENT=case.ADDRESSES[0]))
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("No such file", done.stderr)

    def test_put_get(self):
        net = torch.nn.Linear(3, 2)
        state = dict(net.state_dict(), half=torch.ones(2, dtype=torch.bfloat16), turned=torch.arange(6).reshape(2, 3).t())
        torch.save(state, self.path)
        code, out, err = self.run_it("put", self.path, "--name", "net")
        self.assertEqual((code, err), (0, ""))
        self.assertEqual(len(out.splitlines()), 4)
        os.unlink(self.path)
        names = ["net/" + name for name in state]
        self.assertEqual(self.run_it("get", self.path, *names)[0], 0)
        for name, value in torch.load(self.path).items():
            self.assertTrue(torch.equal(value, state[name[4:]]), name)
        for name in names:
            self.agents[0].tensor(name).delete()

    def test_a_pickle_runs_nothing(self):
        torch.save({"w": torch.ones(2), "x": Evil(os.path.join(self.folder, "made"))}, self.path)
        code, _, err = self.run_it("put", self.path)
        self.assertEqual(code, 1)
        self.assertIn("weights_only", err)
        self.assertFalse(os.path.exists(os.path.join(self.folder, "made")))

    def test_refused(self):
        for found, why in (([torch.ones(1)], "it holds a list"), ({"a": 1}, "'a' is a int"), ({"no name": torch.ones(1)}, "BAD_NAME")):
            torch.save(dict(found, first=torch.ones(1)) if why == "BAD_NAME" else found, self.path)
            code, _, err = self.run_it("put", self.path)
            self.assertEqual(code, 1)
            self.assertIn(why, err)  # and tearDown finds no tensor
        with open(self.path, "wb") as file:
            file.write(b"no file of torch's")
        self.assertEqual(self.run_it("put", self.path)[0], 1)
        self.assertIn("No such file", self.run_it("put", self.path + "x")[2])
        self.assertIn("NO_TENSOR", self.run_it("get", self.path, "nobody")[2])


if __name__ == "__main__":
    tap.main()
